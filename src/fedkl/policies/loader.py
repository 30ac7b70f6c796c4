"""A policy out of a run's directory: only what it needs is read, and JAX is not."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fedkl.core.arguments import run_path
from fedkl.core.errors import UserError
from fedkl.simulators.actors import ACTIVATIONS, Actor
from fedkl.simulators.policy import Policy
from fedkl.simulators.spaces import Numbers, Spaces
from fedkl.training import spaces as spaces_file
from fedkl.training.checkpoints import Saved, require_finite
from fedkl.training.directory import RunDirectory, is_served
from fedkl.training.missing import require_checkpoints, say_missing_best
from fedkl.training.origin import decode, differences, refusal, settings_of

Arrays = Mapping[str, npt.NDArray[Any]]

_LEAST_DEVIATION = np.float32(1e-4)


class _Settings(NamedTuple):
    """The part of a config that a policy depends on."""

    clients: int
    statistics: str
    """Keeper of those of observations: federated, local or none."""
    personal: str
    """The part of the policy that each client keeps, or none."""
    clip: float
    activation: str
    every: int
    """Rounds between two checkpoints."""

    @property
    def own(self) -> str | None:
        """The part of a policy that each client keeps to itself."""
        if self.personal != "none":
            return "its policy" if self.personal == "all" else "a part of the policy"
        return "statistics of its observations" if self.statistics == "local" else None


def load(
    run: str | Path, client: int | None = None, best: bool = False, accept_changes: bool = False
) -> Policy:
    """Load the policy of a run from its newest checkpoint: a function from observations to actions.

    Args:
        run: the run's directory; it may still be training.
        client: whose policy; None: the one that all share. They differ where clients keep
            something to themselves: their statistics (`federation.observation_statistics =
            "local"`), or a part of the policy (`federation.personal`).
        best: that of the round with the highest mean return, which a run keeps if
            `checkpoint.keep_best` is on.
        accept_changes: also if config.toml is not the one that the checkpoint was made with.

    Raises:
        UserError: the directory is not a run, has no checkpoint yet, or none that fits; there is no
            such client, or what it keeps is not here; the checkpoint was made with another config.
    """
    directory = RunDirectory.open(run_path(run))
    values = directory.config()
    settings = _settings(directory.path, values)
    _check_client(directory, settings, client)
    spaces = spaces_file.read(directory.path)
    row = client if settings.own else None
    logged, ended, every = directory.metrics.count(), directory.ended(_warn), settings.every
    if best:
        newest = directory.newest()
        require_checkpoints(directory, newest, logged, ended, every, _warn, best)
    saved = directory.checkpoint(_warn, best, () if row is None else (row,))
    if saved is None:
        raise UserError(f"{directory.path} has no finished round to load yet")
    if not accept_changes:
        _check_origin(directory, values, saved)
    if best:
        say_missing_best(directory, saved.round, _warn)
    else:
        require_checkpoints(directory, saved.round, logged, ended, every, _warn)
    own = {} if row is None else saved.rows.get(row, {})
    if row is not None and not own and settings.personal != "none":
        raise UserError(f"client {row} of {directory.path} has not taken part in a round yet")
    try:
        return Policy(_actor(settings, spaces, saved, own), spaces, saved.round, directory.path)
    except ValueError as error:
        raise UserError(
            f"{directory.path}: the checkpoint of round {saved.round} does not fit the run: {error}"
        ) from error


def _settings(run: Path, values: Mapping[str, Any]) -> _Settings:
    """Read the settings from config.toml; checking all of it would take JAX."""

    def get(table: str, name: str, kind: type) -> Any:
        group = values.get(table)
        value = group.get(name) if isinstance(group, dict) else None
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind or (isinstance(value, int) and value < 1):
            raise UserError(f"{run}: config.toml has no usable {table}.{name}")
        return value

    learner = values.get("learner")
    activation = "tanh"  # that of runs from before there was another
    if isinstance(learner, dict) and "activation" in learner:
        activation = get("learner", "activation", str)
    if activation not in ACTIVATIONS:
        raise UserError(f"{run}: config.toml has no usable learner.activation")
    return _Settings(
        get("federation", "clients", int),
        get("federation", "observation_statistics", str),
        get("federation", "personal", str),
        get("learner", "observation_clip", float),
        activation,
        get("checkpoint", "every", int),
    )


def _check_origin(directory: RunDirectory, values: Mapping[str, Any], saved: Saved) -> None:
    """Check that a checkpoint has this config; plugins do not matter, as none is run here."""
    where, round = directory.path, saved.round
    try:
        origin = decode(saved.origin)
    except ValueError as error:
        raise UserError(f"{where}: the checkpoint of round {round}: {error}") from error
    if origin is not None and (changes := differences(origin.config, settings_of(values))):
        raise refusal(where, round, changes)


def _check_client(directory: RunDirectory, settings: _Settings, client: int | None) -> None:
    own = settings.own
    if client is None:
        if own is not None:
            raise UserError(
                f"each client of {directory.path} keeps {own} to itself: say whose policy, by a "
                f"client from 0 to {settings.clients - 1}"
            )
        return
    if not isinstance(client, int | np.integer) or not 0 <= client < settings.clients:
        raise UserError(f"client must be from 0 to {settings.clients - 1}, not {client!r}")
    if own is not None and is_served(directory.path):
        raise UserError(
            f"client {client} of {directory.path} keeps {own} on its own disk: the server has "
            "no policy of a single client"
        )


def _actor(settings: _Settings, spaces: Spaces, saved: Saved, own: Arrays) -> Actor:
    """Build the actor.

    Args:
        settings: of the run.
        spaces: what the policy must fit.
        saved: the server's arrays.
        own: the client's.

    Raises:
        ValueError: they do not fit; the message says in what.
    """
    arrays = {
        name.removeprefix("model."): array
        for name, array in saved.arrays.items()
        if name.startswith("model.")
    }
    arrays |= {
        f"policy.{name.removeprefix('own.personal.')}": array
        for name, array in own.items()
        if name.startswith("own.personal.")
    }
    if settings.statistics == "local":
        arrays |= {name.removeprefix("own."): array for name, array in own.items()}
    weights, biases = (_layers(arrays, part) for part in ("weights", "biases"))
    log_std = arrays.get("policy.log_std")
    _check_fit(spaces, weights, biases, log_std)
    require_finite(arrays, "policy.")
    require_finite(arrays, "observations.")
    centre, scale = _standardisation(arrays, spaces.observation_size)
    return Actor(
        weights=weights,
        biases=biases,
        deviation=None if log_std is None else np.exp(np.asarray(log_std, np.float32)),
        centre=centre,
        scale=scale,
        clip=float("inf") if settings.statistics == "none" else settings.clip,
        activation=ACTIVATIONS.index(settings.activation),
    )


def _layers(arrays: Arrays, part: str) -> tuple[npt.NDArray[np.float32], ...]:
    names = (f"policy.network.{part}.{k}" for k in range(len(arrays)))
    found = [arrays[name] for name in names if name in arrays]
    return tuple(np.asarray(array, np.float32) for array in found)


def _standardisation(
    arrays: Arrays, size: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return the centre and the scale of observations.

    As `learning.statistics.deviation` has it, which needs JAX.
    """
    if "observations.mean" not in arrays:
        return np.zeros(size, np.float32), np.ones(size, np.float32)
    found = []
    for part, shape in (("mean", (size,)), ("count", ()), ("squares", (size,))):
        array = arrays.get(f"observations.{part}")
        if array is None or array.shape != shape:
            raise ValueError(f"it has no whole statistics of observations: {part}")
        found.append(np.asarray(array, np.float32))
    mean, count, squares = found
    if count < 0 or (squares < 0).any():
        raise ValueError("its statistics of observations are below zero")
    if count <= 1:
        return mean, np.ones_like(squares)
    return mean, np.maximum(np.sqrt(squares / count), _LEAST_DEVIATION)


def _check_fit(
    spaces: Spaces,
    weights: tuple[npt.NDArray[np.float32], ...],
    biases: tuple[npt.NDArray[np.float32], ...],
    log_std: npt.NDArray[Any] | None,
) -> None:
    # From layer to layer, what one gives the next one takes.
    fits = (w.ndim == 2 and b.shape == w.shape[1:] for w, b in zip(weights, biases, strict=False))
    if not weights or len(weights) != len(biases) or not all(fits):
        raise ValueError("it has no whole policy")
    if any(w.shape[1] != after.shape[0] for w, after in pairwise(weights)):
        raise ValueError("its layers do not fit each other")
    discrete = isinstance(spaces.actions, Numbers)
    if discrete != (log_std is None):
        raise ValueError(f"its actions are {'discrete' if log_std is None else 'continuous'}")
    sizes = (weights[0].shape[0], biases[-1].shape[0])
    expected = (spaces.observation_size, spaces.actions.size)
    if sizes != expected:
        raise ValueError(
            f"its policy sees {sizes[0]} numbers and gives {sizes[1]}, not {expected[0]} and "
            f"{expected[1]}"
        )
    if log_std is not None and log_std.shape != (expected[1],):
        raise ValueError("it has not one deviation for each action")


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=3)
