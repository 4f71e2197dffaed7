"""What rules between pods ask of the copies on all nodes together, as far as it can be said in linear rows."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.problem import Problem, Spread, copies_of

# A spread over more domains takes too many rows.
_MOST_DOMAINS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """`limits` are members, marked by class, with how many of their copies may be evicted.

    Of class `holder[row]` the copies on each node, times `share[row, node]`, add up to at least `least[row]`.
    """

    limits: tuple[tuple[BoolArray, int], ...]
    holder: IntArray
    share: FloatArray
    least: FloatArray

    def rows(self, classes: IntArray, nodes: int) -> tuple[FloatArray, FloatArray]:
        """The rows about some of the classes: shares by row, node and class, and what they add up to at least."""
        own = self.holder[:, None] == classes
        mine = own.any(axis=1)
        share = self.share[mine].reshape(int(mine.sum()), nodes, 1) * own[mine][:, None, :]
        return share, self.least[mine]


def between_pods(problem: Problem) -> Between:
    """The rows of a problem's eviction limits, and of spreads that count their holder alone."""
    rules, running = problem.rules, copies_of(problem, problem.pod_node)
    limits = tuple(
        (np.isin(np.arange(problem.class_count), limit.members), limit.allowed) for limit in rules.eviction_limits
    )
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    rows = [
        (c, *row)
        for rule in rules.spreads
        for c in [rule.holder]
        if rule.targets.tolist() == [c]
        for row in _rows(rule, rules.topologies[rule.topology], running[c], int(pods[c]))
    ]
    return Between(
        limits,
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([share for _, share, _ in rows], dtype=np.float64).reshape(len(rows), problem.node_count),
        np.array([least for _, _, least in rows], dtype=np.float64),
    )


def _rows(rule: Spread, domains: IntArray, running: IntArray, pods: int) -> list[tuple[FloatArray, float]]:
    """What a domain has at most: beyond what ran there, as much as if all were even but for `max_skew`."""
    inside = np.where(rule.eligible, domains, -1)
    found = np.unique(inside[inside >= 0]).tolist()
    if len(found) > _MOST_DOMAINS or len(found) < rule.min_domains:
        return []
    rows = []
    for domain in found:
        here = (inside == domain).astype(np.float64)
        # With an arrival, each other domain has as many as this one but for the skew.
        most = max(int(here @ running), (pods + rule.max_skew * (len(found) - 1)) // len(found))
        if most < pods:
            rows.append((-here, -float(most)))
    return rows


FREE = Between((), np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros(0))
