"""What a packing makes of the nodes in use."""

from collections import Counter

import numpy as np

from cruise.decisions.packing.building.built import Built
from cruise.decisions.packing.consolidating.fleet import Fleet
from cruise.domain.arrays import BoolArray
from cruise.domain.packing import FleetChange, Ordered, Proposal
from cruise.packer.answer import Packing
from cruise.packer.problem import in_use


def fleet_change(built: Built, packing: Packing, plan: Proposal, fleet: Fleet) -> FleetChange:
    """Count the nodes in use before a plan and after it, and say in which order it empties them.

    `packing` is what the plan arrives at, with the bound of all plans.
    """
    problem = built.problem
    assert problem.fleet is not None
    before, after = in_use(problem, problem.pod_node), in_use(problem, packing.pod_node)
    tiers = len(packing.after.tiers)
    least = -packing.bound[tiers]
    if packing.after.placed != packing.bound[:tiers]:
        # What is known is of plans that place more: of as few pods as here, less might do.
        least = max(min(least, packing.after.price - 1), 0)
    used = [built.nodes[node].name for node in np.flatnonzero(after).tolist()]
    types = [fleet.types[name] for name in used if name in fleet.types]
    added = Counter((one.name, one.pool) for one in types)
    return FleetChange(
        nodes_before=int(before.sum()),
        nodes_after=int(after.sum()),
        # So many at least, were each of the dearest.
        nodes_bound=-(-least // max(fleet.prices.values(), default=1)),
        emptied=_emptied(plan, {built.nodes[node].name for node in np.flatnonzero(before & ~after).tolist()}),
        added=tuple(sorted(Ordered(name, count, pool) for (name, pool), count in added.items())),
        price_before=fleet.price(packing.now.price),
        price_after=fleet.price(packing.after.price),
        price_bound=fleet.price(least),
        kept=_kept(built, after),
        measure=fleet.measure,
        silent=fleet.silent,
    )


def _kept(built: Built, after: BoolArray) -> tuple[tuple[str, int], ...]:
    """Return for each detail for which pods stay how many of the nodes stay in use for it alone, the most first."""
    problem = built.problem
    assert problem.fleet is not None
    details: dict[int, set[str]] = {}
    occupying = problem.fleet.occupies[problem.pod_class]
    for pod in np.flatnonzero(occupying & (problem.pod_node >= 0)).tolist():
        detail = built.unmovable[pod]
        if detail is not None and after[problem.pod_node[pod]]:
            details.setdefault(int(problem.pod_node[pod]), set()).add(detail)
    counts = Counter(next(iter(found)) for found in details.values() if len(found) == 1)
    return tuple(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])))


def _emptied(plan: Proposal, nodes: set[str]) -> tuple[str, ...]:
    """Return the nodes in the order in which the last pod leaves them."""
    last = {leave.source: number for number, stage in enumerate(plan.stages) for leave in stage.leaves}
    return tuple(sorted(nodes, key=lambda name: (last.get(name, -1), name)))
