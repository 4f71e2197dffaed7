"""What NodePools' limits make of a plan: each type of one keeps within them by itself, all types together may not."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.decisions.packing.consolidating.fleet import Fleet
from cruise.decisions.packing.consolidating.node_pools import left_of, machine_of


def within_limits(fleet: Fleet, used: Sequence[str]) -> Fleet | None:
    """Return the fleet with no more new nodes than limits allow together; None where the used ones keep within them.

    `used` are the new nodes of a plan, those that matter most first: these stay as far as there is room.
    """
    if len(_kept(fleet, used)) == len(used):
        return None
    kept = _kept(fleet, [*used, *sorted(fleet.types.keys() - set(used))])
    nodes = tuple(node for node in fleet.snapshot.nodes if node.name not in fleet.types or node.name in kept)
    return replace(fleet, snapshot=replace(fleet.snapshot, nodes=nodes))


def _kept(fleet: Fleet, names: Sequence[str]) -> set[str]:
    """Return as many of some new nodes as keep within their NodePools' limits, those in front first."""
    there = [node for node in fleet.snapshot.nodes if node.name not in fleet.types]
    left = {pool.name: left_of(pool, there) for pool in fleet.snapshot.node_pools}
    kept = set()
    for name in names:
        one = fleet.types[name]
        machine, room = machine_of(one.template), left.get(one.pool, {})
        if all(amount >= machine.get(resource, 0) for resource, amount in room.items()):
            left[one.pool] = {resource: amount - machine.get(resource, 0) for resource, amount in room.items()}
            kept.add(name)
    return kept
