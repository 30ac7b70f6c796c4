"""Where a client's episodes come from: a world inside jit, or a simulator on the host."""

from fedkl.clients.sources.base import Recording, Source
from fedkl.clients.sources.hosted import Hosted
from fedkl.clients.sources.pooled import PooledHosted, PooledTraced
from fedkl.clients.sources.traced import Traced

__all__ = ["Hosted", "PooledHosted", "PooledTraced", "Recording", "Source", "Traced"]
