"""Bounds of requests in columns: those of HPAs on utilization (ADR 0047), and the floors of heaps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.pod_policy.heap_floors import HeapFloor, compute_running_heap_floor
from cruise.decisions.pod_policy.hpa_bounds import MIN_MARGIN, MetricBounds, compute_lower_requests
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.pod_policy.usable_statistics import LargestWeeklyUsage
from cruise.decisions.sizing.pod_level_containers import PodLevelContainers
from cruise.domain.arrays import UNBOUNDED, BoolArray, Float64Array, Int64Array, round_up_integers
from cruise.domain.cluster import Container, QosClass
from cruise.domain.policy import Policy
from cruise.domain.resources import ROUNDING_UNIT, ResourceName

HeapRow = tuple[int, Container, HeapFloor]


@dataclass(frozen=True, slots=True)
class HpaMetricGroups:
    """The containers whose requests an HPA's metric adds up, one group per pod and metric.

    `containers` are indices of sized containers, `groups` their groups, `submitted` their template's requests (0:
    unknown). Per group: the factors of `MetricBounds`.
    """

    containers: Int64Array
    groups: Int64Array
    submitted: Int64Array
    peak_factor: Float64Array
    growth_factor: Float64Array
    base_factor: Float64Array
    restore_factor: Float64Array


def build_hpa_metric_groups(pods: Sequence[ResizablePod], first: Int64Array) -> Mapping[ResourceName, HpaMetricGroups]:
    """Put the bounds of HPAs into columns, by resource; `first` is each pod's first container."""
    bounded = [index for index, pod in enumerate(pods) if pod.utilisation_bounds is not None]
    if not bounded:
        return {}
    found = {resource: _build_groups(pods, bounded, first, resource) for resource in ResourceName}
    return {resource: groups for resource, groups in found.items() if len(groups.containers)}


def _build_groups(
    pods: Sequence[ResizablePod], bounded: Iterable[int], first: Int64Array, resource: ResourceName
) -> HpaMetricGroups:
    rows: list[tuple[int, int, int]] = []
    metrics: list[MetricBounds] = []
    for index in bounded:
        pod, start = pods[index], int(first[index])
        bounds = pod.utilisation_bounds
        assert bounds is not None
        for metric in bounds.metrics.get(resource, ()):
            if pod.kept_containers and not metric.container:
                # A container that keeps its size may need more than it requests.
                metric = metric._replace(peak_factor=np.inf)
            for offset, container in enumerate(pod.sized):
                if metric.container in ("", container.name):
                    stated = bounds.submitted.get(container.name)
                    submitted = 0 if stated is None else stated.resources.get(resource)
                    rows.append((start + offset, len(metrics), submitted))
            metrics.append(metric)
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    factors = np.array([one[2:] for one in metrics], dtype=np.float64).reshape(-1, 4)
    return HpaMetricGroups(*columns.T, *factors.T)


def compute_hpa_request_bounds(
    groups: HpaMetricGroups, resource: ResourceName, current: Int64Array, use: LargestWeeklyUsage
) -> tuple[Int64Array, Int64Array]:
    """Return the smallest and largest request of each container that HPAs allow, 0 and UNBOUNDED where none does.

    A container in several groups gets the narrowest bounds. Whole units, except that the present request is allowed.
    Where use exceeded the history that requests shrank by, the smallest requests are larger than the present ones.
    """
    at, group, count = groups.containers, groups.groups, len(groups.peak_factor)
    now, unit = current[at], ROUNDING_UNIT[resource]
    lowest = compute_lower_requests(now, use.largest[at], group, groups.peak_factor)
    lowest = np.minimum(now, round_up_integers(lowest, unit))
    requested = np.bincount(group, now, count)
    by_base = np.bincount(group, use.base[at], count) * groups.base_factor
    growth = np.minimum(groups.growth_factor, np.divide(by_base, requested, out=np.zeros(count), where=requested > 0))
    is_at_minimum = groups.growth_factor[group] == 0
    grown = np.floor(now * np.maximum(growth, 1.0)[group]).astype(np.int64) // unit * unit
    highest = np.maximum(now, np.where(is_at_minimum, groups.submitted, grown))
    lowest = np.maximum(lowest, _compute_restored_requests(groups, now, use.largest[at], unit))
    highest = np.maximum(highest, lowest)
    lower, upper = np.zeros_like(current), np.full_like(current, UNBOUNDED)
    np.maximum.at(lower, at, lowest)
    np.minimum.at(upper, at, highest)
    return lower, upper


def _compute_restored_requests(groups: HpaMetricGroups, now: Int64Array, largest: Int64Array, unit: int) -> Int64Array:
    """Return what containers of groups with too small requests need, at most their submitted requests; 0 for others."""
    group, count = groups.groups, len(groups.peak_factor)
    needed = np.ceil(np.where(largest < UNBOUNDED, largest, 0) * groups.restore_factor[group])
    # Use that rises for hours would be followed by a resize every pass; the margin covers what is lacking meanwhile.
    is_short = np.bincount(group, needed, count) > np.bincount(group, now, count) * (1 + MIN_MARGIN / 2)
    needed = np.minimum(round_up_integers(needed.astype(np.int64), unit), groups.submitted)
    restored: Int64Array = np.where(is_short[group], needed, 0)
    return restored


def find_heap_floors(
    pods: Sequence[ResizablePod], pod_level: Mapping[int, PodLevelContainers], first: Int64Array, policy: Policy
) -> list[HeapRow]:
    """Return the containers with a bound of their heap, and pods with pod-level resources, with their index."""
    found = [(int(first[index]), pods[index].sized[0], one.get_heap_floor()) for index, one in pod_level.items()]
    at = 0
    # Replicas share their containers.
    known: dict[tuple[int, QosClass], HeapFloor] = {}
    for pod in pods:
        for container in pod.sized:
            if container.heap is not None:
                key = (id(container), pod.pod.qos)
                floor = known.get(key)
                if floor is None:
                    floor = known[key] = compute_running_heap_floor(container, pod.pod.qos, policy)
                found.append((at, container, floor))
            at += 1
    return found


def apply_heap_floors(
    found: Sequence[HeapRow], minimums: Sequence[Int64Array], maximum: Int64Array, adds_limit: BoolArray
) -> tuple[Int64Array, Int64Array]:
    """Raise the `minimums` of memory requests in place, at most to the present ones.

    Return the limits' floors, and up to which request each container keeps what it grows to. `adds_limit`, also changed
    in place, marks containers without a memory limit that get one.
    """
    limits, kept_requests = np.zeros_like(maximum), np.zeros_like(maximum)
    if found:
        rows = [at for at, _, _ in found]
        limits[rows] = [floor.limit_bytes for _, _, floor in found]
        kept_requests[rows] = [floor.kept_request_bytes for _, _, floor in found]
        adds_limit[rows] &= [floor.may_add_limit for _, _, floor in found]
        requests = [min(floor.request_bytes, container.requests.memory_bytes or 0) for _, container, floor in found]
        for values in minimums:
            values[rows] = np.maximum(values[rows], np.minimum(requests, maximum[rows]))
    return limits, kept_requests
