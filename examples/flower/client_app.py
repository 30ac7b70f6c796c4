"""The ClientApp: fedkl's own local training, in the process that Flower starts for a message."""

from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedkl.network import NetworkClient, read_request

app = ClientApp()


@app.query()
def query(message: Message, context: Context) -> Message:
    """Answers a request; what the client keeps for itself is in a folder that no message has."""
    data: Any = message.content["work"]["blob"]
    folder = Path(str(context.node_config.get("state", "fedkl-states"))) / str(context.node_id)
    resident = NetworkClient(folder.absolute(), read_request(data).client)
    try:
        answer = ConfigRecord({"blob": resident.answer(data)})
    finally:
        resident.close()
    return Message(RecordDict({"work": answer}), reply_to=message)
