"""What one container may get: overrides, LimitRanges and the floor joined."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cruise.decisions.usage.usage_columns import group_containers_by_workload
from cruise.domain.annotations import (
    BOUNDS,
    PREFIX,
    WORKLOAD_SOURCES,
    EffectivePolicy,
    OverrideSource,
    UnreadableAnnotations,
)
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, LimitRangeItem, Pod, WorkloadRef
from cruise.domain.original_resources import read_original_resources
from cruise.domain.overrides import ResolvedOverrides, StatedSetting
from cruise.domain.policy import (
    LARGEST_CLOUD_MACHINE,
    LARGEST_MACHINE,
    MemoryLimitPolicy,
    Policy,
    RequestBounds,
    explain_too_large,
)
from cruise.domain.resources import NO_RESOURCES, UNBOUNDED, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_NO_RATIOS = (math.inf, math.inf)


class ContainerBounds(NamedTuple):
    """What one container may get.

    `whole`: least and largest CPU request, least and largest memory request, caps on the CPU and the memory limit.
    `ratios`: largest limit / request of CPU and of memory. `demanded`: whether a LimitRange asks for a CPU and for a
    memory limit. `memory_limits`: which memory limits may be changed. `stated_least`: the least CPU and memory request
    by overrides and the floor alone.
    """

    whole_unit_bounds: tuple[int, int, int, int, int, int]
    ratios: tuple[float, float]
    required_limits: tuple[bool, bool] = (False, False)
    memory_limits: MemoryLimitPolicy = MemoryLimitPolicy.ALWAYS
    stated_least: tuple[int, int] = (0, 0)

    @property
    def adds_memory_limit(self) -> bool:
        """Tell whether a container without a memory limit gets one."""
        demanded = self.required_limits[1] and self.memory_limits is MemoryLimitPolicy.EXISTING
        return self.memory_limits is MemoryLimitPolicy.ALWAYS or demanded

    @property
    def keeps_memory_limit(self) -> bool:
        """Tell whether a memory limit stays as it is."""
        return self.memory_limits is MemoryLimitPolicy.NEVER


def compute_container_bounds(
    guidance: EffectivePolicy, container: str, items: Sequence[LimitRangeItem], policy: Policy
) -> ContainerBounds:
    """Join an override's bounds with a namespace's LimitRanges.

    A LimitRange wins over an override, since the server would refuse what breaks it; an override wins over the
    floor.
    """
    own, floor = guidance.get_container_bounds(container), policy.minimum_request
    # The first design gives every container a memory limit.
    stated = (
        (guidance.get_memory_limits(container) or policy.memory_limits)
        if policy.rules.memory_limit_safeguards
        else None
    )
    memory_limits = stated or MemoryLimitPolicy.ALWAYS
    if not items:
        return _bounds_alone(own, floor, memory_limits)
    ranges = [item for item in items if not item.is_for_pod]
    least_cpu, most_cpu, cpu_cap = _join(
        own.minimum.cpu_millicores,
        own.maximum.cpu_millicores,
        [(item.minimum.cpu_millicores, item.maximum.cpu_millicores) for item in ranges],
        floor.cpu_millicores,
    )
    least_memory, most_memory, memory_cap = _join(
        own.minimum.memory_bytes,
        own.maximum.memory_bytes,
        [(item.minimum.memory_bytes, item.maximum.memory_bytes) for item in ranges],
        floor.memory_bytes,
    )
    return ContainerBounds(
        (least_cpu, most_cpu, least_memory, most_memory, cpu_cap, memory_cap),
        (
            min((item.max_cpu_ratio for item in ranges if item.max_cpu_ratio is not None), default=math.inf),
            min((item.max_memory_ratio for item in ranges if item.max_memory_ratio is not None), default=math.inf),
        ),
        (requires_limit(ranges, ResourceName.CPU), requires_limit(ranges, ResourceName.MEMORY)),
        memory_limits,
        (
            min(max(floor.cpu_millicores, own.minimum.cpu_millicores or 0), most_cpu),
            min(max(floor.memory_bytes, own.minimum.memory_bytes or 0), most_memory),
        ),
    )


def requires_limit(items: Sequence[LimitRangeItem], resource: ResourceName) -> bool:
    """Tell whether every container must state a limit.

    A largest limit or a ratio makes the API server refuse a container without one. A default is put on a container
    without a limit at every write, after a webhook as well, and may be under the new request, or under known use.
    """
    return any(
        not item.is_for_pod
        and (
            item.maximum.get(resource) is not None
            or item.max_ratio(resource) is not None
            or item.default_limits.get(resource) is not None
        )
        for item in items
    )


def _bounds_alone(own: RequestBounds, floor: Resources, memory_limits: MemoryLimitPolicy) -> ContainerBounds:
    """Return what an override's bounds come to where no LimitRange is, as mostly at admission."""
    least, most = own.minimum, own.maximum
    most_cpu = UNBOUNDED if most.cpu_millicores is None else min(most.cpu_millicores, UNBOUNDED)
    most_memory = UNBOUNDED if most.memory_bytes is None else min(most.memory_bytes, UNBOUNDED)
    least_cpu = min(max(floor.cpu_millicores, least.cpu_millicores or 0), most_cpu)
    least_memory = min(max(floor.memory_bytes, least.memory_bytes or 0), most_memory)
    whole = (least_cpu, most_cpu, least_memory, most_memory, UNBOUNDED, UNBOUNDED)
    return ContainerBounds(whole, _NO_RATIOS, memory_limits=memory_limits, stated_least=(least_cpu, least_memory))


