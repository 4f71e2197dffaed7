"""Expresses rules between pods as linear rows over the copies on all nodes, as far as possible."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, SpreadRule, count_copies

# A spread over more domains takes too many rows.
_MAX_DOMAINS = 4
_TRACE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class PodRuleRows:
    """Rows: the copies of `holder[row]` on each node, times `share[row, node]`, add up to at least `minimum[row]`.

    `limits` are members, marked by class, and how many of their copies may be evicted; `required` are attractions.
    """

    limits: tuple[tuple[BoolArray, int], ...]
    required: tuple[tuple[int, BoolArray], ...]
    holder: IntArray
    share: FloatArray
    minimum: FloatArray

    def build_rows(self, classes: IntArray, nodes: int) -> tuple[FloatArray, FloatArray]:
        """Return the rows about some classes: shares [row, node, class] and minimums."""
        own = self.holder[:, None] == classes
        mine = own.any(axis=1)
        share = self.share[mine].reshape(int(mine.sum()), nodes, 1) * own[mine][:, None, :]
        return share, self.minimum[mine]

    def get_attracting(self, some: BoolArray) -> BoolArray:
        """Return some classes, and all that attract one of them, directly or not."""
        found = some.copy()
        for _ in self.required:
            before = found.copy()
            for holder, targets in self.required:
                if found[holder]:
                    found |= targets
            if (found == before).all():
                break
        return found


def build_pod_rule_rows(problem: PackingProblem) -> PodRuleRows:
    """Return the rows of a problem's eviction limits, and of spreads that count only their holder."""
    running = count_copies(problem, problem.pod_node)
    every = np.arange(problem.class_count)
    limits = tuple((np.isin(every, limit.members), limit.allowed) for limit in problem.rules.eviction_limits)
    wanted = tuple((rule.holder, np.isin(every, rule.targets)) for rule in problem.rules.attractions)
    pods = np.bincount(problem.pod_class, minlength=problem.class_count)
    rows = [
        (rule.holder, *row)
        for rule, domains in _list_own_spreads(problem)
        for row in _build_spread_rows(rule, domains, running[rule.holder], int(pods[rule.holder]))
    ]
    # Rows for targets in a domain, which branching may require: until then any number is enough.
    rows += [
        (target, (problem.rules.topologies[topology] == domain).astype(np.float64), 0.0)
        for target, topology in dict.fromkeys(find_domain_attractions(problem))
        for domain in get_domains(problem.rules.topologies[topology])
    ]
    # Patterns may hold more copies of a target than exist, which would attract nothing once dropped.
    targets = np.unique([target for rule in problem.rules.attractions for target in rule.targets.tolist()])
    rows += [(int(c), -np.ones(problem.node_count), -float(pods[int(c)])) for c in targets.tolist()]
    return _create_rows(limits, wanted, rows, problem.node_count)


def find_broken_spread_rows(problem: PackingProblem, assignment: IntArray | FloatArray) -> PodRuleRows:
    """Return rows between pairs of domains that an assignment breaks, of the same spreads."""
    running = count_copies(problem, problem.pod_node)
    rows = [
        (rule.holder, *row)
        for rule, domains in _list_own_spreads(problem)
        for row in _find_broken_pairs(rule, domains, running[rule.holder], assignment[rule.holder])
    ]
    return _create_rows((), (), rows, problem.node_count)


_Row = tuple[FloatArray, float]


def _create_rows(
    limits: tuple[tuple[BoolArray, int], ...],
    wanted: tuple[tuple[int, BoolArray], ...],
    rows: list[tuple[int, FloatArray, float]],
    nodes: int,
) -> PodRuleRows:
    return PodRuleRows(
        limits,
        wanted,
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([share for _, share, _ in rows], dtype=np.float64).reshape(len(rows), nodes),
        np.array([least for _, _, least in rows], dtype=np.float64),
    )


def find_domain_attractions(problem: PackingProblem) -> list[tuple[int, int]]:
    """Return the single targets of attractions with their topologies, if these have few domains."""
    rules = problem.rules
    return [
        (int(rule.targets[0]), topology)
        for rule in rules.attractions
        for topology in rule.topologies
        if len(rule.targets) == 1 and len(get_domains(rules.topologies[topology])) <= _MAX_DOMAINS
    ]


def get_domains(row: IntArray) -> list[int]:
    """Return the domains of a topology."""
    return [int(domain) for domain in np.unique(row[row >= 0])]


def _list_own_spreads(problem: PackingProblem) -> list[tuple[SpreadRule, IntArray]]:
    """Return the spreads that count only their holder, with each node's domain if it counts."""
    rules = problem.rules
    return [
        (rule, np.where(rule.eligible, rules.topologies[rule.topology], -1))
        for rule in rules.spreads
        if rule.targets.tolist() == [rule.holder]
    ]


def _build_spread_rows(rule: SpreadRule, inside: IntArray, running: IntArray, pods: int) -> list[_Row]:
    """Return the maximum of each domain: what ran there, or an even share plus `max_skew`."""
    domains = np.unique(inside[inside >= 0]).tolist()
    if len(domains) > _MAX_DOMAINS:
        return []
    rows = []
    for domain in domains:
        share = (inside == domain).astype(np.float64)
        # After an arrival, each other domain has as many as this one, except for the skew.
        even_share = (pods + rule.max_skew * (len(domains) - 1)) // len(domains)
        maximum = max(int(share @ running), even_share if len(domains) >= rule.min_domains else rule.max_skew)
        if maximum < pods:
            rows.append((-share, -float(maximum)))
    return rows


def _find_broken_pairs(
    rule: SpreadRule, inside: IntArray, running: IntArray, copies: IntArray | FloatArray
) -> list[_Row]:
    """Return rows for pairs of domains whose difference exceeds `max_skew` and what ran there."""
    domains = np.unique(inside[inside >= 0]).tolist()
    if len(domains) < max(rule.min_domains, 1):
        return []
    shares = (inside == np.array(domains)[:, None]).astype(np.float64)
    counts, running_counts = shares @ copies, shares @ running
    smallest = int(np.argmin(counts))
    return [
        (shares[smallest] - shares[d], -float(max(running_counts[d], rule.max_skew)))
        for d in range(len(domains))
        if counts[d] - counts[smallest] > max(running_counts[d], rule.max_skew) + _TRACE
    ]


NO_POD_RULES = PodRuleRows((), (), np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros(0))
