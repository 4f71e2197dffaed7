"""Compiles the rules of a problem into the tables that kernels read and update."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from cruise.packer.kernels import rule_counts as layout
from cruise.packer.problem import AttractionRule, BoolArray, IntArray, PackingProblem, PlacementRules, SpreadRule
from cruise.packer.rules.by_class import RulesByClass, is_domain_per_node

# Limit of all counts: classes whose rules need more are not moved.
_MAX_COUNTS = 4_000_000


_Sets = defaultdict[int, set[int]]


class _CounterTable:
    """One counter for each topology and set of classes, in one array."""

    def __init__(self, topologies: IntArray) -> None:
        self.sizes = [int(domains.max(initial=-1)) + 1 for domains in topologies]
        self.scale: list[int] = []
        self.base: list[int] = []
        self.length = self.reserved = 0
        self.counted: defaultdict[int, list[int]] = defaultdict(list)
        self._known: dict[tuple[int, bytes], int] = {}

    def create(self, topology: int, classes: IntArray) -> int:
        """Return the number of the counter of these classes over a topology."""
        key = (topology, np.sort(classes).tobytes())
        if key not in self._known:
            self._known[key] = len(self.scale)
            self.scale.append(topology)
            self.base.append(self.allocate_row(topology))
            for c in classes.tolist():
                self.counted[c].append(self._known[key])
        return self._known[key]

    def allocate_row(self, topology: int) -> int:
        """Reserve a row of counts for a topology; return its start."""
        self.length += self.sizes[topology]
        return self.length - self.sizes[topology]


def build_kernel_tables(problem: PackingProblem, by_class: RulesByClass) -> IntArray:
    """Return the tables of an empty cluster; pods are counted when they are linked."""
    rules, classes = problem.rules, problem.class_count
    counters, closed = _CounterTable(rules.topologies), np.zeros(classes, dtype=np.bool_)
    banned, shunned = _exclusion_lists(rules, by_class, counters, closed)
    wanted_counters = _list_wanted_counters(rules, counters, closed)
    spreads = []
    for spread in rules.spreads:
        if _fits_limit(counters, closed, spread.topology, spread.holder, spread.targets):
            counters.reserved += 2 * counters.sizes[spread.topology]
            spreads.append(spread)
    lists = {
        layout.COUNTED_STARTS: _build_lists(classes, _list_pairs(counters.counted)),
        layout.BANNED_STARTS: _build_lists(classes, _list_pairs(banned)),
        layout.SHUNNED_STARTS: _build_lists(classes, _list_pairs(shunned)),
        layout.HELD_STARTS: _build_lists(classes, ((spread.holder, i) for i, spread in enumerate(spreads))),
        layout.SEEN_STARTS: _build_lists(classes, _list_targets(spreads)),
        layout.PULLED_STARTS: _build_lists(classes, ((rule.holder, i) for i, rule in enumerate(rules.attractions))),
        layout.PULLING_STARTS: _build_lists(classes, _list_targets(rules.attractions)),
    }
    has_rules = closed.copy()
    for starts, _ in lists.values():
        has_rules |= np.diff(starts) > 0
    lists[layout.WANTS_STARTS] = _build_lists(
        len(wanted_counters), ((i, k) for i, row in enumerate(wanted_counters) for k in row)
    )
    tables = _spread_tables(rules, spreads, counters, lists)
    tables |= {
        layout.DOMAINS: rules.topologies,
        layout.TIED: has_rules.astype(np.int64),
        layout.CLOSED: closed.astype(np.int64),
        layout.SCALE: _to_array(counters.scale),
        layout.BASE: _to_array(counters.base),
        layout.COUNTS: np.zeros(counters.length, dtype=np.int64),
        layout.FOLLOWED: np.zeros(len(rules.attractions), dtype=np.int64),
        layout.FIRST: _to_array([int(rule.allows_first_pod) for rule in rules.attractions]),
        layout.SERVED: np.zeros(len(rules.attractions), dtype=np.int64),
    }
    for table, (starts, entries) in lists.items():
        # Each list's entries are the table after its starts.
        tables[table], tables[table + 1] = starts, entries
    whole = _concatenate(tables, problem.node_count)
    for number in range(len(spreads)):
        layout.find_min_count(whole, number)
    return whole


def _list_targets(rules: Sequence[SpreadRule | AttractionRule]) -> Iterable[tuple[int, int]]:
    return ((c, i) for i, rule in enumerate(rules) for c in rule.targets.tolist())


def _exclusion_lists(
    rules: PlacementRules, by_class: RulesByClass, counters: _CounterTable, closed: BoolArray
) -> tuple[_Sets, _Sets]:
    """Return for each class the counters that exclude it from a domain, and the classes that exclude it from a node."""
    is_by_node = [is_domain_per_node(domains) for domains in rules.topologies]
    banned: _Sets = defaultdict(set)
    shunned: _Sets = defaultdict(set)
    for c, exclusions in by_class.excluded.items():
        for _, rule, others in exclusions:
            if is_by_node[rule.topology]:
                shunned[c].update(others.tolist())
            elif _fits_limit(counters, closed, rule.topology, rule.holder, rule.targets):
                banned[c].add(counters.create(rule.topology, others))
    return banned, shunned


def _list_wanted_counters(rules: PlacementRules, counters: _CounterTable, closed: BoolArray) -> list[list[int]]:
    """Return the counters that each attraction needs above 0."""
    wanted_counters = []
    for rule in rules.attractions:
        fits = [_fits_limit(counters, closed, t, rule.holder, rule.targets) for t in rule.topologies]
        wanted_counters.append([counters.create(t, rule.targets) for t in rule.topologies] if all(fits) else [])
    return wanted_counters


def _spread_tables(
    rules: PlacementRules,
    spreads: list[SpreadRule],
    counters: _CounterTable,
    lists: dict[int, tuple[IntArray, IntArray]],
) -> dict[int, IntArray]:
    """Return the tables of spreads; their domains are added to the lists."""
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
        eligible_domains = np.unique(rules.topologies[spread.topology][spread.eligible])
        domains.append(eligible_domains[eligible_domains >= 0])
    lists[layout.DOMAIN_STARTS] = _build_lists(
        len(domains), ((i, d) for i, row in enumerate(domains) for d in row.tolist())
    )
    counts_from_zero = [
        len(eligible_domains) < s.min_domains or len(eligible_domains) == 0
        for s, eligible_domains in zip(spreads, domains, strict=True)
    ]
    zeros = np.zeros(len(spreads), dtype=np.int64)
    return {
        layout.MASKS: np.array(masks, dtype=np.int64),
        layout.MASK: _to_array(mask),
        layout.ACROSS: _to_array([s.topology for s in spreads]),
        layout.LEVEL: _to_array([counters.allocate_row(s.topology) for s in spreads]),
        layout.CAME: _to_array([counters.allocate_row(s.topology) for s in spreads]),
        layout.SKEW: _to_array([s.max_skew for s in spreads]),
        layout.ITSELF: _to_array([int(s.counts_itself) for s in spreads]),
        layout.FROM_ZERO: np.array(counts_from_zero, dtype=np.int64),
        layout.LEAST: zeros,
        layout.FEWEST: zeros,
        layout.ARRIVED: zeros,
    }


def _concatenate(tables: dict[int, IntArray], nodes: int) -> IntArray:
    flat = [np.asarray(tables[table], dtype=np.int64).ravel() for table in range(1, layout.RULE_TABLE_COUNT)]
    starts = layout.RULE_TABLE_COUNT + np.cumsum([0, *(len(part) for part in flat)])[:-1]
    return np.concatenate([np.array([nodes, *starts.tolist()], dtype=np.int64), *flat])


def _fits_limit(counters: _CounterTable, closed: BoolArray, topology: int, holder: int, targets: IntArray) -> bool:
    """Return whether two more rows of counts fit; otherwise close the classes."""
    if counters.length + counters.reserved + 2 * counters.sizes[topology] <= _MAX_COUNTS:
        return True
    closed[holder] = True
    closed[targets] = True
    return False


def _list_pairs(lists: _Sets | defaultdict[int, list[int]]) -> Iterable[tuple[int, int]]:
    return ((c, entry) for c, entries in lists.items() for entry in sorted(entries))


def _build_lists(count: int, pairs: Iterable[tuple[int, int]]) -> tuple[IntArray, IntArray]:
    """Return starts and entries of one list for each owner."""
    table = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(table[:, 0], minlength=count), out=starts[1:])
    return starts, np.ascontiguousarray(table[:, 1])


def _to_array(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
