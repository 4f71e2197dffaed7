"""The state of a cluster that decisions read: nodes, pods, workloads and autoscalers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cruise.domain.annotations import VIRTUAL_NODE_LABELS, VIRTUAL_NODE_TAINT
from cruise.domain.autoscalers import (
    LimitRangeItem,
    NodeAutoscalerKind,
    NodePool,
    ResourceQuota,
    UtilizationScaling,
    VpaContainerPolicy,
)
from cruise.domain.heaps import HeapBound
from cruise.domain.resources import (
    NO_RESIZE,
    NO_RESOURCES,
    NOTHING_STATED,
    ResizeState,
    ResourceName,
    Resources,
    StatedResources,
)
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.run_to_completion_operators import WORKLOAD_GROUP, CompletedPod, runs_to_completion
from cruise.domain.scheduling import (
    NO_STORAGE_OR_NAMESPACES,
    UNCONSTRAINED,
    UNCONSTRAINED_SCHEDULING,
    LabelSelector,
    PodConstraints,
    SchedulingConstraints,
    StorageAndNamespaces,
    Taint,
)

DEFAULT_SCHEDULER = "default-scheduler"


class ContainerRole(StrEnum):
    """The kind of a container in its pod."""

    MAIN = "main"
    SIDECAR = "sidecar"  # an init container with restartPolicy Always
    INIT = "init"
    POD = "pod"  # no container: the resources that the pod states for all of them


POD_LEVEL = "(pod)"
"""The name of a pod's own resources among those of its containers; no container can have it."""


