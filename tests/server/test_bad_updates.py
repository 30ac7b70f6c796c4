"""Whatever a client sends, the others' round is what it would be without that client.

The honest answers are trained once; then a bad one takes the place of client 1's, in as many ways
as we could think of, and the whole loop has to cope with it.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedkl
from fedkl.clients.records import ClientState, Model, Trained, Update
from fedkl.engines import Failure, Job
from fedkl.engines.base import Report
from fedkl.io.arrays import to_arrays
from fedkl.learning.policy import MLP, Policy
from fedkl.learning.statistics import Moments
from fedkl.server.aggregation import REDUCERS
from fedkl.server.loop import Federation
from fedkl.server.state import Snapshot
from fedkl.server.validation import LONGEST

BAD = 1
"""The client that lies."""
STEPS = 128
"""What every client trains on in a round: 2 iterations of 64 steps."""

Answers = dict[int, Any]
Tamper = Callable[[Any], Any]


# The federation, with clients whose answers are known.


class Listening:
    """Passes everything on to an engine, and takes down the answers of each round."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.rounds: list[Answers] = []

    def run(self, *asked: Any) -> Iterator[tuple[int, Any]]:
        self.rounds.append(dict(self.engine.run(*asked)))
        yield from self.rounds[-1].items()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)


class Tampering:
    """Gives the known answers of a round; only client `BAD`'s is another."""

    def __init__(self, answers: Answers, how: Tamper) -> None:
        self.answers = answers | {BAD: how(answers[BAD])}

    def run(
        self, work: object, model: Model, jobs: Sequence[Job], key: object
    ) -> Iterator[tuple[int, Any]]:
        yield from ((job.client, self.answers[job.client]) for job in jobs)

    def keep(self, round: int, clients: Sequence[int]) -> None:
        """Nobody goes on from what was kept."""

    def saved(self, oldest: int) -> None:
        """Nor is anything forgotten."""

    def save(self) -> Mapping[int, ClientState]:
        return {}

    def restore(self, saved: Mapping[int, ClientState]) -> None:
        """There is nothing to go back to."""

    def report(self) -> Report:
        return {}

    def close(self) -> None:
        """Nothing was started."""


class Known(NamedTuple):
    """A federation, and what honest clients answer in its first two rounds."""

    federation: Federation
    starts: list[Snapshot]
    """Before each of the rounds."""
    rounds: list[Answers]
    without: dict[int, dict[str, np.ndarray]]
    """What the server has after each of the rounds, if client `BAD` does not answer in it."""

    def after(self, rounds: int, how: Tamper) -> tuple[Any, dict[str, np.ndarray]]:
        """The last record, and what the server has, if client `BAD` tampers with the last round."""
        self.federation.engine = Tampering(self.rounds[rounds - 1], how)
        self.federation.restore(self.starts[rounds - 1].arrays, self.starts[rounds - 1].rows)
        return self.federation.run_round(), to_arrays(self.federation.state)


@pytest.fixture(scope="module")
def known(quick_compilation: None) -> Callable[..., Known]:
    """The honest rounds of an algorithm, whose updates a reducer makes one of."""
    common = {
        "federation.clients": 3,
        "federation.clients_per_round": 3,
        "federation.retries": 0,
        "federation.rounds": 100,
        "evaluation.every": 100,
        "learner.iterations": 2,
        "learner.steps": 64,
        "learner.epochs": 1,
    }
    own = {
        "fedkl": {"algorithm.c1_across_rounds": "averaged", "learner.c2_across_rounds": "averaged"},
        "scaffold": {"learner.optimiser": "sgd", "learner.max_gradient_norm": np.inf},
    }
    reducing = {
        "krum": {"aggregation.byzantine": 0},
        "multi-krum": {"aggregation.byzantine": 0},
        "trimmed-mean": {"aggregation.trim": 0.34},
    }
    found: dict[tuple[str, str], Known] = {}

    def honest(algorithm: str, reducer: str = "mean") -> Known:
        if (algorithm, reducer) not in found:
            settings = common | own[algorithm] | {"aggregation.reduce": reducer}
            settings |= reducing.get(reducer, {})
            federation = Federation(fedkl.preset("probe-point", algorithm, 0, settings))
            federation.engine = listening = Listening(federation.engine)
            starts = []
            for _ in range(2):
                start = federation.save()
                rows = {client: dict(row) for client, row in start.rows.items()}
                starts.append(start._replace(rows=rows))
                assert federation.run_round()["rejected"] == []
            known = Known(federation, starts, listening.rounds, {})
            for rounds in 1, 2:
                known.without[rounds] = known.after(rounds, lambda _: Failure("asleep"))[1]
            found[algorithm, reducer] = known
        return found[algorithm, reducer]

    return honest


