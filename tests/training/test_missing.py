"""Checkpoints that should be there, told from a log that anybody may have changed."""

import numpy as np
import pytest

import fedkl
from fedkl.training import lifecycle
from fedkl.training.directory import RunDirectory
from fedkl.training.missing import say_missing_best


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"round": 1}, "round 1 has no return_mean"),
        ({"round": 1, "return_mean": "x"}, "return_mean of round 1 cannot be 'x'"),
        ({"return_mean": 1.0}, "a record has no round"),
    ],
)
def test_the_best_round_of_a_log_that_cannot_be_compared_is_nobodys_guess(
    tmp_path, record, sentence
):
    run = RunDirectory.create(tmp_path / "run", {})
    run.metrics.append(record)
    run.best.save(1, {"round": np.asarray(1)})
    with pytest.raises(fedkl.UserError, match=sentence):
        say_missing_best(run, 1, print)
    with pytest.raises(fedkl.UserError, match=sentence):
        lifecycle._best_return(run)


def test_a_log_that_ends_too_early_cannot_tell_the_best_round(tmp_path):
    run = RunDirectory.create(tmp_path / "run", {})
    said = []
    say_missing_best(run, 0, said.append)
    assert said == []
    run.checkpoints.save(2, {"round": np.asarray(2)})
    run.best.save(1, {"round": np.asarray(1)})
    for round in (1, 2):
        say_missing_best(run, 1, said.append)
        assert (
            said.pop()
            == f"{run.metrics.path} ends before round 2, and cannot tell which was the best"
        )
        run.metrics.append({"round": round, "return_mean": -round})
    say_missing_best(run, 1, said.append)
    assert said == []
