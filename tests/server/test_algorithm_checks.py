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


class Branching(Mine):
    def penalty(self, at):
        return divergence(at) if at.step > 1 else 0.0


class InNumpy(Mine):
    def penalty(self, at):
        return float(np.mean(np.asarray(at.actions.log_prob(at.batch.action))))


class BranchingGradient(Mine):
    def gradient(self, gradient, at):
        return gradient if at.iteration else jax.tree.map(jnp.negative, gradient)


class Bare(Mine):
    def coefficients(self):
        return {"c1": 0.1}


class Named(Mine):
    def client_state(self, policy):
        return {"mood": "good"}


class NotANumber(Mine):
    def server_state(self, policy):
        return jnp.full(3, jnp.nan)


class Half(Mine):
    def finish(self, result):
        return result.client_state


class Other(Mine):
    def client_state(self, policy):
        return jnp.zeros(3)

    def finish(self, result):
        return jnp.zeros(4), ()


class Divides(Mine):
    def finish(self, result):
        return (), jnp.log(-result.step_size_sum)


class Texts(Mine):
    def finish(self, result):
        return (), "done"


class Loses(Mine):
    def server_state(self, policy):
        return jnp.zeros(3)

    def gather(self, shared, messages, clients):
        return np.zeros(2)


class Unsettled(Mine):
    def adapt_after_round(self, result):
        return {name: c * jnp.nan for name, c in result.coefficients.items()}


class Rounded(Mine):
    def penalty(self, at):
        return jnp.round(10 * divergence(at)).astype(int)


class Switched(Mine):
    def penalty(self, at):
        return jnp.where(divergence(at) > 0.001, 1.0, 0.0)


class Capped(Mine):
    """Beyond a KL that a usual local step does not reach it has no slope."""

    def penalty(self, at):
        return jnp.minimum(divergence(at), 0.002)


class Counting(Mine):
    seen: ClassVar[list] = []

    def penalty(self, at):
        self.seen.append(at.iteration)
        return len(self.seen) * divergence(at)


class Alternating(Mine):
    flips: ClassVar[list] = []

    def adapt(self, at, measured):
        self.flips.append(1)
        return {name: c * (1 + len(self.flips) % 2) for name, c in at.coefficients.items()}


class Keeping(Mine):
    kept: ClassVar[list] = []

    def penalty(self, at):
        self.kept.append(divergence(at))
        return (self.kept[-2:][0] + self.kept[-1]) / 2


AGAIN = (
    "gives something else when it is called again with the same input. What Python remembers (a "
    "list, a counter) is looked at when a hook is compiled"
)
IN_JAX = "must be written in JAX, to be compiled and differentiated: jnp in the place of NumPy"


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
        (Branching, f"`penalty` {IN_JAX}"),
        (InNumpy, f"`penalty` {IN_JAX}"),
        (BranchingGradient, f"`gradient` {IN_JAX}"),
        (Bare, "`coefficients` must give a dict of Coefficient (of fedkl.algorithms) by name, not "
         "{'c1': 0.1}"),
        (Named, "what `client_state` or `server_state` gives must be made of arrays and numbers ("),
        (NotANumber, "what `server_state` gives is not finite"),
        (Half, "`finish` must give two things, what the client keeps and its message, not "),
        (Other, "what `finish` has the client keep is not what `client_state` gives: "),
        (Divides, "what `finish` gives is not finite"),
        (Texts, "what `finish` gives must be made of arrays and numbers ("),
        (Loses, "what `gather` gives has not the structure of what `server_state` gives: "),
        (Unsettled, "what `adapt_after_round` gives is not finite after a round"),
        (Undefined, "`distance_to_global` must give a finite number, not nan"),
        (Rounded, "`penalty` depends on the policy, but its gradient is 0 wherever it was tried, "
         "so it would change nothing. What rounds or compares (jnp.round, jnp.floor, astype(int)"),
        (Switched, "`penalty` depends on the policy, but its gradient is 0 wherever it was tried"),
        (Counting, f"`penalty` {AGAIN}"),
        (Alternating, f"`adapt` {AGAIN}"),
        (Keeping, "`penalty` keeps what it computes, or finds what was kept, in Python (a list, "),
    ],
)  # fmt: skip
def test_a_hook_that_no_round_can_use_is_named(algorithm, sentence):
    with pytest.raises(UserError) as error:
        fedkl.Federation(config_with(algorithm()))
    assert str(error.value).startswith(f"the algorithm mine cannot be trained: {sentence}")


@pytest.mark.parametrize("preset", ["probe-point", "cartpole-gravity"])
@pytest.mark.parametrize("algorithm", [SafeRoot, Capped])
def test_a_safe_root_and_a_capped_penalty_are_trained(preset, algorithm):
    require_sound_hooks(config_with(algorithm(), preset))


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


@pytest.mark.parametrize("world", ["probe-point", "probe-chain"])
def test_fedprox_through_the_gradient_hook_is_fedprox_bit_for_bit(world):
    """Where actions are continuous, and where they are discrete; with another sign it is not."""

    def trained(algorithm):
        settings = {"learner.learning_rate": 0.01, "learner.epochs": 2, "world.name": world}
        federation = fedkl.Federation(config_with(algorithm, **settings))
        list(federation)
        return jax.tree.leaves(federation.state.model.policy)

    def same(a, b):
        return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))

    built_in = trained(FedProx(mu=0.5))
    assert same(trained(ByHook(mu=0.5)), built_in)
    assert not same(trained(ByHook(mu=-0.5)), built_in)
    assert not same(trained(ByHook(mu=0.0)), built_in)


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
