"""Containers that state their own resources in a pod with pod-level resources (KEP-2837, KEP-5419).

The pod's resources are sized like a container's, by its summed use. What a container states within them reserves
nothing: its request is its weight among the pod's containers, its limit holds it below the pod's. The API server
requires that the containers' requests together, and each container's limit, do not exceed the pod's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.pod_policy.heap_floors import (
    HeapFloor,
    compute_created_heap_floor,
    compute_running_heap_floor,
)
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.memory_limit import compute_limit_ceiling, get_largest_known_usage
from cruise.decisions.sizing.update_threshold import get_update_threshold
from cruise.domain.actions import ContainerTarget
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.policy import MemoryLimitPolicy, Policy
from cruise.domain.resources import (
    NOTHING_STATED,
    ROUNDING_UNIT,
    ResourceName,
    Resources,
    StatedResources,
    round_up_to_mebibytes,
)
from cruise.domain.usage import Statistic, StatisticsTable


@dataclass(frozen=True, slots=True)
class PodLevelContainers:
    """The containers of a pod with pod-level resources, and what their own sizes depend on.

    `statistics` has an entry for each container, `containers_with_resources` are those whose own sizes may change.
    `limits_in_template` are the template's memory limits by container, None if unknown.
    """

    pod: Pod
    statistics: Sequence[Statistic]
    containers_with_resources: Sequence[Container]
    managed: frozenset[ResourceName]
    effective_policy: EffectivePolicy
    limits_in_template: Mapping[str, int] | None
    policy: Policy

    def get_minimum_requests(self) -> Resources:
        """Return the least that the pod may request: the minimum of each container that states a request.

        A container that keeps its own sizes counts with them. An init container counts next to the sidecars.
        """
        return Resources(*(self._get_least_request(resource) for resource in ResourceName))

    def _get_least_request(self, resource: ResourceName) -> int:
        smallest, kept = self.policy.minimum_request.get(resource), {one.name for one in self._list_kept()}
        running = sidecars = 0
        for one in self.pod.sized_containers:
            stated = one.requests.get(resource)
            least = 0 if stated is None else stated if one.name in kept else smallest
            running += least
            sidecars += least if one.role is ContainerRole.SIDECAR else 0
        init = self._get_largest_init_request(resource)
        return max(running, init + sidecars) if init else running

    def _get_largest_init_request(self, resource: ResourceName) -> int:
        init = (one for one in self.pod.containers if one.role is ContainerRole.INIT)
        return max((one.requests.get(resource) or 0 for one in init), default=0)

    def get_heap_floor(self, known_use: Sequence[int] = ()) -> HeapFloor:
        """Return what the pod's memory is not cut below for the heaps of its containers, together.

        With the largest known use of each container, it is that of a pod in creation.
        """
        floors = []
        most = NOTHING_STATED if self.pod.pod_level is None else self.pod.pod_level.limits
        for at, one in enumerate(self.pod.sized_containers):
            if one.heap is not None:
                # The kubelet gives the pod's limit to a container without one.
                limited = replace(one, limits=one.limits.with_defaults(most))
                floors.append(
                    compute_created_heap_floor(limited, known_use[at], self.pod.qos, self.policy)
                    if known_use
                    else compute_running_heap_floor(limited, self.pod.qos, self.policy)
                )
        return HeapFloor(
            sum(floor.request_bytes for floor in floors),
            min(UNBOUNDED, sum(floor.limit_bytes for floor in floors)),
            all(floor.may_add_limit for floor in floors),
            min(UNBOUNDED, sum(floor.kept_request_bytes for floor in floors)),
        )

    def _list_kept(self) -> list[Container]:
        names = {one.name for one in self.containers_with_resources}
        return [one for one in self.pod.sized_containers if one.name not in names]

    def needs_larger_limit(self) -> bool:
        """Return whether a container's known use reaches its own memory limit, below the pod's."""
        pod_limit = UNBOUNDED if self.pod.pod_level is None else self.pod.pod_level.limits.memory_bytes or UNBOUNDED
        threshold = get_update_threshold(self.policy)
        names = {one.name for one in self.containers_with_resources}
        return any(
            stated is not None
            and threshold.is_exceeded(ResourceName.MEMORY, stated, limit)
            and get_largest_known_usage(statistic, self.policy) > stated
            for stated, limit, statistic in (
                (one.limits.memory_bytes, self._get_memory_limit(one, statistic, 0, pod_limit), statistic)
                for one, statistic in zip(self.pod.sized_containers, self.statistics, strict=True)
                if one.name in names
            )
        )

    def size(self, whole: ContainerTarget) -> tuple[ContainerTarget, ...]:
        """Return the pod's new sizes, and those of each container that states resources, within them."""
        most = max((one.limits.memory_bytes or 0 for one in self._list_kept()), default=0)
        if whole.limits.memory_bytes is not None and whole.limits.memory_bytes < most:
            whole = replace(whole, limits=replace(whole.limits, memory_bytes=most))
        requests = {resource: self._share_request(resource, whole.requests.get(resource)) for resource in ResourceName}
        targets, names = [whole], {one.name for one in self.containers_with_resources}
        pairs = zip(requests[ResourceName.CPU], requests[ResourceName.MEMORY], strict=True)
        for container, statistic, pair in zip(self.pod.sized_containers, self.statistics, pairs, strict=True):
            if container.name in names:
                request, highest = StatedResources(*pair), whole.limits
                cpu_limit = container.limits.cpu_millicores
                if cpu_limit is not None:
                    cpu_limit = min(max(cpu_limit, request.cpu_millicores or 0), highest.cpu_millicores or UNBOUNDED)
                memory_limit = container.limits.memory_bytes
                if memory_limit is not None:
                    memory_limit = self._get_memory_limit(
                        container, statistic, request.memory_bytes or 0, highest.memory_bytes or UNBOUNDED
                    )
                limits = StatedResources(cpu_limit, memory_limit)
                targets.append(ContainerTarget(container.name, container.role, request, limits))
        return tuple(targets)

    def _get_memory_limit(self, container: Container, statistic: Statistic, request: int, pod_limit: int) -> int:
        """Return a container's memory limit: it rises if known use reaches it, and follows the pod's limit.

        It does not rise by itself if the template is unknown.
        """
        stated, policy = container.limits.memory_bytes or 0, self.policy
        limit = max(stated, request)
        setting = self.effective_policy.get_for_container(container.name).memory_limits or policy.memory_limits
        largest = get_largest_known_usage(statistic, policy)
        template, may_rise = self.limits_in_template, setting is not MemoryLimitPolicy.NEVER
        # Where the template is unknown, an earlier pass may have raised the limit already.
        if largest > stated and may_rise and template is not None and ResourceName.MEMORY in self.managed:
            ceiling = compute_limit_ceiling(template.get(container.name), None, policy)
            wanted = round_up_to_mebibytes(int(largest * policy.memory_limit_factor))
            limit = max(limit, min(wanted, ceiling))
        return min(limit, pod_limit)

    def _share_request(self, resource: ResourceName, whole: int | None) -> list[int | None]:
        """Return each container's request, None if it states none: its base, and its share of the pod's headroom.

        Requests that move by less than the update threshold stay, if they all fit in the pod's.
        """
        present = [one.requests.get(resource) for one in self.pod.sized_containers]
        names = {one.name for one in self.containers_with_resources}
        is_kept = [one.name not in names for one in self.pod.sized_containers]
        if whole is None or resource not in self.managed or self.pod.pod_level is None:
            return present
        needs = [_get_needs(one, resource) for one in self.statistics]
        base, headroom = sum(base for base, _ in needs), sum(more for _, more in needs)
        share = min(1.0, max(0, whole - base) / headroom) if headroom else 0.0
        unit, least = ROUNDING_UNIT[resource], self.policy.minimum_request.get(resource)
        wanted = [
            None if stated is None else max(least, int(base + share * more) // unit * unit)
            for stated, (base, more) in zip(present, needs, strict=True)
        ]
        threshold = get_update_threshold(self.policy)
        kept_sum = _sum([stated for stated, keeps in zip(present, is_kept, strict=True) if keeps])
        wanted = [None if keeps else amount for amount, keeps in zip(wanted, is_kept, strict=True)]
        kept = [
            amount if stated is None or amount is None or threshold.is_exceeded(resource, stated, amount) else stated
            for stated, amount in zip(present, wanted, strict=True)
        ]
        found = kept if _sum(kept) <= whole - kept_sum else _cut(wanted, whole - kept_sum, least, unit)
        found = [stated if keeps else amount for stated, amount, keeps in zip(present, found, is_kept, strict=True)]
        init = self._get_largest_init_request(resource)
        if not init:
            return found
        # Sidecars run next to init containers, whose requests are not changed.
        is_sidecar = [one.role is ContainerRole.SIDECAR for one in self.pod.sized_containers]
        fixed = _sum([amount for amount, *flags in zip(found, is_sidecar, is_kept, strict=True) if all(flags)])
        sidecars = [
            amount if sidecar and not keeps else None
            for amount, sidecar, keeps in zip(found, is_sidecar, is_kept, strict=True)
        ]
        cut = _cut(sidecars, whole - init - fixed, least, unit)
        return [amount if other is None else other for amount, other in zip(found, cut, strict=True)]


def enlarge_pod_level_target(pod: Pod, before: Container, target: ContainerTarget) -> tuple[ContainerTarget, ...]:
    """Return the target of a container that grows, after pod-level resources that are large enough for it.

    A container that states no request gets none.
    """
    whole = pod.pod_level
    stated = before.requests.memory_bytes
    request = None if stated is None else target.requests.memory_bytes
    target = replace(target, requests=replace(target.requests, memory_bytes=request))
    if whole is None:
        return (target,)
    wanted, most = whole.requests.memory_bytes, whole.limits.memory_bytes
    if wanted is not None:
        wanted += (request or 0) - (stated or 0)
    if most is not None:
        most = max(most, target.limits.memory_bytes or 0, wanted or 0)
    return (
        ContainerTarget(
            whole.name,
            whole.role,
            replace(whole.requests, memory_bytes=wanted),
            replace(whole.limits, memory_bytes=most),
        ),
        target,
    )


def _get_needs(statistic: Statistic, resource: ResourceName) -> tuple[int, int]:
    """Return base and headroom of a container."""
    if resource is ResourceName.CPU:
        base, peak = statistic.cpu_base_millicores, statistic.cpu_peak_millicores
    else:
        base = statistic.memory_base_bytes
        peak = max(statistic.memory_peak_bytes, statistic.oom_memory_bytes)
    return base, max(0, peak - base)


def _sum(amounts: Sequence[int | None]) -> int:
    return sum(amount or 0 for amount in amounts)


def _cut(wanted: Sequence[int | None], whole: int, least: int, unit: int) -> list[int | None]:
    """Return the amounts, cut in proportion to what is above the least, so that their sum is within the whole."""
    floors = [0 if amount is None else min(amount, least) for amount in wanted]
    if sum(floors) > whole:
        return [
            None if amount is None else floor * max(0, whole) // sum(floors) // unit * unit
            for amount, floor in zip(wanted, floors, strict=True)
        ]
    above, remaining = _sum(wanted) - sum(floors), whole - sum(floors)
    if above <= remaining:
        return list(wanted)
    return [
        None if amount is None else floor + (amount - floor) * remaining // above // unit * unit
        for amount, floor in zip(wanted, floors, strict=True)
    ]


def collect_pod_level_containers(
    pods: Sequence[ResizablePod], statistics: StatisticsTable, policy: Policy
) -> dict[int, PodLevelContainers]:
    """Return the containers of pods with pod-level resources, by pod index."""
    return {
        index: PodLevelContainers(
            one.pod,
            [statistics.get_row(row) for row in one.container_rows],
            one.containers_with_resources,
            frozenset(
                resource
                for resource, is_managed in zip(ResourceName, (one.manages_cpu, one.manages_memory), strict=True)
                if is_managed
            ),
            one.effective_policy,
            one.template_limits,
            policy,
        )
        for index, one in enumerate(pods)
        if one.container_rows
    }
