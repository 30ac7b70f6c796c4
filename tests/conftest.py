"""What all tests share: shapes that are checked, a compilation cache, and tiny configs."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from children import children
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

# Shapes in annotations are executed. This comes before anything of fedkl is imported.
WITH_SHAPES = (
    "algorithms",
    "clients",
    "engines",
    "heterogeneity",
    "learning",
    # Not network.ray: Ray pickles its functions, and a checked one cannot be pickled.
    "network.client",
    "network.disk",
    "network.exchange",
    "network.flower",
    "network.messages",
    "network.wire",
    "server",
    # Not simulators.policy: what users give it is checked there, in sentences.
    *(f"simulators.{name}" for name in ("actors", "base", "episodes", "figure_eight", "gymnasium")),
    *(f"simulators.{name}" for name in ("pettingzoo", "pool", "spaces", "worker")),
    "worlds",
)
install_import_hook([f"fedkl.{name}" for name in WITH_SHAPES], "shape_checks.check")

import fedkl  # noqa: E402
from fedkl.algorithms.base import ALGORITHMS  # noqa: E402
from fedkl.clients.learner import LEARNERS  # noqa: E402
from fedkl.clients.upload import UPLOADS  # noqa: E402
from fedkl.core import plugins  # noqa: E402
from fedkl.experiments import workers  # noqa: E402
from fedkl.io import compilation  # noqa: E402
from fedkl.learning.distributions import DISTANCES  # noqa: E402
from fedkl.learning.penalty import SCHEDULES  # noqa: E402
from fedkl.network.ray import connection as ray_connection  # noqa: E402
from fedkl.network.ray.connection import Cluster, RaySettings, connected  # noqa: E402
from fedkl.server.aggregation.base import REDUCERS, STEPS, TRANSFORMS  # noqa: E402
from fedkl.server.selection.base import SELECTORS  # noqa: E402
from fedkl.training.metrics import MetricsLog  # noqa: E402
from fedkl.worlds.base import WORLDS  # noqa: E402

# Ray reads these when it is imported, which Flower does as well.
os.environ.update(ray_connection.QUIET | ray_connection.LOCAL)

# Plugins change the process that loads them, and doctests would load each.
collect_ignore_glob = ["**/plugins/*.py"]

compilation.enable_cache()
# Subprocesses of the tests share the cache whatever home they are given.
os.environ.setdefault("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
# What tests agree to run is forgotten with them.
_STATE = tempfile.TemporaryDirectory(prefix="fedkl-tests-")
os.environ["XDG_STATE_HOME"] = _STATE.name
atexit.register(_STATE.cleanup)

# How long an example takes says more about the machine than about the code.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

# Whoever was started in the background, or by nohup, ignores Ctrl-C; tests raise it and rely on it.
signal.signal(signal.SIGINT, signal.default_int_handler)

REGISTRIES = (
    ALGORITHMS,
    DISTANCES,
    LEARNERS,
    REDUCERS,
    SCHEDULES,
    SELECTORS,
    STEPS,
    TRANSFORMS,
    UPLOADS,
    WORLDS,
)

TINY = {
    "federation.clients": 4,
    "federation.clients_per_round": 2,
    "federation.rounds": 3,
    "learner.iterations": 2,
    "learner.steps": 64,
    "learner.epochs": 2,
    "learner.minibatch": 16,
    "evaluation.episodes": 3,
}


@pytest.fixture
def child() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts Python in a process of its own, which does not outlive the test."""
    with children() as start:
        yield start


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """One Ray for all tests of a process, which takes seconds to start: as without an address."""
    with connected(RaySettings()) as one:
        yield one


@pytest.fixture(scope="module")
def quick_compilation() -> None:
    """Tests run compiled code for milliseconds and wait seconds for it: it need not be fast.

    A file in which any test asks for this is compiled so as a whole; see `pytest_runtest_setup`.
    """


_QUICK = pytest.StashKey[bool]()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that are compiled quickly last, next to each other: they share what they have
    traced and compiled."""
    quick = {
        item.path for item in items if "quick_compilation" in getattr(item, "fixturenames", ())
    }
    for item in items:
        item.stash[_QUICK] = item.path in quick
    items.sort(key=lambda item: item.stash[_QUICK])


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Compile as the test's file asks for, also in the processes that the test starts.

    Code that was compiled otherwise gives other bits, so nothing compiled goes from the ones to the
    others.
    """
    quick = item.stash[_QUICK]
    if quick == jax.config.values["jax_disable_most_optimizations"]:
        return
    jax.clear_caches()
    jax.config.update("jax_disable_most_optimizations", quick)
    if quick:
        os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
    else:
        del os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]


@pytest.fixture(scope="module", autouse=True)
def few_memory_maps() -> Iterator[None]:
    """Compiled code is mapped into memory, and Linux gives a process 65,530 maps: a worker that
    keeps the code of thousands of tests is ended by a segmentation fault."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > 20_000:
        jax.clear_caches()


@pytest.fixture(scope="module", autouse=True)
def plugins_of_its_own() -> Iterator[None]:
    """What the plugins of one file of tests have registered is unknown to the next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plugins, "_loaded", dict(plugins._loaded))
        before = {registry: set(registry) for registry in REGISTRIES}
        yield
        for registry, names in before.items():
            for name in set(registry) - names:
                # Parts of fedkl register when they are imported, which happens once.
                if not registry[name].__module__.startswith("fedkl."):
                    del registry._classes[name]


@pytest.fixture
def tiny() -> Callable[..., fedkl.Config]:
    """Makes configs of a run that takes no time."""

    def make(algorithm: str = "fedkl", seed: int = 0, **settings: Any) -> fedkl.Config:
        dotted = {key.replace("__", "."): value for key, value in settings.items()}
        return fedkl.preset("probe-point", algorithm, seed, TINY | dotted)

    return make


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> str:
    """Lets the processes of simulators import `toy_simulators`; returns its folder."""
    folder = str(Path(__file__).parent / "simulators" / "toys")
    monkeypatch.setenv("PYTHONPATH", folder, prepend=os.pathsep)
    return folder


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[list[str], int | None]]]:
    """Puts records in the place of training, so that scores can be worked out by hand.

    Returns:
        Takes what makes a record of a run's name and a round, and how many rounds there are; gives
        the list of what was to be trained, and until when.
    """

    def install(
        record: Callable[[str, int], dict[str, Any]], rounds: int
    ) -> list[tuple[list[str], int | None]]:
        calls: list[tuple[list[str], int | None]] = []

        def run_all(
            runs: list[Path], place: Any, show: Any, tick: Any, until: int | None = None
        ) -> None:
            calls.append(([run.name for run in runs], until))
            for run in runs:
                log = MetricsLog(run / "metrics.jsonl")
                for round in range(len(log.read()) + 1, (until or rounds) + 1):
                    log.append({"round": round, "env_steps": 100 * round} | record(run.name, round))
                tick()
                show(run.name)

        monkeypatch.setattr(workers, "run_all", run_all)
        return calls

    return install
