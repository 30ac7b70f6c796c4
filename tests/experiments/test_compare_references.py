"""What a federation is compared with, made of its config."""

import pytest

import fedkl
from fedkl.experiments import compare
from fedkl.server.loop import Federation
from fedkl.training.comparison import REFERENCES

pytestmark = pytest.mark.usefixtures("quick_compilation")

PRESETS = ("reacher-dynamics-paper", "reacher-init-state", "cartpole", "probe-point")


def test_there_is_a_way_to_make_each():
    assert tuple(compare.MAKE) == tuple(compare.DECIDES) == REFERENCES


@pytest.mark.parametrize("preset", PRESETS)
def test_alone_nothing_is_shared_and_all_else_is_as_in_the_federation(preset):
    federation = fedkl.preset(preset, "fedavg")
    before, after = federation.mapping(), compare.alone(federation).mapping()
    assert after["federation"] == before["federation"] | {
        "personal": "all",
        "critic": "local",
        "observation_statistics": "local",
        "reward_statistics": "local",
    }
    before["learner"]["c2_across_rounds"] = "kept"
    for group in before.keys() - {"federation"}:
        assert after[group] == before[group]


@pytest.mark.parametrize("preset", PRESETS)
def test_the_centralised_learner_is_one_client_with_everybodys_steps(preset):
    federation = fedkl.preset(preset, "fedavg")
    n, k = federation.federation.clients, federation.federation.clients_per_round
    made = compare.centralised(federation)
    assert (made.federation.data, made.federation.clients_per_round) == ("pooled", 1)
    assert made.selection.weights == (1.0, *[0.0] * (n - 1))
    before, after = federation.mapping(), made.mapping()
    assert after["world"] == before["world"]
    assert {**after["learner"], "steps": 0} == {**before["learner"], "steps": 0}
    assert after["learner"]["steps"] >= k * before["learner"]["steps"]


def test_whole_episodes_count_as_many_steps_in_one_place_as_in_three():
    """Each of three clients fills 2048 steps with 41 episodes of 50."""
    made = compare.centralised(fedkl.preset("reacher-dynamics-paper", "fedavg"))
    assert made.learner.steps == 3 * 41 * 50


@pytest.mark.parametrize("settings", [{}, {"learner__collect": "episodes", "learner__steps": 63}])
def test_both_have_the_budget_of_the_federation(tiny, settings):
    federation = tiny("fedavg", evaluation__every=100, **settings)
    configs = [federation, compare.alone(federation), compare.centralised(federation)]
    steps = [Federation(config).run_round()["env_steps"] for config in configs]
    assert steps[0] == steps[1] == steps[2] > 0


def test_what_a_federation_adds_to_the_mean_is_left_out(tiny):
    federation = tiny(
        "fedavg",
        aggregation__reduce="median",
        aggregation__step="adam",
        upload__each=["clip"],
        federation__personal="action-bias",
        learner__personal_iterations=1,
        learner__c2_across_rounds="averaged",
        heterogeneity__every=1,
        selection__name="potential",
    )
    for make in compare.MAKE.values():
        made = make(federation)
        assert made.aggregation.mapping() == {"each": [], "reduce": "mean", "step": "none"}
        assert (made.learner.personal_iterations, made.heterogeneity.every) == (0, 0)
        assert made.upload.each == ()
    assert compare.alone(federation).selection.name == "uniform"
    assert compare.alone(federation).learner.c2_across_rounds == "kept"


def test_what_clients_use_no_statistics_for_they_do_without(tiny):
    federation = tiny("fedavg", federation__observation_statistics="none")
    for make in compare.MAKE.values():
        assert make(federation).federation.observation_statistics == "none"


def test_the_centralised_learner_needs_statistics_that_all_can_see_with(tiny):
    local = tiny("fedavg", federation__observation_statistics="local")
    made = compare.centralised(local)
    assert made.federation.observation_statistics == "federated"


def test_agents_of_one_simulation_have_no_centralised_learner():
    federation = fedkl.preset("figure-eight", "fedavg")
    with pytest.raises(fedkl.UserError, match="agents of one simulation; `--references alone`"):
        compare.centralised(federation)
    assert compare.alone(federation).federation.personal == "all"
