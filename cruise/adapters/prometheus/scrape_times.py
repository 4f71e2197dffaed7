"""When nodes were scraped, asked for one container of each, and only for nodes whose counters all jump together.

What a server answers at a grid time is the last scrape before it. Where scrapes are irregular, or one is missed, their
distance is not a step, and growth over the step is not the use: half a minute less of it, then half a minute more.

What these questions cost is saved elsewhere, so that no node costs more samples than one that needs none: the pressure
of one of its pods is not read in the next pass, of each in its turn.
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

# Nodes in one question, whose text has the names of their pods.
NODES_PER_QUERY = 100
# What containers of one node differ by where the server keeps its own times, and not those of each container.
TOLERANCE_SECONDS = 1.0
# For how long a look at a second pod of a node holds.
CHECK_SECONDS = 3600
# A longer read, such as the first, neither saves nor is paid for.
MAX_STEPS = 15
# Samples: more than a pass usually asks for is saved at two pods.
HIGH_BACKLOG = 5
MAX_BACKLOG = 15
_SPANS_KEPT = 8
# More than the longest hole, which a read may begin before.
_STEPS_KEPT = 64


class _Span(NamedTuple):
    """By how many seconds scrapes preceded the grid times from first to last, None where that is not certain."""

    first: int
    last: int
    ages: Float64Array | None


class ScrapeTimes:
    """Asks a server; blocks, and may be shared by threads, which then wait for one answer."""

    def __init__(self, settings: PrometheusSettings, client: PrometheusClient) -> None:
        self._client = client
        self._matrices = MatrixDecoder(settings.labels, settings.accept_partial)
        self._pods: dict[str, list[str]] = {}
        self._spans: dict[str, list[_Span]] = {}
        self._checked: dict[str, tuple[int, bool]] = {}
        self._owed: Counter[str] = Counter()
        self._turns: Counter[str] = Counter()
        self._spared: dict[str, tuple[str, int]] = {}
        self._lock = Lock()

    def choose(self, snapshot: ClusterSnapshot) -> None:
        """Take two pods of each node to ask for, with few containers and names that no other pod has.

        Choose as well whose pressure pays in this pass for what was asked before.
        """
        names = Counter(pod.name for pod in snapshot.pods)
        by_node: dict[str, list[Pod]] = {}
        for pod in snapshot.pods:
            if pod.node is not None and pod.phase == "Running":
                by_node.setdefault(pod.node, []).append(pod)
        self._pods = {
            node: [pod.name for pod in nsmallest(2, pods, lambda pod: (names[pod.name], len(pod.containers), pod.name))]
            for node, pods in by_node.items()
        }
        self._spared = {}
        for node, owed in self._owed.items():
            pods = sorted((pod for pod in by_node.get(node, ()) if names[pod.name] == 1), key=lambda pod: pod.name)
            # A node's only pod would never have its pressure read.
            count = min(1 + (owed > HIGH_BACKLOG), len(pods) - 1)
            for _ in range(count):
                pod = pods[self._turns[node] % len(pods)]
                self._turns[node] += 1
                self._spared[pod.name] = (node, len(pod.containers))

    def skip(self, pods: str, steps: int) -> Sequence[str]:
        """Return the pods, of those whose names match, whose pressure is not to be read over so many steps."""
        if steps > MAX_STEPS or not self._spared:
            return ()
        selects = re.compile(pods).fullmatch
        with self._lock:
            found = list(islice(filter(selects, self._spared), NODES_PER_QUERY))
            for name in found:
                node, containers = self._spared[name]
                self._owed[node] -= steps * containers
            self._owed = +self._owed
        return found

    def ages(
        self, settings: PrometheusSettings, nodes: Collection[str], first: int, last: int
    ) -> Mapping[str, Float64Array]:
        """Return for nodes by how many seconds their last scrape preceded each grid time, NaN where there was none.

        A node is missing of which nothing certain is known. A server that does not answer is no reason not to read.
        """
        step = settings.step_seconds
        with self._lock:
            by_start: dict[int, list[str]] = {}
            for node in sorted(nodes):
                start = self._unknown_from(node, first, last, step) if node in self._pods else None
                if start is not None:
                    by_start.setdefault(start, []).append(node)
            for start, those in by_start.items():
                for place in range(0, len(those), NODES_PER_QUERY):
                    asked = self._ask(settings, those[place : place + NODES_PER_QUERY], start, last)
                    for node, ages in asked.items():
                        self._keep(node, _Span(first if ages is None else start, last, ages), step)
            found = {node: self._known(node, first, last, step) for node in nodes}
            return {node: ages for node, ages in found.items() if ages is not None}

    def _unknown_from(self, node: str, first: int, last: int, step: int) -> int | None:
        """Return from which time on a node has to be asked for, None where all is known."""
        for span in reversed(self._spans.get(node, ())):
            if span.first <= first and span.last >= last:
                return None
            if span.first <= first <= span.last + step and span.ages is not None:
                return span.last + step
        return first

    def _keep(self, node: str, new: _Span, step: int) -> None:
        spans = self._spans.setdefault(node, [])
        for span in spans:
            if span.last + step == new.first and span.ages is not None and new.ages is not None:
                # The span itself stays: other partitions may be behind.
                ages = np.concatenate((span.ages[-_STEPS_KEPT:], new.ages))
                new = _Span(new.last - step * (len(ages) - 1), new.last, ages)
                break
        spans.append(new)
        del spans[:-_SPANS_KEPT]

    def _known(self, node: str, first: int, last: int, step: int) -> Float64Array | None:
        for span in reversed(self._spans.get(node, ())):
            if span.first <= first and span.last >= last:
                start = (first - span.first) // step
                return None if span.ages is None else span.ages[start : start + (last - first) // step + 1]
        return None

    def _ask(
        self, settings: PrometheusSettings, nodes: Sequence[str], first: int, last: int
    ) -> dict[str, Float64Array | None]:
        try:
            self._check(settings, [node for node in nodes if self._is_due(node, last)], last)
            alike = {node: self._pods[node][:1] for node in nodes if self._checked[node][1]}
            times = self._times(settings, alike, first, last) if alike else {}
        except CruiseError as error:
            log.info("times of scrapes not read", why=str(error))
            times = {}
        grid = np.arange(first, last + 1, settings.step_seconds)
        return {node: grid - times[node][0] if node in times else None for node in nodes}

    def _is_due(self, node: str, at: int) -> bool:
        checked = self._checked.get(node)
        return checked is None or not abs(at - checked[0]) < CHECK_SECONDS

    def _check(self, settings: PrometheusSettings, nodes: Sequence[str], at: int) -> None:
        """See whether containers of a node have one time; where each has its own, none speaks for the others."""
        if not nodes:
            return
        times = self._times(settings, {node: self._pods[node] for node in nodes}, at, at)
        for node in nodes:
            found = np.array(times.get(node, [[np.nan]]))
            self._checked[node] = (at, not bool((np.ptp(found, axis=0) > TOLERANCE_SECONDS).any()))

    def _times(
        self, settings: PrometheusSettings, pods: Mapping[str, Sequence[str]], first: int, last: int
    ) -> dict[str, list[Float64Array]]:
        """Return for each node the times of its pods' scrapes."""
        labels, step = settings.labels, settings.step_seconds
        names = "|".join(name.replace(".", "[.]") for of_node in pods.values() for name in of_node)
        series = build_usage_selector(settings, settings.metrics.memory, names)
        kept = ", ".join(filter(None, (labels.node, labels.pod, labels.container, labels.id)))
        # Of a pair of servers the one that is behind, since of two counters the lower counts.
        query = f"min by ({kept}) (timestamp({series}))"
        matrix = query_range_in_parts(self._client, self._matrices, query, first, last, step)
        newest: dict[tuple[str, str], Float64Array] = {}
        for name, values in zip(matrix.series, matrix.values, strict=True):
            if name.pod in pods.get(name.node, ()):
                # A container that was restarted lingers under its old id, whose last scrape is long ago.
                newest[name.node, name.pod] = np.fmax(values, newest.get((name.node, name.pod), values))
            if len(values) <= MAX_STEPS:
                known = int(np.count_nonzero(~np.isnan(values)))
                self._owed[name.node] = min(self._owed[name.node] + known, MAX_BACKLOG)
        found: dict[str, list[Float64Array]] = {}
        for (node, _), values in newest.items():
            found.setdefault(node, []).append(values)
        return found


