"""The interface of a learner: how a client learns in its round.

A round is the same for every learner (`fedkl.clients.round.local_round`): it begins, then collects
episodes and improves on them I times, and finishes. A learner says what these do, which hooks of
algorithms it calls, and what it keeps, sends and logs. `PolicyOptimisation` is the paper's. The
fields of a learner are its settings, in the config's table `[learner]`.

What a learner calls inside a round is compiled: it must be pure.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

from jaxtyping import Int, PRNGKeyArray, PyTree

from fedkl.algorithms.base import Algorithm
from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.io.arrays import Array
from fedkl.learning.penalty import Coefficient
from fedkl.learning.policy import MLP, Policy
from fedkl.learning.settings import CriticSettings, RoundSettings, Sharing
from fedkl.learning.trajectories import Trajectories
from fedkl.worlds.base import AnyWorld

if TYPE_CHECKING:
    from fedkl.clients.behaviour import Behaviour
    from fedkl.clients.records import ClientState, Metrics, Start, Task, Trained

LEARNERS = Registry("learner", "Learner")
register_learner = LEARNERS.register
"""Adds a learner under its `name`, for configs to ask for (`learner.name`); decorates the class."""

LOCAL_HOOKS = ("coefficients", "prepare", "penalty", "gradient", "adapt", "adapt_after_round")
"""Hooks of an algorithm that a learner calls in a round. All others are called in any case."""


class Learner(RoundSettings):
    """Base of all learners, with the settings that all have."""

    name: ClassVar[str]
    summary: ClassVar[str]
    hooks: ClassVar[tuple[str, ...]] = ()
    """Those of `LOCAL_HOOKS` that it calls; an algorithm that needs another is refused."""
    logged: ClassVar[tuple[str, ...]] = ()
    """Metrics that this class adds to those of the classes that it derives from: a number for each
    iteration (NaN: there is none), of which the mean goes to the log."""

    @classmethod
    def all_logged(cls) -> tuple[str, ...]:
        """The metrics of its own, each once: those in `logged` here and in all that it derives
        from."""
        named = (name for c in reversed(cls.__mro__) for name in vars(c).get("logged", ()))
        return tuple(dict.fromkeys(named))

    def check(self, algorithm: Algorithm, sharing: Sharing) -> None:
        """Refuse an algorithm with hooks that this learner does not call, or a way of sharing that
        it cannot work with.

        Raises:
            UserError: names them.
        """
        for hook in LOCAL_HOOKS:
            own = getattr(type(algorithm), hook) is not getattr(Algorithm, hook)
            if own and hook not in self.hooks:
                raise UserError(
                    f"the algorithm {algorithm.name} has the hook `{hook}`, which the learner "
                    f"{self.name} does not call"
                )

    def coefficients(self) -> dict[str, Coefficient]:
        """The penalty coefficients of its own that each client adapts."""
        return {}

    @abstractmethod
    def networks(
        self, world: AnyWorld, critic: CriticSettings, key: PRNGKeyArray
    ) -> tuple[Policy, MLP | None]:
        """Make a policy and a critic, if it needs one, before the first round."""

    @abstractmethod
    def begin(self, task: Task, start: Start) -> PyTree:
        """Make what the first iteration starts with; of any structure, which every iteration
        keeps."""

    @abstractmethod
    def behaviour(self, task: Task, start: Start, carry: PyTree) -> Behaviour:
        """Return the client's behaviour in the next iteration."""

    def clean(self, task: Task, data: Trajectories) -> Any:
        """Prepare an iteration's data, in a step of its own."""
        return ()

    @abstractmethod
    def improve(
        self,
        task: Task,
        start: Start,
        carry: PyTree,
        data: Trajectories,
        cleaned: Any,
        index: Int[Array, ""],
    ) -> tuple[PyTree, Any, Metrics]:
        """Improve what the next iteration acts by, on what was collected.

        Args:
            task: world, algorithm and settings.
            start: what the client started the round from.
            carry: what the iteration before left.
            data: the episodes.
            cleaned: as `clean` gives it.
            index: i - 1.

        Returns:
            What the next iteration starts with, what is left for `fit_critic`, and metrics:
            those in `records.OF_ITERATION` (0 where they mean nothing), and `all_logged`.
        """

    def fit_critic(
        self, task: Task, start: Start, carry: PyTree, batch: Any, index: Int[Array, ""]
    ) -> PyTree:
        """Do the part of an iteration that the next one needs only after its episodes: where a
        simulator runs on the host, it runs meanwhile."""
        return carry

    @abstractmethod
    def finish(
        self, task: Task, start: Start, end: PyTree, metrics: Metrics
    ) -> tuple[Trained, ClientState]:
        """Make what a client sends and keeps after its last iteration.

        Args:
            task: world, algorithm and settings.
            start: what it started the round from.
            end: what the last iteration left.
            metrics: of all iterations.
        """
