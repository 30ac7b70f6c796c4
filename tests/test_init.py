"""`import fedkl` is quick, and everything is there when it is asked for."""

import os
import subprocess
import sys

import pytest

import fedkl
from fedkl.core.processes import cores


@pytest.mark.parametrize("name", fedkl.__all__)
def test_every_public_name_is_there(name):
    assert getattr(fedkl, name) is not None


def test_the_public_names_have_homes():
    assert sorted(fedkl.__all__) == sorted(fedkl._HOMES)
    assert dir(fedkl) == sorted(fedkl.__all__)


def test_parts_of_the_package_need_no_import_of_their_own():
    program = "import fedkl; fedkl.tabular.families.chain(agents=2); fedkl.config"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'fedkl' has no attribute 'prest'"):
        fedkl.prest  # noqa: B018


def test_a_former_name_still_works():
    with pytest.warns(DeprecationWarning, match=r"fedkl\.Word is called fedkl\.Parameter now"):
        assert fedkl.Word is fedkl.Parameter


def run(program, *arguments, **variables):
    """What a program prints in a process of its own; a variable that is None is not there."""
    environment = {k: v for k, v in (os.environ | variables).items() if v is not None}
    command = [sys.executable, "-c", program, *arguments]
    ended = subprocess.run(
        command, env=environment, check=True, timeout=300, capture_output=True, text=True
    )
    return ended.stdout.strip()


@pytest.mark.parametrize(("cores", "threads"), [("0", "2"), ("0,1", "None")])
def test_xla_is_told_the_number_of_its_threads_only_where_it_would_have_one(cores, threads):
    program = (
        f"import os; os.sched_setaffinity(0, [{cores}])\n"
        "import fedkl; print(os.environ.get('PJRT_NPROC'))"
    )
    assert run(program, PJRT_NPROC=None) == threads
    assert run(program, PJRT_NPROC="3") == "3"


def test_lapack_has_one_thread_unless_told_otherwise():
    program = "import os, fedkl; print(os.environ['OPENBLAS_NUM_THREADS'])"
    assert run(program, OPENBLAS_NUM_THREADS=None) == "1"
    assert run(program, OPENBLAS_NUM_THREADS="3") == "3"


TRAINS = """
import hashlib, os, sys
os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
import jax, numpy as np, fedkl
from fedkl.io.compilation import enable_cache; enable_cache()
settings = {
    "federation.clients": 4, "federation.clients_per_round": 4, "federation.rounds": 1,
    "evaluation.episodes": 1, "learner.iterations": 1, "learner.steps": 1024, "learner.epochs": 2,
    "learner.minibatch": MINIBATCH, "learner.hidden": [WIDTH, WIDTH],
    "critic.hidden": [WIDTH, WIDTH], "critic.minibatch": MINIBATCH,
}
settings["heterogeneity.every"] = MEASURED
federation = fedkl.Federation(fedkl.preset("WORLD", "ALGORITHM", set=settings))
(record,) = federation
assert len(record["clients"]) == 4
leaves = jax.tree.leaves(federation.state.model)
parts = [np.asarray(leaf).tobytes() for leaf in leaves]
parts.append(str(record.get("heterogeneity")).encode())
print(hashlib.sha256(b"".join(parts)).hexdigest())
"""
"""Trains networks of some width, a thread for each core that it may use."""


def training(world, algorithm, width, minibatch, measured):
    given = {"WORLD": world, "ALGORITHM": algorithm, "WIDTH": width, "MEASURED": measured}
    program = TRAINS
    for name, value in (given | {"MINIBATCH": minibatch}).items():
        program = program.replace(name, str(value))
    return program


EIGHT = """
import hashlib, os, sys
os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
import jax, numpy as np, fedkl
from fedkl.io.compilation import enable_cache; enable_cache()
settings = {
    "federation.rounds": 1, "evaluation.episodes": 1, "learner.iterations": 2, "learner.epochs": 1,
}
with fedkl.Federation(fedkl.preset("figure-eight", set=settings)) as federation:
    list(federation)
    leaves = jax.tree.leaves(federation.state.model)
print(hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest())
"""
"""The figure-eight's critic, 256 and 256 wide, values 1,500 states and learns from them."""
PROGRAMS = {
    "narrow": training("probe-point", "fedkl", 64, 64, 0),
    "wide": training("probe-point", "fedkl", 256, 512, 0),
    "wider": training("probe-point", "fedkl", 600, 300, 0),
    "covariances and levels": training("reacher-init-state", "fedkl-anchored", 64, 512, 1),
    "figure-eight": EIGHT,
}


@pytest.mark.skipif(len(cores()) < 2, reason="needs two cores")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_bits_depend_neither_on_the_threads_nor_on_the_cores(program):
    one, two = (",".join(map(str, cores()[:number])) for number in (1, 2))
    bits = {run(program, where, PJRT_NPROC=None) for where in (one, two)}
    bits |= {run(program, two, PJRT_NPROC=threads) for threads in ("3", "8")}
    assert len(bits) == 1


SOLVED = """
import hashlib, os, sys
os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
import fedkl, jax, numpy as np
a = jax.random.normal(jax.random.key(0), (480, 480))
print(hashlib.sha256(np.asarray(jax.numpy.linalg.solve(a, a[0])).tobytes()).hexdigest())
"""
"""A linear system, larger than that by which Reacher's level of heterogeneity is measured."""


@pytest.mark.skipif(len(cores()) < 2, reason="needs two cores")
def test_a_linear_system_has_the_same_bits_on_one_core_and_on_two():
    one, two = (",".join(map(str, cores()[:number])) for number in (1, 2))
    unset = {"OPENBLAS_NUM_THREADS": None, "OMP_NUM_THREADS": None}
    pinned, free = (run(SOLVED, where, **unset) for where in (one, two))
    assert pinned == free
    assert run(SOLVED, two, OPENBLAS_NUM_THREADS="2") != free  # else it is no test