# Which steps saw a scrape: a value that repeats may be one that was not read again. A server answers with the last value for five minutes, so a missed scrape looks like rest. All containers of a node come from one scrape, and their figures hardly ever all stand still for a minute: where something of the node moved, what did not move was idle; where nothing moved, the step has no scrape of its own. A node whose every figure stands still for longer than a server repeats itself is truly at rest, and stays so until something moves.

# How far back a server looks for a value; what lies further apart says nothing about the steps between.
MIN_GAP_SECONDS = 300
_NEVER = np.iinfo(np.int64).min // 2


class ScrapeTargets:
    """Numbers for what is scraped together: the containers of a node, or of a pod where nodes are not labelled."""

    def __init__(self) -> None:
        self._number_of: dict[str | tuple[str, str], int] = {}

    def __len__(self) -> int:
        return len(self._number_of)

    def nodes(self, chosen: BoolArray) -> dict[str, int]:
        """Return the chosen targets that are nodes, with their numbers."""
        return {name: number for name, number in self._number_of.items() if isinstance(name, str) and chosen[number]}

    def numbers(self, keys: Sequence[ContainerKey], nodes: Sequence[str]) -> Int64Array:
        """Return the number of each container's target, given now where it has none."""
        number_of = self._number_of
        return np.fromiter(
            (
                number_of.setdefault(node or (key.namespace, key.pod), len(number_of))
                for key, node in zip(keys, nodes, strict=True)
            ),
            np.int64,
            len(keys),
        )