def put(thing: Any, path: Sequence[str], how: Tamper) -> Any:
    """A copy of a nest in which what lies at the path is another."""
    if not path:
        return how(thing)
    key, rest = path[0], path[1:]
    if isinstance(thing, dict):
        return thing | {key: put(thing[key], rest, how)}
    if isinstance(thing, tuple) and not hasattr(thing, "_fields"):
        i = int(key)
        return (*thing[:i], put(thing[i], rest, how), *thing[i + 1 :])
    changed = put(getattr(thing, key), rest, how)
    if isinstance(thing, tuple):
        return thing._replace(**{key: changed})
    other = copy.copy(thing)
    object.__setattr__(other, key, changed)
    return other


# What a client might send.


class LyingTrained(Trained):
    """A subclass with the right contents."""


class LyingUpdate(Update):
    """Its weight depends on how often one asks."""

    def __getattribute__(self, name: str) -> Any:
        if name == "weight":
            raise RuntimeError("asked once too often")
        return super().__getattribute__(name)


class LyingPolicy(Policy):
    """A subclass with the right contents."""


class LyingDict(dict):  # type: ignore[type-arg]
    """A subclass that has nothing to look at."""

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError("nothing to look at")


class LyingNumber(np.float32):
    """Compares with everything as it likes."""

    def __le__(self, other: object) -> Any:
        return True

    def __ge__(self, other: object) -> Any:
        return True


class LyingArray(np.ndarray):
    """Has whatever shape one wants."""

    @property
    def shape(self) -> Any:  # type: ignore[override]
        raise RuntimeError("which one?")


class LyingKey(str):
    """A key that cannot be compared."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("equal to what?")

    def __hash__(self) -> int:
        return hash("c1")


class Impostor:
    """Claims to be of a class, and breaks when it is used."""

    def __init__(self, claimed: type) -> None:
        object.__setattr__(self, "claimed", claimed)

    @property
    def __class__(self) -> Any:
        return object.__getattribute__(self, "claimed")

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return object.__getattribute__(self, "claimed")
        raise RuntimeError(f"no {name}")


class Exploding:
    """Cannot be made an array."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise RuntimeError("boom")


class Convertible:
    """Is made an array without ado."""

    def __init__(self, like: np.ndarray) -> None:
        self.like = like

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return self.like


def as_subclass(cls: type) -> Tamper:
    def how(module: Any) -> Any:
        other = object.__new__(cls)
        for field in fields(module):
            object.__setattr__(other, field.name, getattr(module, field.name))
        return other

    return how


def unset(cls: type) -> Tamper:
    return lambda _: object.__new__(cls)


def to(value: Any) -> Tamper:
    return lambda _: value


def cast(dtype: Any) -> Tamper:
    return lambda x: np.asarray(x).astype(dtype)


def number(value: float) -> Tamper:
    return lambda _: np.asarray(value, np.float32)


def first(value: float) -> Tamper:
    """The array with another first number."""

    def how(array: np.ndarray) -> np.ndarray:
        other = np.array(array)
        other.flat[0] = value
        return other

    return how


