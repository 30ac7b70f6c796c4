"""A client of a federation, which holds its world, compiled code and state, and answers requests.

It runs the same function as a simulation, so the same seed gives the same update. A reply holds no
episode and no observation, unless the algorithm itself sends some
(`Algorithm.observations_sent`).
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from fedkl.clients.records import ClientState, Model, Task, problem_with_state
from fedkl.clients.work import Train, Work
from fedkl.config.config import Config, from_mapping
from fedkl.core.errors import UserError
from fedkl.core.own_code import own_code_error
from fedkl.core.plugins import load_plugin
from fedkl.core.settings import build
from fedkl.core.text import redact_paths
from fedkl.engines.base import Failure
from fedkl.engines.local import compile_alone, simulators_of, work_alone
from fedkl.io import files, strict_toml
from fedkl.io.arrays import from_arrays, to_arrays
from fedkl.learning.trajectories import samples_in
from fedkl.network import MAX_MESSAGE_BYTES, messages, wire
from fedkl.network.client_process import OVER, REFUSED
from fedkl.network.disk import StateError, States
from fedkl.network.messages import (
    Greeting,
    Reply,
    Request,
    SpaceSizes,
    read_request,
    spaces_of,
    write_reply,
)
from fedkl.network.wire import Arrays, MessageError
from fedkl.training import plugin_consent
from fedkl.worlds import Remote

Compiling = Callable[[], contextlib.AbstractContextManager[None]]


class RefusalError(Exception):
    """A request that the client refuses; the message is one sentence."""


class NetworkClient:
    """One client that answers requests one after the other."""

    def __init__(
        self,
        folder: Path,
        client: int,
        world: Mapping[str, Any] | None = None,
        plugins: Sequence[Path] = (),
        limit: int = MAX_MESSAGE_BYTES,
        compiling: Compiling = contextlib.nullcontext,
    ) -> None:
        """Args:
        folder: for the client's states.
        client: its number.
        world: the table of a world of its own, which takes the place of the config's.
        plugins: Python files of the client's; what a server names is not run.
        limit: bytes that a message may have.
        compiling: entered while code is compiled, which may take longer than a deadline.
        """
        self._folder = folder
        self._compiling = compiling
        self._client = client
        self._world = world
        self._plugins = plugins
        self._limit = limit
        self._session: Session | None = None

    def answer(self, data: bytes) -> bytes:
        """Return the reply to a message, whatever its bytes are; this never raises.

        An error goes to stderr in full; the server sees one line of it, without paths.
        """
        if wire.kind_of(data) == messages.GREETING:
            return self._answer_greeting(data)
        names: tuple[str, int, int, int, str] = ("", self._client, 0, 0, "")
        try:
            request = read_request(data, self._limit)
            at = (request.round, request.turn, request.nonce)
            names = (request.federation, self._client, *at)
            reply = Reply(*names, "", self._result(request))
            return write_reply(reply, self._limit)
        except Exception as error:
            return write_reply(Reply(*names, redact_paths(_log_error(error)), {}))

    def _answer_greeting(self, data: bytes) -> bytes:
        """Return the reply to a greeting, and write a refusal or the end of the run to a file.

        The process that started the client reads that file.
        """
        reason = ""
        names: tuple[str, int, int, int, str] = ("", self._client, 0, 0, "")
        try:
            greeting = messages.read_greeting(data, self._limit)
            names = (greeting.federation, self._client, 0, greeting.turn, greeting.nonce)
            if not greeting.over:
                self._require_shared(greeting)
            (self._folder / REFUSED).unlink(missing_ok=True)
            (self._folder / OVER).unlink(missing_ok=True)
            if greeting.over:
                files.write_atomically(self._folder / OVER, b"", 0o600)
        except Exception as error:
            reason = _log_error(error)
            files.write_atomically(self._folder / REFUSED, reason.encode(), 0o600)
        return write_reply(Reply(*names, redact_paths(reason), {}))

    def _require_shared(self, greeting: Greeting) -> None:
        """Check that this client has the versions, source code and spaces that the server has.

        Raises:
            RefusalError: it has not.
        """
        for package, ours in messages.result_versions().items():
            if ours != (theirs := greeting.versions.get(package, "another")):
                raise RefusalError(
                    f"this has {package} {ours}, and the server {theirs}: use the same on both "
                    "sides"
                )
        if greeting.client not in (None, self._client):
            raise RefusalError(
                f"this is client {self._client}, and its key is that of client {greeting.client}"
            )
        if greeting.refusal:
            raise RefusalError(greeting.refusal)
        session = self._session_for(greeting.config)
        session.require(greeting.spaces)
        for what, source in session.sources.items():
            own = what == messages.WORLD and self._world is not None
            if not own and source != greeting.sources[what]:
                raise RefusalError(
                    f"the {what} is made by other source code here than on the server: give both "
                    "the same plugin"
                )

    def close(self) -> None:
        """Stop the simulators, if any."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _result(self, request: Request) -> Arrays:
        """Do the work of a request, and return the arrays of the reply."""
        if request.client != self._client:
            raise RefusalError(f"this is client {self._client}, not client {request.client}")
        if request.since > request.round:
            raise RefusalError(
                f"round {request.since} is not over yet, and nothing was accepted in it"
            )
        session = self._session_for(request.config)
        session.require(request.spaces)
        states = States(self._folder, request.federation, session.first)
        if not isinstance(request.work, Train):
            answer, _ = session.do(request, states.read(request.since))
            return to_arrays(answer)
        new = request.round + 1
        # A request that was late on its way must not undo the result of a newer one.
        if states.turn(new) > request.turn:
            raise RefusalError("it has trained for a newer request of the same round")
        before = states.read(request.since)
        answer, after = session.do(request, before)
        assert after is not None
        if problem := problem_with_state(before, after):
            raise RefusalError(problem)
        states.write(new, request.since, request.turn, after)
        states.prune(request.since, request.floor)
        return to_arrays(answer)

    def _session_for(self, config: str) -> Session:
        """Return the session of a config; a new one if the config is another than before."""
        digest = hashlib.sha256(config.encode()).hexdigest()
        if self._session is None or self._session.digest != digest:
            self.close()
            for plugin in self._plugins:
                load_plugin(plugin)
            read = _read(config, self._world)
            self._session = Session(digest, read, self._client, self._world, self._compiling)
        return self._session


