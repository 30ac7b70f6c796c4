"""The kinds of work that a client can be asked to do; over a network their names and fields are
sent."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, PRNGKeyArray

from fedkl.clients.records import ClientState, Start, Task, Trained
from fedkl.clients.round import global_behaviour, local_round
from fedkl.clients.sources import Recording, Source, Traced
from fedkl.io.arrays import Array

R_co = TypeVar("R_co", covariant=True)

EPISODES_AT_ONCE = 200
"""Of a client, side by side: any number of episodes then fits into memory."""


@runtime_checkable
class Work(Protocol[R_co]):
    """Something to be done on a client, with its model, its own state and its world.

    Inside jit where the source is traced; its fields are static then.
    """

    name: ClassVar[str]

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[R_co, ClientState | None]:
        """The answer, and the client's state afterwards (None: as it was)."""


class Train(eqx.Module):
    """A round of local training."""

    name: ClassVar[str] = "train"

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
        return local_round(task, start, source)


class Evaluate(eqx.Module):
    """Undiscounted, unscaled returns of the broadcast policy; changes nothing."""

    name: ClassVar[str] = "evaluate"

    episodes: int = eqx.field(static=True)
    deterministic: bool = eqx.field(static=True)
    """Take the mode of the policy instead of a sample."""

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[Float[Array, " e"], None]:
        acts = global_behaviour(task, start.model, start.client, self.deterministic)
        whole, rest = divmod(self.episodes, EPISODES_AT_ONCE)
        keys = [
            jax.random.fold_in(start.key, block * EPISODES_AT_ONCE) if block else start.key
            for block in range(whole + 1)
        ]

        def block(key: PRNGKeyArray, size: int = EPISODES_AT_ONCE) -> Float[Array, " e"]:
            return source.collect(acts, size, key).returns()

        if whole > 1 and isinstance(source, Traced):
            returns = [jax.lax.map(block, jnp.stack(keys[:whole])).reshape(-1)]
        else:
            returns = [block(key) for key in keys[:whole]]
        if rest:
            returns.append(block(keys[whole], rest))
        return jnp.concatenate(returns), None


class RecordEpisode(eqx.Module):
    """One episode of the broadcast policy, to look at; changes nothing."""

    name: ClassVar[str] = "record"

    deterministic: bool = eqx.field(static=True)

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[Recording, None]:
        acts = global_behaviour(task, start.model, start.client, self.deterministic)
        return source.record(acts, start.key), None