def last(value: float) -> Tamper:
    def how(array: np.ndarray) -> np.ndarray:
        other = np.array(array)
        other.flat[-1] = value
        return other

    return how


def times(factor: float) -> Tamper:
    return lambda x: np.asarray(x * np.float32(factor))


def without(key: str) -> Tamper:
    return lambda d: {k: v for k, v in d.items() if k != key}


def plus(key: Any) -> Tamper:
    return lambda d: d | {key: np.float32(1)}


def itself() -> list[Any]:
    nest: list[Any] = []
    nest.append(nest)
    return nest


def deep() -> list[Any]:
    nest: list[Any] = []
    for _ in range(100_000):
        nest = [nest]
    return nest


def signalling() -> np.ndarray:
    """A NaN whose bits say something."""
    return np.asarray([0x7FA01234], np.uint32).view(np.float32).reshape(1)


class Case(NamedTuple):
    """A class of bad update."""

    path: str
    how: Tamper
    reason: str
    algorithm: str = "fedkl"
    rounds: int = 2
    """How long the server has been at it, this round included."""


WEIGHTS = "update.model.policy.network.weights"
W0 = f"{WEIGHTS}.0"
NAME = "policy.network.weights.0"
LOG_STD = "update.model.policy.log_std"
ANOTHER = "of another type than expected"
NOT_WHOLE = "not a whole number"

