"""The kernels' counts of a problem's rules."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from cruise.packer.instance import BoolArray, IntArray
from cruise.packer.kernels import ejecting_ties as tables_of
from cruise.packer.kernels.ejecting_ties import find_least
from cruise.packer.problem import Problem, Rules, Spread

# Counts of more domains than these together are not kept: the classes that need them are left as they are.
_MOST_COUNTS = 4_000_000


_Sets = defaultdict[int, set[int]]


class _Counters:
    """Counters, one for each topology and set of classes, side by side in one array."""

    def __init__(self, topologies: IntArray) -> None:
        self.sizes = [int(domains.max(initial=-1)) + 1 for domains in topologies]
        self.scale: list[int] = []
        self.base: list[int] = []
        self.length = self.promised = 0
        self.counted: defaultdict[int, list[int]] = defaultdict(list)
        self._known: dict[tuple[int, bytes], int] = {}

    def of(self, topology: int, classes: IntArray) -> int:
        """The counter of these classes over a topology."""
        key = (topology, np.sort(classes).tobytes())
        if key not in self._known:
            self._known[key] = len(self.scale)
            self.scale.append(topology)
            self.base.append(self.room(topology))
            for c in classes.tolist():
                self.counted[c].append(self._known[key])
        return self._known[key]

    def room(self, topology: int) -> int:
        """Where a row of counts of a topology begins that is nobody else's."""
        self.length += self.sizes[topology]
        return self.length - self.sizes[topology]


def ties_of(problem: Problem) -> IntArray:
    """The counts of an empty cluster; whoever settles its pods counts them."""
    rules, classes = problem.rules, problem.class_count
    counters, closed = _Counters(rules.topologies), np.zeros(classes, dtype=np.bool_)
    banned, shunned = _exclusion_lists(rules, counters, closed)
    wants = _wants(rules, counters, closed)
    pulled = _lists(classes, ((a.holder, i) for i, a in enumerate(rules.attractions)))
    pulling = _lists(classes, ((c, i) for i, a in enumerate(rules.attractions) for c in a.targets.tolist()))
    spreads = []
    for spread in rules.spreads:
        if _has_room(counters, closed, spread.topology, spread.holder, spread.targets):
            counters.promised += 2 * counters.sizes[spread.topology]
            spreads.append(spread)
    held = _lists(classes, ((spread.holder, i) for i, spread in enumerate(spreads)))
    seen = _lists(classes, ((c, i) for i, spread in enumerate(spreads) for c in spread.targets.tolist()))
    lists = {
        tables_of.COUNTED_STARTS: _lists(classes, _pairs(counters.counted)),
        tables_of.BANNED_STARTS: _lists(classes, _pairs(banned)),
        tables_of.SHUNNED_STARTS: _lists(classes, _pairs(shunned)),
        tables_of.HELD_STARTS: held,
        tables_of.SEEN_STARTS: seen,
        tables_of.PULLED_STARTS: pulled,
        tables_of.PULLING_STARTS: pulling,
    }
    tied = closed.copy()
    for starts, _ in lists.values():
        tied |= np.diff(starts) > 0
    lists[tables_of.WANTS_STARTS] = _lists(len(wants), ((i, k) for i, row in enumerate(wants) for k in row))
    tables = _spread_tables(rules, spreads, counters, lists)
    tables |= {
        tables_of.DOMAINS: rules.topologies,
        tables_of.TIED: tied.astype(np.int64),
        tables_of.CLOSED: closed.astype(np.int64),
        tables_of.SCALE: _ints(counters.scale),
        tables_of.BASE: _ints(counters.base),
        tables_of.COUNTS: np.zeros(counters.length, dtype=np.int64),
        tables_of.FOLLOWED: np.zeros(len(rules.attractions), dtype=np.int64),
    }
    for table, (starts, entries) in lists.items():
        # Each list's entries are the table after its starts.
        tables[table], tables[table + 1] = starts, entries
    ties = _in_one(tables, problem.node_count)
    for number in range(len(spreads)):
        find_least(ties, number)
    return ties


def _exclusion_lists(rules: Rules, counters: _Counters, closed: BoolArray) -> tuple[_Sets, _Sets]:
    """For each class the counters that keep it away from a domain, and the classes that do so from a node."""
    alone = [_has_one_node_each(domains) for domains in rules.topologies]
    banned: _Sets = defaultdict(set)
    shunned: _Sets = defaultdict(set)
    for rule in rules.exclusions:
        if alone[rule.topology]:
            shunned[rule.holder].update(rule.targets.tolist())
            for c in rule.targets.tolist():
                shunned[c].add(rule.holder)
        elif _has_room(counters, closed, rule.topology, rule.holder, rule.targets):
            banned[rule.holder].add(counters.of(rule.topology, rule.targets))
            for c in rule.targets.tolist():
                banned[c].add(counters.of(rule.topology, np.array([rule.holder], dtype=np.int64)))
    return banned, shunned


def _wants(rules: Rules, counters: _Counters, closed: BoolArray) -> list[list[int]]:
    """The counters that each attraction wants above 0."""
    wants = []
    for attraction in rules.attractions:
        kept = [_has_room(counters, closed, t, attraction.holder, attraction.targets) for t in attraction.topologies]
        wants.append([counters.of(t, attraction.targets) for t in attraction.topologies] if all(kept) else [])
        if attraction.holder in attraction.targets.tolist():
            # Who may be first of a kind is left to those who see all pods at once.
            closed[attraction.targets] = True
    return wants


def _spread_tables(
    rules: Rules, spreads: list[Spread], counters: _Counters, lists: dict[int, tuple[IntArray, IntArray]]
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
    lists[tables_of.DOMAIN_STARTS] = _lists(
        len(domains), ((i, d) for i, row in enumerate(domains) for d in row.tolist())
    )
    short = [len(there) < s.min_domains or len(there) == 0 for s, there in zip(spreads, domains, strict=True)]
    nothing = np.zeros(len(spreads), dtype=np.int64)
    return {
        tables_of.MASKS: np.array(masks, dtype=np.int64),
        tables_of.MASK: _ints(mask),
        tables_of.ACROSS: _ints([s.topology for s in spreads]),
        tables_of.LEVEL: _ints([counters.room(s.topology) for s in spreads]),
        tables_of.CAME: _ints([counters.room(s.topology) for s in spreads]),
        tables_of.SKEW: _ints([s.max_skew for s in spreads]),
        tables_of.ITSELF: _ints([int(s.holder in s.targets.tolist()) for s in spreads]),
        tables_of.FROM_ZERO: np.array(short, dtype=np.int64),
        tables_of.LEAST: nothing,
        tables_of.FEWEST: nothing,
        tables_of.ARRIVED: nothing,
    }


def _in_one(tables: dict[int, IntArray], nodes: int) -> IntArray:
    flat = [np.asarray(tables[table], dtype=np.int64).ravel() for table in range(1, tables_of.TABLE_COUNT)]
    starts = tables_of.TABLE_COUNT + np.cumsum([0, *(len(part) for part in flat)])[:-1]
    return np.concatenate([np.array([nodes, *starts.tolist()], dtype=np.int64), *flat])


def _has_one_node_each(domains: IntArray) -> bool:
    labelled = domains[domains >= 0]
    return len(np.unique(labelled)) == len(labelled)


def _has_room(counters: _Counters, closed: BoolArray, topology: int, holder: int, targets: IntArray) -> bool:
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
