"""The bounds of one container: overrides, LimitRanges and the minimum request combined."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cruise.decisions.pod_policy.heap_floors import NO_HEAP_FLOOR, HeapFloor
from cruise.decisions.usage.usage_columns import group_containers_by_workload
from cruise.domain.annotations import (
    BOUNDS,
    CONTAINER_SETTINGS,
    POD_SETTINGS,
    POLICY_SOURCES,
    PREFIX,
    WORKLOAD_SOURCES,
    EffectivePolicy,
    OverrideSource,
    UnreadableAnnotations,
)
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod, WorkloadRef
from cruise.domain.original_resources import read_original_resources
from cruise.domain.overrides import ResolvedOverrides, StatedSetting
from cruise.domain.policy import (
    LARGEST_CLOUD_MACHINE,
    LARGEST_MACHINE,
    CpuLimitPolicy,
    MemoryLimitPolicy,
    Policy,
    RequestBounds,
    ResizeDirection,
    explain_too_large,
)
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources
from cruise.domain.usage import StatisticsTable

_NO_RATIOS = (math.inf, math.inf)


class ContainerBounds(NamedTuple):
    """The bounds of one container.

    `whole_unit_bounds`: least and largest CPU request, least and largest memory request, caps of the CPU and the memory
    limit. `ratios`: largest limit/request ratio of CPU and of memory. `required_limits`: whether a LimitRange requires
    a CPU and a memory limit. `memory_limits`: which memory limits may change. `stated_minimum`: the least CPU and
    memory request without LimitRanges. `heap`: what the heap of a container in creation needs.
    """

    whole_unit_bounds: tuple[int, int, int, int, int, int]
    ratios: tuple[float, float]
    required_limits: tuple[bool, bool] = (False, False)
    memory_limits: MemoryLimitPolicy = MemoryLimitPolicy.ALWAYS
    stated_minimum: tuple[int, int] = (0, 0)
    cpu_limits: CpuLimitPolicy = CpuLimitPolicy.REMOVE_AT_CREATION
    direction: ResizeDirection = ResizeDirection.BOTH
    heap: HeapFloor = NO_HEAP_FLOOR

    def raise_minimum(self, least: Resources) -> "ContainerBounds":
        """Return the bounds with requests that are at least so large, also above the maximum."""
        cpu, most_cpu, memory, most_memory, *caps = self.whole_unit_bounds
        cpu, memory = max(cpu, least.cpu_millicores), max(memory, least.memory_bytes)
        whole = (cpu, max(cpu, most_cpu), memory, max(memory, most_memory), caps[0], caps[1])
        stated = (max(self.stated_minimum[0], least.cpu_millicores), max(self.stated_minimum[1], least.memory_bytes))
        return self._replace(whole_unit_bounds=whole, stated_minimum=stated)

    @property
    def adds_memory_limit(self) -> bool:
        """Return whether a container without a memory limit gets one."""
        if not self.heap.may_add_limit:
            return False
        if self.direction is ResizeDirection.GROW:
            return False
        is_required = self.required_limits[1] and self.memory_limits is MemoryLimitPolicy.EXISTING
        return self.memory_limits is MemoryLimitPolicy.ALWAYS or is_required

    @property
    def adds_cpu_limit(self) -> bool:
        """Return whether a container without a CPU limit gets one: only where a LimitRange requires it."""
        is_free = self.cpu_limits is not CpuLimitPolicy.KEEP and self.direction is not ResizeDirection.GROW
        return self.required_limits[0] and is_free

    @property
    def keeps_cpu_limit(self) -> bool:
        """Return whether a CPU limit is unchanged."""
        return self.cpu_limits is CpuLimitPolicy.KEEP

    @property
    def may_grow(self) -> bool:
        """Return whether requests and limits may be increased."""
        return self.direction is not ResizeDirection.SHRINK

    @property
    def may_shrink(self) -> bool:
        """Return whether requests and limits may be decreased."""
        return self.direction is not ResizeDirection.GROW

    def keep_direction(self, stated: int, value: int | None) -> int:
        """Return a limit that does not change against the direction."""
        wanted = stated if value is None else value
        if not self.may_grow:
            return min(stated, wanted)
        return wanted if self.may_shrink else max(stated, wanted)

    def build_for_new_pod(self, submitted: StatedResources, limits: StatedResources) -> "ContainerBounds":
        """Return the bounds of a new container's requests, given what it was submitted with and its limits.

        `demand.narrow_bounds` does the same for running containers.
        """
        least_cpu, most_cpu, least_memory, most_memory, *caps = self.whole_unit_bounds
        if self.keeps_cpu_limit and limits.cpu_millicores is not None:
            most_cpu = min(most_cpu, limits.cpu_millicores)
        cpu, memory = submitted.cpu_millicores or 0, submitted.memory_bytes or 0
        if not self.may_grow:
            most_cpu, most_memory = min(most_cpu, cpu), min(most_memory, memory)
        least_cpu, least_memory = min(least_cpu, most_cpu), min(least_memory, most_memory)
        if not self.may_shrink:
            least_cpu, least_memory = max(least_cpu, cpu), max(least_memory, memory)
        most_cpu, most_memory = max(most_cpu, least_cpu), max(most_memory, least_memory)
        cpu_cap, memory_cap = caps
        whole = (least_cpu, most_cpu, least_memory, most_memory, cpu_cap, memory_cap)
        stated = (min(self.stated_minimum[0], most_cpu), min(self.stated_minimum[1], most_memory))
        if whole == self.whole_unit_bounds and stated == self.stated_minimum:
            return self
        return self._replace(whole_unit_bounds=whole, stated_minimum=stated)

    @property
    def keeps_memory_limit(self) -> bool:
        """Return whether a memory limit is unchanged."""
        return self.memory_limits is MemoryLimitPolicy.NEVER


def compute_container_bounds(
    effective_policy: EffectivePolicy, container: str, items: Sequence[LimitRangeItem], policy: Policy
) -> ContainerBounds:
    """Combine an override's bounds with a namespace's LimitRanges.

    A LimitRange takes precedence over an override, since the API server would reject a violation; an override takes
    precedence over the minimum request.
    """
    own = effective_policy.get_for_container(container)
    bounds = _combine_bounds(own, items, policy)
    cpu_limits = own.cpu_limits or policy.cpu_limits
    if own.direction is ResizeDirection.BOTH and cpu_limits is CpuLimitPolicy.REMOVE_AT_CREATION:
        return bounds
    return bounds._replace(cpu_limits=cpu_limits, direction=own.direction)


def _combine_bounds(own: EffectivePolicy, items: Sequence[LimitRangeItem], policy: Policy) -> ContainerBounds:
    override, floor = own.bounds, policy.minimum_request
    # The first rule set gives every container a memory limit.
    configured = (own.memory_limits or policy.memory_limits) if policy.rules.memory_limit_safeguards else None
    memory_limits = configured or MemoryLimitPolicy.ALWAYS
    if not items:
        return _build_bounds_without_ranges(override, floor, memory_limits)
    ranges = [item for item in items if not item.is_for_pod]
    min_cpu, max_cpu, cpu_cap = _combine(
        override.minimum.cpu_millicores,
        override.maximum.cpu_millicores,
        [(item.minimum.cpu_millicores, item.maximum.cpu_millicores) for item in ranges],
        floor.cpu_millicores,
    )
    min_memory, max_memory, memory_cap = _combine(
        override.minimum.memory_bytes,
        override.maximum.memory_bytes,
        [(item.minimum.memory_bytes, item.maximum.memory_bytes) for item in ranges],
        floor.memory_bytes,
    )
    return ContainerBounds(
        (min_cpu, max_cpu, min_memory, max_memory, cpu_cap, memory_cap),
        (
            min((item.max_cpu_ratio for item in ranges if item.max_cpu_ratio is not None), default=math.inf),
            min((item.max_memory_ratio for item in ranges if item.max_memory_ratio is not None), default=math.inf),
        ),
        (requires_limit(ranges, ResourceName.CPU), requires_limit(ranges, ResourceName.MEMORY)),
        memory_limits,
        (
            min(max(floor.cpu_millicores, override.minimum.cpu_millicores or 0), max_cpu),
            min(max(floor.memory_bytes, override.minimum.memory_bytes or 0), max_memory),
        ),
    )


def requires_limit(items: Sequence[LimitRangeItem], resource: ResourceName) -> bool:
    """Return whether LimitRanges require a limit of every container.

    With a maximum or a ratio the API server rejects a container without a limit. A default limit is set at every write,
    after webhooks as well, and may be below the new request or below known use.
    """
    return any(
        not item.is_for_pod
        and (
            item.maximum.get(resource) is not None
            or item.get_max_ratio(resource) is not None
            or item.default_limits.get(resource) is not None
        )
        for item in items
    )


def _build_bounds_without_ranges(
    override: RequestBounds, floor: Resources, memory_limits: MemoryLimitPolicy
) -> ContainerBounds:
    """Return an override's bounds without LimitRanges, the usual case at admission."""
    least, most = override.minimum, override.maximum
    most_cpu = UNBOUNDED if most.cpu_millicores is None else min(most.cpu_millicores, UNBOUNDED)
    most_memory = UNBOUNDED if most.memory_bytes is None else min(most.memory_bytes, UNBOUNDED)
    least_cpu = min(max(floor.cpu_millicores, least.cpu_millicores or 0), most_cpu)
    least_memory = min(max(floor.memory_bytes, least.memory_bytes or 0), most_memory)
    whole = (least_cpu, most_cpu, least_memory, most_memory, UNBOUNDED, UNBOUNDED)
    return ContainerBounds(whole, _NO_RATIOS, memory_limits=memory_limits, stated_minimum=(least_cpu, least_memory))


