"""Which eviction limits a plan has to mind: those that can bind at all."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.building.census import Census, Kind
from cruise.decisions.packing.building.obstacle import Obstacle
from cruise.domain.arrays import UNBOUNDED, Int64Array
from cruise.domain.cluster import DisruptionBudget, Node, WorkloadRef
from cruise.domain.details import Detail
from cruise.domain.packing import Allowance

_SPENT = {Obstacle.DISRUPTION_BUDGET: Detail.BUDGET_EXHAUSTED, Obstacle.EVICTION_LIMIT: Detail.EVICTIONS_SPENT}


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `allowed` running pods of some kinds are evicted."""

    name: str
    obstacle: Obstacle
    kinds: frozenset[int]
    allowed: int


def apply_limits(
    census: Census, budgets: Sequence[DisruptionBudget], allowance: Allowance, *, one_by_one: bool = False
) -> list[Limit]:
    """Make pods under a limit of nothing stay and those under a PDB weigh more; return the limits that may bind.

    `one_by_one`: evictions wait for each other, so that a PDB that allows one allows any number.
    """
    limits: list[Limit] = []
    for budget in sorted(budgets, key=lambda one: (one.namespace, one.name)):
        groups = census.labels.selected(budget.selector, budget.namespace)
        covered = [number for group in groups for number in census.of_group[group]]
        for number in covered:
            census.kinds[number].covered = True
        if one_by_one and budget.disruptions_allowed > 0:
            continue
        limit = Limit(budget.title, Obstacle.DISRUPTION_BUDGET, frozenset(covered), budget.disruptions_allowed)
        limits += _limit(census.kinds, limit)
    for name, members, allowed in _allowances(census.kinds, allowance):
        limits += _limit(census.kinds, Limit(name, Obstacle.EVICTION_LIMIT, frozenset(members), allowed))
    # What stays by a later limit may have freed an earlier one.
    return [limit for limit in limits if limit.allowed < _evictable(census.kinds, limit.kinds)]


def _limit(kinds: Sequence[Kind], limit: Limit) -> list[Limit]:
    if limit.allowed > 0:
        return [limit]
    for number in limit.kinds:
        if not kinds[number].pending and kinds[number].stays is None:
            kinds[number].stays = _SPENT[limit.obstacle].of(limit.name)
    return []


def _allowances(kinds: Sequence[Kind], allowance: Allowance) -> Iterator[tuple[str, list[int], int]]:
    if allowance.in_all is not None:
        yield "evictions left in this hour", list(range(len(kinds))), allowance.in_all
    if allowance.each_workload is None and not allowance.of_workloads:
        return
    of_workload: dict[tuple[str, WorkloadRef], list[int]] = {}
    for number, kind in enumerate(kinds):
        ref = kind.pod.workload
        if ref is not None:
            of_workload.setdefault((kind.pod.namespace, ref), []).append(number)
    for (namespace, ref), members in sorted(of_workload.items()):
        allowed = allowance.of_workload(namespace, ref)
        if allowed is not None:
            yield f"evictions left of {ref.kind} {namespace}/{ref.name}", members, allowed


def most_evicted(allowance: Allowance, nodes: Sequence[Node]) -> Int64Array | None:
    """Return how many pods of each node may be evicted, None where any number may."""
    if allowance.each_node is None and not allowance.of_nodes:
        return None
    allowed = [allowance.on_node(node.name) for node in nodes]
    return np.array([UNBOUNDED if most is None else most for most in allowed], dtype=np.int64)


def _evictable(kinds: Sequence[Kind], members: frozenset[int]) -> int:
    return sum(kinds[number].running for number in members if kinds[number].stays is None)
