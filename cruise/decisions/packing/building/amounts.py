"""Resource columns: what pods take and nodes have, each in the resource's own whole unit."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cruise.domain.arrays import UNBOUNDED, Int64Array
from cruise.domain.cluster import Node
from cruise.domain.colocation import AttachedVolume, Surroundings

PLAIN = ("cpu", "memory", "pods")
ATTACH = "attach:"

LeftAttached = Mapping[str, frozenset[AttachedVolume]]
NOTHING_LEFT: LeftAttached = {}

# What a pod takes beside CPU, memory and its own place: (resource, amount), sorted.
Extras = tuple[tuple[str, int], ...]


def resource_names(
    extras: Iterable[Extras],
    nodes: Sequence[Node],
    surroundings: Surroundings,
    most_pods: Int64Array,
    left: LeftAttached = NOTHING_LEFT,
) -> tuple[str, ...]:
    """Name the columns that a problem needs: without what every node has enough of for as many pods as it may hold.

    `most_pods[node]` bounds the pods on a node, in any plan and now.
    """
    largest: dict[str, int] = {}
    for items in extras:
        for name, amount in items:
            largest[name] = max(largest.get(name, 0), amount)
    names = sorted(name for name, amount in largest.items() if amount > 0)
    offered = capacities(nodes, surroundings, (*PLAIN, *names), left)[:, len(PLAIN) :]
    taken = most_pods[:, None] * np.array([min(largest[name], UNBOUNDED) for name in names], dtype=np.float64)
    short = np.asarray((offered < taken).any(axis=0)).tolist()
    return (*PLAIN, *(name for name, is_short in zip(names, short, strict=True) if is_short))


def capacities(
    nodes: Sequence[Node], surroundings: Surroundings, names: Sequence[str], left: LeftAttached = NOTHING_LEFT
) -> Int64Array:
    """Return nodes x resources; a node whose kubelet states no attach limit attaches any number of volumes.

    Volumes that are `left` attached for pods that are gone take of a limit.
    """
    columns = [
        [node.allocatable.cpu_millicores for node in nodes],
        [node.allocatable.memory_bytes for node in nodes],
        [node.allocatable_pods for node in nodes],
    ]
    for name in names[len(PLAIN) :]:
        if name.startswith(ATTACH):
            driver = name.removeprefix(ATTACH)
            columns.append([_attaches(driver, node.name, surroundings, left) for node in nodes])
        else:
            columns.append([node.allocatable_extended.get(name, 0) for node in nodes])
    return np.ascontiguousarray(np.array(columns, dtype=np.int64).reshape(len(names), len(nodes)).T)


def _attaches(driver: str, node: str, surroundings: Surroundings, left: LeftAttached) -> int:
    limit = surroundings.attach_limits.get(node, {}).get(driver)
    if limit is None:
        return UNBOUNDED
    return max(0, limit - sum(of == driver for of, _ in left.get(node, ())))


def only(extras: Extras, names: Sequence[str]) -> Extras:
    """Return the amounts of the named resources alone."""
    return tuple(item for item in extras if item[0] in names and item[1] > 0)


def amounts_table(rows: Sequence[tuple[int, int, int, Extras]], names: Sequence[str]) -> Int64Array:
    """Return one row for each of (CPU, memory, pods, extras), one column a name."""
    place = {name: column for column, name in enumerate(names)}
    found = np.zeros((len(rows), len(names)), dtype=np.int64)
    for row, (cpu, memory, pods, extras) in enumerate(rows):
        found[row, :3] = (cpu, memory, pods)
        for name, amount in extras:
            found[row, place[name]] += amount
    return found
