"""Two hundred glitching sensors of one client of four: what they cost the others, who is named.

python benchmarks/glitches.py --results glitches.jsonl --out glitches.json

Each glitch is drawn from its number: which client, in which rounds, which readings, how large, in
how many steps. A reading that glitches is replaced inside the client's world, so that its policy
acts on it, too; local training, validation and aggregation are as they are for everybody. A cell
that is in the results already is not run again. See README.md.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree
from measuring import emit, machine, read_lines, run_missing

import fedkl
from fedkl import Federation
from fedkl.clients.records import ClientState, Model, Start, Task, Trained
from fedkl.clients.round import local_round
from fedkl.clients.sources import Source, Traced
from fedkl.clients.work import Train, Work
from fedkl.config.config import parse_assignment
from fedkl.engines import Engine, Job
from fedkl.server.records import NAMED_FROM
from fedkl.server.setup import local_engine
from fedkl.worlds.base import Transition

CLIENTS = 4
GLITCHES, FIRST_GLITCH = 200, 1000
"""Those before were tried while it was decided what an outlier is."""
HEALTHY_SEEDS = tuple(range(2000, 2020))
CONTROL_SEEDS = tuple(range(2100, 2120))
"""Of healthy runs that are judged as if there were a glitch."""
SIZES, SHARES = (10.0, 1e30), (1e-4, 0.1)
ALLOWED = 0.1
"""Of the healthy return, that the others may lose."""
SMALL: dict[str, Any] = {
    "federation.clients": CLIENTS,
    "federation.clients_per_round": CLIENTS,
    "learner.hidden": [16, 16],
    "critic.hidden": [16, 16],
    "evaluation.episodes": 50,
}


class Place(NamedTuple):
    """A world in which a federation learns in seconds, and how large its healthy readings get."""

    preset: str
    settings: dict[str, Any]
    largest: tuple[float, ...]
    """Of each entry of an observation; below 1: 1."""
    largest_reward: float


WORLDS = {
    "chain": Place(
        "probe-point",
        {"world.name": "probe-chain", "federation.clients_per_round": 2, "federation.rounds": 8},
        (1.0,) * 5,
        1.0,
    ),
    "pendulum": Place(
        "pendulum",
        {"federation.rounds": 8, "learner.learning_rate": 3e-3},
        (1.0, 1.0, 8.0),
        16.3,
    ),
    "reacher": Place(
        "reacher-init-state",
        {
            "federation.rounds": 10,
            "learner.iterations": 8,
            "learner.steps": 512,
            "learner.learning_rate": 1e-3,
        },
        (1.0,) * 6 + (60.0, 60.0) + (1.0,) * 3,
        10.0,
    ),
}


class Glitch(NamedTuple):
    """A client's broken sensor."""

    client: int
    first_round: int
    last_round: int
    about: str
    """`one` entry of the observation, `all` of them, or the `reward`."""
    entry: int
    """Of the observation, if it is one."""
    size: float
    """In the largest healthy reading; its sign is the glitch's."""
    share: float
    """Of steps."""


def glitch_of(number: int, world: str, rewards: bool) -> Glitch:
    """The glitch of this number; half of them begin in the first round, half last one round."""
    random = np.random.default_rng([number, GLITCHES])
    rounds = WORLDS[world].settings["federation.rounds"]
    first = 1 if random.random() < 0.5 else int(random.integers(1, rounds + 1))
    last = first if random.random() < 0.5 else rounds
    low, high = np.log(SIZES)
    size = float(np.exp(random.uniform(low, high)) * random.choice([-1.0, 1.0]))
    low, high = np.log(SHARES)
    share = float(np.exp(random.uniform(low, high)))
    about = "reward" if rewards else str(random.choice(["one", "all"]))
    entry = int(random.integers(len(WORLDS[world].largest)))
    return Glitch(int(random.integers(CLIENTS)), first, last, about, entry, size, share)


class Sensors(eqx.Module):
    """Readings in place of the true ones, in a share of steps (NaN: the true one)."""

    observation: Array
    reward: Array
    share: Array

    def spoil(self, x: Array, reading: Array, key: PRNGKeyArray) -> Array:
        glitches = jax.random.bernoulli(jax.random.fold_in(key, GLITCHES), self.share)
        return jnp.where(glitches & ~jnp.isnan(reading), reading, x)


def sensors(glitch: Glitch | None, world: str) -> Sensors:
    """The sensors of a client with a glitch, or of a healthy one."""
    place = WORLDS[world]
    observation, reward = np.full(len(place.largest), np.nan), np.full((), np.nan)
    if glitch is not None and glitch.about == "reward":
        reward = np.asarray(glitch.size * max(1.0, place.largest_reward))
    elif glitch is not None:
        some = slice(None) if glitch.about == "all" else glitch.entry
        observation[some] = glitch.size * np.maximum(1.0, place.largest)[some]
    share = 0.0 if glitch is None else glitch.share
    return Sensors(*(np.asarray(x, np.float32) for x in (observation, reward, share)))


