"""The pods of a replay as decisions read them: made from the view's columns where one is needed."""

from datetime import datetime
from types import MappingProxyType

import numpy as np

from cruise.backtest.policies.statistics_lookup import ReplayedStatisticsLookup
from cruise.backtest.recordings.recording import RecordedContainer, UsageRecording
from cruise.backtest.replay.policy import ContainerSizes, ReplayClusterView
from cruise.decisions.pod_policy.eligibility import Eligibility, ResizablePod
from cruise.decisions.sizing.candidate_columns import ResizablePodColumns, build_resizable_pod_columns
from cruise.domain.annotations import ORIGINAL_RESOURCES, RESOURCES, EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, Workload, WorkloadRef
from cruise.domain.original_resources import format_original_resources
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import Int64Array, ResourceName, StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.simulation.cluster.state import convert_to_datetime

OTHER_NODE = -1
_NODE_PREFIX = "node-"
NO_OVERRIDES: StoredOverrides = MappingProxyType({})


class ReplayedPods:
    """Pods and nodes of a view; every pod belongs to a Deployment of as many replicas as the recording has series."""

    def __init__(self, recording: UsageRecording, stored: StoredOverrides = NO_OVERRIDES) -> None:
        self._stored = stored
        self._containers = recording.containers
        # Where memory was not recorded there is nothing to size it by.
        self._annotations = {} if recording.has_memory else {RESOURCES.name: ResourceName.CPU.value}
        self._nodes: list[Node] = []
        self._sized = np.zeros(len(recording.containers), dtype=np.bool_)
        replicas: dict[tuple[str, WorkloadRef], int] = {}
        for one in recording.containers:
            replicas[one.namespace, one.workload] = replicas.get((one.namespace, one.workload), 0) + 1
        number_by_key = {key: number for number, key in enumerate(replicas)}
        self._workload_numbers = number_by_key
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

    def note_admission(self, container: int, sized: bool) -> None:
        """Remember whether a container's new pod was created with other sizes than its template's."""
        self._sized[container] = sized

    def get_created(self, container: int, time: datetime) -> Pod:
        """Return a pod as its controller creates it."""
        one = self._containers[container]
        requests, limits = _provisioned(one)
        return self._pod(container, requests, limits, "", None, "Pending", time)

    def pod(self, container: int, view: ReplayClusterView) -> Pod:
        """Return a container's pod as it is now."""
        sizes, node = view.sizes, int(view.node[container])
        cpu, memory = int(sizes.cpu_millicores[container]), int(sizes.memory_bytes[container])
        limit = int(sizes.memory_limit_bytes[container])
        return self._pod(
            container,
            StatedResources(cpu or None, memory or None),
            StatedResources(None, limit or None),
            f"-{int(view.creation_count[container])}",
            None if node < 0 else format_node_name(node),
            "Running" if node >= 0 else "Pending",
            convert_to_datetime(int(view.created_at[container])),
        )

    def nodes(self, view: ReplayClusterView) -> list[Node]:
        """Return a node for each index; those that do not exist now have no pods."""
        known = self._nodes
        known += [Node(format_node_name(index), view.allocatable) for index in range(len(known), len(view.node_exists))]
        return known[: len(view.node_exists)]

    def get_pods_around(
        self, namespace: str, workload: WorkloadRef | None, node: str | None, view: ReplayClusterView
    ) -> Int64Array:
        """Return the containers of a workload and those on a node, as far as they exist."""
        number = -1 if workload is None else self._workload_numbers[namespace, workload]
        index = OTHER_NODE if node is None else parse_node_index(node)
        return np.flatnonzero(((self._numbers == number) & (view.node >= OTHER_NODE)) | (view.node == index))

    def snapshot(self, view: ReplayClusterView, containers: Int64Array | None = None) -> ClusterSnapshot:
        """Return the cluster with the pods of some containers, or of all that exist."""
        chosen = np.flatnonzero(view.node >= OTHER_NODE) if containers is None else containers
        nodes = [node for node, alive in zip(self.nodes(view), view.node_exists.tolist(), strict=True) if alive]
        pods = [self.pod(container, view) for container in chosen.tolist()]
        pods.sort(key=lambda pod: (pod.namespace, pod.name))
        return ClusterSnapshot(nodes=tuple(nodes), pods=tuple(pods), workloads=self._workloads)

    def eligibility(self, view: ReplayClusterView, statistics: StatisticsTable, policy: Policy) -> Eligibility:
        """Return the rules on which pods may be touched; of other pods, those without a node matter to evictions."""
        pending = np.flatnonzero((view.node >= OTHER_NODE) & (view.node < 0))
        return Eligibility(
            self.snapshot(view, pending), statistics, self._stored, policy, convert_to_datetime(view.time)
        )

    def _pod(
        self,
        container: int,
        requests: StatedResources,
        limits: StatedResources,
        creation_count: str,
        node: str | None,
        phase: str,
        created_at: datetime,
    ) -> Pod:
        one = self._containers[container]
        annotations = self._annotations
        if self._sized[container]:
            original = {one.container: _provisioned(one)}
            annotations = {**annotations, ORIGINAL_RESOURCES: format_original_resources(original)}
        return Pod(
            one.namespace,
            one.pod,
            f"{one.namespace}/{one.pod}{creation_count}",
            (Container(one.container, requests=requests, limits=limits),),
            node=node,
            workload=one.workload,
            owner_kind="ReplicaSet",
            owner_name=one.workload.name,
            annotations=annotations,
            phase=phase,
            created_at=created_at,
        )


