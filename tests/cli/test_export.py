"""`fedkl export` writes a policy, or one sentence."""

import numpy as np
import pytest
from commands import call

import fedkl
from fedkl.training import lifecycle


@pytest.fixture
def run(tiny, tmp_path):
    config = tiny(federation__rounds=1, checkpoint__keep_best=True)
    return fedkl.train(config, tmp_path / "run")


def test_a_policy_is_written_and_its_round_is_named(run, tmp_path, capsys):
    target = tmp_path / "policy.npz"
    code, out, err = call(capsys, "export", run, target)
    assert (code, err) == (0, "")
    assert out == f"policy after round 1: {target}\n"
    assert np.load(target)["round"] == 1
    assert call(capsys, "export", run, tmp_path / "p.npz", "--best", "--client", 2)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["policy.pt"], "ends in .onnx or .npz"),
        (["nowhere/policy.npz"], "the folder nowhere does not exist"),
        (["policy.npz", "--client", "4"], "client must be from 0 to 3, not 4"),
    ],
)
def test_a_mistake_is_one_sentence_and_writes_nothing(
    run, tmp_path, monkeypatch, capsys, arguments, sentence
):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, "export", "run", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_run_without_a_round_is_one_sentence(tiny, tmp_path, capsys):
    lifecycle.create(tiny(), tmp_path / "run")
    code, _, err = call(capsys, "export", tmp_path / "run", tmp_path / "policy.npz")
    assert code == 2
    assert "has no finished round to load yet" in err


def test_the_version_is_printed(capsys):
    assert call(capsys, "--version") == (0, f"fedkl {fedkl.__version__}\n", "")
