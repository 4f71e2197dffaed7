"""The scrape times of nodes, queried from one container each, only for nodes whose counters all jump together.

The answer at a grid time is the last scrape before it. If scrapes are irregular or one is missing, their distance is
not a step, and growth over the step is not the usage: half a minute less, then half a minute more.

The samples of these queries are saved elsewhere: the pressure of one pod of the node is skipped in the next pass, of
each pod in turn.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from itertools import islice
from threading import Lock
from typing import NamedTuple

import numpy as np
import structlog

from cruise.adapters.prometheus.client import PrometheusClient
from cruise.adapters.prometheus.queries import MatrixDecoder, build_usage_selector, query_range_in_parts
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.usage import ContainerKey
from cruise.errors import CruiseError

log = structlog.get_logger()

# The query contains the names of the nodes' pods.
NODES_PER_QUERY = 100
# The difference between containers of one node if the server does not use the times of each container.
TOLERANCE_SECONDS = 1.0
# How long the check of a second pod of a node is valid.
CHECK_SECONDS = 3600
# A longer read, such as the first, is not counted.
MAX_STEPS = 15
# In samples: with a higher backlog, the pressure of two pods is skipped.
HIGH_BACKLOG = 5
MAX_BACKLOG = 15
_MAX_SPANS = 8
# More than the longest hole.
_MAX_SPAN_STEPS = 64


class _Span(NamedTuple):
    """The seconds by which scrapes preceded the grid times from first to last, None if that is uncertain."""

    first: int
    last: int
    ages: Float64Array | None


class ScrapeTimes:
    """Queries the scrape times of nodes; blocks, and may be shared by threads, which then wait for each other."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._client = client
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self._pods: dict[str, list[str]] = {}
        self._spans: dict[str, list[_Span]] = {}
        self._checked: dict[str, tuple[int, bool]] = {}
        self._backlog: Counter[str] = Counter()
        self._positions: Counter[str] = Counter()
        self._skipped_pods: dict[str, tuple[str, int]] = {}
        self._lock = Lock()

    def choose_pods(self, snapshot: ClusterSnapshot) -> None:
        """Choose two pods of each node with few containers and unique names, and pods whose pressure to skip."""
        names = Counter(pod.name for pod in snapshot.pods)
        by_node: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            if pod.node is not None and pod.phase == "Running":
                by_node.setdefault(pod.node, []).append(pod)
        self._pods = {
            node: [pod.name for pod in nsmallest(2, pods, lambda pod: (names[pod.name], len(pod.containers), pod.name))]
            for node, pods in by_node.items()
        }
        self._skipped_pods = {}
        for node, backlog in self._backlog.items():
            pods = sorted((pod for pod in by_node.get(node, ()) if names[pod.name] == 1), key=lambda pod: pod.name)
            # Never all pods of a node.
            count = min(1 + (backlog > HIGH_BACKLOG), len(pods) - 1)
            for _ in range(count):
                pod = pods[self._positions[node] % len(pods)]
                self._positions[node] += 1
                self._skipped_pods[pod.name] = (node, len(pod.containers))

    def skip(self, pods: str, steps: int) -> Sequence[str]:
        """Return the matching pods whose pressure is skipped in a read of so many steps."""
        if steps > MAX_STEPS or not self._skipped_pods:
            return ()
        selects = re.compile(pods).fullmatch
        with self._lock:
            found = list(islice(filter(selects, self._skipped_pods), NODES_PER_QUERY))
            for name in found:
                node, containers = self._skipped_pods[name]
                self._backlog[node] -= steps * containers
            self._backlog = +self._backlog
        return found

    def read_ages(
        self, settings: PrometheusSettings, nodes: Collection[str], first: int, last: int
    ) -> Mapping[str, Float64Array]:
        """Return for nodes by how many seconds the last scrape preceded each grid time, NaN if there was none.

        Nodes without certain times are missing. If the server does not answer, no node has times.
        """
        step = settings.step_seconds
        with self._lock:
            by_start: dict[int, list[str]] = {}
            for node in sorted(nodes):
                start = self._find_unknown_start(node, first, last, step) if node in self._pods else None
                if start is not None:
                    by_start.setdefault(start, []).append(node)
            for start, starting_nodes in by_start.items():
                for place in range(0, len(starting_nodes), NODES_PER_QUERY):
                    answers = self._query(settings, starting_nodes[place : place + NODES_PER_QUERY], start, last)
                    for node, ages in answers.items():
                        self._add_span(node, _Span(first if ages is None else start, last, ages), step)
            found = {node: self._find_ages(node, first, last, step) for node in nodes}
            return {node: ages for node, ages in found.items() if ages is not None}

    def _find_unknown_start(self, node: str, first: int, last: int, step: int) -> int | None:
        """Return the time from which a node must be queried, None if all is known."""
        for span in reversed(self._spans.get(node, ())):
            if span.first <= first and span.last >= last:
                return None
            if span.first <= first <= span.last + step and span.ages is not None:
                return span.last + step
        return first

    def _add_span(self, node: str, new: _Span, step: int) -> None:
        spans = self._spans.setdefault(node, [])
        for span in spans:
            if span.last + step == new.first and span.ages is not None and new.ages is not None:
                # The old span stays, because other partitions may be read later.
                ages = np.concatenate((span.ages[-_MAX_SPAN_STEPS:], new.ages))
                new = _Span(new.last - step * (len(ages) - 1), new.last, ages)
                break
        spans.append(new)
        del spans[:-_MAX_SPANS]

    def _find_ages(self, node: str, first: int, last: int, step: int) -> Float64Array | None:
        for span in reversed(self._spans.get(node, ())):
            if span.first <= first and span.last >= last:
                start = (first - span.first) // step
                return None if span.ages is None else span.ages[start : start + (last - first) // step + 1]
        return None

    def _query(
        self, settings: PrometheusSettings, nodes: Sequence[str], first: int, last: int
    ) -> dict[str, Float64Array | None]:
        try:
            self._check(settings, [node for node in nodes if self._is_due(node, last)], last)
            first_pods = {node: self._pods[node][:1] for node in nodes if self._checked[node][1]}
            times = self._times(settings, first_pods, first, last) if first_pods else {}
        except CruiseError as error:
            log.info("scrape times cannot be read", problem=str(error))
            times = {}
        grid = np.arange(first, last + 1, settings.step_seconds)
        return {node: grid - times[node][0] if node in times else None for node in nodes}

    def _is_due(self, node: str, at: int) -> bool:
        checked = self._checked.get(node)
        return checked is None or not abs(at - checked[0]) < CHECK_SECONDS

    def _check(self, settings: PrometheusSettings, nodes: Sequence[str], at: int) -> None:
        """Check whether the containers of a node have the same times; if not, none represents the others."""
        if not nodes:
            return
        times = self._times(settings, {node: self._pods[node] for node in nodes}, at, at)
        for node in nodes:
            found = np.array(times.get(node, [[np.nan]]))
            self._checked[node] = (at, not bool((np.ptp(found, axis=0) > TOLERANCE_SECONDS).any()))

    def _times(
        self, settings: PrometheusSettings, pods: Mapping[str, Sequence[str]], first: int, last: int
    ) -> dict[str, list[Float64Array]]:
        """Return the scrape times of the pods of each node."""
        labels, step = settings.labels, settings.step_seconds
        names = "|".join(name.replace(".", "[.]") for node_pods in pods.values() for name in node_pods)
        series = build_usage_selector(settings, settings.metrics.memory, names)
        by = ", ".join(filter(None, (labels.node, labels.pod, labels.container, labels.id)))
        # Of two replicas the older scrape, because of two counters the lower one counts.
        query = f"min by ({by}) (timestamp({series}))"
        matrix = query_range_in_parts(self._client, self._matrices, query, first, last, step)
        newest: dict[tuple[str, str], Float64Array] = {}
        for name, values in zip(matrix.series, matrix.values, strict=True):
            if name.pod in pods.get(name.node, ()):
                # A restarted container still has a series with its old id, whose last scrape is old.
                newest[name.node, name.pod] = np.fmax(values, newest.get((name.node, name.pod), values))
            if len(values) <= MAX_STEPS:
                known = int(np.count_nonzero(~np.isnan(values)))
                self._backlog[name.node] = min(self._backlog[name.node] + known, MAX_BACKLOG)
        found: dict[str, list[Float64Array]] = {}
        for (node, _), values in newest.items():
            found.setdefault(node, []).append(values)
        return found


# A server repeats the last value for five minutes, so a missed scrape looks like an unchanged counter. A
# scrape covers all containers of a node, whose values are hardly ever all unchanged for a minute: if any of them
# changed, there was a scrape; if none did, there was none. A node whose values are all unchanged for longer is idle
# until one changes.

# How far back a server looks for a value; growth over a longer time is not used.
MAX_GAP_SECONDS = 300
_NEVER = np.iinfo(np.int64).min // 2


class ScrapeTargetNumbers:
    """Numbers for what is scraped together: the containers of a node, or of a pod if series have no node."""

    def __init__(self) -> None:
        self._numbers: dict[str | tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def select_nodes(self, chosen: BoolArray) -> dict[str, int]:
        """Return the chosen targets that are nodes, with their numbers."""
        return {name: number for name, number in self._numbers.items() if isinstance(name, str) and chosen[number]}

    def get_or_add_numbers(self, keys: Sequence[ContainerKey], nodes: Sequence[str]) -> Int64Array:
        """Return the number of each container's target; new targets are added."""
        numbers = self._numbers
        return np.fromiter(
            (
                numbers.setdefault(node or (key.namespace, key.pod), len(numbers))
                for key, node in zip(keys, nodes, strict=True)
            ),
            np.int64,
            len(keys),
        )


@dataclass(frozen=True, slots=True)
class ScrapesByStep:
    """One row per target, one column per step: whether it was scraped, and the last column with a change.

    `ages` are the steps by which the scrape preceded its column, also for columns before the read; 0 if regular.
    """

    scraped: BoolArray
    last_change: Int64Array
    ages: Float64Array


def find_value_changes(values: Float64Array, before: Float64Array) -> BoolArray:
    """Return where series differ from the step before; `before` precedes the first step."""
    earlier = np.column_stack((before, values[:, :-1]))
    return np.asarray((values != earlier) & ~np.isnan(values), dtype=np.bool_)


def find_counter_decreases(values: Float64Array, before: Float64Array) -> BoolArray:
    """Return where a counter is a little lower than a step earlier: the value of a replica that lags.

    A reset counter falls by more than half; one that had barely started cannot be distinguished, and is not used until
    it is above its earlier value.
    """
    earlier = np.column_stack((before, values[:, :-1]))
    return np.asarray((values < earlier) & (2 * values >= earlier), dtype=np.bool_)


def find_scrapes(
    families: Sequence[tuple[Int64Array, BoolArray]], last_move_before: Int64Array, span: int, lead: int
) -> ScrapesByStep:
    """Find scrapes by the changes of series: pairs of each series' target, and where the series changed.

    `last_move_before` is the column of each target's last change before the first one, 0 if there is none.
    """
    columns = families[0][1].shape[1]
    found = np.zeros((len(last_move_before), columns), dtype=np.bool_)
    for numbers, rows in families:
        if len(numbers):
            order = np.argsort(numbers, kind="stable")
            present, starts = np.unique(numbers[order], return_index=True)
            found[present] |= np.logical_or.reduceat(rows[order], starts, axis=0)
    places = np.arange(columns)
    moves = np.column_stack((last_move_before, np.where(found, places, _NEVER)))
    last_move = np.maximum.accumulate(moves, axis=1)[:, 1:]
    return ScrapesByStep(found | (places - last_move > span), last_move, np.zeros((len(found), lead + columns)))


def set_scrape_ages(scrapes: ScrapesByStep, ages: Mapping[int, Float64Array]) -> ScrapesByStep:
    """Return the scrapes with the known ages of some targets."""
    scraped, last_move, all_ages = scrapes.scraped.copy(), scrapes.last_change.copy(), scrapes.ages.copy()
    lead, places = all_ages.shape[1] - scraped.shape[1], np.arange(scraped.shape[1])
    for target, known in ages.items():
        scraped[target] = known[lead:] < 1
        before = -1 - np.floor(known[lead - 1]) if lead and not np.isnan(known[lead - 1]) else 0
        moves = np.where(scraped[target], places, before).astype(np.int64)
        last_move[target] = np.maximum.accumulate(moves)
        all_ages[target] = np.nan_to_num(known)
    return ScrapesByStep(scraped, last_move, all_ages)