class QosClass(StrEnum):
    """Kubernetes' quality-of-service classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class Container:
    """One container, or the pod-level resources of a pod: its spec, and the kubelet's report.

    `allocated` and `actual` are `status.containerStatuses[].allocatedResources` and `….resources.requests`, None if not
    reported; `actual_limits` is `….resources.limits`. `running` is False if the kubelet reports it waiting or
    terminated. `heap` is what its settings let its heap grow to, None if it has no bound that they show.
    """

    name: str
    role: ContainerRole = ContainerRole.MAIN
    requests: StatedResources = NOTHING_STATED
    limits: StatedResources = NOTHING_STATED
    allocated: StatedResources | None = None
    actual: StatedResources | None = None
    actual_limits: StatedResources | None = None
    cpu_resize_restarts: bool = False
    memory_resize_restarts: bool = False
    restart_count: int = 0
    running: bool = True
    heap: HeapBound | None = None


@dataclass(frozen=True, slots=True, order=True)
class WorkloadRef:
    """The topmost controller of a pod, such as Deployment/web."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Format as `Kind/name`, as in files and tables."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, bound (`node` is set) or pending.

    `containers` has init containers and sidecars in spec order, then the main ones. `annotations` has only the keys
    that decisions read. `identity` distinguishes pods of one workload whose use differs: the ordinal of a StatefulSet
    pod, the node of a DaemonSet pod, else empty. `extended_requests` includes huge pages and ephemeral storage. `ready`
    is the condition Ready, `ready_since` when it became true, `started_at` when the kubelet accepted the pod, None if
    that is not the case or unknown. `pod_level` has the pod-level resources, with the name `POD_LEVEL` and role POD,
    None if it states none. `nominated_node` is the node that kube-scheduler nominated, else empty. `pod_group` is the
    group that it is scheduled with, else empty. `owner_group` is the API group of its controller, empty for Kubernetes'
    own groups.
    """

    namespace: str
    name: str
    uid: str
    containers: tuple[Container, ...]
    node: str | None = None
    workload: WorkloadRef | None = None
    owner_kind: str | None = None
    owner_name: str | None = None
    identity: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    phase: str = "Running"
    ready: bool = True
    terminating: bool = False
    created_at: datetime | None = None
    priority: int = 0
    qos: QosClass = QosClass.BURSTABLE
    overhead: Resources = NO_RESOURCES
    pod_level: Container | None = None
    extended_requests: tuple[tuple[str, int], ...] = ()
    runs_on_windows: bool = False
    is_mirror_pod: bool = False
    resize: ResizeState = NO_RESIZE
    placement: SchedulingConstraints = UNCONSTRAINED_SCHEDULING
    unschedulable_since: datetime | None = None
    scheduling_gated: bool = False
    constraints: PodConstraints = UNCONSTRAINED
    may_preempt: bool = True
    priority_class: str = ""
    scheduler: str = DEFAULT_SCHEDULER
    nominated_node: str = ""
    pod_group: str = ""
    restart_policy: str = "Always"
    owner_group: str = ""
    ready_since: datetime | None = None
    started_at: datetime | None = None
    # The resourceVersion; it does not count in comparisons.
    resource_version: str = field(default="", compare=False)

    @property
    def runs_to_completion(self) -> bool:
        """Whether eviction loses the pod's work: it belongs to a run, or its restartPolicy is not Always.

        Controllers of apps/v1 accept only Always. Users name the workload of pods that have no lasting controller.
        """
        is_named = self.workload is not None and self.workload.kind == WORKLOAD_GROUP
        return is_named or self.restart_policy != "Always" or runs_to_completion(self.owner_kind or "")

    @property
    def ended_pod(self) -> CompletedPod | None:
        """What to remember of the pod once it is deleted, None if its name identifies its owner."""
        if self.node is None or self.workload is None or not self.runs_to_completion:
            return None
        return CompletedPod(self.namespace, self.name, self.uid, str(self.workload), self.created_at)

    @property
    def is_finished(self) -> bool:
        """Whether the pod has finished and uses no capacity."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def sized_containers(self) -> tuple[Container, ...]:
        """Main containers and sidecars, in the pod's order."""
        for container in self.containers:
            if container.role is ContainerRole.INIT:
                return tuple([one for one in self.containers if one.role is not ContainerRole.INIT])
        return self.containers

    @property
    def resizable_parts(self) -> tuple[Container, ...]:
        """Everything that a resize can name: the pod-level resources if it states any, and all containers."""
        return self.containers if self.pod_level is None else (self.pod_level, *self.containers)

    @property
    def workload_name(self) -> str:
        """The workload as `Kind/name`; the pod itself if it has none."""
        return str(self.workload) if self.workload is not None else f"Pod/{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node.

    `kubelet_version` is (major, minor), None if unknown. `allocatable_extended` includes huge pages and ephemeral
    storage. `cpu_capacity_millicores` and `memory_capacity_bytes` include what is reserved from pods, None if unknown.
    `address` is the kubelet's, empty if unknown. `deleting`: it has a deletionTimestamp. `static_managers` are the
    resources that a static manager of the kubelet assigns to Guaranteed pods, as far as known. `declared_features` are
    the feature gates that the kubelet declares, None if unknown. `memory_swaps`: the kubelet was seen to refuse other
    memory requests, because containers may swap.
    """

    name: str
    allocatable: Resources
    allocatable_pods: int = 110
    allocatable_extended: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    kubelet_version: tuple[int, int] | None = None
    cpu_capacity_millicores: int | None = None
    memory_capacity_bytes: int | None = None
    address: str = ""
    kubelet_port: int = 10250
    deleting: bool = False
    static_managers: frozenset[ResourceName] = frozenset()
    declared_features: frozenset[str] | None = None
    memory_swaps: bool = False

    @property
    def accepts_pods(self) -> bool:
        """Whether plans may place pods on it, apart from cordons and taints: it is ready and not being deleted."""
        return self.ready and not self.deleting

    @property
    def is_virtual(self) -> bool:
        """Whether it is no machine: a provider gives each pod capacity by its requests at creation."""
        has_label = any(self.labels.get(key) == value for key, value in VIRTUAL_NODE_LABELS.items())
        return has_label or any(taint.key == VIRTUAL_NODE_TAINT for taint in self.taints)


PodsByName = Mapping[tuple[str, str], Pod]
"""Pods by namespace and name."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller object.

    `replicas` is None if the kind has none or it is unknown. `node_autoscaler` is set for a node autoscaler's own
    workload. `controller` is its own controller, such as a custom resource of an operator. `uid` is set only if it has
    none. `memory_limits`, `cpu_limits` and `requests` are those of the pod template by container, None if the template
    is unknown. `init_containers` are names. `is_read` is False if only its ReplicaSets or Jobs were read.
    `revision_on_delete` is the revision of new pods of a StatefulSet that updates pods only when they are deleted.
    """

    namespace: str
    ref: WorkloadRef
    replicas: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    node_autoscaler: NodeAutoscalerKind | None = None
    controller: WorkloadRef | None = None
    memory_limits: Mapping[str, int] | None = None
    cpu_limits: Mapping[str, int] | None = None
    requests: Mapping[str, StatedResources] | None = None
    init_containers: frozenset[str] = frozenset()
    uid: str = ""
    api_version: str = "apps/v1"
    is_read: bool = True
    revision_on_delete: str = ""

    def has_container(self, container: Container) -> bool:
        """Return whether the pod template has the container; admission webhooks may inject others."""
        is_init = container.role is not ContainerRole.MAIN
        known = self.requests is not None and container.name in self.requests
        return known and is_init == (container.name in self.init_containers)


@dataclass(frozen=True, slots=True)
class PodDisruptionBudget:
    """A PodDisruptionBudget; `blocks_all_evictions` if it requires all of its pods."""

    namespace: str
    name: str
    selector: LabelSelector
    disruptions_allowed: int
    blocks_all_evictions: bool = False

    @property
    def title(self) -> str:
        """Kind, namespace and name, as in messages."""
        return f"PodDisruptionBudget {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class HorizontalPodAutoscaler:
    """A HorizontalPodAutoscaler; `target_api` is group and version, `scaling` is None if it is incomplete."""

    namespace: str
    name: str
    target: WorkloadRef
    utilisation_resources: frozenset[ResourceName]
    target_api: str = ""
    scaling: UtilizationScaling | None = None


@dataclass(frozen=True, slots=True)
class VerticalPodAutoscaler:
    """A VerticalPodAutoscaler; `mode` is empty if not stated.

    `is_own`: cruise is its recommender. `is_published`: cruise created it.
    """

    namespace: str
    name: str
    target: WorkloadRef | None
    mode: str = ""
    is_own: bool = False
    target_api: str = ""
    rules: tuple[VpaContainerPolicy, ...] = ()
    is_published: bool = False

    @property
    def changes_pods(self) -> bool:
        """Whether another recommender resizes pods by it."""
        return self.target is not None and self.mode != "Off" and not self.is_own


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A whole cluster at one moment; nodes are sorted by name, pods by (namespace, name).

    `workloads` is keyed by (namespace, workload), `namespace_annotations`, `limit_ranges` and `quotas` by namespace.
    `oom_kills` are those that pod statuses show, in the order of pods. `scales` has the selector of the scale
    subresource by namespace and target, for kinds that pods do not name: None if there is no such scale, absent if not
    read yet; `unreadable_scales` has the errors. `namespaces` are those watched, None for a file or a simulation.
    `removed_nodes` has one example of each kind of node that was removed recently, if a node autoscaler runs.
    `node_claims` are nodes that Karpenter ordered from its `node_pools`, by the claims' names. `taken_at` is when a
    live cluster was read, in seconds of `time.monotonic`, else None. `listed_kinds` are the kinds of objects in a file,
    else None. `ended_pods` are the latest deleted pods that ran to completion, none in a file.
    """

    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    workloads: Mapping[tuple[str, WorkloadRef], Workload] = field(default_factory=dict)
    budgets: tuple[PodDisruptionBudget, ...] = ()
    autoscalers: tuple[HorizontalPodAutoscaler, ...] = ()
    limit_ranges: Mapping[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    namespace_annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    oom_kills: tuple["OomKill", ...] = ()
    quotas: Mapping[str, tuple[ResourceQuota, ...]] = field(default_factory=dict)
    storage_and_namespaces: StorageAndNamespaces = NO_STORAGE_OR_NAMESPACES
    node_autoscaler: NodeAutoscalerKind | None = None
    vertical_autoscalers: tuple[VerticalPodAutoscaler, ...] = ()
    scales: Mapping[tuple[str, WorkloadRef], LabelSelector | None] = field(default_factory=dict)
    unreadable_scales: Mapping[tuple[str, WorkloadRef], str] = field(default_factory=dict)
    rightsizing_policies: tuple[RightsizingPolicy, ...] = ()
    namespaces: frozenset[str] | None = None
    removed_nodes: tuple[Node, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    node_claims: tuple[Node, ...] = ()
    ended_pods: tuple[CompletedPod, ...] = field(default=(), compare=False)
    taken_at: float | None = field(default=None, compare=False)
    listed_kinds: frozenset[str] | None = field(default=None, compare=False)

    @property
    def known_nodes(self) -> tuple[Node, ...]:
        """The present nodes, and one of each kind that may be created again."""
        return self.nodes + self.removed_nodes


@dataclass(frozen=True, slots=True)
class OomKill:
    """A container that was terminated with reason OOMKilled.

    Limit and request are those at the kill, None if not stated; `last_working_set_bytes` is the last sample before it,
    None if there is none. `runs_to_completion`: the workload's next run is another pod. `shares_limit_with` are the
    other containers of the pod if the limit is the pod's.
    """

    namespace: str
    pod: str
    pod_uid: str
    container: str
    workload: WorkloadRef | None
    identity: str
    node: str | None
    finished_at: datetime
    memory_limit_bytes: int | None
    memory_request_bytes: int | None
    last_working_set_bytes: int | None = None
    role: ContainerRole = ContainerRole.MAIN
    restarts: int = 0
    runs_to_completion: bool = False
    shares_limit_with: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, datetime]:
        """The identity of the kill, if it is reported again."""
        return (self.pod_uid, self.container, self.finished_at)
