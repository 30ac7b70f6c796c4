"""What FedKL's rule does to c1 within a round: c1 and the distance after every local iteration.

python benchmarks/c1_within_a_round.py --rules iteration round ramp --figure c1.png --out c1.json

The log has a client's last coefficients only. Here an engine of this script's own asks one of each
round's clients to train twice: once as always, and once watched, from the same model and state and
with the same key. What is watched is thrown away, so the federation goes on as ever. See README.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from measuring import emit, machine

import fedkl
from fedkl import Federation
from fedkl.clients.records import Carry, Model, Start, Task
from fedkl.clients.round import iteration_keys
from fedkl.clients.sources import Traced
from fedkl.clients.work import Train, Work
from fedkl.config.config import Config, parse_assignment
from fedkl.core.errors import UserError
from fedkl.engines import Engine, Job
from fedkl.io.compilation import enable_cache
from fedkl.learning.trajectories import columns_for
from fedkl.server.setup import local_engine

if TYPE_CHECKING:
    from matplotlib.axes import Axes

RULES = ("iteration", "round", "ramp")
"""The values of `algorithm.c1_adapted`."""
MEANING = {
    "iteration": "after every iteration (the paper)",
    "round": "once, after the round",
    "ramp": "to a growing target",
}


class Watch(eqx.Module):
    """A round of local training, for what happens in it; changes nothing."""

    name: ClassVar[str] = "watch"

    def __call__(self, task: Task, start: Start, source: Any) -> tuple[dict[str, Any], None]:
        """c1 before the first iteration and after each, and the distances.

        The last c1 is that after the round, which is where some rules adapt it.
        """
        if not isinstance(source, Traced):
            raise UserError("only worlds in JAX can be watched within a round")
        episodes = columns_for(task.world, task.learner.steps)

        def step(carry: Carry, index: jax.Array) -> tuple[Carry, Any]:
            run = iteration_keys(start.key, index)[0]
            data = source.collect(task.learner.behaviour(task, start, carry), episodes, run)
            carry, batch, metrics = task.learner.improve(
                task, start, carry, data, task.learner.clean(task, data), index
            )
            seen = (carry.coefficients["c1"], metrics)
            return task.learner.fit_critic(task, start, carry, batch, index), seen

        first = task.learner.begin(task, start)
        indices = jnp.arange(task.learner.iterations)
        end, (after, metrics) = jax.lax.scan(step, first, indices)
        trained, _ = task.learner.finish(task, start, end, metrics)
        at_last = trained.metrics["coefficients"]["c1"]
        c1 = jnp.concatenate([first.coefficients["c1"][None], after[:-1], at_last[None]])
        distance, guarded = metrics["distance_global"], metrics["guarded"]
        return {"c1": c1, "distance_global": distance, "guarded": guarded}, None


class Watched:
    """An engine in which one of each round's clients is watched before it trains."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.rounds: list[dict[str, Any]] = []
        self._seen = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def run(
        self, work: Work[Any], model: Model, jobs: Sequence[Job], key: np.ndarray
    ) -> Iterator[tuple[int, Any]]:
        if isinstance(work, Train) and not self._seen:
            self._seen = True
            # Whoever has trained before has a c1 of its own to start from.
            job = max(jobs, key=lambda job: (job.since > 0, -job.client))
            ((_, seen),) = self._engine.run(Watch(), model, [job], key)
            row: dict[str, Any] = {"client": job.client, "trained_before": job.since > 0}
            self.rounds.append(row | {name: x.tolist() for name, x in seen.items()})
        yield from self._engine.run(work, model, jobs, key)

    def keep(self, round: int, clients: Sequence[int]) -> None:
        self._seen = False
        self._engine.keep(round, clients)


def watch(config: Config) -> list[dict[str, Any]]:
    """Trains a federation, and returns what was seen of a client in each round."""
    engine = Watched(local_engine(config))
    with Federation(config, engine) as federation:
        for record, seen in zip(federation, engine.rounds, strict=False):
            logged = {row["client"]: row["coefficients"]["c1"] for row in record["clients"]}
            seen["logged_c1"] = logged.get(seen["client"])
    return engine.rounds


def described(rounds: Sequence[dict[str, Any]]) -> dict[str, float]:
    """A rule in a few numbers, each the median over rounds."""
    return {
        "largest_over_least_c1": median(max(r["c1"]) / min(r["c1"]) for r in rounds),
        "last_over_first_c1": median(r["c1"][-1] / r["c1"][0] for r in rounds),
        "largest_distance": median(float(kept(r)[1].max()) for r in rounds),
        "last_distance": median(float(kept(r)[1][-1]) for r in rounds),
        "guarded": median(sum(r["guarded"]) for r in rounds),
    }


