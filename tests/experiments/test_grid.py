"""Grids as they are typed."""

import pytest

from fedkl.core.errors import UserError
from fedkl.experiments.grid import candidates_of, describe, parse_axes, parse_values


def test_lists_of_one_grid_move_together_and_grids_are_multiplied():
    grids = [["a.x=1,2"], ["b.y=sgd,adam", "b.z=0.1,0.2"]]
    assert candidates_of(parse_axes(grids, "--grid"), ()) == [
        {"a.x": 1, "b.y": "sgd", "b.z": 0.1},
        {"a.x": 1, "b.y": "adam", "b.z": 0.2},
        {"a.x": 2, "b.y": "sgd", "b.z": 0.1},
        {"a.x": 2, "b.y": "adam", "b.z": 0.2},
    ]


def test_one_candidate_is_a_grid():
    assert candidates_of(parse_axes([["a.x=1"]], "--grid"), ()) == [{"a.x": 1}]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a.x=[32,32],[64, 64]", [[32, 32], [64, 64]]),
        ("a.x=[[1,2],[3]],[]", [[[1, 2], [3]], []]),
        ("a.x=true,false", [True, False]),
        ("a.x=1e-3, 2", [0.001, 2]),
        ('a.x="p,q",r', ["p,q", "r"]),
        ("a.x='[',b", ["[", "b"]),
        (" a.x = sgd , adam ", ["sgd", "adam"]),
    ],
)
def test_values_are_split_at_commas_outside_of_brackets_and_quotes(text, values):
    assert parse_values(text, "--grid") == ("a.x", values)


@pytest.mark.parametrize(
    ("grids", "sentence"),
    [
        ([["a.x="]], r"--grid a\.x= lacks a value"),
        ([["a.x=1,,2"]], "lacks a value"),
        ([["a.x=1,"]], "lacks a value"),
        ([["a.x"]], r"'a\.x' is not of the form dotted\.key=value,value"),
        ([["=1,2"]], "is not of the form"),
        ([["a.x=1,2", "a.y=1"]], r"same length: a\.x has 2 values, a\.y has 1"),
        ([["a.x=1", "a.x=2"]], r"a\.x is given twice in --grid"),
        ([["a.x=1"], ["a.x=2"]], r"a\.x is given twice in --grid"),
        ([["a.set=1"]], r"a\.set is given in --set, too"),
        ([["a.x=1,1"]], r"--grid has the same twice: a\.x=1"),
        ([["federation.rounds=1,2"]], "all get the same; see --rounds"),
        ([["seed=1,2"]], "seed cannot be in a grid"),
        ([["algorithm.name=fedkl,fedavg"]], r"algorithm\.name cannot be in a grid"),
        ([["world.name=a,b"]], r"world\.name cannot be in a grid"),
        (
            [["world.clients.gravity={uniform=[7,13]},{uniform=[1,20]}"]],
            r"world\.clients\.gravity cannot be in a grid: settings of an algorithm are chosen",
        ),
        ([["evaluation.episodes=1,2"]], r"evaluation\.episodes cannot be in a grid"),
    ],
)
def test_a_wrong_grid_is_answered_with_a_sentence(grids, sentence):
    with pytest.raises(UserError, match=sentence):
        candidates_of(parse_axes(grids, "--grid"), {"a.set"})


def test_a_candidate_is_described_as_it_would_be_typed():
    candidate = {"a.x": [32, 64], "a.y": True, "b.z": "adam", "b.w": 1e-05}
    assert describe(candidate) == "a.x=[32,64] a.y=true b.z=adam b.w=1e-05"
