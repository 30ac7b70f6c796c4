"""What holds for every command that the parser knows."""

import argparse
import importlib
import subprocess

import pytest
from commands import call

from fedkl.cli.parser import parser

TRAINING = ("train", "resume", "compare", "tune", "tune-d-global", "reproduce", "serve")


def commands(of, path=()):
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, sub in action.choices.items():
                yield from commands(sub, (*path, name))
            return
    yield path, of


COMMANDS = list(commands(parser()))
EVERY = pytest.mark.parametrize(("path", "sub"), COMMANDS, ids=[" ".join(p) for p, _ in COMMANDS])


@EVERY
def test_a_command_is_a_file_of_its_name(path, sub):
    module = importlib.import_module(f"fedkl.cli.{path[0].replace('-', '_')}")
    assert callable(module.run)
    assert sub._defaults["trains"] == (path[-1] in TRAINING)


@EVERY
def test_the_help_says_what_each_option_is_and_what_it_is_by_default(path, sub):
    formatter = sub._get_formatter()
    for action in sub._actions:
        assert action.help
        text = formatter._expand_help(action)
        repeated = isinstance(action, argparse._AppendAction | argparse._ExtendAction)
        if action.option_strings and action.nargs != 0 and not action.required and not repeated:
            assert "default" in text, action.option_strings


@EVERY
def test_options_are_spelled_out(path, sub):
    assert not sub.allow_abbrev


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["compare", "demo", "--algorithms", "fedkl", "--run", "x", "--seed", "3"], "--seeds?"),
        (
            ["train", "demo", "--round=3"],
            "arguments: --round=3 (did you mean --rounds",
        ),
        (["theory", "verify", "--famlies", "3"], "(did you mean --families?)"),
        (["evaluate", "runs/demo", "--ep", "3"], "(did you mean --episodes?)"),
        (["theory", "verify", "--claim", "thorem-1"], "not thorem-1 (did you mean theorem-1?)"),
        (["theory", "iterate", "--algorithm", "papr"], "not papr (did you mean paper?)"),
        (["trian", "demo"], "invalid choice: 'trian' (did you mean train?)"),
        (["theory", "verfy"], "(did you mean verify?)"),
        (["train", "demo", "--device", "gpu"], "--device gpu (JAX takes the best device that "),
        (["train", "demo", "--engine", "rai"], "invalid choice: 'rai' (did you mean ray?)"),
        (["train", "reacher-idd"], "there is no preset 'reacher-idd' (did you mean reacher-iid?)"),
        (["train", "demo", "--algorithm", "fedprix"], "'fedprix' (did you mean fedprox?); avail"),
        (["train", "demo", "--set", "world.name=reachr"], "(did you mean reacher?)"),
        (["train", "demo", "--set", "learner.itertions=3"], "(did you mean learner.iterations?)"),
        (
            ["train", "demo", "--set", "lerner.steps=3"],
            "is not a setting (did you mean learner?)",
        ),
        (["train", "demo", "--set", "d_local=3"], "(did you mean learner.d_local?)"),
        (["train", "demo", "--set", "aggregation.reduce=medan"], "'medan' (did you mean median?)"),
        (["train", "demo", "--set", "learner.optimiser=adm"], "not 'adm' (did you mean adam?)"),
        (["reproduce", "negative-potental", "--run", "x"], "(did you mean negative-potential?)"),
        (
            ["train", "demo", "--rounds", "2", "--set", "federation.rounds=4"],
            "federation.rounds is given twice: as 4 and as 2",
        ),
        (
            ["train", "demo", "--set", "seed=1", "--set", "learner.steps=3", "learner.steps=4"],
            "learner.steps is given twice: as 3 and as 4",
        ),
    ],
)
def test_what_is_nearly_right_is_answered_with_what_was_meant(
    tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def _word(sub):
    """Something that a command may be given."""
    return next((a.choices[0] for a in sub._actions if not a.option_strings and a.choices), "1")


@EVERY
def test_words_typed_in_the_order_of_the_usage_are_understood(path, sub):
    usage = sub.format_usage().removeprefix("usage: ").split()
    words = [word for word in usage if not word.startswith(("[", "..."))]
    typed = [w if w.startswith("-") or w in ("fedkl", *path) else _word(sub) for w in words]
    settings = ["--set", "a=b"] if any(a.dest == "set" for a in sub._actions) else []
    found = parser().parse_args([*typed[1:], *settings])
    assert found.command == path[0]
    assert usage[-1] == "[options]"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["train", "--set", "a=b", "demo"], "'demo' was taken for a value of --set: put PRESET f"),
        (["compare", "--algorithms", "x", "demo", "--set", "a=b", "c=d"], "value of --algorithms:"),
    ],
)
def test_a_word_that_an_option_has_taken_is_named(capsys, arguments, sentence):
    code, _, err = call(capsys, *arguments)
    assert code == 2
    assert "arguments are required: PRESET" in err
    assert sentence in err


def test_an_option_with_one_value_has_taken_nothing(capsys):
    assert "was taken" not in call(capsys, "train", "--set", "a=b")[2]
    assert "was taken" not in call(capsys, "compare", "demo", "--algorithms", "a", "b")[2]


@EVERY
def test_an_option_of_one_value_is_given_once(capsys, path, sub):
    for action in sub._actions:
        if action.option_strings and isinstance(action, argparse._StoreAction):
            word = str(action.choices[0] if action.choices else 1)
            twice = [action.option_strings[0], word] * 2
            code, out, err = call(capsys, *path, *twice)
            assert (code, out) == (2, "")
            assert f"{action.option_strings[0]} is given twice; see" in err
            assert len(err.splitlines()) == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shell_gets_a_script(capsys, shell):
    pytest.importorskip("shtab")
    code, out, _ = call(capsys, "completion", shell)
    assert code == 0
    for word in ("tune-d-global", "reacher-iid", "fedprox", "accept-changes"):
        assert word in out


def test_bash_completes_presets_and_options(tmp_path, capsys):
    pytest.importorskip("shtab")
    script = tmp_path / "fedkl.bash"
    script.write_text(call(capsys, "completion", "bash")[1])
    asked = (
        f"source {script}; "
        'ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); '
        "$(complete -p fedkl | sed 's/.*-F \\([^ ]*\\).*/\\1/'); echo ${COMPREPLY[@]}; }; "
        "ask fedkl tra; ask fedkl train reacher-i; ask fedkl compare --al"
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, timeout=30)
    first, second, third = done.stdout.splitlines()
    assert first == "train"
    assert "reacher-iid" in second.split()
    assert third == "--algorithms"


def test_without_shtab_one_sentence_says_how_to_get_it(capsys, monkeypatch):
    from fedkl.cli import completion

    monkeypatch.setattr(completion, "find_spec", lambda _: None)
    code, out, err = call(capsys, "completion", "bash")
    assert (code, out) == (2, "")
    assert "pip install -e '.[completion]'" in err
