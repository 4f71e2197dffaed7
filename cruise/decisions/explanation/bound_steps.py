"""Shows what bounds a request: configuration, the largest use of a Guaranteed pod, a heap, or an HPA."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cruise.decisions.pod_policy.heap_floors import compute_heap_memory, compute_running_heap_floor, get_heap_bound
from cruise.decisions.pod_policy.usable_statistics import get_usage_history
from cruise.decisions.sizing.guaranteed import get_guaranteed_usage
from cruise.decisions.sizing.node_sizes import SizingResult
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, QosClass
from cruise.domain.heaps import HeapRuntime
from cruise.domain.policy import Policy, ResizeDirection
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable


@dataclass(frozen=True, slots=True)
class BoundStep:
    """One bound of a request and its source; both None without a bound.

    Sources: `floor`, `override`, `hpa`, `limit-range`, `quota`, `memory-limit` (what the limit may rise to),
    `largest-use` (of a Guaranteed pod), `earlier-runs` (the peak of a pod that runs to completion), `heap` (what its
    process may take), `direction`, `cpu-limit` (one that stays), or `submitted` (an override that applies up to the
    submitted request).
    """

    value: int | None
    source: str | None


def build_bound_steps(
    resource: ResourceName,
    bounds: tuple[int, int],
    effective_policy: EffectivePolicy,
    container: str,
    items: Sequence[LimitRangeItem],
    submitted: int | None,
) -> tuple[BoundStep, BoundStep]:
    """Return the bounds and which rule set them; their values are those of the columns.

    `submitted` is the request that the pod was submitted with, None if it does not matter.
    """
    lower, upper = bounds
    own = effective_policy.get_for_container(container)
    override, direction = own.bounds, own.direction
    ranges = [item for item in items if not item.is_for_pod]
    lowest = [item.minimum.get(resource) for item in ranges]
    highest = [item.maximum.get(resource) for item in ranges]
    if lower in lowest:
        low = BoundStep(lower, "limit-range")
    elif lower == override.minimum.get(resource):
        low = BoundStep(lower, "override")
    elif submitted is not None and lower == submitted:
        low = BoundStep(lower, "submitted")
    elif direction is ResizeDirection.GROW:
        low = BoundStep(lower, "direction")
    else:
        low = BoundStep(lower, "floor")
    if upper >= UNBOUNDED:
        high = BoundStep(None, None)
    else:
        is_range = upper in highest or upper in lowest
        is_override = upper == override.maximum.get(resource) or direction is not ResizeDirection.SHRINK
        # Without a maximum of its own, a CPU request is bounded by a CPU limit that stays.
        is_limit = override.maximum.get(resource) is None and direction is not ResizeDirection.SHRINK
        source = "limit-range" if is_range else "cpu-limit" if is_limit else "override" if is_override else "direction"
        high = BoundStep(upper, source)
    return low, high


@dataclass(frozen=True, slots=True)
class GuaranteedStep:
    """How a request, which is the limit as well, was computed, in millicores or bytes.

    It is increased to `grown` and decreased to `shrunk`, each a margin above the `largest_use`, and stays in between.
    It increases only within its ceiling and the free capacity of the node, and decreases only if the history is long.
    """

    largest_use: int
    growth_margin: float
    grown: int
    shrink_margin: float
    shrunk: int
    has_long_history: bool


def build_guaranteed_steps(
    sized: SizingResult, at: int, statistics: StatisticsTable, policy: Policy
) -> Mapping[ResourceName, GuaranteedStep]:
    """Return the steps of one container by resource, none for a pod of another QoS class."""
    table = sized.columns.table
    if not table.candidates.guaranteed[table.candidates.pod_of_container[at]]:
        return {}
    uses = get_guaranteed_usage(statistics, table.rows[at : at + 1], policy)
    return {
        resource: GuaranteedStep(
            int(use.largest[0]),
            policy.guaranteed_growth_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_growth_margin)),
            policy.guaranteed_shrink_margin,
            int(np.ceil(use.largest[0] * policy.guaranteed_shrink_margin)),
            bool(use.has_long_history[0]),
        )
        for resource, use in uses.items()
    }


@dataclass(frozen=True, slots=True)
class HeapStep:
    """The bound of a heap and what follows from it, in bytes.

    `source` is the option and its place, or the runtime's default. `memory` is what the process may take, 0 if
    that is unknown. A present request that is larger is not cut below `request_floor`, nor a limit below `limit_floor`:
    None where the limit is unchanged while the process runs.
    """

    runtime: HeapRuntime
    source: str
    is_stated: bool
    memory: int
    request_floor: int
    limit_floor: int | None


def build_heap_step(container: Container, qos: QosClass, policy: Policy) -> HeapStep | None:
    """Return the step of a running container, None without a bound."""
    heap = get_heap_bound(container, policy)
    if heap is None:
        return None
    floor, memory = compute_running_heap_floor(container, qos, policy), compute_heap_memory(heap, container)
    limit = None if floor.limit_bytes >= UNBOUNDED else floor.limit_bytes
    request = min(floor.request_bytes, container.requests.memory_bytes or 0)
    return HeapStep(heap.runtime, heap.source, heap.is_stated, memory, request, limit)


@dataclass(frozen=True, slots=True)
class UtilisationStep:
    """The bounds of an HPA for one container's request, in millicores or bytes.

    `target_percent` is the lowest target of the metrics that count the container, and `margin` the share below it that
    stays free at the `largest_use` of the last 7 days (None: unknown). With `others_rely_on_it` it does not shrink,
    because another pod needs more than it requests. At the maximum of replicas it may only grow, and with
    `is_restoring` only back to what use needs.
    """

    autoscaler: str
    is_at_minimum: bool
    is_restoring: bool
    target_percent: int
    margin: float
    largest_use: int | None
    others_rely_on_it: bool
    lower: int
    upper: int


def build_utilisation_step(
    sized: SizingResult, at: int, resource: ResourceName, statistics: StatisticsTable
) -> UtilisationStep | None:
    """Return the step of one container, None if no HPA bounds its request."""
    table = sized.columns.table
    pod = table.candidates.pods[int(table.candidates.pod_of_container[at])]
    bounds, found = pod.utilisation_bounds, table.utilisation_bounds.get(resource)
    if bounds is None or found is None or resource not in bounds.metrics:
        return None
    lower, upper = (int(one[at]) for one in found)
    name = pod.sized[at - int(table.candidates.first_container[table.candidates.pod_of_container[at]])].name
    counting = [one for one in bounds.metrics[resource] if one.container in ("", name)]
    if not counting:
        return None
    metric = min(counting, key=lambda one: one.target_percent)
    largest = int(get_usage_history(statistics, table.rows[at : at + 1], resource).largest[0])
    return UtilisationStep(
        autoscaler=bounds.autoscaler,
        is_at_minimum=bounds.is_at_minimum,
        is_restoring=bool(bounds.restoring_only),
        target_percent=metric.target_percent,
        margin=max(0.0, 1 - 100 / (metric.target_percent * metric.peak_factor)),
        largest_use=None if largest >= UNBOUNDED else largest,
        others_rely_on_it=bounds.is_at_minimum and math.isinf(metric.peak_factor),
        lower=lower,
        upper=upper,
    )