CASES = {
    # Not an answer at all.
    "nothing": Case("", to(None), "it is missing"),
    "a string": Case("", to("update"), f"it is {ANOTHER}"),
    "an exception": Case("", to(RuntimeError("no")), f"it is {ANOTHER}"),
    "an update alone": Case("", lambda t: t.update, f"it is {ANOTHER}"),
    "a plain tuple": Case("", tuple, f"it is {ANOTHER}"),
    "a subclass of the answer": Case("", lambda t: LyingTrained(*t), f"it is {ANOTHER}"),
    "an impostor of the answer": Case("", to(Impostor(Trained)), f"it is {ANOTHER}"),
    "an answer cut short": Case(
        "", lambda t: tuple.__new__(Trained, (t.update,)), "it cannot be read"
    ),
    "an answer with more to it": Case(
        "", lambda t: tuple.__new__(Trained, (*t, t)), "it cannot be read"
    ),
    # Not an update.
    "no update": Case("update", to(None), "update is missing"),
    "an update as a dict": Case("update", lambda u: vars(u), f"update is {ANOTHER}"),
    "a subclass of an update": Case("update", as_subclass(LyingUpdate), f"update is {ANOTHER}"),
    "an impostor of an update": Case("update", to(Impostor(Update)), f"update is {ANOTHER}"),
    "an update never filled in": Case("update", unset(Update), "message is of another type"),
    # Not a model.
    "no model": Case("update.model", to(None), "model is missing"),
    "a model never filled in": Case("update.model", unset(Model), "coefficients is of another"),
    "no policy": Case("update.model.policy", to(None), "policy is missing"),
    "a policy as a dict": Case("update.model.policy", lambda p: vars(p), f"policy is {ANOTHER}"),
    "a subclass of a policy": Case(
        "update.model.policy", as_subclass(LyingPolicy), f"policy is {ANOTHER}"
    ),
    "a policy never filled in": Case("update.model.policy", unset(Policy), "policy."),
    "a network without layers": Case(
        "update.model.policy.network", unset(MLP), "policy.network.biases is of another"
    ),
    "no critic": Case("update.model.critic", to(None), "critic is missing"),
    "another part in the critic's place": Case(
        "update.model", lambda m: put(m, ["critic"], to(m.policy)), f"critic is {ANOTHER}"
    ),
    "a critic turned over": Case(
        "update.model",
        lambda m: put(m, ["critic", "weights"], lambda w: (w[0].T, *w[1:])),
        "critic.weights.0 is float32 of shape (8, 1), not float32 of shape (1, 8)",
    ),
    "no deviation of actions": Case(LOG_STD, to(None), "policy.log_std is missing"),
    "a layer too many": Case(WEIGHTS, lambda w: (*w, w[-1]), "weights.2 is not expected"),
    "a layer too few": Case(WEIGHTS, lambda w: w[:-1], "weights.1 is missing"),
    "layers in a list": Case(WEIGHTS, list, f"policy.network.weights is {ANOTHER}"),
    "layers that contain themselves": Case(WEIGHTS, to(itself()), f"weights is {ANOTHER}"),
    "something in the server's part": Case(
        "update.model.shared", to((np.zeros(3, np.float32),)), "shared.0 is not expected"
    ),
    "no observations": Case("update.model.observations", to(None), "observations is missing"),
    "no rewards": Case("update.model.rewards", to(None), "rewards is missing"),
    "moments as a tuple": Case(
        "update.model.rewards", lambda m: (m.count, m.mean, m.squares), f"rewards is {ANOTHER}"
    ),
    "moments never filled in": Case(
        "update.model.rewards", unset(Moments), "rewards.count is not an array"
    ),
    "rewards in the observations' place": Case(
        "update.model",
        lambda m: put(m, ["observations"], to(m.rewards)),
        "observations.mean is float32 of shape (), not float32 of shape (1,)",
    ),
    # Not the arrays that are expected.
    "a list of numbers": Case(LOG_STD, to([0.5]), "policy.log_std is not an array"),
    "a string for an array": Case(W0, to("0.5"), f"{NAME} is not an array"),
    "bytes for an array": Case(W0, lambda w: w.tobytes(), f"{NAME} is not an array"),
    "a number of Python's": Case("update.weight", to(64.0), "weight is not an array"),
    "a whole number of Python's": Case("update.weight", to(10**400), "weight is not an array"),
    "a deep nest": Case(W0, to(deep()), f"{NAME} is not an array"),
    "a nest in itself": Case(W0, to(itself()), f"{NAME} is not an array"),
    "a function": Case(W0, to(len), f"{NAME} is not an array"),
    "an array of objects": Case(LOG_STD, cast(object), "is object of shape (1,), not float32"),
    "an array of odd objects": Case(
        LOG_STD, to(np.array([Exploding], object)), "is object of shape (1,), not float32"
    ),
    "double precision": Case(W0, cast(np.float64), f"{NAME} is float64"),
    "half precision": Case(W0, cast(np.float16), f"{NAME} is float16"),
    "whole numbers": Case(W0, cast(np.int32), f"{NAME} is int32"),
    "truth values": Case(W0, cast(bool), f"{NAME} is bool"),
    "complex numbers": Case(W0, cast(np.complex64), f"{NAME} is complex64"),
    "the other byte order": Case(W0, cast(">f4"), f"{NAME} is >f4"),
    "text in an array": Case(W0, cast(str), f"{NAME} is <U32"),
    "dates": Case(LOG_STD, to(np.array(["2024-02"], "datetime64[M]")), "log_std is datetime64[M]"),
    "records": Case(
        LOG_STD, to(np.zeros(1, [("a" * 1000, np.float32)])), "policy.log_std is [('aaaa"
    ),
    "a masked array": Case(W0, lambda w: np.ma.array(w, mask=True), f"{NAME} is not an array"),
    "an array of NumPy's with more to it": Case(
        W0, lambda w: w.view(np.recarray), f"{NAME} is not an array"
    ),
    "an array with a shape of its own": Case(
        W0, lambda w: w.view(LyingArray), f"{NAME} is not an array"
    ),
    "an array on the device": Case(W0, jnp.asarray, f"{NAME} is not an array"),
    "a key": Case(LOG_STD, to(jax.random.key(0)), "policy.log_std is not an array"),
    "what can be made an array": Case(W0, Convertible, f"{NAME} is not an array"),
    "what cannot be made an array": Case(W0, to(Exploding()), f"{NAME} is not an array"),
    "an impostor of an array": Case(W0, to(Impostor(np.ndarray)), f"{NAME} is not an array"),
    "a subclass of a number": Case("update.weight", to(LyingNumber(64)), "weight is not an array"),
    "a shape that would broadcast": Case(W0, lambda w: w[:, :1], "is float32 of shape (1, 1)"),
    "a shape turned over": Case(W0, lambda w: w.T, "is float32 of shape (8, 1)"),
    "a flat shape": Case(W0, np.ravel, "is float32 of shape (8,)"),
    "a number for a vector": Case(LOG_STD, lambda x: x[0], "log_std is float32 of shape ()"),
    "a vector for a number": Case(
        "update.weight", lambda w: np.atleast_1d(w), "weight is float32 of shape (1,)"
    ),
    "an empty array": Case(W0, lambda w: w[:0], "is float32 of shape (0, 8)"),
    "a huge array": Case(
        W0, to(np.broadcast_to(np.float32(0), (10**9, 10**9))), "of shape (1000000000, 1000000000)"
    ),
    "an array of many dimensions": Case(
        W0, to(np.zeros((1,) * 32, np.float32)), "is float32 of shape (1, 1, 1"
    ),
    # Networks that are no good.
    "not a number": Case(W0, first(np.nan), f"{NAME} is not finite"),
    "a NaN that says something": Case(LOG_STD, to(signalling()), "policy.log_std is not finite"),
    "infinity": Case(
        "update.model.critic.biases.1", first(np.inf), "critic.biases.1 is not finite"
    ),
    "minus infinity": Case(LOG_STD, first(-np.inf), "policy.log_std is not finite"),
    "a policy from afar": Case(W0, first(100.0), "policy moved by "),
    "a critic from afar": Case("update.model.critic.weights.1", first(-1e3), "critic moved by "),
    "the largest number": Case(
        W0, first(float(np.finfo(np.float32).max)), "policy moved by 3.4e+38"
    ),
    # A weight that nobody can have.
    "no weight": Case("update.weight", to(None), "weight is missing"),
    "weight 0": Case("update.weight", number(0), NOT_WHOLE),
    "a negative weight": Case("update.weight", number(-64), NOT_WHOLE),
    "a weight that is no number": Case("update.weight", number(np.nan), "weight is not finite"),
    "an infinite weight": Case("update.weight", number(np.inf), "weight is not finite"),
    "a step too many": Case(
        "update.weight",
        number(STEPS + 1),
        "weight is 129, not a whole number of steps from 1 to 128",
    ),
    "a weight of 1e18": Case("update.weight", number(1e18), NOT_WHOLE),
    "a weight of 1e30": Case("update.weight", number(1e30), NOT_WHOLE),
    "a weight below the count": Case(
        "update.weight",
        number(STEPS - 1),
        "observations.count is 128, not a whole number from 0 to the weight, 127",
    ),
    "half a step": Case("update.weight", number(127.5), "weight is 127.5, not a whole number"),
    "the smallest weight": Case("update.weight", number(1e-45), NOT_WHOLE),
    # Statistics that nobody can have.
    "a negative count": Case("update.model.observations.count", number(-1), NOT_WHOLE),
    "a count above the weight": Case(
        "update.model.rewards.count",
        number(STEPS + 1),
        "rewards.count is 129, not a whole number from 0 to the weight, 128",
    ),
    "a huge count": Case("update.model.rewards.count", number(1e30), NOT_WHOLE),
    "half a count": Case("update.model.rewards.count", number(0.5), "rewards.count is 0.5"),
    "a count that is no number": Case(
        "update.model.rewards.count", number(np.nan), "rewards.count is not finite"
    ),
    "negative squares": Case(
        "update.model.observations.squares", first(-1e9), "observations.squares is negative"
    ),
    "squares just below 0": Case(
        "update.model.rewards.squares", number(-1e-45), "rewards.squares is negative"
    ),
    "a mean of 1e30": Case(
        "update.model.observations.mean", first(1e30), "observations have a mean of 1e+30"
    ),
    "a mean of 1e30 at the start": Case(
        "update.model.observations.mean",
        first(-1e30),
        "observations have a mean of 1e+30, beyond 1e+06",
        rounds=1,
    ),
    "squares of 1e30": Case(
        "update.model.rewards.squares", number(1e30), "rewards have a deviation"
    ),
    "squares of 1e30 at the start": Case(
        "update.model.rewards.squares",
        number(1e30),
        "rewards have a deviation of 8.84e+13, beyond 1e+06",
        rounds=1,
    ),
    "squares of the largest number": Case(
        "update.model.observations.squares", first(3e38), "observations have a deviation"
    ),
    "rewards far from the usual": Case(
        "update.model.rewards.mean", number(1e3), "times too far from other clients', over 20"
    ),
    "rewards that vary unusually": Case(
        "update.model.rewards.squares", number(1e9), "times as much as other clients', over 20"
    ),
    "a mean of nothing": Case(
        "update.model.rewards.count", number(0), "rewards are moments of nothing that are not 0"
    ),
    "squares of nothing": Case(
        "update.model.rewards",
        lambda m: put(put(m, ["count"], number(0)), ["mean"], number(0)),
        "rewards are moments of nothing that are not 0",
    ),
    # Coefficients that no rule gives.
    "c1 above its bounds": Case(
        "update.model.coefficients.c1",
        number(20.1),
        "coefficients.c1 is 20.1, not from 0.0001 to 20",
    ),
    "c1 below its bounds": Case(
        "update.model.coefficients.c1", number(1e-5), "coefficients.c1 is 1e-05, not from 0.0001"
    ),
    "c2 of 0": Case("update.model.coefficients.c2", number(0), "coefficients.c2 is 0, not from"),
    "a negative c2": Case("update.model.coefficients.c2", number(-1), "c2 is -1, not from"),
    "c2 that is no number": Case(
        "update.model.coefficients.c2", number(np.nan), "coefficients.c2 is not finite"
    ),
    "a coefficient less": Case(
        "update.model.coefficients", without("c1"), "coefficients.c1 is missing"
    ),
    "a coefficient more": Case(
        "update.model.coefficients", plus("c3"), "coefficients.c3 is not expected"
    ),
    "coefficients with a number for a name": Case(
        "update.model.coefficients", plus(3), "coefficients has a key that is not a string"
    ),
    "coefficients with a key that breaks": Case(
        "update.model.coefficients",
        lambda d: {LyingKey("c1"): d["c1"], "c2": d["c2"]},
        "coefficients has a key that is not a string",
    ),
    "coefficients with a long name": Case(
        "update.model.coefficients", plus("c" * 10**6), "coefficients.cccc"
    ),
    "coefficients with a name that plays with the terminal": Case(
        "update.model.coefficients",
        plus("c\x1b[2J\n\ud800"),
        "coefficients.c?[2J?? is not expected",
    ),
    "coefficients in a dict of its own": Case(
        "update.model.coefficients", LyingDict, f"coefficients is {ANOTHER}"
    ),
    "coefficients in a list": Case(
        "update.model.coefficients", lambda d: list(d.values()), f"coefficients is {ANOTHER}"
    ),
    # Messages to the algorithm's server side.
    "a message that nobody wants": Case(
        "update.message", to((np.zeros(3, np.float32),)), "message.0 is not expected"
    ),
    "no message": Case("update.message", to(()), f"message is {ANOTHER}", "scaffold"),
    "a message of None": Case("update.message", to(None), "message is missing", "scaffold"),
    "a message that is not finite": Case(
        "update.message.log_std", first(np.nan), "message.log_std is not finite", "scaffold"
    ),
    "a message that is too large": Case(
        "update.message.network.weights.0", first(1e3), "message has norm 1e+03", "scaffold"
    ),
    "the largest message": Case(
        "update.message.network.biases.0", first(3e38), "message has norm 3e+38", "scaffold"
    ),
    "a message of another shape": Case(
        "update.message.log_std", to(np.zeros(2, np.float32)), "message.log_std is", "scaffold"
    ),
    "a message of another precision": Case(
        "update.message.log_std", cast(np.float64), "message.log_std is float64", "scaffold"
    ),
    "a message of another kind": Case(
        "update.message", lambda m: m.network, f"message is {ANOTHER}", "scaffold"
    ),
    "a message of objects": Case(
        "update.message.log_std", cast(object), "message.log_std is object", "scaffold"
    ),
    # Reports that are not to be believed.
    "no metrics": Case("metrics", to(None), "metrics is missing"),
    "empty metrics": Case("metrics", to({}), "metrics.clip_fraction is missing"),
    "metrics in a dict of its own": Case("metrics", LyingDict, f"metrics is {ANOTHER}"),
    "metrics with mixed keys": Case("metrics", plus(1), "metrics has a key that is not a string"),
    "a metric less": Case("metrics", without("kl_local"), "metrics.kl_local is missing"),
    "a metric more": Case("metrics", plus("mood"), "metrics.mood is not expected"),
    "one divergence for all iterations": Case(
        "metrics.kl_local", lambda x: x[0], "metrics.kl_local is float32 of shape ()"
    ),
    "an iteration too many": Case(
        "metrics.kl_local", lambda x: np.append(x, x), "kl_local is float32 of shape (4,)"
    ),
    "a divergence that is no number": Case(
        "metrics.kl_local", first(np.nan), "metrics.kl_local is not finite, or beyond 1e+06"
    ),
    "a divergence too large to be added up": Case(
        "metrics.kl_local", to(np.full(2, 3e38, np.float32)), "metrics.kl_local is not finite, or"
    ),
    "an infinite distance": Case(
        "metrics.distance_global", last(np.inf), "metrics.distance_global is not finite"
    ),
    "guarded by numbers": Case("metrics.guarded", cast(np.float32), "guarded is float32 of shape"),
    "guarded by an object": Case("metrics.guarded", to("yes"), "metrics.guarded is not an array"),
    "an infinite return": Case(
        "metrics.train_return", last(-np.inf), "metrics.train_return is beyond 1e+15"
    ),
    "steps that are too many": Case(
        "metrics.steps",
        to(np.array([127, 1], np.float32)),
        "metrics.steps are not whole numbers from 0 to 64",
    ),
    "negative steps": Case("metrics.steps", first(-64), "metrics.steps are not whole numbers"),
    "parts of steps": Case("metrics.steps", first(63.5), "metrics.steps are not whole numbers"),
    "steps that are no number": Case("metrics.steps", first(np.nan), "metrics.steps are not whole"),
    "steps that are not the weight": Case(
        "metrics.steps", first(0), "metrics.steps add up to 64, not to the weight, 128"
    ),
    "longer steps than allowed": Case(
        "metrics.step_scale", number(1.5), "metrics.step_scale is 1.5, not from 0 to 1"
    ),
    "steps backwards": Case("metrics.step_scale", number(-1), "metrics.step_scale is -1"),
    "a step size that is no number": Case(
        "metrics.step_scale", number(np.nan), "metrics.step_scale is nan"
    ),
    "no coefficients reported": Case(
        "metrics.coefficients", to({}), "metrics.coefficients.c1 is missing"
    ),
    "another coefficient reported than sent": Case(
        "metrics.coefficients.c1", number(7), "metrics.coefficients.c1 is not the one in the update"
    ),
    "a reported coefficient out of bounds": Case(
        "metrics.coefficients.c2", number(1e6), "metrics.coefficients.c2 is 1e+06", "scaffold"
    ),
}


