"""The controllers that keep a cluster's pods in being: each lost pod gets its replacement."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from cruise.domain.cluster import LimitRangeItem, Node, Pod
from cruise.domain.qos import qos_class
from cruise.errors import Refused
from cruise.simulation.cluster.api_server import check_creation
from cruise.simulation.cluster.limit_ranges import with_defaults
from cruise.simulation.cluster.quotas import Quotas
from cruise.simulation.cluster.state import ClusterState, PodKey, PodRecord
from cruise.simulation.cluster.timeline import utc
from cruise.simulation.cluster.workloads import SimulatedWorkload, new_pod, runs_on

FINISHED_KEPT = 3
Admit = Callable[[Pod], Pod]


class Controllers:
    """Deployment, StatefulSet, DaemonSet, Job and CronJob controllers in one."""

    def __init__(
        self,
        state: ClusterState,
        workloads: Sequence[SimulatedWorkload],
        limit_ranges: Mapping[str, Sequence[LimitRangeItem]],
        quotas: Quotas,
    ) -> None:
        self._state = state
        self._workloads = list(workloads)
        self._replaced: list[SimulatedWorkload] = []
        self._limit_ranges = limit_ranges
        self._quotas = quotas
        self._start = start = state.timeline.now
        self._created: dict[tuple[int, int], int] = {}
        self._number = {id(workload): number for number, workload in enumerate(workloads)}
        self._pods: list[dict[PodKey, PodRecord]] = [{} for _ in workloads]
        self._dirty = dict.fromkeys(range(len(workloads)))
        self._crons = [number for number, workload in enumerate(workloads) if workload.kind == "CronJob"]
        self._runs: dict[int, dict[int, None]] = {number: {} for number in self._crons}
        self._last_run = {number: start // workloads[number].period_seconds for number in self._crons}

    def look_at(self, workload: SimulatedWorkload) -> None:
        """Look at a workload at the next reconciliation: one of its pods ended. A bare pod has no controller."""
        if workload.ref is not None:
            self._dirty[self._number[id(workload)]] = None

    def roll_out(self, workload: SimulatedWorkload, changed: SimulatedWorkload) -> None:
        """Create pods by a changed template from now on; those that exist stay until they end."""
        number = self._number[id(workload)]
        # Its pods still name it, and no other object may have its id.
        self._replaced.append(workload)
        self._workloads[number] = changed
        self._number[id(changed)] = number

    def look_at_daemons(self) -> None:
        """Look at every DaemonSet at the next reconciliation: a node changed."""
        for number, workload in enumerate(self._workloads):
            if workload.kind == "DaemonSet":
                self._dirty[number] = None

    def reconcile(self, now: int, admit: Admit) -> None:
        """Create the pods that are missing; one that the API server refuses is tried again the next time."""
        for number in self._crons:
            self._start_runs(number, now)
        dirty = sorted(self._dirty)
        self._dirty = {}
        for number in dirty:
            records = self._pods[number]
            for key in [key for key, record in records.items() if record.gone]:
                del records[key]
            for slot, node in self._missing(number):
                self._create(number, slot, node, now, admit)

    def outdated(self) -> list[PodRecord]:
        """Return the finished pods of CronJobs that are no longer kept, oldest first, and forget their runs."""
        found: list[PodRecord] = []
        for number in self._crons:
            finished = sorted(
                (record for record in self._pods[number].values() if record.pod.terminal and not record.gone),
                key=lambda record: record.slot,
            )
            for record in finished[:-FINISHED_KEPT]:
                self._runs[number].pop(record.slot, None)
                found.append(record)
        return found

    def _start_runs(self, number: int, now: int) -> None:
        for run in range(self._last_run[number] + 1, now // self._workloads[number].period_seconds + 1):
            self._runs[number][run] = None
            self._dirty[number] = None
            self._last_run[number] = run

    def _missing(self, number: int) -> list[tuple[int, Node | None]]:
        """Return the slots that want a pod; StatefulSets and DaemonSets wait until the old one is gone."""
        workload = self._workloads[number]
        waits = workload.kind in ("StatefulSet", "DaemonSet")
        taken = {record.slot for record in self._pods[number].values() if waits or not record.pod.terminating}
        match workload.kind:
            case "DaemonSet":
                wanted: list[tuple[int, Node | None]] = [
                    (self._state.node_index[node.name], node)
                    for node in self._state.nodes.values()
                    if runs_on(workload, node)
                ]
            case "CronJob":
                wanted = [(run, None) for run in self._runs[number]]
            case _:
                wanted = [(slot, None) for slot in range(workload.replicas)]
        return [(slot, node) for slot, node in wanted if slot not in taken]

    def _create(self, number: int, slot: int, node: Node | None, now: int, admit: Admit) -> None:
        workload = self._workloads[number]
        ranges = self._limit_ranges.get(workload.namespace, ())
        serial = self._created.get((number, slot), 0)
        born = utc(now) if workload.created_at is None or now > self._start else workload.created_at
        pod = admit(with_defaults(new_pod(workload, slot, serial, self._state.behaviour.seed, born, node), ranges))
        try:
            check_creation(pod, ranges)
            self._quotas.check_creation(pod, (record.pod for record in self._state.records.values()))
        except Refused:
            # As with a controller's FailedCreate event: the pod stays missing and is tried again.
            self._state.tally.creations_refused += 1
            self._dirty[number] = None
            return
        self._created[number, slot] = serial + 1
        self._state.tally.pods_created += 1
        record = PodRecord(replace(pod, qos=qos_class(pod)), workload, slot)
        self._pods[number][record.key] = record
        self._state.add(record)
