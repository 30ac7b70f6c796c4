"""The client's chain: what is done to an update before it leaves the client (clip, compress, mask).

The fields of a link are its settings (see `fedkl.setting`); they appear in a config flat in the
table `[upload]`, beside the names of the links. All of this runs on the client, in JAX, inside
compiled code, after the last iteration of a round: a link changes what is sent, not what the client
keeps. Only networks go through the chain, each by itself; the moments, the coefficients, the weight
and the algorithm's message (`Algorithm.finish`) are sent as they are.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Float, PRNGKeyArray, PyTree

from fedkl.core import settings
from fedkl.core.errors import UserError
from fedkl.core.registry import Registry
from fedkl.core.settings import setting
from fedkl.io.arrays import Array

if TYPE_CHECKING:
    from fedkl.clients.records import Start, Update

UPLOADS = Registry("upload link", "Upload")
register_upload = UPLOADS.register
"""Adds a link of the client's chain under its `name`, for configs to ask for; decorates the
class."""

NOT_AN_ITERATION = 2**31
"""The round's key is folded with the number of an iteration, or of all of them, which this is
not."""


class Upload(eqx.Module):
    """A link between what a client has learnt and what it sends."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def __call__(self, move: Float[Array, " p"], key: PRNGKeyArray) -> Float[Array, " p"]:
        """The move that is sent. It is traced: pure, and of the same shape and type.

        Args:
            move: of one network of the model: the client's parameters minus those it was sent.
            key: of this client, round, network and link, folded from the seed: the server knows it.
        """


@register_upload
class Clip(Upload):
    """Shortens a long move and keeps its direction, before anybody else sees it."""

    name: ClassVar[str] = "clip"
    summary: ClassVar[str] = "a move longer than max_norm is shortened to it"

    max_norm: float = setting(
        1.0, "longest move of a part of the model (policy or critic), as a norm", above=0
    )

    def __call__(self, move: Float[Array, " p"], key: PRNGKeyArray) -> Float[Array, " p"]:
        norm = jnp.linalg.norm(move)
        long = norm > self.max_norm
        return jnp.where(long, move * (self.max_norm / jnp.where(long, norm, 1.0)), move)


class UploadChain(eqx.Module):
    """The links, in their order; without any, an update is sent as it is, to the bit."""

    each: tuple[Upload, ...] = ()

    def mapping(self) -> dict[str, Any]:
        """The table as TOML can hold it."""
        result: dict[str, Any] = {"each": [link.name for link in self.each]}
        for link in self.each:
            result |= settings.as_mapping(link)
        return result

    def __call__(self, update: Update, start: Start) -> Update:
        """The update that is sent, of a client that started the round from `start`."""
        if not self.each:
            return update
        key = jax.random.fold_in(start.key, NOT_AN_ITERATION)
        parts = {
            name: self._sent(part, getattr(start.model, name), jax.random.fold_in(key, number))
            for number, (name, part) in enumerate(update.model.networks().items())
        }
        return replace(update, model=replace(update.model, **parts))

    def _sent(self, part: PyTree, broadcast: PyTree, key: PRNGKeyArray) -> PyTree:
        (now, shaped), (before, _) = ravel_pytree(part), ravel_pytree(broadcast)
        move = moved = now - before
        for number, link in enumerate(self.each):
            move = jnp.asarray(link(move, jax.random.fold_in(key, number)))
            if (move.shape, move.dtype) != (now.shape, now.dtype):
                raise UserError(
                    f"upload.each: {link.name} must make {now.dtype} of shape {now.shape} of a "
                    f"client's move, not {move.dtype} of shape {move.shape}"
                )
        # Not before + (now - before), which rounds: what no link changes is sent as it is.
        return shaped(jnp.where(move == moved, now, before + move))


@dataclass(frozen=True)
class LinkNames:
    """The links that the chain is made of."""

    each: tuple[str, ...] = setting(
        (), "what is done to a client's moves before they are sent, by name, in that order"
    )


def build_upload(values: Mapping[str, Any]) -> UploadChain:
    """Make the chain that a table names.

    Raises:
        UserError: names the setting and what is allowed.
    """
    names, rest = settings.build_names(LinkNames, values, "upload")
    classes = [UPLOADS.find(name, "upload.each") for name in names.each]
    return UploadChain(tuple(settings.build_links(classes, rest, LinkNames, "upload")))
