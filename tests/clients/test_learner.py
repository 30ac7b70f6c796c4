"""A round asks nothing of a learner but its interface, and a config chooses one by name."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import FedAvg, FedKL, Scaffold
from fedkl.clients import LEARNERS, Behaviour, Learner, Model, Policy, Sharing, Trained, Update
from fedkl.clients.learner import LOCAL_HOOKS
from fedkl.clients.paper_learner import PolicyOptimisation
from fedkl.config.config import from_mapping
from fedkl.learning.diagnostics import DIAGNOSTICS

NOTHING = {
    "federation.observation_statistics": "none",
    "federation.reward_statistics": "none",
    "federation.critic": "federated",
}


class Counter(Learner):
    """Adds a step to every parameter in every iteration, and acts by what it was sent."""

    name: ClassVar[str] = "counter"
    summary: ClassVar[str] = "counts"
    logged: ClassVar[tuple[str, ...]] = ("counted",)

    step: float = fedkl.setting(1.0, "what is added", above=0)

    def networks(self, world, critic, key):
        return Policy(world, self, key), None

    def begin(self, task, start):
        return jnp.zeros(())

    def behaviour(self, task, start, carry):
        return Behaviour(self, start.model.policy, None, start.client.iterations)

    def improve(self, task, start, carry, data, cleaned, index):
        zero = jnp.zeros(())
        metrics = dict.fromkeys(("kl_local", "distance_global", "outliers"), zero)
        metrics |= {"guarded": jnp.array(False)}
        metrics |= {"steps": jnp.sum(data.mask).astype(jnp.float32)}
        metrics |= {"train_return": data.mean_return(), "counted": carry + 1}
        return carry + 1, (), metrics

    def finish(self, task, start, end, metrics):
        policy = jax.tree.map(lambda x: x + self.step * end, start.model.policy)
        update = Update(Model(policy, None, None, None, {}, ()), jnp.sum(metrics["steps"]), ())
        metrics = metrics | {"coefficients": {}, "step_scale": jnp.ones(())}
        return Trained(update, metrics), start.client


@pytest.fixture
def counter(monkeypatch):
    monkeypatch.setattr(LEARNERS, "_classes", dict(LEARNERS._classes))
    LEARNERS.register(Counter)
    return {"learner.name": "counter", **NOTHING}


def test_a_learner_of_another_kind_trains_in_a_federation(counter):
    changes = {"learner.iterations": 3, "learner.step": 0.01}
    config = fedkl.preset("probe-point", "fedavg", set=counter | changes)
    federation = fedkl.Federation(config)
    before = jax.device_get(federation.state.model.policy)
    record = federation.run_round()
    after = federation.state.model.policy
    # Three iterations of every client add 0.03, and so does their mean.
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b + 0.03, atol=1e-6), after, before)
    assert federation.state.model.critic is None
    assert [row["learner"] for row in record["clients"]] == [{"counted": 2.0}] * 2


def test_only_a_learner_that_is_not_the_papers_is_named_in_the_config(counter):
    papers = fedkl.preset("probe-point").mapping()
    assert "name" not in papers["learner"]
    other = fedkl.preset("probe-point", "fedavg", set=counter | {"learner.step": 2.0})
    assert other.mapping()["learner"]["name"] == "counter"
    assert from_mapping(other.mapping()).learner == other.learner
    assert from_mapping(other.mapping()).learner.step == 2.0


def test_a_presets_settings_that_another_learner_lacks_are_left_out(counter):
    """They are those of the preset's own; what is set by hand must be one of its settings."""
    config = fedkl.preset("probe-point", "fedavg", set=counter)
    assert config.learner.iterations == 5
    assert "epochs" not in config.mapping()["learner"]
    with pytest.raises(fedkl.UserError, match=r"learner\.epochs is not a setting"):
        fedkl.preset("probe-point", "fedavg", set=counter | {"learner.epochs": 3})


@pytest.mark.parametrize("algorithm", [FedKL(), Scaffold()], ids=lambda a: a.name)
def test_an_algorithm_whose_hooks_a_learner_does_not_call_is_refused(algorithm):
    with pytest.raises(fedkl.UserError, match=f"the algorithm {algorithm.name} has the hook"):
        Counter().check(algorithm, Sharing())
    Counter().check(FedAvg(), Sharing())


def test_the_papers_learner_calls_every_hook_of_a_round():
    assert PolicyOptimisation.hooks == LOCAL_HOOKS
    assert all(hasattr(fedkl.Algorithm, hook) for hook in LOCAL_HOOKS)


def test_an_unknown_learner_is_named_with_those_there_are():
    with pytest.raises(fedkl.UserError) as caught:
        fedkl.preset("probe-point", set={"learner.name": "policy-optimization"})
    assert str(caught.value) == (
        "learner.name: there is no learner 'policy-optimization' "
        "(did you mean policy-optimisation?); available: policy-optimisation"
    )


class Numbered(PolicyOptimisation):
    """The paper's learner, which also logs the number of its iteration."""

    name: ClassVar[str] = "numbered"
    summary: ClassVar[str] = "the paper's, with a metric of its own"
    logged: ClassVar[tuple[str, ...]] = ("number",)

    def improve(self, task, start, carry, data, cleaned, index):
        carry, batch, metrics = super().improve(task, start, carry, data, cleaned, index)
        return carry, batch, metrics | {"number": jnp.float32(index)}


def test_a_learner_has_the_metrics_of_those_it_derives_from_and_each_once():
    class Again(Numbered):
        logged: ClassVar[tuple[str, ...]] = ("entropy", "last")

    assert Learner.all_logged() == ()
    assert PolicyOptimisation.all_logged() == DIAGNOSTICS
    assert Numbered.all_logged() == (*DIAGNOSTICS, "number")
    assert Again.all_logged() == (*DIAGNOSTICS, "number", "last")


def test_a_learner_derived_from_the_papers_adds_a_metric_and_changes_no_bit(monkeypatch):
    monkeypatch.setattr(LEARNERS, "_classes", dict(LEARNERS._classes))
    LEARNERS.register(Numbered)

    def train(**changes):
        federation = fedkl.Federation(fedkl.preset("probe-point", "fedkl", set=changes))
        return federation.run_round(), jax.device_get(federation.state.model)

    (papers, model), (derived, same) = train(), train(**{"learner.name": "numbered"})
    jax.tree.map(np.testing.assert_array_equal, model, same)
    for one, other in zip(papers["clients"], derived["clients"], strict=True):
        # Iterations 0 to 4 have a mean of 2.
        assert other["learner"] == one["learner"] | {"number": 2.0}
