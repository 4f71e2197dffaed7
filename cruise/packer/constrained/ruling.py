"""Which rules concern which classes, and which nodes make up each domain."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.problem import Rules
from cruise.packer.rules.by_class import by_class


@dataclass(frozen=True, slots=True, eq=False)
class Ruling:
    """The rules by class, and the nodes by domain of each topology; nodes without a domain are left out.

    `ranks[class]` is equal for classes whose arrivals may have to wait for each other's.
    """

    rules: Rules
    domains: list[dict[int, tuple[int, ...]]]
    exclusions: Mapping[int, list[int]]
    spreads: Mapping[int, list[int]]
    eviction_limits: Mapping[int, list[int]]
    ranks: IntArray


def ruling_of(rules: Rules, class_count: int) -> Ruling:
    """Sort rules by the classes that they concern."""
    return Ruling(
        rules,
        [_nodes_by_domain(domains) for domains in rules.topologies],
        by_class((c, i) for i, rule in enumerate(rules.exclusions) for c in {rule.holder, *rule.targets.tolist()}),
        by_class((c, i) for i, rule in enumerate(rules.spreads) for c in {rule.holder, *rule.targets.tolist()}),
        by_class((c, i) for i, limit in enumerate(rules.eviction_limits) for c in set(limit.members.tolist())),
        _ranks_of(rules, class_count),
    )


def concerning(rules: Mapping[int, list[int]], classes: Iterable[int]) -> list[int]:
    """The rules that concern one of the classes, each once, in order."""
    return sorted({rule for pod_class in classes for rule in rules.get(pod_class, ())})


def _ranks_of(rules: Rules, class_count: int) -> IntArray:
    """Find the classes that may have to wait for each other, or for themselves."""
    waits: dict[int, set[int]] = {}
    for attraction in rules.attractions:
        targets = set(attraction.targets.tolist())
        waits.setdefault(attraction.holder, set()).update(targets)
        if attraction.holder in targets:
            for target in targets:
                waits.setdefault(target, set()).add(attraction.holder)
    reach = {start: _reached(waits, start) for start in waits}
    ranks = np.arange(class_count, dtype=np.int64)
    for start in sorted(waits):
        for other in sorted(reach[start]):
            if start in reach.get(other, ()):
                ranks[other] = min(ranks[other], ranks[start])
    return ranks


def _reached(waits: dict[int, set[int]], start: int) -> set[int]:
    seen: set[int] = set()
    ahead = [start]
    while ahead:
        for target in waits.get(ahead.pop(), ()):
            if target not in seen:
                seen.add(target)
                ahead.append(target)
    return seen


def _nodes_by_domain(domains: IntArray) -> dict[int, tuple[int, ...]]:
    nodes = by_class((domain, node) for node, domain in enumerate(domains.tolist()) if domain >= 0)
    return {domain: tuple(members) for domain, members in nodes.items()}
