"""A federation in which one client learns alone, such as to fine-tune it."""

from __future__ import annotations

from fedkl.config.config import Config, from_mapping
from fedkl.core.arguments import whole
from fedkl.core.errors import UserError
from fedkl.server.settings import OWN


def only_client(config: Config, client: int) -> Config:
    """Make the config of a run in which one client learns, and is evaluated, alone.

    It is selected in every round, and the server takes its update as it is, so the policy of the
    run is this client's. The others are there, and take no part.

    Args:
        config: of the federation.
        client: its number there: it has the same world.

    Raises:
        UserError: there is no such client, or clients are agents of one simulation.

    Example:
        >>> import fedkl
        >>> only_client(fedkl.preset("cartpole-gravity"), 3).evaluation.only
        (3,)
    """
    number = config.federation.clients
    if whole("client", client, 0) >= number:
        raise UserError(f"client must be from 0 to {number - 1}, not {client}")
    if config.world.is_shared:
        raise UserError(
            f"no client can be trained alone in the world {config.world.title}, whose clients are "
            "agents of one simulation"
        )
    values = config.mapping()
    values["federation"] |= {"data": OWN, "clients_per_round": 1, "extra": 0, "quorum": 1}
    weights = [float(n == client) for n in range(number)]
    values["selection"] = {"name": "weighted", "weights": weights}
    values["evaluation"] |= {"clients": 0, "only": [int(client)], "averaging": False}
    # There is nothing to bring together.
    values["aggregation"] = {}
    values.pop("upload", None)
    return from_mapping(values, config.pretrained)
