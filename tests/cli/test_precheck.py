"""What is wrong with a command line is said before JAX is imported, and as the command says it."""

import argparse
import json
import subprocess
import sys

import pytest
from waiting import PATIENCE

from fedkl.algorithms import ALGORITHMS
from fedkl.cli import precheck
from fedkl.core.errors import UserError
from fedkl.experiments.reproduce import EXPERIMENTS
from fedkl.experiments.reproduce.plan import ALL

RUNS = """
import contextlib, io, json, sys
from fedkl.cli import main
answers = []
for arguments in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as exit:
            answers.append([exit.code, err.getvalue()])
imported = [name for name in ("jax", "numpy", "scipy", "matplotlib") if name in sys.modules]
print(json.dumps([answers, imported]))
"""
"""Runs commands one after the other, and says which of the slow libraries are imported then."""

WRONG = [
    (["train", "reacher-idd"], "there is no preset 'reacher-idd' (did you mean reacher-iid?)"),
    (["train", "nosuch.toml"], "there is no config file 'nosuch.toml'"),
    (["train", "demo", "--plugin", "nosuch.py"], "the plugin nosuch.py is not a file"),
    (["train", "demo", "--algorithm", "fedprix"], "no algorithm 'fedprix' (did you mean fedprox?)"),
    (["serve", "demo", "--algorithm", "fedprix"], "there is no algorithm 'fedprix'"),
    (["show", "demo", "--algorithm", "fedprix"], "there is no algorithm 'fedprix'"),
    (["describe", "dem"], "there is no preset 'dem' (did you mean demo?)"),
    (
        ["compare", "demo", "--algorithms", "fedavg", "fedprix", "--run", "x"],
        "there is no algorithm 'fedprix'",
    ),
    (["reproduce", "negative-potental", "--run", "x"], "(did you mean negative-potential?)"),
    (["resume", "nosuch"], "nosuch does not exist"),
    (["evaluate", "nosuch"], "nosuch does not exist"),
    (["export", "nosuch", "policy.npz"], "nosuch does not exist"),
    (["check", "nosuch"], "nosuch does not exist"),
    (["heterogeneity", "nosuch"], "nosuch does not exist"),
    (["report", "nosuch"], "nosuch does not exist"),
    (["train", "demo", "--algorthm", "fedkl"], "(did you mean --algorithm?)"),
    (["trian", "demo"], "(did you mean train?)"),
]
RIGHT = [["--help"], ["--version"], ["train", "--help"], ["theory", "verify", "--help"]]


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    """What all of these commands answer, in one process, and what it has imported."""
    commands = [*RIGHT, *(arguments for arguments, _ in WRONG)]
    run = [sys.executable, "-c", RUNS, json.dumps(commands)]
    folder = tmp_path_factory.mktemp("precheck")
    done = subprocess.run(run, capture_output=True, text=True, check=True, cwd=folder, timeout=120)
    answers, imported = json.loads(done.stdout)
    assert [*folder.iterdir()] == []
    return dict(zip(map(tuple, commands), answers, strict=True)), imported


def test_neither_help_nor_a_mistake_imports_jax_or_numpy(answered):
    assert answered[1] == []


@pytest.mark.parametrize("arguments", RIGHT, ids=" ".join)
def test_help_is_no_mistake(answered, arguments):
    assert answered[0][tuple(arguments)] == [0, ""]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG, ids=lambda value: str(value)[:60])
def test_a_mistake_is_answered_in_one_sentence(answered, arguments, sentence):
    code, said = answered[0][tuple(arguments)]
    assert code == 2
    assert sentence in said
    assert len(said.splitlines()) == 1


def test_an_algorithm_is_called_as_its_file():
    ours = [name for name in ALGORITHMS if ALGORITHMS[name].__module__.startswith("fedkl.")]
    assert precheck.algorithms() == ours


def test_plugins_may_have_an_algorithm_of_any_name(tmp_path):
    (tmp_path / "mine.py").write_text("")
    options = argparse.Namespace(
        trains=False,
        computes=False,
        reads=(),
        preset="demo",
        algorithm="mine",
        plugin=[tmp_path / "mine.py"],
        set=[],
    )
    precheck.check(options)
    with pytest.raises(UserError, match="there is no algorithm 'mine'"):
        precheck.check(argparse.Namespace(**vars(options) | {"plugin": []}))


def test_the_experiments_are_those_of_the_table():
    assert precheck.experiments() == [*EXPERIMENTS]
    assert precheck.ALL == ALL


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from fedkl.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("command", [["train", "probe-point"], ["describe", "probe-point"]])
def test_where_jax_may_not_take_the_addresses_it_needs_a_command_says_so(tmp_path, child, command):
    process = child("-c", LIMITED, *command, cwd=tmp_path)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert err.startswith("fedkl: this process may take 1,024 MiB of addresses (`ulimit -v`)")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_page_of_experiments_is_written_under_any_limit(monkeypatch):
    def refuse():
        raise UserError("too few addresses")

    monkeypatch.setattr(precheck, "require_address_space", refuse)
    options = argparse.Namespace(trains=True, computes=False, reads=(), experiment=precheck.REPORT)
    precheck.check(options)
    options.experiment = precheck.ALL
    with pytest.raises(UserError, match="too few addresses"):
        precheck.check(options)
