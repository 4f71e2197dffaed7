"""Simulates kubelets: start, readiness, kill, restart and termination of pods."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cruise.domain.cluster import Container, ContainerRole, OomKill, Pod
from cruise.domain.pod_resources import find_containers_sharing_limit, get_memory_limit_at_kill
from cruise.domain.usage import ContainerKey
from cruise.simulation.cluster.api_server import count_spec_requests
from cruise.simulation.cluster.state import (
    SimulatedClusterState,
    SimulatedPod,
    convert_to_datetime,
    get_limits_in_force,
)
from cruise.simulation.demand.demand import EarlierDemand


class Kubelet:
    """The kubelets of all nodes; `on_removed` is called for every removed pod.

    `owner_of_row` has the pod and the container name of each row of the container table.
    """

    def __init__(self, state: SimulatedClusterState, on_removed: Callable[[SimulatedPod], None]) -> None:
        self._state = state
        self._on_removed = on_removed
        self._restarts: dict[int, int] = {}
        self.owner_of_row: dict[int, tuple[SimulatedPod, str]] = {}

    def bind(self, record: SimulatedPod, node: str) -> None:
        """Bind a pod and allocate its requests."""
        pod = record.pod
        record.allocated_limits = {one.name: one.limits for one in pod.resizable_parts}
        containers = tuple(_allocated(one) for one in pod.containers)
        whole = None if pod.pod_level is None else _allocated(pod.pod_level)
        bound = replace(pod, node=node, containers=containers, pod_level=whole, unschedulable_since=None)
        self._state.put(record, bound, count_spec_requests(pod))

    def start_later(self, record: SimulatedPod, at: int) -> None:
        """Start a bound pod's containers after the start delay."""
        self._state.clock.schedule(at + self._state.settings.start_seconds, partial(self._start, record))

    def start_at_past_time(self, record: SimulatedPod, at: int) -> None:
        """Start a bound pod's containers at a time in the past."""
        self._start(record, at)

    def terminate(self, record: SimulatedPod, at: int) -> None:
        """Terminate a bound pod; it counts on its node until its grace period is over."""
        self._state.put(record, replace(record.pod, terminating=True))
        self._state.clock.schedule(at + record.workload.grace_seconds, partial(self._remove, record))

    def remove(self, record: SimulatedPod, at: int) -> None:
        """Remove a pod immediately, with its containers."""
        self._stop(record, at)
        self._state.remove(record)
        self._on_removed(record)

    def kill(self, row: int, at: int) -> OomKill:
        """Kill a container that is out of memory and schedule its restart; return the kill as it is observed."""
        record, name = self.owner_of_row[row]
        container = next(one for one in record.pod.containers if one.name == name)
        limits = container.actual_limits or container.limits
        requests = container.actual or container.requests
        last = float(self._state.containers.last_memory[row])
        kill = OomKill(
            namespace=record.pod.namespace,
            pod=record.pod.name,
            pod_uid=record.pod.uid,
            container=name,
            workload=record.pod.workload,
            identity=record.pod.identity,
            node=record.pod.node,
            finished_at=convert_to_datetime(at),
            memory_limit_bytes=get_memory_limit_at_kill(record.pod, limits),
            memory_request_bytes=requests.memory_bytes,
            last_working_set_bytes=int(last) if np.isfinite(last) else None,
            role=container.role,
            restarts=container.restart_count,
            runs_to_completion=record.pod.runs_to_completion,
            shares_limit_with=find_containers_sharing_limit(record.pod, container),
        )
        self._state.counts.oom_kills += 1
        member = (*record.member, name)
        self._state.counts.oom_kills_by_container[member] = self._state.counts.oom_kills_by_container.get(member, 0) + 1
        self._restart(record, name, at, at + self._get_restart_delay(row, at))
        return kill

    def restart_immediately(self, record: SimulatedPod, name: str, at: int) -> None:
        """Restart a container immediately, like a resize with the policy RestartContainer."""
        self._restart(record, name, at, at)

    def _start(self, record: SimulatedPod, at: int) -> None:
        if record.is_deleted or record.pod.terminating:
            return
        pod = record.pod
        running = {one.name for one in pod.containers if one.role is not ContainerRole.INIT}
        containers = tuple(
            replace(one, actual=one.allocated, actual_limits=record.allocated_limits[one.name])
            if one.name in running
            else one
            for one in pod.containers
        )
        for one in containers:
            if one.name in running:
                self._add_container(record, one, at)
        whole = pod.pod_level
        if whole is not None:
            whole = replace(whole, actual=whole.allocated, actual_limits=record.allocated_limits[whole.name])
        started_at = convert_to_datetime(at)
        self._state.put(
            record, replace(pod, phase="Running", started_at=started_at, containers=containers, pod_level=whole)
        )
        self._update_readiness(record, at)
        if record.workload.finishes:
            self._state.clock.schedule(at + record.workload.duration_seconds, partial(self._finish, record))

    def _add_container(self, record: SimulatedPod, container: Container, at: int) -> None:
        pod = record.pod
        profile = record.workload.profiles.get(container.name)
        limits = get_limits_in_force(record, container)
        source, member = (None, 0) if profile is None else (profile.source, profile.get_member(record.slot))
        past = None
        if source is not None and at < self._state.clock.now:
            past = EarlierDemand(source, member, at, float(limits.memory_bytes or np.inf))
        kept = self._state.history.add(ContainerKey(pod.namespace, pod.name, container.name), pod.node or "", past)
        row = self._state.containers.add(self._state.get_node_index(pod), source, member, kept)
        self._state.containers.started_at[row] = at
        self._state.containers.set_sizes(row, container.allocated or container.requests, limits)
        record.rows[container.name] = row
        self.owner_of_row[row] = (record, container.name)

    def _restart(self, record: SimulatedPod, name: str, at: int, start_at: int) -> None:
        row = record.rows[name]
        self._state.containers.started_at[row] = start_at
        self._state.containers.last_memory[row] = np.nan
        self._state.put(record, _restarted(record.pod, name))
        self._update_readiness(record, start_at)

    def _update_readiness(self, record: SimulatedPod, started_at: int) -> None:
        """Set the condition Ready now, and again when a new process has run for long enough."""
        self._set_readiness(record, self._state.clock.now)
        due = started_at + record.workload.ready_seconds
        if due > self._state.clock.now:
            self._state.clock.schedule(due, partial(self._set_readiness, record))

    def _set_readiness(self, record: SimulatedPod, at: int) -> None:
        pod, workload, started = record.pod, record.workload, self._state.containers.started_at
        if record.is_deleted or pod.phase != "Running":
            return
        ready = record.slot not in workload.never_ready and all(
            started[row] + workload.ready_seconds <= at for row in record.rows.values()
        )
        if ready is not pod.ready:
            since = convert_to_datetime(at) if ready else None
            self._state.put(record, replace(pod, ready=ready, ready_since=since))

    def _get_restart_delay(self, row: int, at: int) -> int:
        """Return the seconds until a killed container restarts; doubled with each kill that follows soon."""
        is_reset = at - int(self._state.containers.started_at[row]) >= self._state.settings.quiet_seconds
        kills = 0 if is_reset else self._restarts.get(row, 0)
        self._restarts[row] = kills + 1
        return min(self._state.settings.restart_seconds << min(kills, 16), self._state.settings.longest_restart_seconds)

    def _finish(self, record: SimulatedPod, at: int) -> None:
        if not record.is_deleted:
            self._stop(record, at)
            self._state.put(record, replace(record.pod, phase="Succeeded", ready=False))

    def _remove(self, record: SimulatedPod, at: int) -> None:
        if not record.is_deleted:
            self.remove(record, at)

    def _stop(self, record: SimulatedPod, at: int) -> None:
        for row in record.rows.values():
            self._state.history.retire(int(self._state.containers.history_row[row]), at)
            self._state.containers.remove(row)
            self._restarts.pop(row, None)
            del self.owner_of_row[row]
        record.rows.clear()


def _allocated(container: Container) -> Container:
    return container if container.role is ContainerRole.INIT else replace(container, allocated=container.requests)


def _restarted(pod: Pod, name: str) -> Pod:
    return replace(
        pod,
        containers=tuple(
            replace(one, restart_count=one.restart_count + 1) if one.name == name else one for one in pod.containers
        ),
    )
