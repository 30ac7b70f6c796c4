"""SCAFFOLD's control variates, by hand on two quadratics and in a world whose answer is known.

Client n minds a policy's bias x by f_n(x) = h_n / 2 (x - t_n)^2, with h = 1, 3 and t = 0, 4. The
best for both is sum h t / sum h = 3. In a round each takes two gradient steps of size 1/4, which
multiply its distance from t_n by 1 - h_n / 4 each: by 3/4 and by 1/4.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.algorithms import FedAvg, Scaffold
from fedkl.core.errors import UserError
from fedkl.learning.policy import personal_part, without
from fedkl.learning.settings import LearnerSettings, Sharing

STIFFNESS, TARGETS = (1.0, 3.0), (0.0, 4.0)
STEPS, SIZE = 2, 0.25


def bias(policy):
    return float(policy.network.biases[0][0])


def with_bias(policy, x):
    return eqx.tree_at(lambda p: p.network.biases[0], policy, jnp.array([x]))


class Quadratics:
    """A federation of the two clients in which the hooks do all that is not arithmetic."""

    def __init__(self, algorithm, policy, hand):
        self.algorithm, self.policy, self.hand = algorithm, policy, hand
        self.shared = algorithm.server_state(policy)
        self.own = [algorithm.client_state(policy)] * 2

    def run_round(self):
        ends, messages = [], []
        for n in range(2):
            end = self._trained(n)
            ended = self.hand.ended(
                client_state=self.own[n],
                server_state=self.shared,
                policy=end,
                global_policy=self.policy,
                step_size_sum=jnp.array(STEPS * SIZE),
            )
            self.own[n], message = self.algorithm.finish(ended)
            ends.append(bias(end))
            messages.append(jax.device_get(message))
        self.policy = with_bias(self.policy, sum(ends) / 2)
        self.shared = self.algorithm.gather(jax.device_get(self.shared), messages, clients=2)
        return ends

    def _trained(self, n):
        policy, at = (
            self.policy,
            self.hand.at()._replace(client_state=self.own[n], server_state=self.shared),
        )
        nothing = jax.tree.map(jnp.zeros_like, policy)
        for _ in range(STEPS):
            exact = with_bias(nothing, STIFFNESS[n] * (bias(policy) - TARGETS[n]))
            applied = self.algorithm.gradient(exact, at)
            policy = jax.tree.map(lambda p, g: p - SIZE * g, policy, applied)
        return policy


@pytest.fixture
def quadratics(normal, hand):
    def make(algorithm):
        return Quadratics(algorithm, normal(0.0, 0.0, 1.0), hand)

    return make


def test_the_first_rounds_by_hand(quadratics):
    """Every number is a multiple of a power of 1/2, so nothing is rounded.

    Round 1, from x = 0 without control: client 1 is at its target; client 2 goes 0, 3, 3.75.
        c_1 = 0, c_2 = (0 - 3.75) / (1/2) = -7.5, and c is their mean, -3.75.
    Round 2, from x = 1.875: client 1 adds c - c_1 = -3.75 to its gradients, which are then -1.875
        and -1.40625; client 2 adds c - c_2 = 3.75, and has -2.625 and -0.65625.
        c_1 = 0 + 3.75 - 0.8203125 / (1/2), c_2 = -7.5 + 3.75 - 0.8203125 / (1/2).
    """
    federation = quadratics(Scaffold())
    assert federation.run_round() == [0, 3.75]
    assert bias(federation.policy) == 1.875
    assert [bias(c) for c in federation.own] == [0, -7.5]
    assert bias(federation.shared) == -3.75

    assert federation.run_round() == [1.875 + 0.46875 + 0.3515625, 1.875 + 0.65625 + 0.1640625]
    assert bias(federation.policy) == 2.6953125
    assert [bias(c) for c in federation.own] == [2.109375, -5.390625]
    assert bias(federation.shared) == -1.640625


def test_what_has_no_gradient_stays(quadratics):
    federation = quadratics(Scaffold())
    for _ in range(3):
        federation.run_round()
    for tree in (federation.shared, *federation.own):
        assert not tree.network.weights[0].any()
        assert not tree.log_std.any()


def test_fedavg_ends_where_the_steps_balance_and_scaffold_at_the_optimum(quadratics):
    """A round of FedAvg takes client n the part a_n = 1 - (1 - h_n / 4)^2 of its way to t_n, and
    ends where these cancel: at sum a t / sum a, with a = 7/16 and 15/16."""
    biased, corrected = quadratics(FedAvg()), quadratics(Scaffold())
    for _ in range(40):
        biased.run_round()
        corrected.run_round()
    a = [1 - (1 - SIZE * h) ** STEPS for h in STIFFNESS]
    assert a == [7 / 16, 15 / 16]
    assert bias(biased.policy) == pytest.approx(a[1] * 4 / sum(a), abs=1e-5)
    assert bias(corrected.policy) == pytest.approx(3, abs=1e-5)
    # There the clients' gradients are 3 and -3, and those of the federation are 0.
    assert [bias(c) for c in corrected.own] == pytest.approx([3, -3], abs=1e-4)
    assert bias(corrected.shared) == pytest.approx(0, abs=1e-4)
    assert biased.own == [(), ()]
    assert biased.shared == ()


def test_who_starts_at_the_optimum_with_the_right_controls_stays(quadratics):
    federation = quadratics(Scaffold())
    federation.policy = with_bias(federation.policy, 3.0)
    federation.own = [with_bias(c, x) for c, x in zip(federation.own, (3.0, -3.0), strict=True)]
    assert federation.run_round() == [3, 3]
    assert [bias(c) for c in federation.own] == [3, -3]


def test_only_those_who_took_part_move_c_and_as_one_of_all(normal):
    """c + (1 / N) sum (c_n^+ - c_n): of ten clients, two took part."""
    c = jax.device_get(normal(1.0, -2.0, 1.0))
    changes = [jax.device_get(normal(w, b, 1.0)) for w, b in [(5.0, 10.0), (-15.0, 0.5)]]
    after = Scaffold().gather(c, changes, clients=10)
    assert float(after.network.weights[0][0, 0]) == pytest.approx(1 - 10 / 10)
    assert bias(after) == pytest.approx(-2 + 10.5 / 10)
    assert all(type(x) is np.ndarray for x in jax.tree.leaves(after))
    assert {x.dtype for x in jax.tree.leaves(after)} == {np.dtype(np.float32)}


def test_without_messages_c_stays(normal):
    c = normal(1.0, -2.0, 1.0)
    assert Scaffold().gather(c, [], clients=10) is c


@pytest.mark.parametrize("step_size_sum", [0.5, 0.125])
def test_a_control_is_the_way_over_the_step_sizes_that_count(normal, hand, step_size_sum):
    """The guard may have halved steps, or taken some back."""
    own, c = normal(0.0, 0.5, 1.0), normal(0.0, 2.0, 1.0)
    start, end = normal(0.0, 1.0, 1.0), normal(0.0, 1.25, 1.0)
    ended = hand.ended(
        client_state=own,
        server_state=c,
        policy=end,
        global_policy=start,
        step_size_sum=jnp.array(step_size_sum),
    )
    kept, message = Scaffold().finish(ended)
    assert bias(kept) == 0.5 - 2 - 0.25 / step_size_sum
    assert bias(message) == bias(kept) - 0.5


def test_who_went_nowhere_learnt_nothing_of_its_gradient(normal, hand):
    """Every iteration was rolled back: 0 / 0 must not come of it."""
    own, c, start = normal(3.0, 0.5, 1.0), normal(0.0, 2.0, 1.0), normal(0.0, 1.0, 1.0)
    ended = hand.ended(
        client_state=own,
        server_state=c,
        policy=start,
        global_policy=start,
        step_size_sum=jnp.array(0.0),
    )
    kept, message = Scaffold().finish(ended)
    jax.tree.map(np.testing.assert_array_equal, kept, own)
    assert not any(x.any() for x in jax.tree.leaves(message))


@pytest.mark.parametrize("settings", [{"optimiser": "adam"}, {"max_gradient_norm": 0.5}])
def test_a_learner_whose_way_does_not_show_its_gradients_is_refused(settings):
    dotted = {f"learner.{name}": value for name, value in settings.items()}
    with pytest.raises(UserError, match=r"learner\.optimiser must be sgd and learner\.max_grad"):
        fedkl.preset("probe-point", "scaffold", set=dotted)
    with pytest.raises(UserError, match="for scaffold"):
        Scaffold().check(LearnerSettings(**settings), Sharing())
    assert (
        fedkl.preset("probe-point", "fedavg", set=dotted).learner
        == fedkl.preset("probe-point", "fedkl", set=dotted).learner
    )


def test_regions_which_exchange_models_only_are_refused():
    with pytest.raises(UserError, match=r"^aggregation\.reduce must not be grouped with scaffold"):
        fedkl.preset("probe-point", "scaffold", set={"aggregation.reduce": "grouped"})


def test_what_is_personal_has_no_control_variate(normal, hand):
    """The bias is the client's alone: its gradient passes, and nothing is said of its way."""
    start, end = normal(1.0, 1.0, 1.0), normal(1.5, 3.0, 1.0)
    personal = personal_part(start, "action-bias")
    own, c = (without(normal(w, 9.0, 1.0), personal) for w in (0.25, 2.0))
    at = hand.at()._replace(client_state=own, server_state=c)
    gradient = Scaffold().gradient(normal(10.0, 20.0, 1.0), at)
    assert float(gradient.network.weights[0][0, 0]) == 10 + 2 - 0.25
    assert bias(gradient) == 20

    move = jax.tree.map(jnp.subtract, *(without(p, personal) for p in (end, start)))
    ended = hand.ended(
        client_state=own,
        server_state=c,
        policy=end,
        global_policy=start,
        move=move,
        step_size_sum=jnp.array(0.5),
    )
    kept, message = Scaffold().finish(ended)
    assert float(message.network.weights[0][0, 0]) == -0.5 / 0.5 - 2
    assert float(kept.network.weights[0][0, 0]) == 0.25 - 3
    assert kept.network.biases == message.network.biases == (None,)
    gathered = Scaffold().gather(jax.device_get(c), [jax.device_get(message)], clients=3)
    assert float(gathered.network.weights[0][0, 0]) == 1
    assert gathered.network.biases == (None,)


