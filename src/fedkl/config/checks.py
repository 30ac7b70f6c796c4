"""Settings that do not go together: the rules that no field can check by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fedkl.core.errors import UserError
from fedkl.heterogeneity import check_basis
from fedkl.learning.settings import ALL, FEDERATED, LOCAL, NONE, LearnerSettings
from fedkl.learning.trajectories import samples_in
from fedkl.server.aggregation import Grouped, build_aggregation
from fedkl.server.selection.selectors import MeasuringSelector
from fedkl.worlds.base import SharedWorld, require_spaces
from fedkl.worlds.heterogeneous import HeterogeneousWorld

if TYPE_CHECKING:
    from fedkl.config.config import Config


def check(config: Config) -> None:
    """Refuse settings that do not go together, which no field can tell by itself.

    Raises:
        UserError: names the field and what is allowed.
    """
    require_spaces(config.world)
    n, k = config.federation.clients, config.federation.clients_per_round
    if k > n:
        raise UserError(
            f"federation.clients_per_round must be at most federation.clients ({n}), not {k}"
        )
    if (selected := config.federation.selected) > n:
        raise UserError(
            f"federation.extra must be at most {n - k} (federation.clients less "
            f"federation.clients_per_round), not {config.federation.extra}"
        )
    if isinstance(config.world, SharedWorld) and n != config.world.agents:
        raise UserError(
            f"federation.clients must be {config.world.agents}, as many as there are agents in the "
            f"world, not {n}"
        )
    if config.federation.quorum > k:
        raise UserError(
            f"federation.quorum must be at most federation.clients_per_round ({k}), "
            f"not {config.federation.quorum}"
        )
    if config.evaluation.clients > n:
        raise UserError(
            f"evaluation.clients must be at most federation.clients ({n}), "
            f"not {config.evaluation.clients}"
        )
    _check_evaluated(config)
    if config.critic.sees_time and config.learner.bootstrap_truncation:
        raise UserError(
            "critic.sees_time needs learner.bootstrap_truncation = false: a critic that knows the "
            "time left takes the time limit for the end"
        )
    if isinstance(config.world, HeterogeneousWorld) and config.world.differences:
        config.clients()  # the parameters of each client must go together
    config.learner.check(config.algorithm, config.federation.sharing())
    if config.federation.personal == ALL:
        _check_alone(config)
    if config.federation.pools_data:
        _check_pooled(config)
    config.selection.check(n, selected)
    if config.heterogeneity.every or isinstance(config.selection, MeasuringSelector):
        check_basis(config.federation.sharing())
    if config.evaluation.averaging:
        _check_averaging(config)
    config.aggregation.check(n, k)
    own_first = config.learner.personal_iterations
    if own_first and config.federation.personal == NONE:
        raise UserError(
            "learner.personal_iterations must be 0 where federation.personal is none: there is no "
            "personal part to train"
        )
    if own_first >= config.learner.iterations:
        raise UserError(
            f"learner.personal_iterations must be below learner.iterations "
            f"({config.learner.iterations}), not {own_first}: nothing shared would be trained"
        )
    if config.federation.personal == "last-layer" and not config.learner.hidden:
        raise UserError(
            "federation.personal must not be last-layer if learner.hidden is empty: of one layer "
            "that is personal nothing is left to share"
        )
    if config.algorithm.shares and isinstance(config.aggregation.reduce, Grouped):
        raise UserError(
            f"aggregation.reduce must not be grouped with {config.algorithm.name}: regions "
            f"exchange models, and this algorithm shares more than a model through the server"
        )


def doubts(config: Config) -> list[str]:
    """Return what works and can hardly be meant, a sentence each, to warn of."""
    learner, world = config.learner, config.world
    samples, horizon = samples_in(world, learner), world.horizon
    found = []
    sizes = {"critic.minibatch": config.critic.minibatch}
    if isinstance(learner, LearnerSettings):
        sizes = {"learner.minibatch": learner.minibatch, **sizes}
        low, high = learner.ratio_bounds
        if not low <= 1 <= high:
            found.append(
                f"learner.ratio_bounds = {[low, high]} leaves out 1, where every ratio starts: the "
                "policy's objective has no gradient there"
            )
    for name, size in sizes.items():
        if size > samples:
            found.append(
                f"{name} = {size} is more than the {samples} samples of an iteration: each epoch "
                "is one gradient step on all of them"
            )
    if learner.steps < horizon:
        most = f"learner.steps = {learner.steps} is less than an episode of {world.title} may have"
        found.append(
            f"{most} ({horizon}): an iteration collects one whole episode"
            if learner.collect == "episodes"
            else f"{most} ({horizon}): no client learns from what comes after step {learner.steps}"
        )
    for group in ("learner", "algorithm"):
        for name, given in getattr(config, group).coefficients().items():
            if not given.bounds[0] <= given.first <= given.bounds[1]:
                found.append(f"{group}.{name} = {given.first} is outside of its own bounds")
    if (sent := config.algorithm.observations_sent) > samples:
        found.append(f"a client sends {sent} observations in a round, and collects {samples}")
    if isinstance(world, HeterogeneousWorld):
        for name, draw in world.differences.given:
            n = config.federation.clients
            if draw.form == "values" and len(draw.numbers) > n:
                found.append(
                    f"world.clients.{name} lists {len(draw.numbers)} values for {n} clients: those "
                    "at its end are nobody's"
                )
    return found


def warn_of_doubts(configs: Iterable[Config], warn: Callable[[str], None]) -> None:
    """Warn of settings that can hardly be meant, of each once."""
    for doubt in dict.fromkeys(doubt for config in configs for doubt in doubts(config)):
        warn(doubt)


def _check_evaluated(config: Config) -> None:
    """Refuse to evaluate clients that there are not, or in two ways at once."""
    only, n = config.evaluation.only, config.federation.clients
    if len({*only}) < len(only) or not all(client < n for client in only):
        raise UserError(
            f"evaluation.only must name different clients from 0 to {n - 1}, not {[*only]}"
        )
    if only and config.evaluation.clients:
        raise UserError(
            f"evaluation.clients must be 0 where evaluation.only names clients, not "
            f"{config.evaluation.clients}"
        )


def _check_alone(config: Config) -> None:
    """Refuse what would still reach a client from the others where it keeps its whole policy."""
    why = "where federation.personal is all, not {}: each client is to learn alone"
    federation = config.federation
    for name, allowed in (
        ("critic", "local"),
        ("observation_statistics", "local or none"),
        ("reward_statistics", "local or none"),
    ):
        if (given := getattr(federation, name)) == FEDERATED:
            raise UserError(f"federation.{name} must be {allowed} {why.format(given)}")
    if config.algorithm.shares:
        raise UserError(
            f"federation.personal must not be all for {config.algorithm.name}, which shares more "
            "than a policy through the server: each client is to learn alone"
        )
    for group in ("learner", "algorithm"):
        for name, coefficient in getattr(config, group).coefficients().items():
            if (given := coefficient.across_rounds) == "averaged":
                key = f"{group}.{name}_across_rounds"
                raise UserError(f"{key} must be kept or reset {why.format(given)}")
    if config.learner.personal_iterations:
        raise UserError(
            "learner.personal_iterations must be 0 where federation.personal is all: there is "
            "nothing shared to hold fixed meanwhile"
        )
    if config.aggregation.mapping() != build_aggregation({}).mapping():
        raise UserError(
            "aggregation must be as it is by default where federation.personal is all: there is "
            "nothing to aggregate"
        )
    if config.upload.each:
        raise UserError(
            "upload.each must be empty where federation.personal is all: no network is sent"
        )


def _check_pooled(config: Config) -> None:
    """Refuse what would keep from others what was learnt from everybody's data."""
    federation = config.federation
    if config.world.is_shared:
        raise UserError(
            f"federation.data must be own in the world {config.world.title}: its clients are "
            "agents of one simulation, and none can be put in another's place"
        )
    if federation.personal != NONE:
        raise UserError(
            f"federation.personal must be none where federation.data is pooled, not "
            f"{federation.personal}: what is learnt from everybody's data is for everybody"
        )
    if federation.observation_statistics == LOCAL:
        raise UserError(
            "federation.observation_statistics must be federated or none where federation.data is "
            "pooled, not local: who never trains would have none to see with"
        )


def _check_averaging(config: Config) -> None:
    """Refuse to compare averages where clients' policies cannot act in each other's worlds."""
    if config.world.is_hosted:
        raise UserError(
            f"evaluation.averaging must be false in the world {config.world.title}: a mixture of "
            "policies acts only in worlds that run inside JAX"
        )
    if config.federation.personal != NONE:
        raise UserError(
            f"evaluation.averaging must be false where federation.personal is "
            f"{config.federation.personal}, not none: only whole policies can be compared"
        )