def _combine(
    least: int | None, most: int | None, ranges: Sequence[tuple[int | None, int | None]], floor: int
) -> tuple[int, int, int]:
    """Return the least and the largest request, and the cap that LimitRanges put on the limit."""
    cap = min((high for _, high in ranges if high is not None), default=UNBOUNDED)
    range_minimum = max((low or 0 for low, _ in ranges), default=0)
    highest = max(min(UNBOUNDED if most is None else most, cap), range_minimum)
    lowest = min(max(floor, least or 0, range_minimum), highest)
    return lowest, highest, cap


# What a pod template states as memory limits, whatever cruise has made of them on the pod since.


def get_template_memory_limits(pod: Pod, snapshot: ClusterSnapshot) -> Mapping[str, int] | None:
    """Return the memory limits in a pod's template by container, None if they are unknown.

    The template is used if its kind is read. For other kinds the record that admission left is used: who can write it
    into a template can write the limit as well.
    """
    limits = None if pod.workload is None else get_workload_memory_limits(pod.namespace, pod.workload, snapshot)
    return read_recorded_memory_limits(pod) if limits is None else limits


def get_workload_memory_limits(namespace: str, ref: WorkloadRef, snapshot: ClusterSnapshot) -> Mapping[str, int] | None:
    """Return the memory limits in a workload's template, None if it is unknown."""
    workload = snapshot.workloads.get((namespace, ref))
    return None if workload is None else workload.memory_limits


