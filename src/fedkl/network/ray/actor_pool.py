"""A pool of actors: opened, given work, watched, and replaced when they are lost.

Work is a pure function of its arguments, so the work of a lost actor is given to another.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from fedkl.clients.records import Model
from fedkl.clients.work import Work
from fedkl.core.errors import UserError
from fedkl.core.own_code import OwnCodeError
from fedkl.engines import Failure
from fedkl.network.ray.actor import (
    ActorSetup,
    CallResult,
    ClientAnswer,
    ClientsActor,
    Part,
    SharedPart,
)
from fedkl.network.ray.nodes import placeable_cpus

MAX_LOSSES = 3
"""Actors that may be lost with a part before its clients have failed, or in a row before the first
has opened."""
GRACE = 180.0
"""Seconds without an actor that can work; a new one imports JAX first."""
CALL_SECONDS = 0.1
"""Seconds of work worth a call, which costs a few milliseconds."""
FIRST_CALL_TIMEOUT = 900.0
"""Seconds for an actor's first call of a kind, which compiles."""
MIN_TIMEOUT, TIMEOUT_FACTOR = 30.0, 20.0
"""Seconds for later calls: a constant plus a factor of the measured time."""
_POLL_INTERVAL = 1.0
"""Seconds between two checks of the deadlines at most."""


Kind = tuple[Work[Any], int]
"""Work, and number of clients in a call."""