class Glitching(eqx.Module):
    """A world whose readings are those of broken sensors."""

    world: Any
    sensors: Sensors

    @property
    def horizon(self) -> int:
        return self.world.horizon

    @property
    def terminates(self) -> bool:
        return self.world.terminates

    def reset(self, params: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        state, seen = self.world.reset(params, key)
        return state, self.sensors.spoil(seen, self.sensors.observation, key)

    def step(self, params: PyTree, state: PyTree, action: Array, key: PRNGKeyArray) -> Transition:
        moved = self.world.step(params, state, action, key)
        return moved._replace(
            observation=self.sensors.spoil(moved.observation, self.sensors.observation, key),
            reward=self.sensors.spoil(moved.reward, self.sensors.reward, key),
        )


class TrainGlitching(Train):
    """A round of local training with the sensors that a client has."""

    sensors: Sensors

    def __call__(self, task: Task, start: Start, source: Source) -> tuple[Trained, ClientState]:
        assert isinstance(source, Traced)
        world: Any = Glitching(source.world, self.sensors)
        return local_round(task, start, Traced(world, source.params))


class Sensing:
    """An engine in which one client's sensors glitch while it trains."""

    def __init__(self, engine: Engine, glitch: Glitch | None, world: str) -> None:
        self._engine, self._glitch = engine, glitch
        self._healthy, self._broken = sensors(None, world), sensors(glitch, world)

    def run(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: np.ndarray
    ) -> Iterator[tuple[int, Any]]:
        if not isinstance(work, Train):
            yield from self._engine.run(work, model, jobs, key)
            return
        for job in jobs:
            own = TrainGlitching(self._broken if self._glitches(job) else self._healthy)
            yield from self._engine.run(own, model, [job], key)

    def _glitches(self, job: Job) -> bool:
        glitch = self._glitch
        if glitch is None or job.client != glitch.client:
            return False
        return glitch.first_round <= job.round + 1 <= glitch.last_round

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class Cell(NamedTuple):
    """One training: the world, which glitch (-1: none), of what, and the chance."""

    world: str
    glitch: int
    of: str
    """`observations`, `rewards` or `nothing`."""
    seed: int


def train(cell: Cell, setting: dict[str, Any]) -> dict[str, Any]:
    """Trains one cell to its last round, which is the only one to be evaluated."""
    started = time.perf_counter()
    place = WORLDS[cell.world]
    changes = SMALL | place.settings | setting
    changes |= {"evaluation.every": changes["federation.rounds"]}
    config = fedkl.preset(place.preset, "fedkl", cell.seed, changes)
    glitch = None
    if cell.glitch >= 0:
        glitch = glitch_of(cell.glitch, cell.world, cell.of == "rewards")
    with Federation(config, Sensing(local_engine(config), glitch, cell.world)) as federation:
        records = list(federation)
    client = -1 if glitch is None else glitch.client
    # Rounds in which the sensor glitched and somebody looked, and those in which it was named.
    there = [
        r["round"]
        for r in records
        if glitch is not None
        and client in r["selected"]
        and glitch.first_round <= r["round"] <= glitch.last_round
    ]
    named = [
        record["round"]
        for record in records
        for row in [*record["rejected"], *record.get("outliers", ())]
        if row["client"] == client
    ]
    shares = {r["round"]: x["share"] for r in records for x in r.get("outliers", ())}
    return cell._asdict() | {
        "setting": setting,
        **(Glitch(-1, 0, 0, "nothing", 0, 0.0, 0.0) if glitch is None else glitch)._asdict(),
        "return_per_client": records[-1]["return_per_client"],
        "glitched": there,
        "named": sorted({*named} & {*there}),
        "shares": shares,
        "refused": [r | {"round": x["round"]} for x in records for r in x["rejected"]],
        "others_named": sorted(
            {
                row["client"]
                for record in records
                for row in [*record["rejected"], *record.get("outliers", ())]
                if row["client"] != client
            }
        ),
        "notes": [record["note"] for record in records if record["note"]],
        "seconds": time.perf_counter() - started,
    }


def cells_of(
    worlds: Sequence[str], glitches: Iterable[int], rewards: Iterable[int], healthy: Iterable[int]
) -> list[Cell]:
    """The healthy runs, and the glitches, which take turns with the worlds."""

    def turn(number: int) -> str:
        return worlds[number % len(worlds)]

    return [
        *(Cell(world, -1, "nothing", seed) for world in worlds for seed in healthy),
        *(Cell(turn(n), n, "observations", 500 + n) for n in glitches),
        *(Cell(turn(n), n, "rewards", 500 + n) for n in rewards),
    ]


def cell_of(line: dict[str, Any]) -> Cell:
    """What a line is the result of."""
    return Cell(*(line[name] for name in Cell._fields))


def others(line: dict[str, Any], client: int) -> float:
    """The mean return of all clients but one (-1: of all)."""
    return mean(r for c, r in enumerate(line["return_per_client"]) if c != client)


def tabulate(lines: list[dict[str, Any]], healthy_seeds: Sequence[int]) -> dict[str, Any]:
    """For each world and kind of glitch: what the others lost, and who was named.

    The healthy return is the mean over the healthy runs of these seeds, of the same clients; those
    of other seeds are judged by it, as `nothing`.
    """
    result: dict[str, Any] = {}
    for of in "observations", "rewards", "nothing":
        for world in [*WORLDS, "all"]:
            own = [x for x in lines if x["of"] == of and world in (x["world"], "all")]
            own = [x for x in own if of != "nothing" or x["seed"] not in healthy_seeds]
            losses = {}
            for line in own:
                known = [
                    others(x, line["client"])
                    for x in lines
                    if x["world"] == line["world"]
                    and x["of"] == "nothing"
                    and x["seed"] in healthy_seeds
                ]
                losses[cell_of(line)] = 1 - _against(others(line, line["client"]), mean(known))
            if not own:
                continue
            seen = [x for x in own if x["share"] > NAMED_FROM and x["glitched"]]
            result.setdefault(of, {})[world] = {
                "runs": len(own),
                "within": sum(loss <= ALLOWED for loss in losses.values()),
                "above": sum(loss < -ALLOWED for loss in losses.values()),
                "mean_loss": mean(losses.values()),
                "worst_loss": max(losses.values()),
                "refused": sum(any(r["client"] == x["client"] for r in x["refused"]) for x in own),
                "frequent": len(seen),
                "named": sum(bool(x["named"]) for x in seen),
                "others_named": sum(bool(x["others_named"]) for x in own),
            }
    return result


def _against(reached: float, healthy: float) -> float:
    """A return beside the healthy one: 1 if they are the same, 0.9 if it is worse by a tenth."""
    return 1 + (reached - healthy) / abs(healthy)


def summary(found: dict[str, Any]) -> str:
    """A table in Markdown."""
    lines = [
        "| glitches of | world | runs | within | better by more | mean loss | worst | refused "
        "| in over 0.1 % of steps | named | others named |",
        "|---" * 11 + "|",
    ]
    for of, worlds in found.items():
        for world, x in worlds.items():
            lines.append(
                f"| {of} | {world} | {x['runs']} | {x['within']} | {x['above']} "
                f"| {x['mean_loss']:.1%} | {x['worst_loss']:.1%} | {x['refused']} "
                f"| {x['frequent']} | {x['named']} | {x['others_named']} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Trains what is missing and shows the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--glitches", type=int, default=GLITCHES)
    parser.add_argument("--rewards", type=int, default=GLITCHES // 4, help="glitches of rewards")
    parser.add_argument("--first-glitch", type=int, default=FIRST_GLITCH, help="its number")
    parser.add_argument("--healthy", type=int, nargs="+", default=list(HEALTHY_SEEDS), help="seeds")
    parser.add_argument("--control", type=int, nargs="*", default=list(CONTROL_SEEDS), help="seeds")
    parser.add_argument("--worlds", nargs="+", default=list(WORLDS), choices=list(WORLDS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, each on a core of its own")
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--results", type=Path, required=True, help="JSON lines, added to")
    parser.add_argument("--out", type=Path, help="also write the table's JSON here")
    args = parser.parse_args()
    setting = dict(map(parse_assignment, args.set))
    first = args.first_glitch
    cells = cells_of(
        args.worlds,
        range(first, first + args.glitches),
        range(first, first + args.rewards),
        [*args.healthy, *args.control],
    )

    def read() -> list[dict[str, Any]]:
        lines = read_lines(args.results)
        return [x for x in lines if x["setting"] == setting and cell_of(x) in set(cells)]

    there = {cell_of(line) for line in read()}
    left = [cell for cell in cells if cell not in there]
    run_missing(partial(train, setting=setting), left, args.results, args.jobs, said)
    found = tabulate(read(), args.healthy)
    result = {
        "what": f"return of the others, where one of {CLIENTS} clients has a glitching sensor",
        "machine": machine("jax", "numpy"),
        "setting": SMALL | setting,
        "worlds": {name: WORLDS[name]._asdict() for name in args.worlds},
        "found": found,
    }
    emit(result, summary(found), args.out)


def said(line: dict[str, Any]) -> str:
    """A cell that is done."""
    what = "healthy"
    if line["glitch"] >= 0:
        what = f"{line['size']:.1e} in {line['share']:.2%} of {line['about']}"
    return (
        f"{line['world']}, {what}: {others(line, line['client']):.2f}, named in "
        f"{len(line['named'])} of {len(line['glitched'])} rounds, in {line['seconds']:.0f} s"
    )


if __name__ == "__main__":
    main()