# In a federation.

STIFF = {
    "world.stiffness": 16,
    "world.spread": 0.5,
    "federation.clients": 2,
    "federation.clients_per_round": 2,
    "federation.critic": "local",
    "federation.observation_statistics": "none",
    "federation.reward_statistics": "none",
    "learner.hidden": [],
    "learner.output_scale": 0.0,
    "learner.initial_log_std": -1.5,
    "learner.iterations": 10,
    "learner.steps": 256,
    "learner.epochs": 1,
    "learner.minibatch": 256,
    "learner.learning_rate": 0.05,
    "learner.standardise_advantages": False,
    "learner.c2": 1e-9,
    "learner.c2_bounds": [1e-9, 1e-9],
    "learner.guard": False,
    "critic.hidden": [],
    "critic.epochs": 20,
    "critic.minibatch": 256,
    "critic.learning_rate": 0.05,
    "evaluation.every": 1000,
    "evaluation.episodes": 1,
}


def mean_action(algorithm, seed):
    """Of the global policy, averaged over the last 10 of 25 rounds."""
    config = fedkl.preset("probe-point", algorithm, seed, STIFF)
    federation, means = fedkl.Federation(config), []
    for _ in range(25):
        federation.run_round()
        means.append(float(federation.state.model.policy(jnp.ones((1, 1))).mean[0, 0]))
    return np.mean(means[-10:])