# Regions know nothing of what scaffold shares.
MET = [
    (name, reducer)
    for name, case in CASES.items()
    for reducer in REDUCERS
    if (case.algorithm, reducer) != ("scaffold", "grouped")
]


@pytest.mark.parametrize(("name", "reducer"), MET)
def test_a_bad_update_is_refused_and_the_others_go_on_as_if_its_sender_were_absent(
    known, name, reducer
):
    case = CASES[name]
    honest = known(case.algorithm, reducer)
    path = case.path.split(".") if case.path else []
    record, state = honest.after(case.rounds, lambda trained: put(trained, path, case.how))
    ((client, reason),) = [(entry["client"], entry["reason"]) for entry in record["rejected"]]
    assert client == BAD
    assert case.reason in reason
    assert len(reason) <= LONGEST
    assert "\n" not in reason
    assert [row["client"] for row in record["clients"]] == [0, 2]
    assert record["note"] is None
    same_bits(state, honest.without[case.rounds])


def test_there_are_many_classes_of_bad_updates():
    assert len(CASES) >= 60


UNUSUAL = {
    "read-only": lambda x: np.lib.stride_tricks.as_strided(x, writeable=False),
    "in Fortran's order": lambda x: np.array(x, order="F"),
    "with gaps": lambda x: np.stack([x, x], axis=-1)[..., 0],
    "backwards": lambda x: np.array(x[::-1])[::-1] if np.ndim(x) else x,
    "scalars of NumPy's": lambda x: x[()],
}


