"""Simulates in-place resizes by kubelets: desired, allocated and actual resources."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from cruise.domain.cluster import Container, ContainerRole, Pod, QosClass
from cruise.domain.resources import NO_RESIZE, ResizePending, ResizeState, ResourceName, Resources
from cruise.simulation.cluster.api_server import count_spec_requests
from cruise.simulation.cluster.state import (
    PodKey,
    SimulatedClusterState,
    SimulatedPod,
    convert_to_datetime,
    get_limits_in_force,
)


class ResizeActuation:
    """Carries out resizes on all nodes; the containers of a pod are resized together. Source: KEP-1287."""

    def __init__(self, state: SimulatedClusterState, restart: Callable[[SimulatedPod, str, int], None]) -> None:
        self._state = state
        self._restart = restart
        self._unfinished: dict[PodKey, SimulatedPod] = {}

    def start(self, record: SimulatedPod, at: int) -> None:
        """Start a resize after the spec of a bound pod changed."""
        record.requested += 1
        record.requested_at = at
        record.deferred_since = None
        self._state.clock.schedule(
            at + self._state.settings.allocate_seconds, partial(self._handle_resize, record, record.requested)
        )

    def retry(self, at: int) -> None:
        """Retry Deferred and failed resizes: those without an increase first, then by priority, QoS class and age."""
        self._unfinished = {key: record for key, record in self._unfinished.items() if _is_unfinished(record)}
        for record in sorted(self._unfinished.values(), key=_retry_order):
            if record.deferred_since is not None:
                self._allocate(record, at)
            if record.is_failing:
                self._actuate(record, at)

    def _handle_resize(self, record: SimulatedPod, number: int, at: int) -> None:
        if record.requested == number and not record.is_deleted and not record.pod.is_finished:
            self._allocate(record, at)

    def _allocate(self, record: SimulatedPod, at: int) -> None:
        pod, index = record.pod, self._state.get_node_index(record.pod)
        if not _differs(record):
            self._clear_pending(record)
            return
        need = count_spec_requests(pod)
        refusal = self._find_refusal(pod)
        if refusal != NO_RESIZE:
            self._set_pending(record, ResizePending.INFEASIBLE, at, refusal)
        elif not need.fits_in(self._state.get_allocatable(index)):
            self._set_pending(record, ResizePending.INFEASIBLE, at)
        elif not need.fits_in(self._state.get_unallocated(index) + record.allocated_requests):
            self._set_pending(record, ResizePending.DEFERRED, at)
        else:
            self._allocate_resize(record, need, at)

    def _clear_pending(self, record: SimulatedPod) -> None:
        """Clear a pending resize, because the spec equals the allocated resources again."""
        record.deferred_since = None
        resize = record.pod.resize
        if resize.pending is not None:
            self._state.put(
                record,
                replace(
                    record.pod,
                    resize=replace(resize, pending=None, pending_since=None, static_manager=None, memory_swaps=False),
                ),
            )

    def _find_refusal(self, pod: Pod) -> ResizeState:
        """Return why the kubelet refuses any other size of what has changed. Source: kubelet 1.34."""
        changed = {
            resource
            for resource in ResourceName
            for one in pod.containers
            if one.allocated is not None and one.requests.get(resource) != one.allocated.get(resource)
        }
        if pod.qos is not QosClass.GUARANTEED:
            swaps = self._state.settings.memory_swaps and ResourceName.MEMORY in changed
            return ResizeState(memory_swaps=swaps)
        managed = changed & self._state.settings.static_managers
        return ResizeState(static_manager=next((resource for resource in ResourceName if resource in managed), None))

    def _set_pending(
        self, record: SimulatedPod, pending: ResizePending, at: int, refusal: ResizeState = NO_RESIZE
    ) -> None:
        resize = record.pod.resize
        if pending is ResizePending.DEFERRED:
            self._unfinished[record.key] = record
            record.deferred_since = record.requested_at if record.deferred_since is None else record.deferred_since
        else:
            record.deferred_since = None
        if resize.pending is pending:
            return
        if pending is ResizePending.DEFERRED:
            self._state.counts.resizes_deferred += 1
        else:
            self._state.counts.resizes_infeasible += 1
        resize = replace(
            resize,
            pending=pending,
            pending_since=convert_to_datetime(at),
            static_manager=refusal.static_manager,
            memory_swaps=refusal.memory_swaps,
        )
        self._state.put(record, replace(record.pod, resize=resize))

    def _allocate_resize(self, record: SimulatedPod, need: Resources, at: int) -> None:
        record.deferred_since = None
        record.is_failing = False
        record.allocations += 1
        record.allocated_limits = {one.name: one.limits for one in record.pod.resizable_parts}
        whole = record.pod.pod_level
        pod = replace(
            record.pod,
            containers=tuple(
                one if one.role is ContainerRole.INIT else replace(one, allocated=one.requests)
                for one in record.pod.containers
            ),
            pod_level=None if whole is None else replace(whole, allocated=whole.requests),
            resize=replace(NO_RESIZE, in_progress=True),
        )
        self._state.put(record, pod, need)
        self._state.clock.schedule(
            at + self._state.settings.actuate_seconds, partial(self._finish_allocated, record, record.allocations)
        )

    def _finish_allocated(self, record: SimulatedPod, allocation: int, at: int) -> None:
        current = allocation == record.allocations and record.pod.resize.in_progress
        if current and not record.is_deleted and not record.pod.is_finished:
            self._actuate(record, at)

    def _actuate(self, record: SimulatedPod, at: int) -> None:
        """Apply the allocated resources, unless memory in use is above a limit that decreases."""
        pod = record.pod
        if any(self._is_usage_above_limit(record, one) for one in pod.containers):
            if not record.is_failing:
                self._state.counts.resize_errors += 1
            record.is_failing = True
            self._unfinished[record.key] = record
            if not pod.resize.error:
                self._state.put(record, replace(pod, resize=replace(pod.resize, error=True)))
            return
        record.is_failing = False
        containers = tuple(self._apply_allocated(record, one) for one in pod.containers)
        resize = replace(pod.resize, in_progress=False, error=False)
        whole = pod.pod_level
        if whole is not None:
            whole = replace(whole, actual=whole.allocated, actual_limits=record.allocated_limits[whole.name])
        self._state.put(record, replace(pod, containers=containers, pod_level=whole, resize=resize))
        self._state.counts.resizes_done += 1
        for old in pod.containers:
            if old.name in record.rows and _restarts(old, record):
                self._restart(record, old.name, at)

    def _is_usage_above_limit(self, record: SimulatedPod, container: Container) -> bool:
        row = record.rows.get(container.name)
        if row is None:
            return False
        limit = get_limits_in_force(record, container).memory_bytes
        falls = limit is not None and limit < self._state.containers.memory_limit[row]
        return falls and bool(self._state.containers.last_memory[row] > limit)

    def _apply_allocated(self, record: SimulatedPod, container: Container) -> Container:
        row = record.rows.get(container.name)
        if row is None or container.allocated is None:
            return container
        limits = record.allocated_limits[container.name]
        self._state.containers.set_sizes(row, container.allocated, get_limits_in_force(record, container))
        return replace(container, actual=container.allocated, actual_limits=limits)


def _is_unfinished(record: SimulatedPod) -> bool:
    return (
        (record.deferred_since is not None or record.is_failing)
        and not record.is_deleted
        and not record.pod.is_finished
    )


def _differs(record: SimulatedPod) -> bool:
    return any(
        (one.requests, one.limits) != (one.allocated, record.allocated_limits.get(one.name))
        for one in record.pod.resizable_parts
        if one.role is not ContainerRole.INIT
    )


def _restarts(old: Container, record: SimulatedPod) -> bool:
    """Return whether the container's resize policy requires a restart; `old` has the earlier actual resources."""
    limits = record.allocated_limits[old.name]
    if old.allocated is None or old.actual is None or old.actual_limits is None:
        return False
    cpu = (old.actual.cpu_millicores, old.actual_limits.cpu_millicores)
    memory = (old.actual.memory_bytes, old.actual_limits.memory_bytes)
    return (old.cpu_resize_restarts and cpu != (old.allocated.cpu_millicores, limits.cpu_millicores)) or (
        old.memory_resize_restarts and memory != (old.allocated.memory_bytes, limits.memory_bytes)
    )


def _retry_order(record: SimulatedPod) -> tuple[bool, int, bool, int, PodKey]:
    grows = not count_spec_requests(record.pod).fits_in(record.allocated_requests)
    guaranteed = record.pod.qos is QosClass.GUARANTEED
    since = record.requested_at if record.deferred_since is None else record.deferred_since
    return (grows, -record.pod.priority, not guaranteed, since, record.key)
