"""Builds the pods and nodes of a replay for the decisions, from the columns of the cluster view."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from cruise.backtest.policies.statistics_lookup import ReplayedStatisticsLookup
from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.backtest.replay.nodes import format_node_name, parse_node_index
from cruise.backtest.replay.policy import NO_CONTAINERS, ContainerSizes, ReplayClusterView
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.pod_policy.usable_statistics import get_largest_weekly_usage
from cruise.decisions.sizing.pod_columns import ResizablePodColumns, build_resizable_pod_columns
from cruise.domain.annotations import ORIGINAL_RESOURCES, RESOURCES, EffectivePolicy
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import ClusterSnapshot, Container, HorizontalPodAutoscaler, Node, Pod, Workload, WorkloadRef
from cruise.domain.original_resources import format_original_resources
from cruise.domain.overrides import NO_PAUSED_WORKLOADS
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.usage import StatisticsTable
from cruise.simulation.cluster.state import convert_to_datetime

OTHER_NODE = -1
_NOT_CHECKED = -1


class ReplayedPods:
    """Builds pods and nodes; each workload is a Deployment with one replica per recorded series."""

    def __init__(self, recording: UsageRecording, policy_objects: tuple[RightsizingPolicy, ...] = ()) -> None:
        self._policy_objects = policy_objects
        self._containers = recording.containers
        # Memory that was not recorded is not sized.
        self._annotations = {} if recording.has_memory else {RESOURCES.name: ResourceName.CPU.value}
        self._nodes: list[Node] = []
        self.is_sized_at_creation = np.zeros(len(recording.containers), dtype=np.bool_)
        replicas: dict[tuple[str, WorkloadRef], int] = {}
        for one in recording.containers:
            replicas[one.namespace, one.workload] = replicas.get((one.namespace, one.workload), 0) + 1
        number_by_key = {key: number for number, key in enumerate(replicas)}
        self._workload_numbers = number_by_key
        # Pods of a workload share their parts, as decoded ones do: admission decides once for equal parts.
        owners = list(number_by_key)
        self._owners = [owners[number_by_key[one.namespace, one.workload]] for one in recording.containers]
        templates = [(one.container, *_get_provisioned(one)) for one in recording.containers]
        created = {one: (Container(one[0], requests=one[1], limits=one[2]),) for one in dict.fromkeys(templates)}
        self._sized_annotations: list[Mapping[str, str] | None] = [None] * len(templates)
        self._created_containers = [created[one] for one in templates]
        self._numbers = np.array(
            [number_by_key[one.namespace, one.workload] for one in recording.containers], dtype=np.int64
        )
        limits: dict[tuple[str, WorkloadRef], dict[str, int]] = {key: {} for key in replicas}
        for one in recording.containers:
            stated = limits[one.namespace, one.workload]
            if one.memory_limit_bytes:
                stated[one.container] = max(one.memory_limit_bytes, stated.get(one.container, 0))
        self._workloads = {
            key: Workload(*key, replicas=count, memory_limits=limits[key]) for key, count in replicas.items()
        }
        self._templates: dict[tuple[str, WorkloadRef], dict[str, StatedResources]] = {key: {} for key in replicas}
        for one in recording.containers:
            self._templates[one.namespace, one.workload][one.container] = _get_provisioned(one)[0]
        self._autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()

    def record_admission(self, container: int, sized: bool) -> None:
        """Record whether admission changed the sizes of a container's new pod."""
        self.is_sized_at_creation[container] = sized

    def get_created(self, container: int, time: datetime) -> Pod:
        """Return a container's pod as its controller creates it: the API server has not named it yet."""
        return self._pod(container, self._created_containers[container], ("", ""), None, "Pending", time)

    def get_pod(self, container: int, view: ReplayClusterView) -> Pod:
        """Return a container's present pod."""
        sizes, node = view.sizes, int(view.node[container])
        cpu, memory = int(sizes.cpu_millicores[container]), int(sizes.memory_bytes[container])
        limit = int(sizes.memory_limit_bytes[container])
        requests, limits = StatedResources(cpu or None, memory or None), StatedResources(None, limit or None)
        one = self._containers[container]
        return self._pod(
            container,
            (Container(one.container, requests=requests, limits=limits),),
            (one.pod, f"{one.namespace}/{one.pod}-{int(view.creation_count[container])}"),
            None if node < 0 else format_node_name(node),
            "Running" if node >= 0 else "Pending",
            convert_to_datetime(int(view.created_at[container])),
        )

    def build_nodes(self, view: ReplayClusterView) -> list[Node]:
        """Return a node for each index, also for indices without a node now."""
        known = self._nodes
        known += [Node(format_node_name(index), view.allocatable) for index in range(len(known), len(view.node_exists))]
        return known[: len(view.node_exists)]

    def get_pods_around(
        self, namespace: str, workload: WorkloadRef | None, node: str | None, view: ReplayClusterView
    ) -> Int64Array:
        """Return the existing containers of a workload, and those on a node."""
        number = -1 if workload is None else self._workload_numbers[namespace, workload]
        index = OTHER_NODE if node is None else parse_node_index(node)
        return np.flatnonzero(((self._numbers == number) & (view.node >= OTHER_NODE)) | (view.node == index))

    def build_snapshot(self, view: ReplayClusterView, containers: Int64Array | None = None) -> ClusterSnapshot:
        """Return the cluster with the pods of the given containers, by default of all that exist."""
        chosen = np.flatnonzero(view.node >= OTHER_NODE) if containers is None else containers
        nodes = [node for node, exists in zip(self.build_nodes(view), view.node_exists.tolist(), strict=True) if exists]
        pods = [self.get_pod(container, view) for container in chosen.tolist()]
        pods.sort(key=lambda pod: (pod.namespace, pod.name))
        return ClusterSnapshot(
            nodes=tuple(nodes),
            pods=tuple(pods),
            workloads=self._scale_workloads(view),
            autoscalers=view.autoscalers,
            rightsizing_policies=self._policy_objects,
        )

    def _scale_workloads(self, view: ReplayClusterView) -> Mapping[tuple[str, WorkloadRef], Workload]:
        """Return the workloads, with the replicas that HPAs set."""
        if view.autoscalers is not self._autoscalers:
            self._autoscalers = view.autoscalers
            scaled = {}
            for one in view.autoscalers:
                key = (one.namespace, one.target)
                replicas = None if one.scaling is None else one.scaling.desired_replicas
                scaled[key] = replace(self._workloads[key], replicas=replicas, requests=self._templates[key])
            self._workloads = {**self._workloads, **scaled}
        return self._workloads

    def find_running(self, view: ReplayClusterView, autoscalers: Sequence[HorizontalPodAutoscaler]) -> Int64Array:
        """Return the running containers of the workloads that some HPAs scale."""
        if not autoscalers:
            return NO_CONTAINERS
        numbers = [self._workload_numbers[one.namespace, one.target] for one in autoscalers]
        return np.flatnonzero(np.isin(self._numbers, numbers) & (view.node >= 0))

    def find_siblings(self, containers: BoolArray) -> BoolArray:
        """Return a mask of all containers of the workloads of some containers."""
        is_chosen = np.zeros(len(self._workload_numbers), dtype=np.bool_)
        is_chosen[self._numbers[containers]] = True
        return is_chosen[self._numbers]

    def build_eligibility(
        self,
        view: ReplayClusterView,
        statistics: StatisticsTable,
        policy: Policy,
        scaled: Int64Array = NO_CONTAINERS,
    ) -> Eligibility:
        """Return the eligibility rules.

        Of other pods, only pending ones matter to evictions, and to the bounds of HPAs those that they scale, `scaled`.
        """
        pending = np.flatnonzero((view.node >= OTHER_NODE) & (view.node < 0))
        counted = np.concatenate((pending, scaled))
        return Eligibility(
            self.build_snapshot(view, counted), statistics, NO_PAUSED_WORKLOADS, policy, convert_to_datetime(view.time)
        )

    def _pod(
        self,
        container: int,
        containers: tuple[Container, ...],
        name_and_uid: tuple[str, str],
        node: str | None,
        phase: str,
        created_at: datetime,
    ) -> Pod:
        namespace, workload = self._owners[container]
        is_sized = self.is_sized_at_creation[container]
        annotations = self._get_sized_annotations(container) if is_sized else self._annotations
        return Pod(
            namespace,
            *name_and_uid,
            containers,
            node=node,
            workload=workload,
            owner_kind="ReplicaSet",
            owner_name=workload.name,
            annotations=annotations,
            phase=phase,
            created_at=created_at,
        )

    def _get_sized_annotations(self, container: int) -> Mapping[str, str]:
        """Return the annotations of a pod that was sized at its creation."""
        known = self._sized_annotations[container]
        if known is None:
            one = self._containers[container]
            original = format_original_resources({one.container: _get_provisioned(one)})
            known = self._sized_annotations[container] = {**self._annotations, ORIGINAL_RESOURCES: original}
        return known


