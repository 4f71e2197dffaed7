"""What rules between pods ask of the copies on all nodes together, as far as it can be said in linear rows."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.arrays import BoolArray, FloatArray, IntArray
from cruise.packer.problem import Problem, Spread, copies_of

# A spread over more domains takes too many rows.
_MOST_DOMAINS = 4
_TRACE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """`limits` are members, marked by class, with how many of their copies may be evicted.

    Of class `holder[row]` the copies on each node, times `share[row, node]`, add up to at least `least[row]`.
    """

    limits: tuple[tuple[BoolArray, int], ...]
    wanted: tuple[tuple[int, BoolArray], ...]
    holder: IntArray
    share: FloatArray
    least: FloatArray

    def rows(self, classes: IntArray, nodes: int) -> tuple[FloatArray, FloatArray]:
        """The rows about some of the classes: shares by row, node and class, and what they add up to at least."""
        own = self.holder[:, None] == classes
        mine = own.any(axis=1)
        share = self.share[mine].reshape(int(mine.sum()), nodes, 1) * own[mine][:, None, :]
        return share, self.least[mine]

    def attracting(self, some: BoolArray) -> BoolArray:
        """Some classes, and all that attract one of them, or one that attracts it."""
        found = some.copy()
        for _ in self.wanted:
            before = found.copy()
            for holder, targets in self.wanted:
                if found[holder]:
                    found |= targets
            if (found == before).all():
                break
        return found


def between_pods(problem: Problem) -> Between:
    """The rows of a problem's eviction limits, and of spreads that count their holder alone."""
    running = copies_of(problem, problem.pod_node)
    every = np.arange(problem.class_count)
    limits = tuple((np.isin(every, limit.members), limit.allowed) for limit in problem.rules.eviction_limits)
    wanted = tuple((rule.holder, np.isin(every, rule.targets)) for rule in problem.rules.attractions)
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    rows = [
        (rule.holder, *row)
        for rule, domains in _alone(problem)
        for row in _rows(rule, domains, running[rule.holder], int(pods[rule.holder]))
    ]
    # What attracts may be asked for in a domain: until then any number is enough.
    rows += [
        (target, (problem.rules.topologies[topology] == domain).astype(np.float64), 0.0)
        for target, topology in dict.fromkeys(attracting_by_domain(problem))
        for domain in domains_of(problem.rules.topologies[topology])
    ]
    # And no more of it than there is: fillings may hold more, which attracts nothing once it is left out.
    targets = np.unique([target for rule in problem.rules.attractions for target in rule.targets.tolist()])
    rows += [(int(c), -np.ones(problem.node_count), -float(pods[int(c)])) for c in targets.tolist()]
    return _between(limits, wanted, rows, problem.node_count)


def uneven(problem: Problem, assignment: IntArray | FloatArray) -> Between:
    """Rows between pairs of domains that an assignment breaks, of the same spreads."""
    running = copies_of(problem, problem.pod_node)
    rows = [
        (rule.holder, *row)
        for rule, domains in _alone(problem)
        for row in _uneven(rule, domains, running[rule.holder], assignment[rule.holder])
    ]
    return _between((), (), rows, problem.node_count)


_Row = tuple[FloatArray, float]


def _between(
    limits: tuple[tuple[BoolArray, int], ...],
    wanted: tuple[tuple[int, BoolArray], ...],
    rows: list[tuple[int, FloatArray, float]],
    nodes: int,
) -> Between:
    return Between(
        limits,
        wanted,
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([share for _, share, _ in rows], dtype=np.float64).reshape(len(rows), nodes),
        np.array([least for _, _, least in rows], dtype=np.float64),
    )


def attracting_by_domain(problem: Problem) -> list[tuple[int, int]]:
    """The single targets of attractions, and the topologies, where these have few domains."""
    rules = problem.rules
    return [
        (int(rule.targets[0]), topology)
        for rule in rules.attractions
        for topology in rule.topologies
        if len(rule.targets) == 1 and len(domains_of(rules.topologies[topology])) <= _MOST_DOMAINS
    ]


def domains_of(row: IntArray) -> list[int]:
    """The domains of a topology."""
    return [int(domain) for domain in np.unique(row[row >= 0])]


def _alone(problem: Problem) -> list[tuple[Spread, IntArray]]:
    """The spreads that count their holder alone, and each node's domain where it counts."""
    rules = problem.rules
    return [
        (rule, np.where(rule.eligible, rules.topologies[rule.topology], -1))
        for rule in rules.spreads
        if rule.targets.tolist() == [rule.holder]
    ]


def _rows(rule: Spread, inside: IntArray, running: IntArray, pods: int) -> list[_Row]:
    """What a domain has at most: beyond what ran there, as much as if all were even but for `max_skew`."""
    found = np.unique(inside[inside >= 0]).tolist()
    if len(found) > _MOST_DOMAINS:
        return []
    rows = []
    for domain in found:
        here = (inside == domain).astype(np.float64)
        # With an arrival, each other domain has as many as this one but for the skew.
        even = (pods + rule.max_skew * (len(found) - 1)) // len(found)
        most = max(int(here @ running), even if len(found) >= rule.min_domains else rule.max_skew)
        if most < pods:
            rows.append((-here, -float(most)))
    return rows


def _uneven(rule: Spread, inside: IntArray, running: IntArray, copies: IntArray | FloatArray) -> list[_Row]:
    """A domain has what ran there, or no more than each other one but for `max_skew`."""
    found = np.unique(inside[inside >= 0]).tolist()
    if len(found) < max(rule.min_domains, 1):
        return []
    here = (inside == np.array(found)[:, None]).astype(np.float64)
    there, ran = here @ copies, here @ running
    least = int(np.argmin(there))
    return [
        (here[least] - here[d], -float(max(ran[d], rule.max_skew)))
        for d in range(len(found))
        if there[d] - there[least] > max(ran[d], rule.max_skew) + _TRACE
    ]


FREE = Between((), (), np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros(0))