def _join(
    least: int | None, most: int | None, ranges: Sequence[tuple[int | None, int | None]], floor: int
) -> tuple[int, int, int]:
    """Return the least and the largest request and the cap that the LimitRanges put on the limit."""
    cap = min((high for _, high in ranges if high is not None), default=UNBOUNDED)
    server_least = max((low or 0 for low, _ in ranges), default=0)
    highest = max(min(UNBOUNDED if most is None else most, cap), server_least)
    lowest = min(max(floor, least or 0, server_least), highest)
    return lowest, highest, cap


# What a pod template states as memory limits, whatever cruise has made of them on the pod since.


def get_template_memory_limits(pod: Pod, snapshot: ClusterSnapshot) -> Mapping[str, int] | None:
    """Return the memory limits that a pod's template states, by container; None where that is not known.

    The template itself says so where its kind is read. Only for others does the annotation count that admission left:
    who may write it into a template may as well write the limit there.
    """
    limits = None if pod.workload is None else get_workload_memory_limits(pod.namespace, pod.workload, snapshot)
    return read_recorded_memory_limits(pod) if limits is None else limits


def get_workload_memory_limits(namespace: str, ref: WorkloadRef, snapshot: ClusterSnapshot) -> Mapping[str, int] | None:
    """Return what a workload's own template states; None where it is not known."""
    workload = snapshot.workloads.get((namespace, ref))
    return None if workload is None else workload.memory_limits


def read_recorded_memory_limits(pod: Pod) -> Mapping[str, int] | None:
    """Return what admission noted on a pod; None where that is nothing, or cannot be read."""
    noted = read_original_resources(pod)
    if not noted:
        return None
    limits = {name: limits.memory_bytes for name, (_, limits) in noted.items()}
    return {name: limit for name, limit in limits.items() if limit is not None}


# Overrides that can be read and cannot be meant, which only the cluster shows: unknown containers, absurd sizes.

_BOUNDS = {bound.setting: bound for bound in BOUNDS}


@dataclass(frozen=True)
class OverrideChecks:
    """Checks the overrides of pods against one snapshot and the containers that statistics know."""

    snapshot: ClusterSnapshot
    statistics: StatisticsTable

    def explain_unusable(self, resolution: ResolvedOverrides, pod: Pod) -> UnreadableAnnotations | None:
        """Tell which override cannot be meant, with the fix; None where all can be."""
        for one in resolution.statements:
            detail = self._why_misnamed(one, pod) or self._why_too_large(one)
            if detail:
                return UnreadableAnnotations(f"{one.source}: {PREFIX}{one.setting}: {detail}")
        return None

    def _why_misnamed(self, one: StatedSetting, pod: Pod) -> str:
        """Say what is wrong with the container that a statement names.

        One of a namespace, or of a VerticalPodAutoscaler, may be about other workloads or about what others inject.
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
        # A container may be injected after the webhook has seen the pod, or not into every pod.
        if container in names or container in self._containers_seen.get((pod.namespace, pod.workload_name), ()):
            return ""
        return f"no such container; there is {', '.join(sorted(names))}"

    def _why_too_large(self, one: StatedSetting) -> str:
        bound = _BOUNDS.get(one.setting.partition(".")[0])
        # VPAs are written with a maximum that no node has.
        is_cap = bound is not None and bound.field.startswith("maximum.")
        if bound is None or (is_cap and one.source.setter is OverrideSource.VERTICAL_POD_AUTOSCALER):
            return ""
        resource = ResourceName.CPU if bound.field.endswith("cpu_millicores") else ResourceName.MEMORY
        return explain_too_large(resource, one.value, self._largest_node)

    @cached_property
    def _containers_seen(self) -> Mapping[tuple[str, str], set[str]]:
        """The containers that statistics know, by namespace and workload."""
        return group_containers_by_workload(self.statistics)

    @cached_property
    def _largest_node(self) -> Resources:
        """What the largest node has of each resource, reserved parts included, and what may be ordered."""
        known = self.snapshot.known_nodes
        largest = LARGEST_MACHINE if not known else NO_RESOURCES
        if self.snapshot.node_autoscaler is not None:
            largest = LARGEST_CLOUD_MACHINE
        for node in known:
            whole = Resources(node.cpu_capacity_millicores or 0, node.memory_capacity_bytes or 0)
            largest = largest.at_least(whole).at_least(node.allocatable)
        return largest
