"""The ServerApp: fedkl's own training loop, with Flower's Grid between it and the clients."""

import time
from collections.abc import Generator, Sequence
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

import fedkl
from fedkl.engines import Failure, Job
from fedkl.network import Exchange, RequestStamp, new_federation, new_nonce, new_turn

app = ServerApp()


class OverGrid:
    """An engine of fedkl's whose clients are the nodes, numbered in the order of their ids."""

    def __init__(self, config: fedkl.Config, grid: Grid) -> None:
        self.exchange, self.grid = Exchange(config, new_federation()), grid
        self.deadline = config.federation.deadline
        while len(nodes := sorted(grid.get_node_ids())) < config.federation.clients:
            time.sleep(1)
        self.nodes = nodes

    def run(
        self, work: Any, model: Any, jobs: Sequence[Job], key: Any
    ) -> Generator[tuple[int, Any], None, None]:
        at = RequestStamp(jobs[0].round, new_turn(0), 0, new_nonce())
        end, waiting = time.time() + self.deadline, dict[str, Job]()
        for job in jobs:
            request = ConfigRecord({"blob": self.exchange.request(work, model, job, key, at)})
            message = Message(RecordDict({"work": request}), self.nodes[job.client], "query")
            waiting |= {i: job for i in self.grid.push_messages([message])}
        while waiting and time.time() < end:
            for reply in self.grid.pull_messages(list(waiting)):
                job = waiting.pop(reply.metadata.reply_to_message_id)
                if reply.has_error():
                    yield job.client, Failure(f"Flower says: {reply.error.reason}")
                else:
                    data: Any = reply.content["work"]["blob"]
                    yield job.client, self.exchange.result(data, work, model, job, at)
            time.sleep(0.2)

    def nothing(self, *_: Any) -> Any:
        return {}  # clients keep their states themselves

    keep = saved = save = restore = report = close = nothing


@app.main()
def main(grid: Grid, context: Context) -> None:
    given: dict[str, Any] = {**context.run_config}
    settings = {name: value for name, value in given.items() if "." in name}
    config = fedkl.preset(given["preset"], given["algorithm"], given["seed"], settings)
    for record in fedkl.Federation(config, OverGrid(config, grid)):
        print("round {round}: return {return_mean}, {seconds:.1f} s, {rejected}".format(**record))
