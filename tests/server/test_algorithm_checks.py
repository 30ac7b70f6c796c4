"""An algorithm of a plugin that no round could use is refused before the first, by its hook."""

from dataclasses import fields, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import ALGORITHMS, Algorithm, FedAvg, FedProx, safe_sqrt, weighted_mean
from fedkl.core.errors import StalledError, UserError
from fedkl.server.algorithm_checks import require_sound_hooks

TINY = {
    "federation.clients": 3, "federation.clients_per_round": 2, "learner.iterations": 2,
    "learner.steps": 64, "learner.epochs": 1, "evaluation.episodes": 2, "federation.rounds": 3,
}  # fmt: skip


class Mine(Algorithm):
    name: ClassVar[str] = "mine"
    summary: ClassVar[str] = "of a plugin"


def settings_of(algorithm):
    return {field.name: getattr(algorithm, field.name) for field in fields(algorithm)}


def divergence(at):
    return weighted_mean(at.global_actions.kl(at.actions), at.batch.weight)


class Root(Mine):
    def penalty(self, at):
        return jnp.sqrt(divergence(at))


class SafeRoot(Mine):
    def penalty(self, at):
        return safe_sqrt(divergence(at))


class Vector(Mine):
    def penalty(self, at):
        return at.global_actions.kl(at.actions)


class Infinite(Mine):
    def penalty(self, at):
        return 1 / divergence(at)


class Text(Mine):
    def penalty(self, at):
        return "much"


class Flat(Mine):
    def gradient(self, gradient, at):
        return jax.tree.map(jnp.ravel, gradient)


class Forgetful(Mine):
    def adapt(self, at, measured):
        return {}


class Undefined(Mine):
    def distance_to_global(self, at):
        return jnp.log(-jnp.ones(()))


def config_with(algorithm, preset="probe-point", **changes):
    chosen = fedkl.preset(preset, "fedavg", set={**TINY, **changes})
    return replace(chosen, algorithm=algorithm)


@pytest.mark.parametrize(
    ("algorithm", "sentence"),
    [
        (Root, "the gradient of `penalty` is not finite where the local policy is the global one, "
         "as at the start of every round (the root of a divergence has an infinite slope at 0: "
         "fedkl.algorithms.safe_sqrt has not)"),
        (Vector, "`penalty` must give a finite number, not an array of shape (8,) (a mean over "
         "states, say)"),
        (Infinite, "`penalty` must give a finite number, not inf where the local policy is the "
         "global one, as at the start of every round"),
        (Text, "`penalty` must give a finite number, not str"),
        (Flat, "what `gradient` gives has not the structure of what it was given: "),
        (Forgetful, "what `adapt` gives has not the structure of what it was given: "),
        (Undefined, "`distance_to_global` must give a finite number, not nan"),
    ],
)  # fmt: skip
def test_a_hook_that_no_round_can_use_is_named(algorithm, sentence):
    with pytest.raises(UserError) as error:
        fedkl.Federation(config_with(algorithm()))
    assert str(error.value).startswith(f"the algorithm mine cannot be trained: {sentence}")


@pytest.mark.parametrize("preset", ["probe-point", "cartpole-gravity"])
def test_a_safe_root_is_trained(preset):
    require_sound_hooks(config_with(SafeRoot(), preset))


@pytest.mark.parametrize("personal", ["none", "action-bias"])
@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_what_a_plugin_inherits_from_ours_is_sound(name, personal):
    class Child(ALGORITHMS[name]):
        name: ClassVar[str] = "child"

    settings = {**TINY, "federation.personal": personal}
    ours = fedkl.preset("reacher-init-state", name, set=settings)
    child = Child(**settings_of(ours.algorithm))
    require_sound_hooks(replace(ours, algorithm=child))


class ByHook(Mine):
    """FedProx's proximal term through `gradient`: it is added, because it is descended."""

    mu: float = 0.5

    def gradient(self, gradient, at):
        pulled = jax.tree.map(jnp.subtract, at.policy, at.global_policy)
        return jax.tree.map(lambda g, p: g + self.mu * p, gradient, pulled)


def test_fedprox_through_the_gradient_hook_is_fedprox():
    """Equal but for the order of two additions in float32; the wrong sign is far from that."""

    def last(algorithm):
        federation = fedkl.Federation(config_with(algorithm, **{"learner.learning_rate": 0.01}))
        record = list(federation)[-1]
        return np.array([record["distance_global"], *record["return_per_client"]])

    built_in, by_hook = last(FedProx(mu=0.5)), last(ByHook(mu=0.5))
    np.testing.assert_allclose(by_hook, built_in, rtol=1e-4)
    assert not np.allclose(last(ByHook(mu=-0.5)), built_in, rtol=1e-3)


def test_a_training_in_which_no_policy_ever_moves_is_stalled_and_says_why():
    chosen = config_with(FedAvg(), **{"learner.learning_rate": 1e6, "federation.rounds": 4})
    federation = fedkl.Federation(chosen)
    records = [federation.run_round() for _ in range(4)]
    with pytest.raises(StalledError, match="no client's policy moved: all 4 local iterations"):
        list(federation)
    assert [record["note"].split(":")[0] for record in records] == ["no client's policy moved"] * 4
    assert all(record["distance_global"] == 0 for record in records)


def test_a_step_that_the_guard_shortens_until_it_fits_is_no_stall():
    """Too large by a factor of some thousands: 2 iterations a round halve it until it fits."""
    settings = {"learner.learning_rate": 30.0, "federation.rounds": 8}
    records = list(fedkl.Federation(config_with(FedAvg(), **settings)))
    assert records[0]["note"] is not None
    assert records[-1]["note"] is None
    assert records[-1]["distance_global"] > 0