def _get_provisioned(container: RecordedContainer) -> tuple[StatedResources, StatedResources]:
    """Return the requests and limits of the container's template."""
    requests = StatedResources(container.requests.cpu_millicores or None, container.requests.memory_bytes or None)
    return requests, StatedResources(None, container.memory_limit_bytes or None)


def get_container_sizes(pods: list[Pod]) -> ContainerSizes:
    """Return the sizes of pods with one container each."""
    return ContainerSizes(
        np.array([pod.containers[0].requests.cpu_millicores or 0 for pod in pods], dtype=np.int64),
        np.array([pod.containers[0].requests.memory_bytes or 0 for pod in pods], dtype=np.int64),
        np.array([pod.containers[0].limits.memory_bytes or 0 for pod in pods], dtype=np.int64),
    )


class ResizableReplayedPods:
    """Finds the resizable pods; a pod is checked again only if something changed that the result depends on."""

    def __init__(self, recording: UsageRecording, pods: ReplayedPods, policy: Policy) -> None:
        count = len(recording.containers)
        names = [(one.namespace, one.pod) for one in recording.containers]
        self._pods = pods
        self._policy = policy
        self._by_name = np.array(sorted(range(count), key=names.__getitem__), dtype=np.int64)
        # The inputs of each check: the state of the statistics, and which pod.
        self._checked_inputs = np.full((count, 2), _NOT_CHECKED, dtype=np.int64)
        self._results: list[ResizablePod | None] = [None] * count
        self._is_resizable = np.zeros(count, dtype=np.bool_)
        self._bounded_inputs: Int64Array | None = None
        self._autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()
        self._candidates: ResizablePodColumns | None = None
        self._effective_policies: list[EffectivePolicy] = []

    def get_candidates(
        self, view: ReplayClusterView, lookup: ReplayedStatisticsLookup
    ) -> tuple[ResizablePodColumns, Int64Array]:
        """Return the resizable pods and their containers, sorted by name."""
        placed = view.node >= 0
        state = self._compute_state(view, lookup)
        inputs = self._checked_inputs
        is_changed = placed & ((inputs[:, 0] != state) | (inputs[:, 1] != view.creation_count))
        scaled = self._find_changed_scaled(view, lookup, is_changed) if view.autoscalers else NO_CONTAINERS
        is_changed[scaled] = True
        changed = np.flatnonzero(is_changed)
        if len(changed):
            eligibility = self._pods.build_eligibility(view, lookup.get_rows(changed), self._policy, scaled)
            for container in changed.tolist():
                result = eligibility.check(self._pods.get_pod(container, view))
                self._results[container] = self._share_policy(result) if isinstance(result, ResizablePod) else None
                self._is_resizable[container] = isinstance(result, ResizablePod)
            inputs[changed, 0], inputs[changed, 1] = state[changed], view.creation_count[changed]
        removed = self._is_resizable & ~placed
        self._is_resizable[removed] = False
        inputs[removed] = _NOT_CHECKED
        chosen = self._by_name[self._is_resizable[self._by_name]]
        if self._candidates is None or len(changed) or removed.any():
            pods = [result for result in map(self._results.__getitem__, chosen.tolist()) if result is not None]
            self._candidates = build_resizable_pod_columns(pods, {}, self._policy)
        return self._candidates, chosen

    def _find_changed_scaled(
        self, view: ReplayClusterView, lookup: ReplayedStatisticsLookup, is_changed: BoolArray
    ) -> Int64Array:
        """Return the running containers of workloads whose HPA, pods, requests or largest use changed."""
        rows = lookup.row_of_container
        bounded: Int64Array = np.column_stack(
            (view.node >= 0, view.sizes.cpu_millicores, view.sizes.memory_bytes, rows, rows)
        ).astype(np.int64)
        covered = np.flatnonzero(rows >= 0)
        for column, resource in ((3, ResourceName.CPU), (4, ResourceName.MEMORY)):
            bounded[covered, column] = get_largest_weekly_usage(lookup.columns, rows[covered], resource).largest
        before, self._bounded_inputs = self._bounded_inputs, bounded
        is_changed = is_changed | (before is None or (before != bounded).any(axis=1))
        known = set(map(id, self._autoscalers))
        of_changed = [one for one in view.autoscalers if id(one) not in known]
        self._autoscalers = view.autoscalers
        is_changed[self._pods.find_running(view, of_changed)] = True
        scaled = np.zeros(len(rows), dtype=np.bool_)
        scaled[self._pods.find_running(view, view.autoscalers)] = True
        return np.flatnonzero(scaled & self._pods.find_siblings(is_changed))

    def _share_policy(self, pod: ResizablePod) -> ResizablePod:
        """Return a pod that shares equal policy objects: the columns compute bounds once per object."""
        for known in self._effective_policies:
            if known == pod.effective_policy:
                return pod._replace(effective_policy=known)
        self._effective_policies.append(pod.effective_policy)
        return pod

    def _compute_state(self, view: ReplayClusterView, lookup: ReplayedStatisticsLookup) -> Int64Array:
        """Distinguish containers without statistics, with stale ones and of new workloads, as `Eligibility` does."""
        state = np.zeros(len(lookup.row_of_container), dtype=np.int64)
        covered = np.flatnonzero(lookup.row_of_container >= 0)
        rows = lookup.row_of_container[covered]
        stale = lookup.columns.updated_at[rows] < view.time - int(self._policy.max_age.total_seconds())
        is_new = lookup.columns.history_since[rows] > view.time - int(self._policy.new_workload_age.total_seconds())
        state[covered] = 1 + 2 * stale + 4 * is_new
        return state