class Session:
    """All that a config gives one client: the task, its row of params, its first state."""

    def __init__(
        self,
        digest: str,
        config: Config,
        client: int,
        own: Mapping[str, Any] | None,
        compiling: Compiling,
    ) -> None:
        """Args:
        digest: of the config's text.
        config: with the client's world.
        client: its number.
        own: the table of the client's own world; None: it has none.
        compiling: entered while it compiles.

        Raises:
            RefusalError: a single client cannot run it.
            UserError: the world's simulator cannot run here.
        """
        world, number = config.world, config.federation.clients
        if world.is_shared:
            raise RefusalError(
                f"all clients of the world {world.name} are in one simulation, which a client of a "
                "network cannot run alone"
            )
        if config.federation.pools_data:
            raise RefusalError("federation.data is pooled, and its data stay where they are")
        if isinstance(world, Remote):
            raise RefusalError("it was given no world of its own, and the server has none for it")
        if client >= number:
            raise RefusalError(f"client {client} is not one of 0 to {number - 1}")
        self.digest = digest
        self.sources = messages.sources_of(config)
        self.task: Task = config.task
        self._model: Model
        self.first: ClientState
        self._model, self.first = config.first_states
        row = client
        if own is not None:
            row, config = 0, replace(config, federation=replace(config.federation, clients=1))
        rows: PyTree = jax.device_get(config.client_params)
        self._params = jax.tree.map(lambda x: x[row], rows)
        self._workers = simulators_of(self.task)
        self._compiling = compiling
        self._compiled: set[Work[Any]] = set()

    def require(self, spaces: SpaceSizes) -> None:
        """Check that the server's policy fits the client's world.

        Raises:
            RefusalError: it does not.
        """
        if (ours := spaces_of(self.task.world)) != spaces:
            raise RefusalError(f"its world has {ours}, and the model is for {spaces}")

    def do(self, request: Request, own: ClientState) -> tuple[Any, ClientState | None]:
        """Do the work of a request; return the answer and the client's new state.

        Args:
            request: from the server.
            own: the client's state before it.

        Raises:
            RefusalError: the request does not fit the config, or the work failed.
        """
        try:
            model = from_arrays(self._model, request.model)
        except ValueError as error:
            raise RefusalError(f"the model is not as its config says: {error}") from error
        if np.shape(request.key) != jax.random.key_data(jax.random.key(0)).shape:
            raise RefusalError("the key is of another kind than those here")
        if self._workers is None and request.work not in self._compiled:
            with self._compiling():
                compile_alone(request.work, self.task, model, own, request.key, self._params)
            self._compiled.add(request.work)
        answer, after = work_alone(
            request.work, self.task, model, own, request.key, self._params, self._workers
        )
        if isinstance(answer, Failure):
            raise RefusalError(answer.reason)
        return answer, after

    def close(self) -> None:
        """Stop the simulators, if any."""
        if self._workers is not None:
            self._workers.close()


def _log_error(error: Exception) -> str:
    """Log an error, and return the sentence for the server."""
    expected = isinstance(error, RefusalError | StateError | MessageError | UserError)
    told = own_code_error(error)
    if told is not None or not expected:
        traceback.print_exception(error)
    reason = str(error) if expected else f"{type(error).__name__}: {error}"
    print(f"not done: {told or reason}", file=sys.stderr, flush=True)
    return reason or "it failed"


def _read(text: str, world: Mapping[str, Any] | None) -> Config:
    """Return the server's config with the client's own world and without the server's plugins."""
    try:
        mapping = strict_toml.parse(text)
    except ValueError as error:
        raise RefusalError("the config is not TOML") from error
    # Files and modules that a server names are foreign code.
    mapping["plugins"] = []
    if world is None:
        if unknown := plugin_consent.unknown(mapping):
            raise RefusalError(
                f"the world is of {unknown[0]}, which nobody has agreed to run here; a client may "
                "name its own (--params)"
            )
        return from_mapping(mapping)
    theirs = mapping.get("world")
    config = from_mapping({**mapping, "world": dict(world)})
    if isinstance(theirs, dict) and theirs.get("name") == Remote.name:
        _require_length(config, build(Remote, {"horizon": theirs.get("horizon", 1)}, "world"))
    return config


def _require_length(config: Config, remote: Remote) -> None:
    """Check that an iteration has no more steps than the server's horizon allows."""
    ours = samples_in(config.world, config.learner)
    if ours > (most := samples_in(remote, config.learner)):
        raise RefusalError(
            f"an iteration here has up to {ours} steps, with episodes of {config.world.horizon}, "
            f"and {most} with those of {remote.horizon} that the server allows (world.horizon)"
        )