def test_scaffold_finds_the_action_that_fedavg_drifts_away_from():
    """Targets 0 and 1, and rewards -k (a - t)^2 with k = 1/4 and 4: the best is 4 / 4.25 = 0.941.

    The mean action is weight plus bias, so a step of size 0.05 on each multiplies its distance from
    the target by 1 - 0.1 * 2 k: ten of them by 0.95^10 and 0.2^10, and FedAvg's fixed point is
    1 / (1 + 1 - 0.95^10) = 0.714.
    """
    best, drifted = 4 / 4.25, 1 / (2 - 0.95**10)
    for seed in range(3):
        fedavg, scaffold = mean_action("fedavg", seed), mean_action("scaffold", seed)
        assert fedavg == pytest.approx(drifted, abs=0.02)
        assert scaffold == pytest.approx(best, abs=0.02)
        assert abs(scaffold - best) < 0.2 * abs(fedavg - best)


@pytest.fixture(scope="module")
def trained():
    """Two rounds of each: the federation, the records and the policies after them."""

    def run(algorithm):
        federation = fedkl.Federation(fedkl.preset("probe-point", algorithm, 0, STIFF))
        records, policies = [], []
        for _ in range(2):
            records.append(federation.run_round())
            policies.append(federation.state.model.policy)
        return federation, records, policies

    return {algorithm: run(algorithm) for algorithm in ("fedavg", "scaffold")}


def test_it_sends_a_policy_more_on_both_ways(trained):
    """Weight, bias and log deviation: 12 bytes for each of the two clients."""
    pairs = zip(*(trained[name][1] for name in ("fedavg", "scaffold")), strict=True)
    for fedavg, scaffold in pairs:
        for way in ("bytes_down", "bytes_up"):
            assert scaffold[way] - fedavg[way] == 2 * 12


def test_the_first_round_is_fedavgs(trained):
    """c and c_n are 0 then; afterwards they are not."""
    (first, second), (same, other) = (trained[name][2] for name in ("fedavg", "scaffold"))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), first, same)
    assert abs(bias(other) - bias(second)) > 0.01


def test_while_all_take_part_the_shared_control_is_the_mean_of_the_clients_own(trained):
    federation, *_ = trained["scaffold"]
    own = [federation.engine.save()[n].own for n in range(2)]
    jax.tree.map(
        lambda c, a, b: np.testing.assert_allclose(c, (a + b) / 2, rtol=1e-5, atol=1e-6),
        federation.state.model.shared,
        *own,
    )
