"""Files that somebody made on purpose: no code of theirs runs, nothing outside is written, nothing
hangs, and every answer is a sentence."""

import contextlib
import shutil
import signal

import pytest
from commands import call
from finished_runs import finish
from hostile_files import CASES, OF_COMPARISONS, RUN, remove

from fedkl import cli
from fedkl.training.comparison import ComparisonPlan

pytestmark = pytest.mark.usefixtures("quick_compilation")

OF_SEVERAL = (["resume"], ["report"], ["check"])
COMMANDS = (*OF_SEVERAL, ["evaluate", "--episodes", 1], ["heterogeneity", "--trajectories", 1])
LIMITS = {signal.SIGPROF: (signal.ITIMER_PROF, 5), signal.SIGALRM: (signal.ITIMER_REAL, 600)}
"""Seconds until a command hangs: of its own time, and, if it waits, on a machine that is busy with
other things."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    run = finish(tmp_path_factory.mktemp("made") / "run").path
    copy = run.with_name("copy")
    shutil.copytree(run, copy)
    for command, *options in COMMANDS:  # what is imported and compiled is so once
        with pytest.raises(SystemExit):
            cli.main([command, str(copy), *map(str, options)])
    return run


@pytest.fixture(scope="module")
def compared(made, tmp_path_factory):
    """A comparison of one run, which lacks its summary."""
    path = tmp_path_factory.mktemp("compared") / "several"
    shutil.copytree(made, path / RUN)
    (path / RUN / "summary.json").unlink()
    ComparisonPlan("probe-point", ("fedkl",), (0,), 1).write(path)
    return path


@contextlib.contextmanager
def in_time():
    def hangs(*_):
        pytest.fail("a command hangs")

    for number, (timer, seconds) in LIMITS.items():
        signal.signal(number, hangs)
        signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        for timer, _ in LIMITS.values():
            signal.setitimer(timer, 0)


def judge(made, tmp_path, capsys, spoil, commands=COMMANDS):
    outside = tmp_path / "outside"
    for command, *options in commands:
        shutil.rmtree(outside, ignore_errors=True)
        (outside / "folder").mkdir(parents=True)
        (outside / "victim").write_text("years of work\n")
        # What a run removes where it goes on.
        (outside / "folder" / f"000009.{'b' * 64}.safetensors").touch()
        (outside / "folder" / ".x.1.fedkl-tmp").touch()
        run = tmp_path / "run"
        remove(run)
        shutil.copytree(made, run)
        spoil(run, outside)
        before = {path for path in outside.rglob("*")}
        with in_time():
            code, out, err = call(capsys, command, run, *options)
        assert code in (0, 2, 3), (command, err)
        assert "Traceback" not in err
        assert "\x1b" not in out + err
        if code == 2:
            assert len(err) < 3000
        for path in run.rglob("*"):
            if not path.is_symlink() and path.is_file() and path.suffix in (".html", ".svg"):
                assert "\x1b" not in path.read_text()
                assert "<script>alert" not in path.read_text()
        assert {path for path in outside.rglob("*")} == before
        assert (outside / "victim").read_text() == "years of work\n"


SAMPLE = [
    "a plugin that nobody agreed to",
    ".lock is a link to victim",
    "metrics.jsonl is a link to victim",
    "metrics.jsonl is a pipe",
    "checkpoints is a link to folder",
    "best is a link to folder, unfinished",
    "returns is a link to folder, unfinished",
    "flower is a link to folder, served, unfinished",
    "best/ has a checkpoint that builds on itself, unfinished",
    "serving.toml is a pipe",
    "serving.toml: nested arrays",
    "figures/learning_curves.svg is a link to victim",
    "config.toml: a key of 20,000 parts",
    "config.toml: a key of 20,000 escaped quotes",
    "config: no letters",
    "records: huge returns",
    "checkpoint: dtype F99",
    "checkpoint: an origin without a config",
]
SAMPLE_OF_COMPARISONS = [
    f"{RUN} is a link to folder",
    f"{RUN}/worker.log is a link to victim",
    f"{RUN}/worker.log is a pipe",
    "compare.toml: nested arrays",
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_hostile_file_is_answered_with_a_sentence(made, tmp_path, capsys, name):
    judge(made, tmp_path, capsys, CASES[name])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SAMPLE_OF_COMPARISONS)
def test_a_hostile_file_of_a_comparison_is_answered_with_a_sentence(
    compared, tmp_path, capsys, name
):
    judge(compared, tmp_path, capsys, OF_COMPARISONS[name], OF_SEVERAL)


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_COMPARISONS)
def test_every_hostile_file_of_a_comparison_is_answered_with_a_sentence(
    compared, tmp_path, capsys, name
):
    judge(compared, tmp_path, capsys, OF_COMPARISONS[name], OF_SEVERAL)


def test_there_are_two_hundred_of_them():
    assert len(CASES) >= 200
    assert {*SAMPLE} <= CASES.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_hostile_file_is_answered_with_a_sentence(made, tmp_path, capsys, name):
    judge(made, tmp_path, capsys, CASES[name])
