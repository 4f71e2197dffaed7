"""Simulates a cluster in memory, with explicit time.

Not simulated: preemption, node-pressure evictions, volumes, pod affinity and topology spread. Pod autoscalers are
listed but do not act. A node's capacity equals its allocatable.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import assert_never

from cruise.domain.actions import Action, EvictPod, ResizePod, TaintNode, UntaintNode
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import (
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    Node,
    OomKill,
    Pod,
    VerticalPodAutoscaler,
    WorkloadRef,
)
from cruise.domain.resources import Resources
from cruise.domain.scheduling import LabelSelector, Taint
from cruise.errors import ConflictError, NotFoundError, RefusedError, ThrottledError
from cruise.simulation.cluster.api_server import (
    ResourceQuotaSpec,
    SimulatedQuotas,
    check_resize,
    replace_spec_resources_checked,
)
from cruise.simulation.cluster.controllers import (
    AdmitFunction,
    DisruptionBudgetSpec,
    WorkloadControllers,
    check_eviction_allowed,
    list_disruption_budgets,
)
from cruise.simulation.cluster.kube_scheduler import KubeScheduler
from cruise.simulation.cluster.kubelet import Kubelet
from cruise.simulation.cluster.load import LoadSimulation, SimulatedNodeLoad
from cruise.simulation.cluster.node_autoscaler import NodeAutoscalerSettings, SimulatedNodeAutoscaler
from cruise.simulation.cluster.resizes import ResizeActuation
from cruise.simulation.cluster.state import (
    SimulatedClusterState,
    SimulatedNodeUsage,
    SimulatedPod,
    SimulationCounts,
    SimulationSettings,
    convert_to_datetime,
    convert_to_seconds,
)
from cruise.simulation.cluster.workloads import SimulatedWorkload


def admit_unchanged(pod: Pod) -> Pod:
    """Admit a pod without a change."""
    return pod


class SimulatedCluster:
    """Implements the Cluster port in memory; deterministic for the same arguments and calls. For one thread.

    At the start every pod that fits is already running, since its workload was created. `admit` is called for each pod
    created later; it may change resources, annotations and placement, and may be replaced at any time.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        workloads: Sequence[SimulatedWorkload],
        start: datetime,
        settings: SimulationSettings | None = None,
        *,
        admit: AdmitFunction = admit_unchanged,
        budgets: Sequence[DisruptionBudgetSpec] = (),
        autoscalers: Sequence[HorizontalPodAutoscaler] = (),
        vertical_autoscalers: Sequence[VerticalPodAutoscaler] = (),
        limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] | None = None,
        namespace_annotations: Mapping[str, Mapping[str, str]] | None = None,
        quotas: Sequence[ResourceQuotaSpec] = (),
        node_autoscaling: NodeAutoscalerSettings | None = None,
    ) -> None:
        self.admit = admit
        self.oom_kills_at: list[OomKill] = []
        self._settings = settings or SimulationSettings()
        self._budgets = tuple(budgets)
        self._state = state = SimulatedClusterState(tuple(nodes), convert_to_seconds(start), self._settings)
        self._clock, self._counts, self.history = state.clock, state.counts, state.history
        self._scheduler = KubeScheduler(state)
        self._kubelet = Kubelet(state, self._pod_ended)
        self._resizing = ResizeActuation(state, self._kubelet.restart_immediately)
        self._measuring = LoadSimulation(state, self._kubelet)
        self._limit_ranges = dict(limit_ranges or {})
        self._quotas = SimulatedQuotas(quotas)
        self._controllers = WorkloadControllers(state, workloads, self._limit_ranges, self._quotas)
        described = [workload.to_workload(start) for workload in workloads]
        self._shown = ClusterSnapshot(
            workloads={(one.namespace, one.ref): one for one in described if one is not None},
            autoscalers=tuple(sorted(autoscalers, key=lambda one: (one.namespace, one.name))),
            vertical_autoscalers=tuple(vertical_autoscalers),
            limit_ranges=self._limit_ranges,
            namespace_annotations=dict(namespace_annotations or {}),
            node_autoscaler=None if node_autoscaling is None else node_autoscaling.kind,
        )
        self._node_scaler = (
            None
            if node_autoscaling is None
            else SimulatedNodeAutoscaler(
                node_autoscaling,
                state,
                self._kubelet,
                check=self._check_eviction,
                evict=self._delete,
                on_nodes_changed=self._controllers.update_daemonsets,
            )
        )
        self._kill_seen = asyncio.Event()
        self._closed = False
        self._controllers.reconcile(self._clock.now, admit_unchanged)
        self._schedule(self._clock.now, running_already=True)

    @property
    def now(self) -> datetime:
        """The simulated time."""
        return convert_to_datetime(self._clock.now)

    def add_vertical_pod_autoscaler(self, one: VerticalPodAutoscaler) -> None:
        """Create a VerticalPodAutoscaler."""
        self._shown = replace(self._shown, vertical_autoscalers=(*self._shown.vertical_autoscalers, one))

    def add_scale(self, namespace: str, target: WorkloadRef, selector: LabelSelector | None) -> None:
        """Set the selector of the scale of an autoscaler's target, None for a target without one."""
        self._shown = replace(self._shown, scales={**self._shown.scales, (namespace, target): selector})

    @property
    def counts(self) -> SimulationCounts:
        """The counts so far."""
        return replace(self._counts, oom_kills_by_container=dict(self._counts.oom_kills_by_container))

    @property
    def pending_pods(self) -> int:
        """The number of pending pods."""
        return len(self._scheduler.queue())

    @property
    def loads(self) -> Sequence[SimulatedNodeLoad]:
        """The nodes' loads of past steps, in the order of their names, oldest first."""
        return self._measuring.loads

    @property
    def node_names(self) -> Sequence[str]:
        """The names of the nodes, sorted, then of those added later; removed nodes are included."""
        return self._state.node_names

    def roll_out(self, workload: SimulatedWorkload, changed: SimulatedWorkload) -> None:
        """Replace the template of a workload; existing pods keep the old one until they end."""
        self._controllers.roll_out(workload, changed)

    def advance(self, to: datetime) -> None:
        """Advance the simulated time; the number of calls makes no difference. Raises ValueError for the past."""
        end, step = convert_to_seconds(to), self._settings.step_seconds
        if end < self._clock.now:
            raise ValueError(f"simulated time is {self.now}, it cannot go back to {to}")
        for at in range((self._clock.now // step + 1) * step, end + 1, step):
            self._clock.run_until(at)
            self._step(at)
        self._clock.run_until(end)

    def close(self) -> None:
        """End every stream of kills after its last kill."""
        self._closed = True
        self._kill_seen.set()

    def get_node_usage(self) -> tuple[SimulatedNodeUsage, ...]:
        """Return the usage of every node, sorted by name; usage and load are of the last step, 0 before the first."""
        return tuple(self._figure_of(name) for name in sorted(self._state.nodes))

    def _figure_of(self, name: str) -> SimulatedNodeUsage:
        state, index = self._state, self._state.node_index[name]
        last = self._measuring.loads[-1] if self._measuring.loads else None
        if last is not None and index >= len(last.cpu_used):
            last = None
        return SimulatedNodeUsage(
            node=name,
            allocatable=state.get_allocatable(index),
            requested=Resources(int(state.counted_cpu[index]), int(state.counted_memory[index])),
            used=Resources(int(last.cpu_used[index]), int(last.memory_used[index])) if last else Resources(),
            pods=int(state.pods_on[index]),
            load=float(last.cpu_demand[index]) / max(1, int(state.allocatable_cpu[index])) if last else 0.0,
        )

    async def snapshot(self) -> ClusterSnapshot:
        records = list(self._state.records.values())
        return replace(
            self._shown,
            nodes=tuple(sorted(self._state.nodes.values(), key=lambda node: node.name)),
            pods=self._state.pods,
            ended_pods=tuple(self._state.ended_pods),
            budgets=list_disruption_budgets(self._budgets, records),
            quotas=self._quotas.get_remaining(self._state.pods),
        )

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        record = self._state.records.get((namespace, name))
        return None if record is None else record.pod

    def get_cached_pod(self, namespace: str, name: str) -> Pod | None:
        record = self._state.records.get((namespace, name))
        return None if record is None else record.pod

    def get_cached_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        return self._shown.autoscalers

    async def watch_oom_kills(self) -> AsyncIterator[OomKill]:
        """Yield every kill since the start of the simulation, and each new one, until the cluster is closed."""
        position = 0
        while True:
            while position < len(self.oom_kills_at):
                for _ in range(1 + self._settings.duplicates_kill_events):
                    yield self.oom_kills_at[position]
                position += 1
            if self._closed:
                return
            self._kill_seen.clear()
            await self._kill_seen.wait()

    async def wait_for_write_turn(self) -> None:
        pass

    async def perform(self, action: Action) -> None:
        match action:
            case ResizePod():
                self._resize(action)
            case EvictPod():
                self._evict(action)
            case TaintNode():
                self._set_taint(action.node, action.taint, wanted=True)
            case UntaintNode():
                self._set_taint(action.node, action.taint, wanted=False)
            case _:
                assert_never(action)

    def _step(self, at: int) -> None:
        for record in self._controllers.find_outdated():
            self._kubelet.remove(record, at)
        self._controllers.reconcile(at, self.admit)
        self._schedule(at)
        if self._node_scaler is not None:
            self._node_scaler.step(at)
        self._resizing.retry(at)
        kills = [self._kubelet.kill(row, at) for row in self._measuring.measure(at)]
        self._measuring.observe(at)
        if kills:
            self.oom_kills_at.extend(kills)
            self._kill_seen.set()

    def _schedule(self, at: int, running_already: bool = False) -> None:
        for record in self._scheduler.queue():
            node = self._scheduler.choose(record)
            if node is None:
                self._counts.pending_pod_seconds += 0 if running_already else self._settings.step_seconds
                if record.pod.unschedulable_since is None:
                    self._state.put(record, replace(record.pod, unschedulable_since=convert_to_datetime(at)))
                continue
            self._kubelet.bind(record, node)
            created = record.pod.created_at
            if running_already and created is not None:
                self._kubelet.start_at_past_time(record, convert_to_seconds(created))
            else:
                self._kubelet.start_later(record, at)

    def _find(self, action: ResizePod | EvictPod) -> SimulatedPod:
        name = action.pod
        record = self._state.records.get(action.key)
        if record is None:
            raise NotFoundError(f'pods "{name}" not found')
        if record.pod.uid != action.uid:
            raise ConflictError(f'pods "{name}": the uid is {record.pod.uid}, not {action.uid}')
        if action.resource_version not in ("", record.pod.resource_version):
            raise ConflictError(f'pods "{name}": the object has been modified')
        return record

    def _resize(self, action: ResizePod) -> None:
        record = self._find(action)
        node = None if record.pod.node is None else self._state.nodes[record.pod.node]
        ranges = self._limit_ranges.get(action.namespace, ())
        self._counts.resizes_requested += 1
        try:
            wanted = replace_spec_resources_checked(record.pod, action.containers)
            check_resize(record.pod, wanted, node, ranges, self._settings.server_version)
            self._quotas.check_resize(record.pod, wanted, self._state.pods)
        except RefusedError:
            self._counts.resizes_refused += 1
            raise
        self._state.put(record, wanted)
        if node is not None:
            self._resizing.start(record, self._clock.now)

    def _evict(self, action: EvictPod) -> None:
        record = self._find(action)
        try:
            self._check_eviction(record)
        except (RefusedError, ThrottledError):
            self._counts.evictions_refused += 1
            raise
        if record.pod.terminating:
            return
        self._counts.evictions += 1
        self._delete(record)

    def _check_eviction(self, record: SimulatedPod) -> None:
        check_eviction_allowed(record, self._budgets, list(self._state.records.values()))

    def _delete(self, record: SimulatedPod) -> None:
        if record.pod.node is None or record.pod.is_finished:
            self._kubelet.remove(record, self._clock.now)
        else:
            self._kubelet.terminate(record, self._clock.now)
            self._controllers.update(record.workload)

    def _set_taint(self, name: str, own: Taint, *, wanted: bool) -> None:
        node = self._state.nodes.get(name)
        if node is None:
            raise NotFoundError(f'nodes "{name}" not found')
        others = tuple(taint for taint in node.taints if taint != own)
        self._state.set_node(replace(node, taints=(*others, own) if wanted else others))
        self._controllers.update_daemonsets()

    def _pod_ended(self, record: SimulatedPod) -> None:
        self._controllers.update(record.workload)
