"""`fedkl train`: train one policy across the clients of a preset."""

from __future__ import annotations

import argparse

from fedkl.cli import cluster, common, console, interrupts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    common.add_config(parser)
    common.add_new_run(parser)
    parser.add_argument(
        "--client",
        type=int,
        metavar="N",
        help="train client N alone, and evaluate it alone, such as to fine-tune it --from RUN; "
        "default: the federation",
    )
    parser.add_argument(
        "--engine",
        choices=("in-process", "ray"),
        help="where clients are: in this process, or spread over actors of Ray; default: "
        "in-process, or ray if --ray is given",
    )
    common.add_ray(parser, "the engine is ray,")
    common.add_actors(parser)
    parser.set_defaults(trains=True)


def run(options: argparse.Namespace) -> None:
    with interrupts.importing():
        from fedkl.cli import progress
        from fedkl.config import config
        from fedkl.config.one_client import only_client
        from fedkl.core.processes import cores, take_cores
        from fedkl.io import compilation
        from fedkl.training import api
        from fedkl.training.directory import RunDirectory

    with cluster.engine(options) as engine_for:
        take_cores(len(cores()))
        compilation.enable_cache()
        settings = common.settings_of(options)
        chosen = config.preset(
            options.preset, options.algorithm, options.seed, settings, options.plugin
        )
        if options.client is not None:
            chosen = only_client(chosen, options.client)
        chosen = common.started(options, chosen)
        options.run = options.run or common.run_named(options, chosen)
        callbacks = [progress.screen_bar(), *progress.sinks_of(options)]
        path = api.train(chosen, options.run, callbacks, console.warn, engine_for, False)
        progress.conclude(RunDirectory(path))
