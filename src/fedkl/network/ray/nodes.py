"""The machines of a cluster, and the versions of their packages."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from fedkl.core.errors import UserError
from fedkl.training.provenance import versions

T = TypeVar("T")

TIMEOUT = 120.0
"""Seconds for a short task on a node; its first process imports JAX."""


class Node(NamedTuple):
    """A machine of the cluster."""

    id: str
    name: str
    """Its host name and address, for messages."""
    cpus: int


def nodes() -> tuple[Node, ...]:
    """Return the nodes that are alive and have CPUs."""
    import ray

    found = [
        Node(
            row["NodeID"],
            f"{row['NodeManagerHostname']} ({row['NodeManagerAddress']})",
            int(row["Resources"].get("CPU", 0)),
        )
        for row in ray.nodes()  # type: ignore[no-untyped-call]  # Ray's own is unannotated
        if row["Alive"]
    ]
    return tuple(node for node in found if node.cpus)


def placeable_cpus(cpus: int) -> int:
    """Return a number of CPUs, limited to those of the largest node that is alive.

    A request for more waits for ever. If no node is alive there is no limit: one may come.
    """
    return min(cpus, max((node.cpus for node in nodes()), default=cpus))


def run_on_each(nodes: Sequence[Node], function: Callable[..., T], *arguments: object) -> list[T]:
    """Call a function on each node, and return the results.

    Raises:
        UserError: a node did not answer.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # No CPU: on a cluster that is busy with something else it is not to wait.
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    coming = [
        task.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False)
        ).remote(*arguments)
        for node in nodes
    ]
    there, _ = ray.wait(coming, num_returns=len(coming), timeout=TIMEOUT)
    for node, answer in zip(nodes, coming, strict=True):
        if answer not in there:
            raise UserError(f"the node {node.name} did not answer within {TIMEOUT:g} s")
    try:
        return ray.get(coming)
    except ray.exceptions.RayTaskError:
        raise  # the function failed, not the node
    except ray.exceptions.RayError as error:
        raise UserError("a node died while it was asked for its versions") from error


def check_versions(nodes: Sequence[Node]) -> None:
    """Check that all nodes have this process's versions of the packages that results depend on.

    Raises:
        UserError: names the node, and what it has.
    """
    ours = versions()

    # Inside, so that it is sent as code: a node may lack the package that this module is of.
    def theirs(packages: list[str]) -> dict[str, str | None]:
        import platform
        from importlib import metadata

        found: dict[str, str | None] = {"python": platform.python_version()}
        for package in packages:
            try:
                found[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                found[package] = None
        return found

    packages = [name for name in ours if name != "python"]
    for node, found in zip(nodes, run_on_each(nodes, theirs, packages), strict=True):
        if problem := version_mismatch(ours, found):
            raise UserError(f"the node {node.name} {problem}")


def require_versions(wanted: Mapping[str, str]) -> None:
    """Check that this node has the driver's versions; it may have joined after `check_versions`.

    Raises:
        UserError: names the node, and what it has.
    """
    if problem := version_mismatch(wanted, versions()):
        raise UserError(f"the node {platform.node()} {problem}")


def version_mismatch(ours: Mapping[str, str], theirs: Mapping[str, str | None]) -> str:
    """Return the first difference between two sets of versions in a sentence; empty: none."""
    for name, version in ours.items():
        if theirs[name] is None:
            return f"lacks {name}, of which this machine has {version}"
        if theirs[name] != version:
            return f"has {name} {theirs[name]}, and this machine {version}"
    return ""
