"""An engine around an engine: clients drop out of rounds at random, as phones and robots do.

python examples/own_engine.py
"""

import sys

import jax

import fedkl
from fedkl.engines import Failure, Train


class Dropout:
    """Loses the answer of a client to training with a given probability, by the job's own key."""

    def __init__(self, engine, probability):
        self._engine, self._probability = engine, probability

    def run(self, work, model, jobs, key):
        lost = {job.client for job in jobs if isinstance(work, Train) and self._loses(job)}
        yield from ((client, Failure("it dropped out", again=False)) for client in lost)
        yield from self._engine.run(work, model, [j for j in jobs if j.client not in lost], key)

    def _loses(self, job):
        key = jax.random.wrap_key_data(job.key)
        own = jax.random.fold_in(key, 2**30)  # its client folds in the number of an iteration
        return jax.random.bernoulli(own, self._probability)

    def __getattr__(self, name):  # all else is the engine's
        return getattr(self._engine, name)


def main(preset: str = "probe-point", rounds: str = "5") -> None:
    """Trains with a third of the clients dropping out."""
    config = fedkl.preset(preset, set={"federation.rounds": int(rounds)})
    for record in fedkl.Federation(config, Dropout(fedkl.local_engine(config), 1 / 3)):
        absent = [entry["client"] for entry in record["rejected"]]
        print("round {round}: return {return_mean:.3f}".format(**record), "absent:", absent)


if __name__ == "__main__":
    main(*sys.argv[1:])
