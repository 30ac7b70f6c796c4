"""Failures name their cause: one sentence, a code, and nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from commands import call
from waiting import PATIENCE, until

import fedkl
from fedkl.cli import console
from fedkl.core.errors import MissingPackageError
from fedkl.io.progress import is_live
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory

TINY = {
    "federation.clients": 3, "federation.clients_per_round": 2, "learner.iterations": 2,
    "learner.steps": 64, "learner.epochs": 2, "evaluation.episodes": 2, "federation.rounds": 2,
}  # fmt: skip
ARGUMENTS = ["--set", *(f"{key}={value}" for key, value in TINY.items())]
ALGORITHM = """
import fedkl

@fedkl.register_algorithm
class Mine(fedkl.Algorithm):
    name = "{name}"
    summary = "of my own"
    {body}
"""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "learner.steps=3000000000"], "learner.steps must be at most 2147483647, not 30"),
        (["--set", "world.name=nope"], "there is no world 'nope'"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "train", "probe-point", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("def aggregate(self, updates): return updates", "nothing calls the method `aggregate` of"),
        ("def penality(self, at): return 0.0", "`penality` of Mine (did you mean penalty?)"),
    ],
)
def test_a_hook_that_nothing_calls_is_named(tmp_path, monkeypatch, capsys, body, sentence):
    plugin = tmp_path / "mine.py"
    plugin.write_text(ALGORITHM.format(name="mine", body=body))
    monkeypatch.chdir(tmp_path)
    code, _, err = call(capsys, "train", "probe-point", "--algorithm", "mine", "--plugin", plugin)
    assert code == 2
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [plugin]


def test_helpers_and_hooks_are_let_alone():
    from fedkl.algorithms import ALGORITHMS

    @fedkl.register_algorithm
    class Helped(fedkl.Algorithm):
        name = "helped"
        summary = "has a helper, a property and a hook"

        def _helper(self):
            return 1.0

        @property
        def factor(self):
            return 2.0

        def penalty(self, at):
            return 0.0

    assert ALGORITHMS["helped"] is Helped


def test_of_a_mistake_in_a_plugin_a_worker_says_where_and_keeps_the_traceback(tmp_path, capsys):
    plugin = tmp_path / "broken.py"
    body = 'def penalty(self, at): raise ZeroDivisionError("a mistake\\n of mine")'
    plugin.write_text(ALGORITHM.format(name="broken", body=body))
    code, out, err = call(
        capsys, "compare", "probe-point", "--algorithms", "broken", "--seeds", 1, "--plugin",
        plugin, "--run", tmp_path / "c", *ARGUMENTS,
    )  # fmt: skip
    kept = tmp_path / "c" / "broken-seed0" / "traceback.txt"
    sentence = (
        f"fedkl: {plugin}, line 8, in penalty: ZeroDivisionError: a mistake of mine; the whole "
        f"traceback is in {kept}"
    )
    assert code == 2
    assert f"broken-seed0 failed: {sentence} (1/1)" in out
    assert "not finished: broken-seed0; see worker.log there" in err
    assert kept.with_name("worker.log").read_text() == f"{sentence}\n"
    assert "ZeroDivisionError: a mistake\n of mine" in kept.read_text()


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("x = 1 / 0", "line 9, in Mine"),
        ("def penalty(self, at): return helped(at)", "line 1, in helped"),
    ],
)
def test_a_mistake_in_a_plugin_is_a_sentence_with_its_place_and_a_traceback_beside_the_run(
    tmp_path, monkeypatch, capsys, body, place
):
    plugin = tmp_path / f"mistaken_{len(body)}.py"
    helper = "def helped(at): return 1 / 0\n"
    plugin.write_text(helper + ALGORITHM.format(name=plugin.stem, body=body))
    monkeypatch.chdir(tmp_path)
    train = ["train", "probe-point", "--plugin", plugin, "--algorithm", plugin.stem, "--run", "r/x"]
    code, out, err = call(capsys, *train, *ARGUMENTS)
    said = f"fedkl: {plugin}, {place}: ZeroDivisionError: division by zero; the whole traceback is"
    assert (code, out, err) == (2, "", f"{said} in r/x.traceback.txt\n")
    text = Path("r/x.traceback.txt").read_text()
    assert text.endswith("ZeroDivisionError: division by zero\n")
    assert "command.py" in text
    assert [path.name for path in Path("r").iterdir()] == ["x.traceback.txt"]


@pytest.mark.parametrize(
    "error", ["ZeroDivisionError('no')", "FileNotFoundError('no')", "ValueError('no' * 999)"]
)
def test_a_mistake_after_the_first_round_leaves_its_traceback_in_the_run(tmp_path, capsys, error):
    plugin = tmp_path / f"late_{error.partition('(')[0]}.py"
    selector = """
import fedkl
@fedkl.register_selector
class Late(fedkl.Selector):
    name, summary = "{name}", "of tests"
    def __call__(self, state, t, pool):
        if t > 0:
            raise {error}
        return [0, 1]
