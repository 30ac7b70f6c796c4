"""Round 0: evaluated when it is asked for, and without a trace in what is trained."""

import json

import pytest
from finished_runs import finish

from fedkl.core.errors import UserError
from fedkl.training.initial import INITIAL, evaluate_initial, read_initial

pytestmark = pytest.mark.usefixtures("quick_compilation")


def contents(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_round_0_is_evaluated_once_and_changes_nothing_else(tmp_path):
    run = finish(tmp_path / "run")
    before = contents(run.path)
    evaluate_initial(run.path)
    after = contents(run.path)
    found = read_initial(run, run.config())
    assert found["round"] == 0
    assert found["return_min"] <= found["return_mean"]
    assert after.keys() - before.keys() == {run.path / INITIAL}
    assert before == {file: data for file, data in after.items() if file in before}
    # What is there is not evaluated again, and is that of any other time.
    marked = json.dumps(found | {"return_mean": 7.0})
    (run.path / INITIAL).write_text(marked)
    evaluate_initial(run.path)
    assert (run.path / INITIAL).read_text() == marked
    (run.path / INITIAL).unlink()
    evaluate_initial(run.path)
    assert read_initial(run, run.config()) == found


def test_clients_in_a_network_are_not_asked(tmp_path):
    run = finish(tmp_path / "run")
    (run.path / "serving.toml").write_text("")
    with pytest.raises(UserError, match="served over a network"):
        evaluate_initial(run.path)
