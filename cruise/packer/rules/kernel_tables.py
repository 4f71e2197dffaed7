"""The kernels' tables of a problem's rules and their counts, compiled from the rules by class."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from cruise.packer.kernels import rule_counts as layout
from cruise.packer.problem import AttractionRule, BoolArray, IntArray, PackingProblem, PlacementRules, SpreadRule
from cruise.packer.rules.by_class import RulesByClass

# Counts of more domains than these together are not kept: the classes that need them are left as they are.
_MOST_COUNTS = 4_000_000


_Sets = defaultdict[int, set[int]]


class _CounterTable:
    """Counters, one for each topology and set of classes, side by side in one array."""

    def __init__(self, topologies: IntArray) -> None:
        self.sizes = [int(domains.max(initial=-1)) + 1 for domains in topologies]
        self.scale: list[int] = []
        self.base: list[int] = []
        self.length = self.promised = 0
        self.counted: defaultdict[int, list[int]] = defaultdict(list)
        self._known: dict[tuple[int, bytes], int] = {}

    def create(self, topology: int, classes: IntArray) -> int:
        """The counter of these classes over a topology."""
        key = (topology, np.sort(classes).tobytes())
        if key not in self._known:
            self._known[key] = len(self.scale)
            self.scale.append(topology)
            self.base.append(self.get_length(topology))
            for c in classes.tolist():
                self.counted[c].append(self._known[key])
        return self._known[key]

    def get_length(self, topology: int) -> int:
        """Where a row of counts of a topology begins that no other counter uses."""
        self.length += self.sizes[topology]
        return self.length - self.sizes[topology]


def build_kernel_tables(problem: PackingProblem, by_class: RulesByClass) -> IntArray:
    """The tables of an empty cluster: its pods are counted where they are settled."""
    rules, classes = problem.rules, problem.class_count
    counters, closed = _CounterTable(rules.topologies), np.zeros(classes, dtype=np.bool_)
    banned, shunned = _exclusion_lists(rules, by_class, counters, closed)
    wants = _wants(rules, counters, closed)
    spreads = []
    for spread in rules.spreads:
        if _has_room(counters, closed, spread.topology, spread.holder, spread.targets):
            counters.promised += 2 * counters.sizes[spread.topology]
            spreads.append(spread)
    lists = {
        layout.COUNTED_STARTS: _lists(classes, _pairs(counters.counted)),
        layout.BANNED_STARTS: _lists(classes, _pairs(banned)),
        layout.SHUNNED_STARTS: _lists(classes, _pairs(shunned)),
        layout.HELD_STARTS: _lists(classes, ((spread.holder, i) for i, spread in enumerate(spreads))),
        layout.SEEN_STARTS: _lists(classes, _targets(spreads)),
        layout.PULLED_STARTS: _lists(classes, ((rule.holder, i) for i, rule in enumerate(rules.attractions))),
        layout.PULLING_STARTS: _lists(classes, _targets(rules.attractions)),
    }
    tied = closed.copy()
    for starts, _ in lists.values():
        tied |= np.diff(starts) > 0
    lists[layout.WANTS_STARTS] = _lists(len(wants), ((i, k) for i, row in enumerate(wants) for k in row))
    tables = _spread_tables(rules, spreads, counters, lists)
    tables |= {
        layout.DOMAINS: rules.topologies,
        layout.TIED: tied.astype(np.int64),
        layout.CLOSED: closed.astype(np.int64),
        layout.SCALE: _ints(counters.scale),
        layout.BASE: _ints(counters.base),
        layout.COUNTS: np.zeros(counters.length, dtype=np.int64),
        layout.FOLLOWED: np.zeros(len(rules.attractions), dtype=np.int64),
        layout.FIRST: _ints([int(rule.allows_first_pod) for rule in rules.attractions]),
        layout.SERVED: np.zeros(len(rules.attractions), dtype=np.int64),
    }
    for table, (starts, entries) in lists.items():
        # Each list's entries are the table after its starts.
        tables[table], tables[table + 1] = starts, entries
    whole = _in_one(tables, problem.node_count)
    for number in range(len(spreads)):
        layout.find_least_count(whole, number)
    return whole


def _targets(rules: Sequence[SpreadRule | AttractionRule]) -> Iterable[tuple[int, int]]:
    return ((c, i) for i, rule in enumerate(rules) for c in rule.targets.tolist())


def _exclusion_lists(
    rules: PlacementRules, by_class: RulesByClass, counters: _CounterTable, closed: BoolArray
) -> tuple[_Sets, _Sets]:
    """For each class the counters that keep it away from a domain, and the classes that do so from a node."""
    alone = [_has_one_node_each(domains) for domains in rules.topologies]
    banned: _Sets = defaultdict(set)
    shunned: _Sets = defaultdict(set)
    for c, exclusions in by_class.excluded.items():
        for _, rule, others in exclusions:
            if alone[rule.topology]:
                shunned[c].update(others.tolist())
            elif _has_room(counters, closed, rule.topology, rule.holder, rule.targets):
                banned[c].add(counters.create(rule.topology, others))
    return banned, shunned


def _wants(rules: PlacementRules, counters: _CounterTable, closed: BoolArray) -> list[list[int]]:
    """The counters that each attraction wants above 0."""
    wants = []
    for rule in rules.attractions:
        kept = [_has_room(counters, closed, t, rule.holder, rule.targets) for t in rule.topologies]
        wants.append([counters.create(t, rule.targets) for t in rule.topologies] if all(kept) else [])
    return wants


def _spread_tables(
    rules: PlacementRules,
    spreads: list[SpreadRule],
    counters: _CounterTable,
    lists: dict[int, tuple[IntArray, IntArray]],
) -> dict[int, IntArray]:
    """The tables of spreads; the domains of each are added to the lists."""
    masks: list[BoolArray] = []
    number: dict[bytes, int] = {}
    mask: list[int] = []
    domains: list[IntArray] = []
    for spread in spreads:
        key = spread.eligible.tobytes()
        if key not in number:
            number[key] = len(masks)
            masks.append(spread.eligible)
        mask.append(number[key])
        there = np.unique(rules.topologies[spread.topology][spread.eligible])
        domains.append(there[there >= 0])
    lists[layout.DOMAIN_STARTS] = _lists(len(domains), ((i, d) for i, row in enumerate(domains) for d in row.tolist()))
    short = [len(there) < s.min_domains or len(there) == 0 for s, there in zip(spreads, domains, strict=True)]
    nothing = np.zeros(len(spreads), dtype=np.int64)
    return {
        layout.MASKS: np.array(masks, dtype=np.int64),
        layout.MASK: _ints(mask),
        layout.ACROSS: _ints([s.topology for s in spreads]),
        layout.LEVEL: _ints([counters.get_length(s.topology) for s in spreads]),
        layout.CAME: _ints([counters.get_length(s.topology) for s in spreads]),
        layout.SKEW: _ints([s.max_skew for s in spreads]),
        layout.ITSELF: _ints([int(s.counts_itself) for s in spreads]),
        layout.FROM_ZERO: np.array(short, dtype=np.int64),
        layout.LEAST: nothing,
        layout.FEWEST: nothing,
        layout.ARRIVED: nothing,
    }


def _in_one(tables: dict[int, IntArray], nodes: int) -> IntArray:
    flat = [np.asarray(tables[table], dtype=np.int64).ravel() for table in range(1, layout.RULE_TABLE_COUNT)]
    starts = layout.RULE_TABLE_COUNT + np.cumsum([0, *(len(part) for part in flat)])[:-1]
    return np.concatenate([np.array([nodes, *starts.tolist()], dtype=np.int64), *flat])


def _has_one_node_each(domains: IntArray) -> bool:
    return bool((domains >= 0).all()) and len(np.unique(domains)) == len(domains)


def _has_room(counters: _CounterTable, closed: BoolArray, topology: int, holder: int, targets: IntArray) -> bool:
    """Whether two more rows of counts may be kept; else the classes are closed."""
    if counters.length + counters.promised + 2 * counters.sizes[topology] <= _MOST_COUNTS:
        return True
    closed[holder] = True
    closed[targets] = True
    return False


def _pairs(lists: _Sets | defaultdict[int, list[int]]) -> Iterable[tuple[int, int]]:
    return ((c, entry) for c, entries in lists.items() for entry in sorted(entries))


def _lists(count: int, pairs: Iterable[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    """Starts and entries of one list for each of so many owners."""
    table = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(table[:, 0], minlength=count), out=starts[1:])
    return starts, np.ascontiguousarray(table[:, 1])


def _ints(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
