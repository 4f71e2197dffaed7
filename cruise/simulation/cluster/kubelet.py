"""The life of pods on their nodes: start, readiness, kill and restart, end."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cruise.domain.cluster import Container, ContainerRole, OomKill, Pod
from cruise.domain.usage import ContainerKey
from cruise.simulation.cluster.api_server import get_stated_requests
from cruise.simulation.cluster.state import PodRecord, SimulatedClusterState, convert_to_datetime
from cruise.simulation.demand.history import StartedBefore


class Kubelet:
    """All nodes' kubelets; `ended` is called for every pod that is gone.

    `owner_of_row` finds the pod and the container of a row of the container table.
    """

    def __init__(self, state: SimulatedClusterState, ended: Callable[[PodRecord], None]) -> None:
        self._state = state
        self._ended = ended
        self._restarts: dict[int, int] = {}
        self.owner_of_row: dict[int, tuple[PodRecord, str]] = {}

    def bind(self, record: PodRecord, node: str) -> None:
        """Take a pod in: everything that it states is allocated to it."""
        pod = record.pod
        record.allocated_limits = {one.name: one.limits for one in pod.containers}
        containers = tuple(_allocated(one) for one in pod.containers)
        bound = replace(pod, node=node, containers=containers, unschedulable_since=None)
        self._state.put(record, bound, get_stated_requests(pod))

    def start_later(self, record: PodRecord, at: int) -> None:
        """Start a bound pod's containers once they are pulled and created."""
        self._state.timeline.schedule(at + self._state.behaviour.start_seconds, partial(self._start, record))

    def start_at_past_time(self, record: PodRecord, at: int) -> None:
        """Start a bound pod's containers at a time before now, so that they have a past."""
        self._start(record, at)

    def terminate(self, record: PodRecord, at: int) -> None:
        """Begin to end a bound pod; it holds its room until its grace period is over."""
        self._state.put(record, replace(record.pod, terminating=True))
        self._state.timeline.schedule(at + record.workload.grace_seconds, partial(self._remove, record))

    def remove(self, record: PodRecord, at: int) -> None:
        """Remove a pod at once, with its containers."""
        self._stop(record, at)
        self._state.remove(record)
        self._ended(record)

    def kill(self, row: int, at: int) -> OomKill:
        """Kill a container for lack of memory and plan its restart; return what is seen of the kill.

        Its next process starts low, as the demand of a young process has it.
        """
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
            memory_limit_bytes=limits.memory_bytes,
            memory_request_bytes=requests.memory_bytes,
            last_working_set_bytes=int(last) if np.isfinite(last) else None,
            role=container.role,
            restarts=container.restart_count,
            runs_to_completion=record.pod.runs_to_completion,
        )
        self._state.counts.oom_kills += 1
        member = (*record.member, name)
        self._state.counts.oom_kills_by_container[member] = self._state.counts.oom_kills_by_container.get(member, 0) + 1
        self._restart(record, name, at, at + self._pause(row, at))
        return kill

    def restart_immediately(self, record: PodRecord, name: str, at: int) -> None:
        """Restart a container at once, as a resize with restart policy RestartContainer does."""
        self._restart(record, name, at, at)

    def _start(self, record: PodRecord, at: int) -> None:
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
        self._state.put(record, replace(pod, phase="Running", containers=containers))
        self._look_at_readiness(record, at)
        if record.workload.finishes:
            self._state.timeline.schedule(at + record.workload.duration_seconds, partial(self._finish, record))

    def _add_container(self, record: PodRecord, container: Container, at: int) -> None:
        pod = record.pod
        profile = record.workload.profiles.get(container.name)
        limits = record.allocated_limits[container.name]
        source, member = (None, 0) if profile is None else (profile.source, profile.member(record.slot))
        past = None
        if source is not None and at < self._state.timeline.now:
            past = StartedBefore(source, member, at, float(limits.memory_bytes or np.inf))
        kept = self._state.history.add(ContainerKey(pod.namespace, pod.name, container.name), pod.node or "", past)
        row = self._state.containers.add(self._state.index_of(pod), source, member, kept)
        self._state.containers.started_at[row] = at
        self._state.containers.get_bound(row, container.allocated or container.requests, limits)
        record.rows[container.name] = row
        self.owner_of_row[row] = (record, container.name)

    def _restart(self, record: PodRecord, name: str, at: int, start_at: int) -> None:
        row = record.rows[name]
        self._state.containers.started_at[row] = start_at
        self._state.containers.last_memory[row] = np.nan
        self._state.put(record, _restarted(record.pod, name))
        self._look_at_readiness(record, start_at)

    def _look_at_readiness(self, record: PodRecord, started_at: int) -> None:
        """Set the condition Ready now, and once a process that starts then has run for long enough."""
        self._set_readiness(record, self._state.timeline.now)
        due = started_at + record.workload.ready_seconds
        if due > self._state.timeline.now:
            self._state.timeline.schedule(due, partial(self._set_readiness, record))

    def _set_readiness(self, record: PodRecord, at: int) -> None:
        pod, workload, started = record.pod, record.workload, self._state.containers.started_at
        if record.is_deleted or pod.phase != "Running":
            return
        ready = record.slot not in workload.never_ready and all(
            started[row] + workload.ready_seconds <= at for row in record.rows.values()
        )
        if ready is not pod.ready:
            self._state.put(record, replace(pod, ready=ready))

    def _pause(self, row: int, at: int) -> int:
        """Return the seconds until a killed container runs again; doubled with each kill that comes soon."""
        calm = at - int(self._state.containers.started_at[row]) >= self._state.behaviour.quiet_seconds
        kills = 0 if calm else self._restarts.get(row, 0)
        self._restarts[row] = kills + 1
        return min(
            self._state.behaviour.restart_seconds << min(kills, 16), self._state.behaviour.longest_restart_seconds
        )

    def _finish(self, record: PodRecord, at: int) -> None:
        if not record.is_deleted:
            self._stop(record, at)
            self._state.put(record, replace(record.pod, phase="Succeeded", ready=False))

    def _remove(self, record: PodRecord, at: int) -> None:
        if not record.is_deleted:
            self.remove(record, at)

    def _stop(self, record: PodRecord, at: int) -> None:
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