"""
    plugin.write_text(selector.format(name=plugin.stem, error=error))
    run = tmp_path / "run"
    code, _, err = call(
        capsys, "train", "probe-point", "--plugin", plugin, "--run", run, *ARGUMENTS,
        f"selection.name={plugin.stem}",
    )  # fmt: skip
    assert code == 2
    assert len(err.splitlines()) == 1
    assert len(err) < 1000
    assert f"fedkl: {plugin}, line 8, in __call__: {error.partition('(')[0]}: no" in err
    assert err.endswith(f"; the whole traceback is in {run / 'traceback.txt'}\n")
    assert error.partition("(")[0] in (run / "traceback.txt").read_text()
    assert len(fedkl.records(run)) == 1


def test_a_defect_of_our_own_is_a_traceback_that_ends_with_the_exception(monkeypatch, capsys):
    from fedkl import algorithms

    monkeypatch.setattr(algorithms, "ALGORITHMS", 3)
    code, _, err = call(capsys, "list")
    assert code == 1
    assert "list.py" in err
    assert err.endswith("\nTypeError: 'int' object is not iterable\n")


def test_a_run_that_fails_in_its_first_round_leaves_nothing(tmp_path, monkeypatch, capsys):
    plugin = tmp_path / "early.py"
    body = 'def penalty(self, at): raise fedkl.UserError("not today")'
    plugin.write_text(ALGORITHM.format(name="early", body=body))
    monkeypatch.chdir(tmp_path)
    train = ["train", "probe-point", "--plugin", plugin, "--algorithm", "early", *ARGUMENTS]
    for _ in range(2):
        code, _, err = call(capsys, *train)
        assert (code, err) == (2, "fedkl: not today\n")
    assert list(tmp_path.iterdir()) == [plugin]


def test_a_run_without_a_single_finite_return_does_not_end_well(tmp_path, monkeypatch, capsys):
    chosen = fedkl.preset("probe-point", set=TINY)
    run = lifecycle.create(chosen, tmp_path / "run")
    summed = lifecycle.summary
    lost = {"return_mean": None, "best_return_mean": None}
    monkeypatch.setattr(lifecycle, "summary", lambda *of: summed(*of) | lost)
    for _ in range(2):  # also where it is finished already
        code, _, err = call(capsys, "resume", run.path)
        assert code == 3
        assert f"no evaluated round of {run.path} has a finite return" in err
        assert len(err.splitlines()) == 1
    assert RunDirectory.open(run.path).summary()["rounds"] == 2


def test_names_of_runs_say_what_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {
        (): "probe-point-fedkl-seed0",
        ("learner.d_local=0.02", "learner.hidden=[8, 8]"):
            "probe-point-fedkl-d_local=0.02-hidden=8-8-seed0",
        ("world.name=pendulum",): "pendulum-from-probe-point-fedkl-seed0",
    }  # fmt: skip
    from argparse import Namespace

    from fedkl.cli.common import run_named

    for settings, name in names.items():
        options = Namespace(preset="probe-point", set=settings, rounds=3, start=None)
        chosen = fedkl.preset(
            "probe-point", set=dict(map(fedkl.config.config.parse_assignment, settings))
        )
        assert run_named(options, chosen).as_posix() == f"runs/{name}"


def test_ctrl_c_while_it_is_imported_is_no_traceback(tmp_path, child):
    # A module that is slow to import stands for a slow disk.
    (tmp_path / "rich.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'here')!r}).touch()\ntime.sleep(600)\n"
    )
    paths = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = child("-m", "fedkl", "list", env={**os.environ, "PYTHONPATH": paths})
    until((tmp_path / "here").exists)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "fedkl: interrupted\n"


def test_a_missing_package_is_of_an_extra_that_there_is():
    source = Path(fedkl.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in source.rglob("*.py")]
    told = r'(?:MissingPackageError|NEEDS =) ?\(\s*"[^"]* needs [^"]*",\s*"([a-z0-9]+)"'
    named = [extra for text in texts for extra in re.findall(told, text)]
    project = tomllib.loads((source.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert len(named) > 10
    assert {*named} <= project["project"]["optional-dependencies"].keys()
    # One place has the command, so that it is the same everywhere.
    assert sum("pip install -e" in text for text in texts) == 1
    said = str(MissingPackageError("a cluster needs Ray", "ray"))
    assert said == "a cluster needs Ray; install it with `pip install -e '.[ray]'`"


@pytest.mark.parametrize("arguments", [["list"], ["show", "probe-pöint"]])
def test_characters_that_a_terminal_cannot_show_are_replaced(child, arguments):
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    process = child("-m", "fedkl", *arguments, env=environment)
    out, err = process.communicate(timeout=PATIENCE)
    assert "Traceback" not in err
    assert process.returncode == (2 if "show" in arguments else 0)
    assert (out + err).isascii()
    if "show" in arguments:
        assert "probe-p?int" in err


def test_colours_that_are_forced_draw_no_bar_where_nothing_can_be_drawn_over(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    console.open_streams()
    assert console.out.is_terminal
    assert not is_live(console.out)
    assert not is_live(console.err)


@pytest.mark.parametrize(("package", "command"), [("rich", "list"), ("jax", "show demo")])
def test_a_command_says_that_fedkl_was_installed_without_its_dependencies(package, command):
    program = (
        f"import sys; sys.modules['{package}'] = None; from fedkl.cli import main; "
        f"main({command.split()})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"fedkl: {package} is not installed, and commands need all that")
    assert len(done.stderr.splitlines()) == 1