def kept(seen: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """The iterations after which the policy was somewhere else, and its distances there.

    One that the guard rolled back is left out; before the first the distance is 0.
    """
    stays = ~np.asarray(seen["guarded"], bool)
    distance = np.asarray(seen["distance_global"], np.float64)[stays]
    return np.append(0, 1 + np.flatnonzero(stays)), np.append(0.0, distance)


def draw(found: dict[str, list[dict[str, Any]]], d_global: float) -> tuple[str, bytes]:
    """c1 above, the distance below, over the iterations of all rounds; as SVG and PNG."""
    from matplotlib.figure import Figure

    from fedkl.report.lines import label_axes, log_axis
    from fedkl.report.pictures import Drawing, matplotlib_style, rendered
    from fedkl.report.style import BLUE, GREEN, MUTED, VERMILLION

    shades = dict(zip(RULES, (BLUE, VERMILLION, GREEN), strict=True))
    watched = next(iter(found.values()))
    iterations = len(watched[0]["distance_global"])
    with matplotlib_style():
        figure = Figure(figsize=(7.2, 4.8), layout="constrained")
        above, below = figure.subplots(2, sharex=True)
        drawn = []
        for rule, rounds in found.items():
            for t, seen in enumerate(rounds):
                x = t * iterations + np.arange(iterations + 1)
                name = MEANING[rule] if t == 0 else None
                line: dict[str, Any] = {"color": shades[rule], "lw": 1.6}
                at, distance = kept(seen)
                above.plot(x, seen["c1"], marker=".", ms=4, label=name, **line)
                below.plot(x[at], distance, marker=".", ms=4, **line)
                if rule == "ramp":
                    below.plot(x[[0, -1]], [0, d_global], color=shades[rule], lw=0.9, ls=":")
                drawn.append(np.asarray(seen["c1"]))
        below.axhline(d_global, color=MUTED, lw=1.1, ls="--", label=f"d_global = {d_global:g}")
        if "ramp" in found:
            below.plot([], [], color=shades["ramp"], lw=0.9, ls=":", label="the growing target")
        log_axis(above, drawn)
        label_axes(above, "c1", "")
        again = " (*: it has trained before)" if any(s["trained_before"] for s in watched) else ""
        below_axis = f"local iterations, {iterations} a round{again}"
        label_axes(below, "distance to global policy", below_axis)
        figure.align_ylabels()
        least, most = above.get_ylim()
        above.set_ylim(least, most * (most / least) ** 0.12)  # room for the clients' numbers
        below.set_ylim(bottom=0)
        for axes in (above, below):
            _mark_rounds(axes, len(watched), iterations)
        for t, seen in enumerate(watched):
            middle = (t + 0.5) * iterations
            said = f"client {seen['client']}" + ("*" if seen["trained_before"] else "")
            place = above.get_xaxis_transform()
            style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 8.5, "color": MUTED}
            above.text(middle, 0.99, said, transform=place, **style)
        picture = rendered({"c1": Drawing(figure, "c1 within rounds", "", columns=3)})["c1"]
    return picture.svg, picture.files[".png"]


def _mark_rounds(axes: Axes, rounds: int, iterations: int) -> None:
    borders = iterations * np.arange(rounds + 1)
    axes.set_xticks(borders)
    axes.set_xlim(0, borders[-1])
    axes.grid(False, axis="x")
    for border in borders:
        axes.axvline(border, color="#b8c0c9", lw=0.8, zorder=0.5)


def summary(result: dict[str, Any]) -> str:
    """A few lines for people."""
    lines = []
    for rule, row in result["medians_over_rounds"].items():
        lines.append(
            f"{rule}: in a round the largest c1 is {row['largest_over_least_c1']:.3g} times the "
            f"least, and the last {row['last_over_first_c1']:.3g} times the first; the distance "
            f"ends at {row['last_distance']:.2g} (target {result['d_global']:g})"
        )
    return "\n".join(lines)


def main() -> None:
    """Trains a federation for each rule, and shows what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--preset", default="reacher-init-state")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rules", nargs="+", default=["iteration"], choices=RULES)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="settings, as for `fedkl train`"
    )
    parser.add_argument("--figure", type=Path, help="a .png or .svg to draw")
    parser.add_argument("--out", type=Path, help="also write the JSON here")
    args = parser.parse_args()
    if args.figure and args.figure.suffix not in (".png", ".svg"):
        parser.error("--figure must end in .png or .svg")
    enable_cache()
    changes = {
        "federation.rounds": args.rounds,
        "evaluation.every": args.rounds,
    } | dict(map(parse_assignment, args.set))
    configs = {
        rule: fedkl.preset(
            args.preset, "fedkl", args.seed, changes | {"algorithm.c1_adapted": rule}
        )
        for rule in args.rules
    }
    found = {rule: watch(config) for rule, config in configs.items()}
    d_global = float(configs[args.rules[0]].algorithm.d_global)
    result = {
        "what": "c1 and the distance to the global policy after every iteration of one client",
        "machine": machine("jax"),
        "setting": {"preset": args.preset, "seed": args.seed, "set": changes},
        "d_global": d_global,
        "medians_over_rounds": {rule: described(rounds) for rule, rounds in found.items()},
        "rules": found,
    }
    if args.figure:
        svg, png = draw(found, d_global)
        args.figure.write_bytes(png if args.figure.suffix == ".png" else svg.encode())
    emit(result, summary(result), args.out)


if __name__ == "__main__":
    main()