class Batch:
    """A piece of work in parts, some of which wait for an actor."""

    def __init__(self, work: Work[Any], parts: Sequence[tuple[Model, Part | SharedPart]]) -> None:
        """Args:
        work: to do.
        parts: each with the model that it starts from.
        """
        import ray

        self.work = work
        self.done: dict[int, list[ClientAnswer]] = {}
        """Answers of the parts that are done."""
        self._parts = [part for _, part in parts]
        # Sent once, however many parts and calls want it.
        models = {id(model): model for model, _ in parts}
        sent = {number: ray.put(model) for number, model in models.items()}
        self._models = [sent[id(model)] for model, _ in parts]
        self._waiting = deque(range(len(parts)))
        self.losses: Counter[int] = Counter()
        self._lost_first: dict[int, float] = {}

    @property
    def kind(self) -> Kind:
        """Key of its compiled code: all parts have the same."""
        return self.work, self._parts[0].width

    @property
    def size(self) -> int:
        """Number of parts."""
        return len(self._parts)

    def take(self, most: int, actors: int) -> list[int]:
        """Take parts for one call; empty if none wait.

        Args:
            most: number of parts at most.
            actors: number of actors that share the waiting parts.
        """
        fair = -(-len(self._waiting) // actors)
        taken: list[int] = []
        while self._waiting and len(taken) < max(1, min(most, fair)):
            i = self._waiting[0]
            # A part that was lost goes alone, so that no other is taken for the cause.
            if taken and (self.losses[i] or self._models[i] is not self._models[taken[0]]):
                break
            taken.append(self._waiting.popleft())
            if self.losses[i]:
                break
        return taken

    def request(self, taken: list[int]) -> tuple[Any, ...]:
        """Return the arguments of a call for these parts."""
        return self.work, self._models[taken[0]], [self._parts[i] for i in taken]

    def lose(self, taken: list[int], reason: str, seen: float, now: float) -> None:
        """Return the parts of a lost actor to those that wait, or fail their clients.

        Args:
            taken: the parts.
            reason: of the loss.
            seen: time of the actor's last answer.
            now: current time.
        """
        for i in reversed(taken):
            # An actor that was lost with its machine was not lost because of the part.
            self.losses[i] += seen >= self._lost_first.setdefault(i, now) or not self.losses[i]
            if self.losses[i] < MAX_LOSSES:
                self._waiting.appendleft(i)
            else:
                why = f"{MAX_LOSSES} actors were lost with its work, the last: {reason}"
                failed = Failure(why, again=False)
                self.done[i] = [
                    ClientAnswer(job.client, failed, None) for job in self._parts[i].jobs
                ]

    def cancel(self) -> None:
        """Drop the parts that wait."""
        self._waiting.clear()


class _Call(NamedTuple):
    actor: Any
    batch: Batch
    parts: list[int]
    until: float
    """Time at which the actor counts as hung."""
    seconds: float
    """Seconds that it may take."""


class PoolSize(NamedTuple):
    """Number and size of the actors of a pool."""

    number: int
    cpus: int
    """CPUs of each, or those of the largest node."""


class _OpeningActor(NamedTuple):
    actor: Any
    cpus: int
    begun: float


class ActorPool:
    """Actors of a cluster, all alike; work is given to those that have opened."""

    def __init__(
        self, setup: ActorSetup, size: PoolSize, patience: float | None, clock: Callable[[], float]
    ) -> None:
        """Open the actors, and wait for the first.

        Args:
            setup: of each.
            size: of the pool.
            patience: seconds that a call may take; None: many times the measured time.
            clock: returns the current time.

        Raises:
            UserError: a plugin or a simulator does not run there, or no actor opens.
        """
        import ray

        self._setup = ray.put(setup)
        self._size = size
        self._patience = patience
        self._clock = clock
        self._opening: dict[Any, _OpeningActor] = {}
        self._idle: list[Any] = []
        self._calls: dict[Any, _Call] = {}
        self._pace: dict[Kind, float] = {}
        """Measured seconds of a part."""
        self._compiled: set[tuple[Any, Kind]] = set()
        self._simulators_replaced: Counter[Any] = Counter()
        self._seen: dict[Any, float] = {}
        """Time of each actor's last answer."""
        self._lost_while_opening = 0
        self._first_lost_while_opening = 0.0
        self._no_actor_since = clock()
        self.replaced = 0
        """Actors that died or hung so far."""
        try:
            while not self._idle:
                self.advance(None)
        except BaseException:
            self.close()
            raise

    @property
    def simulators_replaced(self) -> int:
        """Number of simulators that all actors have replaced so far."""
        return self._simulators_replaced.total()

    def advance(self, batch: Batch | None) -> None:
        """Give out waiting parts, and handle one result, or none within a second.

        Raises:
            UserError: the work raised it, or no actor could work for too long.
        """
        import ray

        self._kill_unplaceable()
        while len(self._opening) + len(self._idle) + len(self._calls) < self._size.number:
            self._open()
        self._hand_out(batch)
        soonest = min((call.until for call in self._calls.values()), default=np.inf)
        timeout = max(0.0, min(_POLL_INTERVAL, soonest - self._clock()))
        ready, _ = ray.wait([*self._calls, *self._opening], num_returns=1, timeout=timeout)
        for ref in ready:
            self._handle_ready(ref)
        for ref in [r for r, call in self._calls.items() if call.until < self._clock()]:
            call = self._calls.pop(ref)
            self._lose(call, f"no answer within {call.seconds:.3g} s")
        # Before the caller handles the results.
        self._hand_out(batch)
        self._require_actor()

    def close(self) -> None:
        """Kill all actors."""
        import ray

        busy = [call.actor for call in self._calls.values()]
        setup = [setup.actor for setup in self._opening.values()]
        for actor in [*busy, *self._idle, *setup]:
            ray.kill(actor)
        self._calls, self._idle, self._opening = {}, [], {}

    def _open(self) -> None:
        import ray

        cpus = placeable_cpus(self._size.cpus)
        options = {"num_cpus": cpus, "max_restarts": 0, "max_task_retries": 0}
        actor: Any = ray.remote(ClientsActor).options(**options).remote()
        ref = actor.open.remote(self._setup, cpus)
        self._opening[ref] = _OpeningActor(actor, cpus, self._clock())

    def _kill_unplaceable(self) -> None:
        """Kill actors that wait for a larger node than there is any more."""
        import ray

        for ref, setup in list(self._opening.items()):
            if setup.cpus > 1 and placeable_cpus(setup.cpus) < setup.cpus:
                ray.kill(self._opening.pop(ref).actor)

    def _hand_out(self, batch: Batch | None) -> None:
        while batch is not None and self._idle:
            pace = self._pace.get(batch.kind, np.inf)
            most = int(CALL_SECONDS / max(pace, 1e-6))
            if not (taken := batch.take(most, len(self._idle) + len(self._calls))):
                return
            actor = self._idle.pop()
            seconds = self._timeout_for(actor, batch, taken)
            ref = actor.run.remote(*batch.request(taken))
            self._calls[ref] = _Call(actor, batch, taken, self._clock() + seconds, seconds)

    def _timeout_for(self, actor: Any, batch: Batch, taken: list[int]) -> float:
        if self._patience is not None:
            seconds = self._patience
        elif (actor, batch.kind) in self._compiled:
            seconds = MIN_TIMEOUT + TIMEOUT_FACTOR * self._pace[batch.kind] * len(taken)
        else:
            seconds = FIRST_CALL_TIMEOUT
        # It may have been slow, not hung.
        return seconds * 4.0 ** batch.losses[taken[0]]

    def _handle_ready(self, ref: Any) -> None:
        import ray
        from ray.exceptions import RayError, RayTaskError

        opens = ref in self._opening
        asked: _OpeningActor | _Call = self._opening.pop(ref) if opens else self._calls.pop(ref)
        try:
            done = ray.get(ref)
        except RayTaskError as error:  # the work failed, not the actor
            self._idle.append(asked.actor)
            if isinstance(error.cause, OwnCodeError):
                raise error.cause from None
            if isinstance(error.cause, UserError):
                raise UserError(str(error.cause)) from error
            raise
        except RayError as error:
            reason = str(error).splitlines()[0]
            if isinstance(asked, _Call):
                self._lose(asked, reason)
            else:
                self._lose_opening(asked, reason)
            return
        self._idle.append(asked.actor)
        self._seen[asked.actor] = self._clock()
        self._lost_while_opening = 0
        if isinstance(asked, _Call):
            self._take_result(asked, done)

    def _take_result(self, call: _Call, done: CallResult) -> None:
        kind, pace = call.batch.kind, done.seconds / len(call.parts)
        # The first call compiles: its time says nothing about the next.
        if (call.actor, kind) in self._compiled:
            self._pace[kind] = pace
        else:
            self._compiled.add((call.actor, kind))
            self._pace.setdefault(kind, pace)
        self._simulators_replaced[call.actor] = done.simulators_replaced
        # Copies, because the results lie in shared memory that is needed again.
        call.batch.done |= zip(call.parts, jax.tree.map(_copied, done.answers), strict=True)

    def _lose(self, call: _Call, reason: str) -> None:
        import ray

        ray.kill(call.actor)
        self.replaced += 1
        call.batch.lose(call.parts, reason, self._seen.pop(call.actor), self._clock())

    def _lose_opening(self, lost: _OpeningActor, reason: str) -> None:
        import ray

        ray.kill(lost.actor)
        self.replaced += 1
        if not self._lost_while_opening:
            self._first_lost_while_opening = self._clock()
        elif lost.begun < self._first_lost_while_opening:
            return  # they may all have been on one machine
        self._lost_while_opening += 1
        if self._lost_while_opening == MAX_LOSSES:
            raise UserError(f"{MAX_LOSSES} actors in a row were lost before they opened: {reason}")

    def _require_actor(self) -> None:
        if self._idle or self._calls:
            self._no_actor_since = self._clock()
        elif self._clock() - self._no_actor_since > GRACE:
            raise UserError(
                f"no actor of the cluster was there to work for {GRACE:g} s: its CPUs may be taken "
                "by others, or its machines gone"
            )


def _copied(x: Any) -> Any:
    return np.array(x) if isinstance(x, np.ndarray) else x