def read_recorded_memory_limits(pod: Pod) -> Mapping[str, int] | None:
    """Return the memory limits that admission recorded on a pod, None if there are none or they are unreadable."""
    recorded = read_original_resources(pod)
    if not recorded:
        return None
    limits = {name: limits.memory_bytes for name, (_, limits) in recorded.items()}
    return {name: limit for name, limit in limits.items() if limit is not None}


_BOUNDS = {bound.setting: bound for bound in BOUNDS}
# Settings of whole pods or of all containers that name neither a container nor a size.
_NEVER_UNUSABLE = frozenset(one.setting for one in (*POD_SETTINGS, *CONTAINER_SETTINGS))
_SHARED_SOURCES = POLICY_SOURCES | {OverrideSource.VERTICAL_POD_AUTOSCALER}


@dataclass(frozen=True)
class OverrideValidator:
    """Checks overrides against a snapshot: unknown containers, and sizes that no node can have."""

    snapshot: ClusterSnapshot
    statistics: StatisticsTable

    def explain_unusable(self, resolution: ResolvedOverrides, pod: Pod) -> UnreadableAnnotations | None:
        """Return which override cannot be intended, with the fix; None if all can."""
        for one in resolution.statements:
            if one.setting in _NEVER_UNUSABLE:
                continue
            detail = self._explain_wrong_container(one, pod) or self._explain_too_large(one)
            if detail:
                return UnreadableAnnotations(f"{one.source}: {PREFIX}{one.setting}: {detail}")
        return None

    def _explain_wrong_container(self, one: StatedSetting, pod: Pod) -> str:
        """Explain what is wrong with the container that a setting names.

        Settings of a namespace, or of a VerticalPodAutoscaler, may refer to other workloads or to injected containers.
        """
        container = one.setting.partition(".")[2]
        if not container or one.source.setter not in WORKLOAD_SOURCES:
            return ""
        roles = {each.name: each.role for each in pod.containers}
        if roles.get(container) is ContainerRole.INIT:
            return "init containers are not sized; change it in the pod template"
        names = set(roles)
        workload = None if pod.workload is None else self.snapshot.workloads.get((pod.namespace, pod.workload))
        if workload is not None and workload.requests is not None:
            names |= workload.requests.keys()
        # A container may be injected after the webhook, or not into every pod.
        if container in names or container in self._known_containers.get((pod.namespace, pod.workload_name), ()):
            return ""
        return f"no such container; there is {', '.join(sorted(names))}"

    def _explain_too_large(self, one: StatedSetting) -> str:
        bound = _BOUNDS.get(one.setting.partition(".")[0])
        # Objects for many pods, or for other clusters as well, may have a maximum that no node has.
        is_cap = bound is not None and bound.field.startswith("maximum.")
        if bound is None or (is_cap and one.source.setter in _SHARED_SOURCES):
            return ""
        resource = ResourceName.CPU if bound.field.endswith("cpu_millicores") else ResourceName.MEMORY
        return explain_too_large(resource, one.value, self._largest_node)

    @cached_property
    def _known_containers(self) -> Mapping[tuple[str, str], set[str]]:
        """The containers that statistics know, by namespace and workload."""
        return group_containers_by_workload(self.statistics)

    @cached_property
    def _largest_node(self) -> Resources:
        """The capacity of the largest node per resource, or of the largest machine that a node autoscaler may add."""
        known = self.snapshot.known_nodes
        largest = LARGEST_MACHINE if not known else NO_RESOURCES
        if self.snapshot.node_autoscaler is not None:
            largest = LARGEST_CLOUD_MACHINE
        for node in known:
            whole = Resources(node.cpu_capacity_millicores or 0, node.memory_capacity_bytes or 0)
            largest = largest.max_with(whole).max_with(node.allocatable)
        return largest
