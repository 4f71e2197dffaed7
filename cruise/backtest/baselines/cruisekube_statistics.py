"""CruiseKube's statistics of workloads, from recorded samples instead of Prometheus, and its plan for a node.

Source: truefoundry/cruisekube at 94de669, `pkg/adapters/metricsProvider/prometheus/promql.go`,
`pkg/task/utils/timeseries_prediction.go` and `pkg/task/utils/util.go` (BuildContainerStatFromCache);
`pkg/task/applystrategies/adjust_amongst_pods_distributed_strategy.go` and `…/utils.go`.

A container has the statistics of its workload: queries take the maximum over the pods at every sample, then a quantile
over time.

- CPU: P75 and maximum over 10 minutes, both rounded up to a millicore. Recordings have no pressure (PSI).
- Memory: P75 and maximum over 30 minutes, maximum over 7 days, all rounded to megabytes of 1,000,000 bytes.
- Prediction: the largest of the maxima over the hour that ends now and the hours that ended at this time on each of the
  7 days before. (The code uses three sets of hours; the two others are within this one.)

A window without samples counts as 0 if the last 7 days have a sample; without any, a workload keeps its statistics.

The plan keeps the source's oddities: `rest` = prediction - base may be negative, because only the base is rounded up;
if a node's rests add up to 0, its shares are NaN and nothing is applied; a DaemonSet's pod counts at most its current
request when the fit is checked, but not when headroom is shared; if the pods that cannot be evicted do not fit, every
other pod of the node is evicted.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.usage.usage_columns import compute_row_percentiles
from cruise.domain.arrays import BoolArray, Float32Array, Float64Array, Int64Array

CPU_WINDOW_SECONDS = 600
MEMORY_WINDOW_SECONDS = 1800
HOUR_SECONDS = 3600
DAY_SECONDS = 86400
DAYS = 7
MEGABYTE = 1_000_000
BASE_SHARE = 0.75
EVICTED_FIRST = 4
EVICTED_LATER = 3


@dataclass(frozen=True, slots=True)
class CruiseKubeStatistics:
    """Statistics of W workloads, one entry each; `known` is False where the last 7 days have no sample."""

    known: BoolArray
    cpu_p75_millicores: Float64Array
    cpu_max_millicores: Float64Array
    cpu_predicted_millicores: Float64Array
    memory_p75_megabytes: Float64Array
    memory_max_megabytes: Float64Array
    memory_predicted_megabytes: Float64Array
    memory_7d_max_megabytes: Float64Array

    @staticmethod
    def create_empty(count: int) -> "CruiseKubeStatistics":
        """Return the statistics of unknown workloads."""
        return CruiseKubeStatistics(np.zeros(count, dtype=np.bool_), *(np.zeros(count) for _ in range(7)))

    def take(self, places: Int64Array) -> "CruiseKubeStatistics":
        """Return the entries at the given places."""
        return CruiseKubeStatistics(*(getattr(self, one.name)[places] for one in fields(self)))

    def choose(self, chosen: BoolArray, otherwise: "CruiseKubeStatistics") -> "CruiseKubeStatistics":
        """Return the chosen entries, and the other statistics' elsewhere."""
        return CruiseKubeStatistics(
            *(np.where(chosen, getattr(self, one.name), getattr(otherwise, one.name)) for one in fields(self))
        )


