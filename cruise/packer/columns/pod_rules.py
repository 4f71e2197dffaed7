"""What rules between pods ask of the copies on all nodes together, as far as it can be said in linear rows."""

from dataclasses import dataclass

import numpy as np

from cruise.packer.problem import BoolArray, FloatArray, IntArray, PackingProblem, SpreadRule, count_copies

# A spread over more domains takes too many rows.
_MOST_DOMAINS = 4
_TRACE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class PodRuleRows:
    """`limits` are members, marked by class, with how many of their copies may be evicted.

    Of class `holder[row]` the copies on each node, times `share[row, node]`, add up to at least `least[row]`.
    """

    limits: tuple[tuple[BoolArray, int], ...]
    required: tuple[tuple[int, BoolArray], ...]
    holder: IntArray
    share: FloatArray
    minimum: FloatArray

    def rows(self, classes: IntArray, nodes: int) -> tuple[FloatArray, FloatArray]:
        """The rows about some of the classes: shares by row, node and class, and what they add up to at least."""
        own = self.holder[:, None] == classes
        mine = own.any(axis=1)
        share = self.share[mine].reshape(int(mine.sum()), nodes, 1) * own[mine][:, None, :]
        return share, self.minimum[mine]

    def get_attracting(self, some: BoolArray) -> BoolArray:
        """Some classes, and all that attract one of them, or one that attracts it."""
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
    """The rows of a problem's eviction limits, and of spreads that count their holder alone."""
    running = count_copies(problem, problem.pod_node)
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
        for target, topology in dict.fromkeys(find_domain_attractions(problem))
        for domain in get_domains(problem.rules.topologies[topology])
    ]
    # And no more of it than there is: fillings may hold more, which attracts nothing once it is left out.
    targets = np.unique([target for rule in problem.rules.attractions for target in rule.targets.tolist()])
    rows += [(int(c), -np.ones(problem.node_count), -float(pods[int(c)])) for c in targets.tolist()]
    return _between(limits, wanted, rows, problem.node_count)


def find_broken_spread_rows(problem: PackingProblem, assignment: IntArray | FloatArray) -> PodRuleRows:
    """Rows between pairs of domains that an assignment breaks, of the same spreads."""
    running = count_copies(problem, problem.pod_node)
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
) -> PodRuleRows:
    return PodRuleRows(
        limits,
        wanted,
        np.array([holder for holder, _, _ in rows], dtype=np.int64),
        np.array([share for _, share, _ in rows], dtype=np.float64).reshape(len(rows), nodes),
        np.array([least for _, _, least in rows], dtype=np.float64),
    )


def find_domain_attractions(problem: PackingProblem) -> list[tuple[int, int]]:
    """The single targets of attractions, and the topologies, where these have few domains."""
    rules = problem.rules
    return [
        (int(rule.targets[0]), topology)
        for rule in rules.attractions
        for topology in rule.topologies
        if len(rule.targets) == 1 and len(get_domains(rules.topologies[topology])) <= _MOST_DOMAINS
    ]


def get_domains(row: IntArray) -> list[int]:
    """The domains of a topology."""
    return [int(domain) for domain in np.unique(row[row >= 0])]


def _alone(problem: PackingProblem) -> list[tuple[SpreadRule, IntArray]]:
    """The spreads that count their holder alone, and each node's domain where it counts."""
    rules = problem.rules
    return [
        (rule, np.where(rule.eligible, rules.topologies[rule.topology], -1))
        for rule in rules.spreads
        if rule.targets.tolist() == [rule.holder]
    ]


def _rows(rule: SpreadRule, inside: IntArray, running: IntArray, pods: int) -> list[_Row]:
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


def _uneven(rule: SpreadRule, inside: IntArray, running: IntArray, copies: IntArray | FloatArray) -> list[_Row]:
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


NO_POD_RULES = PodRuleRows((), (), np.zeros(0, dtype=np.int64), np.zeros((0, 0)), np.zeros(0))