@dataclass(frozen=True, slots=True)
class ScrapeSteps:
    """One row a target, one column a step: whether it was scraped there, and the last column until then that moved.

    `ages` tells by how many steps the scrape preceded its column, 0 where all did by as much; it has the columns before
    the read as well.
    """

    scraped: BoolArray
    last_move: Int64Array
    ages: Float64Array


def find_changes(values: Float64Array, before: Float64Array) -> BoolArray:
    """Tell where series have another value than a step earlier; `before` is what precedes the first step."""
    earlier = np.column_stack((before, values[:, :-1]))
    return np.asarray((values != earlier) & ~np.isnan(values), dtype=np.bool_)


def find_backward_steps(values: Float64Array, before: Float64Array) -> BoolArray:
    """Tell where a counter is a little lower than a step earlier: the answer of a replica that is behind.

    A counter that starts anew falls by more than half; one that had barely begun is not told apart, and waits until it
    is above what it was.
    """
    earlier = np.column_stack((before, values[:, :-1]))
    return np.asarray((values < earlier) & (2 * values >= earlier), dtype=np.bool_)


def find_scrapes(
    families: Sequence[tuple[Int64Array, BoolArray]], last_move_before: Int64Array, span: int, lead: int
) -> ScrapeSteps:
    """Put together what moved: pairs of each series' target, and where the series moved.

    `last_move_before` has the column of each target's last move before the first one, or 0 where there is none: there
    its values are first seen.
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
    return ScrapeSteps(found | (places - last_move > span), last_move, np.zeros((len(found), lead + columns)))


def set_scrape_ages(scrapes: ScrapeSteps, ages: Mapping[int, Float64Array]) -> ScrapeSteps:
    """Return the scrapes with those of some targets as they are known: by how many steps they preceded each column."""
    scraped, last_move, all_ages = scrapes.scraped.copy(), scrapes.last_move.copy(), scrapes.ages.copy()
    lead, places = all_ages.shape[1] - scraped.shape[1], np.arange(scraped.shape[1])
    for target, known in ages.items():
        scraped[target] = known[lead:] < 1
        before = -1 - np.floor(known[lead - 1]) if lead and not np.isnan(known[lead - 1]) else 0
        moves = np.where(scraped[target], places, before).astype(np.int64)
        last_move[target] = np.maximum.accumulate(moves)
        all_ages[target] = np.nan_to_num(known)
    return ScrapeSteps(scraped, last_move, all_ages)
