"""What a missing package is answered with."""

import pytest

from fedkl.core.errors import missing_dependency


@pytest.mark.parametrize("module", ["rich", "rich.console", "tomli_w", "jax._src.core"])
def test_a_dependency_that_is_not_installed_is_named_with_what_to_do(module):
    package = module.partition(".")[0]
    told = missing_dependency(ModuleNotFoundError(f"No module named '{module}'", name=module))
    assert told.startswith(f"{package} is not installed, and commands need all that fedkl depends ")
    assert "without --no-deps" in told


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'ray'", name="ray"),
        ModuleNotFoundError("No module named 'theirs'", name="theirs"),
        ModuleNotFoundError("of nobody's"),
        ImportError("cannot import name", name="rich"),
    ],
)
def test_another_module_that_is_missing_is_no_dependency(error):
    assert missing_dependency(error) == ""
