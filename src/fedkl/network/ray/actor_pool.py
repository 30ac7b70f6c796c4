"""The actors that work is handed to: opened, watched, and replaced when they are lost.

Work is a pure function of what is sent, so what an actor took with it is simply handed to another.
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
"""Actors that a part may take with it before its clients are given up, or that may be lost one
after the other before the first has opened."""
GRACE = 180.0
"""Seconds that there may be nobody to work; a process that opens imports JAX first."""
CALL_SECONDS = 0.1
"""Seconds of work worth a call, which costs a few milliseconds."""
FIRST_CALL_TIMEOUT = 900.0
"""Seconds that an actor may take for work of a kind that it has not done yet, and must compile."""
MIN_TIMEOUT, TIMEOUT_FACTOR = 30.0, 20.0
"""How many seconds an actor may take later on: so many, and so many times what was measured."""
_POLL_INTERVAL = 1.0
"""Seconds between two looks at the clock, at the most."""


Kind = tuple[Work[Any], int]
"""Work, and how many clients are in a call."""


class Batch:
    """A piece of work in parts, some of which wait to be handed to an actor."""

    def __init__(self, work: Work[Any], parts: Sequence[tuple[Model, Part | SharedPart]]) -> None:
        """Args:
        work: what is asked.
        parts: with the model that each starts from.
        """
        import ray

        self.work = work
        self.done: dict[int, list[ClientAnswer]] = {}
        """What there is of each part."""
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
        """What it is compiled for: its parts are alike."""
        return self.work, self._parts[0].width

    @property
    def size(self) -> int:
        """How many parts there are."""
        return len(self._parts)

    def take(self, most: int, actors: int) -> list[int]:
        """Parts for one call, which is empty if none wait.

        Args:
            most: how many at the most.
            actors: how many share what waits.
        """
        fair = -(-len(self._waiting) // actors)
        taken: list[int] = []
        while self._waiting and len(taken) < max(1, min(most, fair)):
            i = self._waiting[0]
            # What came to harm goes alone, so that no other is taken for the cause.
            if taken and (self.losses[i] or self._models[i] is not self._models[taken[0]]):
                break
            taken.append(self._waiting.popleft())
            if self.losses[i]:
                break
        return taken

    def request(self, taken: list[int]) -> tuple[Any, ...]:
        """What an actor is sent of these parts."""
        return self.work, self._models[taken[0]], [self._parts[i] for i in taken]

    def lose(self, taken: list[int], reason: str, seen: float, now: float) -> None:
        """An actor was lost with these parts: they wait again, or are given up.

        Args:
            taken: the parts.
            reason: why it was lost.
            seen: when the actor was last heard of.
            now: what time it is.
        """
        for i in reversed(taken):
            # Whoever was lost with a machine, and idle, is not lost because of the part.
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
        """Nobody wants what is left of it."""
        self._waiting.clear()


class _Call(NamedTuple):
    actor: Any
    batch: Batch
    parts: list[int]
    until: float
    """When the actor counts as hung."""
    seconds: float
    """How long it may take."""


class PoolSize(NamedTuple):
    """Which actors are wanted."""

    number: int
    cpus: int
    """Of each, as far as there is a node that has so many."""


class _OpeningActor(NamedTuple):
    actor: Any
    cpus: int
    begun: float


class ActorPool:
    """Actors of a cluster, all alike; work is given to those whose `open` has come back."""

    def __init__(
        self, setup: ActorSetup, size: PoolSize, patience: float | None, clock: Callable[[], float]
    ) -> None:
        """Opens them, and waits for the first.

        Args:
            opening: what each is told.
            crew: how many, and how large.
            patience: seconds that a call may take; None: as measured, with much to spare.
            clock: what time it is.

        Raises:
            UserError: a plugin or a simulator does not run there, or nobody opens.
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
        """Seconds a part."""
        self._compiled: set[tuple[Any, Kind]] = set()
        self._simulators_replaced: Counter[Any] = Counter()
        self._seen: dict[Any, float] = {}
        """When each actor was last heard of."""
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
        """By all actors so far."""
        return self._simulators_replaced.total()

    def advance(self, batch: Batch | None) -> None:
        """Hands out what waits, and takes in one thing that happened, or none within a second.

        Raises:
            UserError: work says so, or there has been nobody to do it for too long.
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
        # Before anybody looks at what has come.
        self._hand_out(batch)
        self._require_actor()

    def close(self) -> None:
        """Ends all of them, whatever they are doing."""
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
        """Those that wait for a node as large as only one was that is gone."""
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
        except RayTaskError as error:  # not the actor failed, but what ran in it
            self._idle.append(asked.actor)
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
        # The first call compiles: what it took says nothing of the next.
        if (call.actor, kind) in self._compiled:
            self._pace[kind] = pace
        else:
            self._compiled.add((call.actor, kind))
            self._pace.setdefault(kind, pace)
        self._simulators_replaced[call.actor] = done.simulators_replaced
        # Copies, because what came lies in memory that others need again.
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