@pytest.mark.parametrize("how", UNUSUAL)
@pytest.mark.parametrize("algorithm", ["fedkl", "scaffold"])
def test_how_an_honest_update_lies_in_memory_does_not_matter(known, algorithm, how):
    honest = known(algorithm)
    record, state = honest.after(2, lambda trained: jax.tree.map(UNUSUAL[how], trained))
    assert record["rejected"] == []
    same_bits(state, honest.after(2, lambda trained: trained)[1])


def test_numbers_close_to_0_count_as_they_are(known):
    honest = known("fedkl")
    record, _ = honest.after(2, lambda t: put(t, W0.split("."), first(1e-45)))
    assert record["rejected"] == []


def test_what_a_rolled_back_iteration_measured_may_be_anything(known):
    def rolled_back(trained: Trained) -> Trained:
        for name, how in {"guarded": True, "kl_local": np.nan, "distance_global": np.inf}.items():
            trained = put(trained, ["metrics", name], last(how))
        return trained

    record, _ = known("fedkl").after(2, rolled_back)
    assert record["rejected"] == []
    assert np.isfinite(record["kl_local"])
    assert np.isfinite(record["distance_global"])


def test_a_coefficient_may_stay_where_it_started_even_out_of_its_bounds(known):
    # c1 starts at 50, above its bounds, and stays there as long as the guard rolls everything back.
    config = known("fedkl").federation.config
    config = replace(config, algorithm=replace(config.algorithm, c1=50.0))
    for value, refused in (50.0, 0), (50.5, 1):
        answers = known("fedkl").rounds[0]
        for path in "update.model.coefficients.c1", "metrics.coefficients.c1":
            changed = put(answers[BAD], path.split("."), number(value))
            answers = answers | {BAD: changed}
        engine = Tampering(answers, lambda answer: answer)
        assert len(Federation(config, engine=engine).run_round()["rejected"]) == refused


def test_everybody_lying_leaves_the_model_as_it_was(known):
    honest = known("fedkl")
    lies = itertools.cycle([to(None), to("update"), lambda t: t.update])
    bad = {client: how(t) for (client, t), how in zip(honest.rounds[0].items(), lies, strict=False)}
    federation = Federation(honest.federation.config, engine=Tampering(bad, lambda answer: answer))
    before = to_arrays(federation.state.model)
    record = federation.run_round()
    assert [entry["client"] for entry in record["rejected"]] == [0, 1, 2]
    assert record["note"] == "0 accepted updates, fewer than the quorum of 1"
    same_bits(to_arrays(federation.state.model), before)


def same_bits(a: Mapping[str, np.ndarray], b: Mapping[str, np.ndarray]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert a[name].tobytes() == b[name].tobytes(), name
