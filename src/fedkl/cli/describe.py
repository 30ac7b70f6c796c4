"""`fedkl describe`: print and plot the clients of a preset, and what they differ in."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fedkl.cli import common, console, interrupts, output
from fedkl.core.errors import UserError
from fedkl.core.text import counted
from fedkl.io import tables

if TYPE_CHECKING:
    import numpy as np

    from fedkl.config.config import Config

_WIDTH = 80
"""Of the tables, at the most."""
_FIRST = 8
"""Clients in the table."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_preset(parser)
    common.add_seed(parser)
    common.add_plot(parser)
    common.add_formats(parser)
    parser.set_defaults(rounds=None, computes=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.config import config
        from fedkl.training.directory import columns

    if options.plot is not None:
        from fedkl.report.pictures import check_target

        check_target(options.plot)
    chosen = config.preset(
        options.preset, seed=options.seed, set=common.settings_of(options), plugins=options.plugin
    )
    if options.plot is not None and chosen.world.is_shared:
        raise UserError(
            f"--plot: the clients of the world {chosen.world.title} share one simulation and "
            "differ by their place in it: there is nothing to draw"
        )
    drawn = chosen.clients()
    table = columns(drawn)
    rows = [
        {"client": client} | {name: float(column[client]) for name, column in table.items()}
        for client in range(chosen.federation.clients)
    ]
    for_people = not output.answered(options, _facts(chosen, drawn), rows)
    if for_people:
        _show(chosen, drawn)
    if options.plot is not None:
        _plot(options, chosen, drawn)
        if for_people:
            console.out.print(f"\nfigure: {options.plot}", soft_wrap=True)


def _facts(chosen: Config, drawn: dict[str, np.ndarray]) -> dict[str, Any]:
    """Collect all there is to say, for machines."""
    from fedkl.training.directory import columns

    given, nominal = _given(chosen), _nominal(chosen)
    table = chosen.mapping()["world"].get("clients", {})
    return {
        "preset": chosen.preset,
        "world": chosen.world.name,
        "clients": chosen.federation.clients,
        "seed": chosen.seed,
        "words": [
            {
                "word": name,
                "nominal": nominal.get(name),
                "given_by": given.get(name),
                "draw": table.get(given.get(name)),
                "min": float(column.min()),
                "mean": float(column.mean(dtype=float)),
                "max": float(column.max()),
                "values": [float(x) for x in column],
            }
            for name, column in columns(drawn).items()
        ],
        "other_words": _others(chosen, drawn),
    }


def _show(chosen: Config, drawn: dict[str, np.ndarray]) -> None:
    """Print what there is to say, for people, in 80 columns."""
    from fedkl.training.directory import columns
    from fedkl.worlds.heterogeneous import HeterogeneousWorld

    number, world = chosen.federation.clients, chosen.world
    label = chosen.preset or "config"
    called = world.name if label == world.title else world.title
    console.out.print(
        f"{label}: {counted(number, 'client')} of the world {called}, seed {chosen.seed}"
    )
    if world.is_shared:
        console.out.print("They share one simulation, and differ by their place in it.")
        return
    assert isinstance(world, HeterogeneousWorld)
    table = _together(columns(drawn), _nominal(chosen))
    if not table:
        console.out.print("All of them are alike.")
    else:
        console.out.print("\n[world.clients]")
        for name, draw in world.differences.given:
            console.out.print(f"{name} = {draw.text()}", width=_width())
        console.out.print()
        tables.show(_statistics(chosen, table), console.out)
        console.out.print()
        _show_first(table, number)
    if others := _others(chosen, drawn):
        also = "also " if table else ""
        console.out.print(f"\nThey could {also}differ in: {', '.join(others)}", width=_width())


def _together(table: dict[str, np.ndarray], nominal: dict[str, float]) -> dict[str, np.ndarray]:
    """Join entries of a vector that are the same for every client, such as `low_0..8`."""
    import numpy as np

    result: dict[str, np.ndarray] = {}
    first = last = ""
    for name, column in table.items():
        stem, _, entry = name.rpartition("_")
        begun, _, since = first.rpartition("_")
        same = last and stem == begun and entry.isdigit() and since.isdigit()
        same = same and nominal.get(name) == nominal.get(first)
        if same and np.array_equal(column, result[last]):
            del result[last]
            last = f"{stem}_{since}..{entry}"
        else:
            first = last = name
        result[last] = column
    return result


def _statistics(chosen: Config, table: dict[str, np.ndarray]) -> tables.Table:
    given, nominal = _given(chosen), _nominal(chosen)
    rows = []
    for name, column in table.items():
        one = name.partition("..")[0]
        known = _text(nominal[one]) if one in nominal else ""
        numbers = (column.min(), column.mean(dtype=float), column.max())
        rows.append((name, known, *map(_text, numbers), given.get(one, "the world")))
    return tables.Table(("parameter", "nominal", "min", "mean", "max", "given by"), rows, (0, 5))


def _show_first(table: dict[str, np.ndarray], number: int) -> None:
    """Print the first clients, with as many columns as fit."""
    first = {"client": range(min(number, _FIRST))} | {k: x[:_FIRST] for k, x in table.items()}
    used = -2
    shown: dict[str, list[str]] = {}
    left_out: list[str] = []
    for name, column in first.items():
        texts = [_text(x) for x in column]
        used += max(len(name), *map(len, texts)) + 2
        if used > _width() or left_out:
            left_out.append(name)
            continue
        shown[name] = texts
    rows = [*zip(*shown.values(), strict=True)]
    tables.show(tables.Table([*shown], rows, ()), console.out)
    more = [counted(number - _FIRST, "more client")] if number > _FIRST else []
    more += [f"more columns: {', '.join(left_out)}"] if left_out else []
    if more:
        console.out.print(f"... and {'; '.join(more)} (--json has all)", width=_width())


def _plot(options: argparse.Namespace, chosen: Config, drawn: dict[str, np.ndarray]) -> None:
    import numpy as np

    from fedkl.report.clients import Clients, Field, write_figure
    from fedkl.worlds import Reacher
    from fedkl.worlds.reacher_params import REACH

    field, shown = None, dict(drawn)
    ends = chosen.world.box_ends if isinstance(chosen.world, Reacher) else ()
    if isinstance(chosen.world, Reacher) and {*ends} & drawn.keys():
        nominal = {p.name: p.nominal for p in chosen.world.parameters}
        size = (chosen.federation.clients, 2)
        low, high = (
            shown.pop(end, np.broadcast_to(np.asarray(nominal[end]), size)) for end in ends
        )
        stretched = chosen.world.arm == "stretched"
        what = "where targets spawn" if stretched else "where fingertips start"
        field = Field(what, low, high, REACH)
    clients = counted(chosen.federation.clients, "client")
    title = f"{chosen.preset or chosen.world.title}: {clients}, seed "
    known = {p.name: p.nominal for p in _parameters(chosen)}
    write_figure(options.plot, Clients(f"{title}{chosen.seed}", shown, known, field))


def _parameters(chosen: Config) -> tuple[Any, ...]:
    from fedkl.worlds.heterogeneous import HeterogeneousWorld

    world = chosen.world
    return world.all_parameters if isinstance(world, HeterogeneousWorld) else ()


def _nominal(chosen: Config) -> dict[str, float]:
    """Find each column's value where the config gives none."""
    import numpy as np

    from fedkl.training.directory import columns

    nominal = {p.name: np.asarray(p.nominal, np.float64)[None] for p in _parameters(chosen)}
    return {name: float(column[0]) for name, column in columns(nominal).items()}


def _given(chosen: Config) -> dict[str, str]:
    """Find the name in the table by which each column was given."""
    import numpy as np

    from fedkl.training.directory import columns
    from fedkl.worlds.heterogeneous import HeterogeneousWorld

    world = chosen.world
    if not isinstance(world, HeterogeneousWorld):
        return {}
    result: dict[str, str] = {}
    shapes = {p.name: np.zeros((1, *p.shape)) for p in world.all_parameters}
    for parameter, (name, draw) in world.differences.drawn().items():
        stands_for = world.boxes(draw.boxes) if parameter == "initial_state" else [parameter]
        for column in columns({w: shapes[w] for w in stands_for}):
            result[column] = name
    return result


def _others(chosen: Config, drawn: dict[str, np.ndarray]) -> list[str]:
    """List the parameters of the world that clients do not differ in."""
    taken = drawn.keys() | set(_given(chosen).values())
    return [p.name for p in _parameters(chosen) if p.name not in taken]


def _width() -> int:
    return min(_WIDTH, console.out.width)


def _text(value: Any) -> str:
    return f"{value:.4g}"
