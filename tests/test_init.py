"""`import fedkl` is quick, and everything is there when it is asked for."""

import subprocess
import sys

import pytest

import fedkl


@pytest.mark.parametrize("name", fedkl.__all__)
def test_every_public_name_is_there(name):
    assert getattr(fedkl, name) is not None


def test_the_public_names_have_homes():
    assert sorted(fedkl.__all__) == sorted(fedkl._HOMES)
    assert dir(fedkl) == sorted(fedkl.__all__)


def test_parts_of_the_package_need_no_import_of_their_own():
    program = "import fedkl; fedkl.tabular.families.chain(agents=2); fedkl.config.presets()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fedkl' has no attribute 'prest'"):
        fedkl.prest  # noqa: B018
