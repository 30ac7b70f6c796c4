"""Other worlds, wide networks and lost machines: the engine on Ray has the bits of one process."""

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import fedkl
from fedkl.core.processes import cores
from fedkl.network.ray.engine import Ray
from fedkl.server.loop import Federation

pytestmark = pytest.mark.slow

SMALL = {
    "federation.rounds": 2,
    "learner.iterations": 2,
    "learner.epochs": 2,
    "evaluation.episodes": 2,
}
WORLDS = {
    # Measured, because LAPACK has a part in that.
    "reacher-init-state": {
        "learner.steps": 300,
        "evaluation.clients": 15,
        "heterogeneity.every": 1,
        "heterogeneity.trajectories": 4,
    },
    "figure-eight": {
        "world.horizon": 50,
        "learner.steps": 50,
        "learner.hidden": [8],
        "critic.hidden": [8],
    },
    "gym:CartPole-v1": {
        "federation.clients": 4,
        "federation.clients_per_round": 3,
        "learner.steps": 256,
    },
}
WIDE = {
    "federation.clients": 4,
    "federation.clients_per_round": 4,
    "learner.steps": 1024,
    "learner.minibatch": 512,
    "learner.hidden": [256, 256],
    "critic.hidden": [256, 256],
    "critic.minibatch": 512,
}


def outcome(config, engine=None):
    """What is left of a run when its times are taken away, and of its clients."""
    with Federation(config, engine) as federation:
        records = [
            {k: v for k, v in r.items() if k not in ("seconds", "actors_replaced")}
            for r in federation
        ]
        trees = (federation.state.model, dict(federation.engine.save()))
    leaves, structure = jax.tree.flatten(trees)
    return records, structure, [(x.dtype, x.shape, x.tobytes()) for x in map(np.asarray, leaves)]


@pytest.mark.parametrize("preset", list(WORLDS))
def test_bits_are_those_of_one_process(cluster, preset):
    config = fedkl.preset(preset, set=SMALL | WORLDS[preset])
    assert outcome(config, Ray(config, 2)) == outcome(config)


@pytest.mark.parametrize("preset", ["cartpole-gravity", "gym:CartPole-v1"])
def test_who_has_all_data_has_them_on_every_machine(cluster, preset):
    pooled = WORLDS["gym:CartPole-v1"] | {"federation.data": "pooled"}
    config = fedkl.preset(preset, "fedavg", set=SMALL | pooled)
    assert outcome(config, Ray(config, 2)) == outcome(config)


@pytest.mark.skipif(len(cores()) < 2, reason="needs two cores")
def test_a_wide_network_has_the_bits_of_a_process_that_is_pinned_to_one_core(cluster):
    config = fedkl.preset("reacher-init-state", set=SMALL | WIDE)
    program = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import fedkl, sys, numpy as np, jax\n"
        "from fedkl.io.compilation import enable_cache; enable_cache()\n"
        f"federation = fedkl.Federation(fedkl.preset('reacher-init-state', set={SMALL | WIDE}))\n"
        "list(federation)\n"
        "for leaf in jax.tree.leaves(federation.state.model):\n"
        "    sys.stdout.buffer.write(np.asarray(leaf).tobytes())\n"
    )
    with Federation(config, Ray(config, 2)) as federation:
        list(federation)
    there = b"".join(np.asarray(x).tobytes() for x in jax.tree.leaves(federation.state.model))
    pinned = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, timeout=600
    )
    assert pinned.stdout == there


TWO_NODES = """
import os, secrets, sys, threading
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32),
               "RAY_USAGE_STATS_ENABLED": "0"}
import jax, numpy as np, ray
from ray.cluster_utils import Cluster
import fedkl
from fedkl.network.ray.engine import Ray
from fedkl.io.compilation import enable_cache; enable_cache()
config = fedkl.preset("reacher-init-state", set={
    "federation.rounds": 5, "federation.clients_per_round": 10, "learner.iterations": 5,
    "evaluation.clients": 20, "evaluation.episodes": 2})
few = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 10**8}
cluster = Cluster(initialize_head=True, head_node_args=few)
try:
    second = cluster.add_node(num_cpus=1, object_store_memory=10**8)
    ray.init(cluster.address, log_to_driver=False, logging_level="error")
    with fedkl.Federation(config, Ray(config, 2)) as there:
        while len(there.engine._actors._idle) < 2:
            there.engine._actors.advance(None)
        records = [there.run_round(), there.run_round()]  # the first compiles
        lost = threading.Timer(0.3 * records[1]["seconds"], cluster.remove_node,
                               (second,), {"allow_graceful": False})
        lost.start()
        records += list(there)
        lost.join()
        assert there.engine.report()["actors_replaced"] >= 1
    here = fedkl.Federation(config)
    for ours, theirs in zip(here, records, strict=True):
        assert ours["return_mean"] == theirs["return_mean"] and not theirs["rejected"]
    both = (here.state.model, there.state.model)
    assert all(jax.tree.leaves(jax.tree.map(np.array_equal, *both)))
    print("the same")
finally:
    ray.shutdown()
    cluster.shutdown()
"""
"""Loses one of its nodes in the middle of a round."""


def test_a_node_that_is_lost_in_a_round_changes_nothing(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-P", "-c", TWO_NODES],
        timeout=900,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
    )
    assert ended.stdout.endswith("the same\n"), ended.stderr
