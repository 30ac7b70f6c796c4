"""The origin of what this process makes: config, plugins, the clients' worlds, versions of
packages.

Every checkpoint of a run carries this, and whoever goes on from one compares it with what there is
now. What decides about results (config, plugins, worlds) must be the same; another version is said
and written down.
"""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedkl.core.plugins import sha256_of
from fedkl.io.arrays import to_arrays
from fedkl.training.origin import Origin, settings_of

if TYPE_CHECKING:
    from fedkl.config.config import Config


def origin_of(mapping: Mapping[str, Any], config: Config) -> Origin:
    """Return the origin of a run that this process would make.

    Args:
        mapping: the run's resolved config, as its directory keeps it.
        config: the same, built.
    """
    return Origin(
        config=settings_of(mapping),
        rounds=config.federation.rounds,
        plugins=[[Path(p).name, sha256_of(Path(p))] for p in mapping.get("plugins", ())],
        params=_params(config),
        history=[{"round": 0, "versions": versions(), "changes": []}],
    )


def versions() -> dict[str, str]:
    """Of Python and of the packages that results depend on."""
    packages = ("fedkl", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version()} | {p: metadata.version(p) for p in packages}


def _params(config: Config) -> str:
    if config.world.is_shared:
        return ""
    digest = hashlib.sha256()
    for name, array in to_arrays(config.client_params).items():
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