def _provisioned(one: RecordedContainer) -> tuple[StatedResources, StatedResources]:
    """Return what the container's template requests and is limited to."""
    requests = StatedResources(one.requests.cpu_millicores or None, one.requests.memory_bytes or None)
    return requests, StatedResources(None, one.memory_limit_bytes or None)


def format_node_name(index: int) -> str:
    """Name a node so that names sort as indices do."""
    return f"{_NODE_PREFIX}{index:03d}"


def parse_node_index(name: str) -> int:
    """Return the index of a node by its name."""
    return int(name.removeprefix(_NODE_PREFIX))


def get_container_sizes(pods: list[Pod]) -> ContainerSizes:
    """Return what single-container pods ask for."""
    return ContainerSizes(
        np.array([pod.containers[0].requests.cpu_millicores or 0 for pod in pods], dtype=np.int64),
        np.array([pod.containers[0].requests.memory_bytes or 0 for pod in pods], dtype=np.int64),
        np.array([pod.containers[0].limits.memory_bytes or 0 for pod in pods], dtype=np.int64),
    )


# Which pods of a replay may be touched, decided again only where something has changed that the answer depends on.

_UNJUDGED = -1


class ResizableReplayedPods:
    """The verdicts of the rules on which pods may be touched, and the columns of those that may."""

    def __init__(self, recording: UsageRecording, pods: ReplayedPods, policy: Policy) -> None:
        count = len(recording.containers)
        names = [(one.namespace, one.pod) for one in recording.containers]
        self._pods = pods
        self._policy = policy
        self._by_name = np.array(sorted(range(count), key=names.__getitem__), dtype=np.int64)
        # What each verdict was given on: whether there are statistics, their age and the workload's, and which pod.
        self._judged_on = np.full((count, 2), _UNJUDGED, dtype=np.int64)
        self._verdicts: list[ResizablePod | None] = [None] * count
        self._touched = np.zeros(count, dtype=np.bool_)
        self._candidates: ResizablePodColumns | None = None
        self._guidances: list[EffectivePolicy] = []

    def get_candidates(
        self, view: ReplayClusterView, known: ReplayedStatisticsLookup
    ) -> tuple[ResizablePodColumns, Int64Array]:
        """Return the touchable pods, and their containers, sorted by name."""
        placed = view.node >= 0
        state = self._state(view, known)
        changed = placed & ((self._judged_on[:, 0] != state) | (self._judged_on[:, 1] != view.creation_count))
        again = np.flatnonzero(changed)
        if len(again):
            eligibility = self._pods.eligibility(view, known.get_rows(again), self._policy)
            for container in again.tolist():
                verdict = eligibility.check(self._pods.pod(container, view))
                self._verdicts[container] = self._shared(verdict) if isinstance(verdict, ResizablePod) else None
                self._touched[container] = isinstance(verdict, ResizablePod)
            self._judged_on[again, 0], self._judged_on[again, 1] = state[again], view.creation_count[again]
        gone = self._touched & ~placed
        self._touched[gone] = False
        self._judged_on[gone] = _UNJUDGED
        chosen = self._by_name[self._touched[self._by_name]]
        if self._candidates is None or len(again) or gone.any():
            pods = [verdict for verdict in map(self._verdicts.__getitem__, chosen.tolist()) if verdict is not None]
            self._candidates = build_resizable_pod_columns(pods, {}, self._policy)
        return self._candidates, chosen

    def _shared(self, verdict: ResizablePod) -> ResizablePod:
        """Return a verdict with the same object for the same guidance: the columns work out bounds once for each."""
        for known in self._guidances:
            if known == verdict.effective_policy:
                return verdict._replace(effective_policy=known)
        self._guidances.append(verdict.effective_policy)
        return verdict

    def _state(self, view: ReplayClusterView, known: ReplayedStatisticsLookup) -> Int64Array:
        """Tell containers without statistics, with old ones and of new workloads apart, as `Eligibility` does."""
        state = np.zeros(len(known.row_of_container), dtype=np.int64)
        covered = np.flatnonzero(known.row_of_container >= 0)
        rows = known.row_of_container[covered]
        stale = known.columns.updated_at[rows] < view.time - int(self._policy.max_age.total_seconds())
        is_new = known.columns.history_since[rows] > view.time - int(self._policy.new_workload_age.total_seconds())
        state[covered] = 1 + 2 * stale + 4 * is_new
        return state