class CruiseKubeUsageHistory:
    """The samples of workloads: of minutes as they are, of 7 days as hourly maxima.

    `workload_of_container` has the workload of each container, 0 to W - 1. An estimate is made after every `every`-th
    interval; maxima over hours are kept for those times only. Times that an interval does not divide are rounded to
    intervals.
    """

    def __init__(self, workload_of_container: Int64Array, *, step_seconds: int, pass_seconds: int, every: int) -> None:
        count = int(workload_of_container.max(initial=-1)) + 1
        self._columns = _WorkloadColumns(workload_of_container, count)
        self._cpu = _RowRing(max(1, CPU_WINDOW_SECONDS // step_seconds), count, np.nan)
        self._memory = _RowRing(max(1, MEMORY_WINDOW_SECONDS // step_seconds), count, np.nan)
        intervals = max(1, round(HOUR_SECONDS / pass_seconds))
        self._cpu_hour = _RowRing(intervals, count, 0.0)
        self._memory_hour = _RowRing(intervals, count, 0.0)
        self._rows_an_hour = max(1, round(HOUR_SECONDS / (every * pass_seconds)))
        self._rows_a_day = max(1, round(DAY_SECONDS / (every * pass_seconds)))
        self._cpu_hours = _RowRing(DAYS * self._rows_a_day + 1, count, 0.0)
        self._memory_hours = _RowRing(DAYS * self._rows_a_day + 1, count, 0.0)
        self._intervals_a_week = DAYS * DAY_SECONDS / pass_seconds
        # How many intervals ago the last sample was, more than a week where there was none.
        self._cpu_age = np.full(count, 2 * self._intervals_a_week)
        self._memory_age = np.full(count, 2 * self._intervals_a_week)

    def observe(self, cpu: Float32Array, memory: Float32Array) -> None:
        """Add the samples of one interval: matrices (times, containers), NaN is no sample."""
        for samples, window, hour, age in (
            (self._columns.largest(cpu), self._cpu, self._cpu_hour, self._cpu_age),
            (self._columns.largest(memory), self._memory, self._memory_hour, self._memory_age),
        ):
            window.push(samples)
            largest = np.fmax.reduce(samples, axis=0, initial=np.float32(np.nan))
            absent = np.isnan(largest)
            hour.push(np.where(absent, np.float32(0.0), largest)[np.newaxis])
            age += 1
            age[~absent] = 0

    def estimate(self) -> CruiseKubeStatistics:
        """Return the statistics at the end of the last interval."""
        self._cpu_hours.push(self._cpu_hour.rows.max(axis=0)[np.newaxis])
        self._memory_hours.push(self._memory_hour.rows.max(axis=0)[np.newaxis])
        days = np.arange(DAYS + 1) * self._rows_a_day
        week = np.arange(0, DAYS * self._rows_a_day, self._rows_an_hour)
        return CruiseKubeStatistics(
            known=(self._cpu_age < self._intervals_a_week) & (self._memory_age < self._intervals_a_week),
            cpu_p75_millicores=np.ceil(_percentile(self._cpu.rows)),
            cpu_max_millicores=np.ceil(_largest(self._cpu.rows)),
            cpu_predicted_millicores=_largest(self._cpu_hours.get_pushed_before(days)),
            memory_p75_megabytes=_megabytes(_percentile(self._memory.rows)),
            memory_max_megabytes=_megabytes(_largest(self._memory.rows)),
            memory_predicted_megabytes=_megabytes(_largest(self._memory_hours.get_pushed_before(days))),
            memory_7d_max_megabytes=_megabytes(_largest(self._memory_hours.get_pushed_before(week))),
        )


class HourlyReplicaCounts:
    """The number of pods of each workload in each hour of the last 7 days."""

    def __init__(self, workload_of_container: Int64Array) -> None:
        pods = np.bincount(workload_of_container)
        self._workload_of_container = workload_of_container
        # The median of the others is always 1.
        self._several_pods: Int64Array = np.flatnonzero(pods > 1)
        self._single: BoolArray = pods == 1
        self._counts = _RowRing(DAYS * DAY_SECONDS // HOUR_SECONDS, len(self._several_pods), np.nan)
        self._hour = -1

    def observe(self, time: int, exists: BoolArray) -> None:
        """Count the pods of every workload, once an hour; `exists` has one entry a container."""
        if not len(self._several_pods) or time // HOUR_SECONDS == self._hour:
            return
        self._hour = time // HOUR_SECONDS
        counts = np.bincount(self._workload_of_container[exists], minlength=len(self._single))[self._several_pods]
        self._counts.push(np.where(counts > 0, counts, np.nan).astype(np.float32)[np.newaxis])
        median, _ = compute_row_percentiles(np.ascontiguousarray(self._counts.rows.T), 0.5)
        self._single[self._several_pods] = np.floor(median) == 1

    def find_single_replica(self) -> BoolArray:
        """Return a mask of the workloads whose median number of pods, truncated, is 1."""
        return self._single


class _RowRing:
    """The last rows that were pushed, in no particular order."""

    def __init__(self, length: int, count: int, empty: float) -> None:
        self.rows: Float32Array = np.full((length, count), empty, dtype=np.float32)
        self._next = 0

    def push(self, rows: Float32Array) -> None:
        """Replace the oldest rows."""
        rows = rows[-len(self.rows) :]
        self.rows[(self._next + np.arange(len(rows))) % len(self.rows)] = rows
        self._next = (self._next + len(rows)) % len(self.rows)

    def get_pushed_before(self, steps: Int64Array) -> Float32Array:
        """Return the rows pushed so many steps before the last."""
        return self.rows[(self._next - 1 - steps) % len(self.rows)]


class _WorkloadColumns:
    """Computes the largest sample of each workload's pods at every time."""

    def __init__(self, workload_of_container: Int64Array, count: int) -> None:
        self._order = np.argsort(workload_of_container, kind="stable")
        self._starts = np.searchsorted(workload_of_container[self._order], np.arange(count))
        self._is_one_container_each = bool(np.array_equal(workload_of_container, np.arange(count)))

    def largest(self, samples: Float32Array) -> Float32Array:
        """Return a matrix (times, workloads) from one (times, containers)."""
        if self._is_one_container_each:
            return samples
        largest: Float32Array = np.fmax.reduceat(samples[:, self._order], self._starts, axis=1)
        return largest


def _percentile(rows: Float32Array) -> Float64Array:
    percentiles, _ = compute_row_percentiles(np.ascontiguousarray(rows.T), BASE_SHARE)
    return np.nan_to_num(percentiles, nan=0.0)


def _largest(rows: Float32Array) -> Float64Array:
    largest: Float64Array = np.fmax.reduce(rows, axis=0, initial=np.float32(0.0)).astype(np.float64)
    return largest


def _megabytes(sizes: Float64Array) -> Float64Array:
    """Round half up, as PromQL does."""
    rounded: Float64Array = np.floor(sizes / MEGABYTE + 0.5)
    return rounded


@dataclass(frozen=True, slots=True)
class CruiseKubePodDemand:
    """One resource of P pods: base and rest, those used to check the fit, and the capacity available on each node."""

    base: Float64Array
    rest: Float64Array
    fit_base: Float64Array
    fit_rest: Float64Array
    available: Float64Array

    def take(self, pods: BoolArray) -> "CruiseKubePodDemand":
        """Return the demand of some of the pods."""
        return CruiseKubePodDemand(
            self.base[pods], self.rest[pods], self.fit_base[pods], self.fit_rest[pods], self.available
        )


@dataclass(frozen=True, slots=True)
class CruiseKubePodSizes:
    """One resource of the remaining pods: the size of each, and the base and headroom of each node."""

    final: Float64Array
    base: Float64Array
    headroom: Float64Array


def choose_cruisekube_evictions(
    node: Int64Array, ranking: Int64Array, fixed: BoolArray, memory: CruiseKubePodDemand, cpu: CruiseKubePodDemand
) -> tuple[Int64Array, BoolArray]:
    """Return the places of the pods to evict, in order, and a mask of the others; memory is checked before CPU.

    `node` has each pod's node; `fixed` pods (of DaemonSets) are never evicted. Pods with the higher ranking are evicted
    first, then those with the larger rest.
    """
    remains = np.ones(len(node), dtype=np.bool_)
    evicted: list[int] = []
    for demand in (memory, cpu):
        for overcommitted in np.flatnonzero(~_fits(node, demand, remains)).tolist():
            on_node = np.flatnonzero((node == overcommitted) & remains)
            order = on_node[np.lexsort((-demand.fit_rest[on_node], -ranking[on_node], fixed[on_node]))]
            candidates = int(np.count_nonzero(~fixed[order]))
            evicted_pods = order[: _count_evictions(order, candidates, demand, float(demand.available[overcommitted]))]
            remains[evicted_pods] = False
            evicted.extend(evicted_pods.tolist())
    return np.array(evicted, dtype=np.int64), remains


def share_cruisekube_headroom(node: Int64Array, demand: CruiseKubePodDemand) -> CruiseKubePodSizes:
    """Return base + the node's largest rest × the pod's share of all rests."""
    count = len(demand.available)
    bases = sum_by_node(node, demand.base, count)
    rests = sum_by_node(node, demand.rest, count)
    largest = _largest_by_node(node, demand.rest, count)
    with np.errstate(divide="ignore", invalid="ignore"):
        more = np.where(bases[node] > 0, largest[node] * (demand.rest / rests[node]), 0.0)
    return CruiseKubePodSizes(demand.base + more, bases, largest)


def sum_by_node(node: Int64Array, values: NDArray[np.number], count: int) -> Float64Array:
    """Return the sum of each of `count` nodes' values."""
    return np.bincount(node, weights=values, minlength=count).astype(np.float64, copy=False)


def _fits(node: Int64Array, demand: CruiseKubePodDemand, remains: BoolArray) -> BoolArray:
    count = len(demand.available)
    spare = demand.available - sum_by_node(node, np.where(remains, demand.fit_base, 0.0), count)
    return (spare >= 0) & (_largest_by_node(node, np.where(remains, demand.fit_rest, 0.0), count) <= spare)


def _largest_by_node(node: Int64Array, values: Float64Array, count: int) -> Float64Array:
    largest = np.zeros(count)
    np.maximum.at(largest, node, values)
    return largest


def _count_evictions(order: Int64Array, candidates: int, demand: CruiseKubePodDemand, available: float) -> int:
    """Return how many of a node's first pods to evict until the others fit; all candidates if they never fit."""
    remaining = demand.fit_base[order][::-1].cumsum()[::-1]
    largest = np.maximum.accumulate(np.maximum(demand.fit_rest[order], 0.0)[::-1])[::-1]
    fitting = np.flatnonzero((remaining <= available) & (largest <= available - remaining))
    return min(int(fitting[0]), candidates) if fitting.size else candidates
