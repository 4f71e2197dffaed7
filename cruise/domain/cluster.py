"""The state of a cluster as decisions read it: nodes, pods, their owners, and what constrains them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cruise.domain.cluster_policies import NodePool, ResourceQuota, VpaContainerPolicy, runs_to_completion
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED, ResourceName, Resources, StatedResources
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
    """How a container takes part in its pod's life."""

    MAIN = "main"
    SIDECAR = "sidecar"  # an init container with restartPolicy Always
    INIT = "init"


class QosClass(StrEnum):
    """Kubernetes' quality-of-service classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod: what its spec asks for and what the kubelet reports.

    `allocated` and `actual` are the requests in `status.containerStatuses[].allocatedResources` and
    `….resources.requests`, None where the kubelet reports nothing; `actual_limits` is `….resources.limits`.
    `running` is False where the kubelet says that it waits or has ended.
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


class ResizePending(StrEnum):
    """Why the kubelet has not taken up a resize."""

    DEFERRED = "Deferred"
    INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class ResizeState:
    """The resize conditions of a pod; `pending_since` is the condition's last transition."""

    pending: ResizePending | None = None
    pending_since: datetime | None = None
    in_progress: bool = False
    error: bool = False


NO_RESIZE = ResizeState()


@dataclass(frozen=True, slots=True, order=True)
class WorkloadRef:
    """The topmost controller of a pod, such as Deployment/web; a bare pod has none."""

    kind: str
    name: str

    def __str__(self) -> str:
        """Format as `Kind/name`, the form used in files and tables."""
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, bound (`node` set) or pending.

    `containers` holds init containers and sidecars in spec order, then the main ones. `annotations` is trimmed to
    the keys that decisions read. `identity` tells pods of one workload apart where their usage differs by nature:
    the ordinal of a StatefulSet pod, the node of a DaemonSet pod, empty otherwise.
    `priority_class` is the name of its PriorityClass, empty where it has none. `restart_policy` is as in its spec.
    `extended_requests` also has huge pages and local storage. `preempts` is False for a pod whose preemptionPolicy is
    Never. `ready` is its condition Ready: whether it serves. `scheduler` is the one that is to place it, and
    `nominated_node` the node on which kube-scheduler keeps room for it, empty for none. `pod_group` names the group
    with which it is scheduled, empty for a pod that is scheduled by itself. `owner_group` is the API group of what
    controls it, empty for Kubernetes' own.
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
    pod_requests: StatedResources | None = None
    pod_limits: StatedResources | None = None
    extended_requests: tuple[tuple[str, int], ...] = ()
    windows: bool = False
    mirror: bool = False
    resize: ResizeState = NO_RESIZE
    placement: SchedulingConstraints = UNCONSTRAINED_SCHEDULING
    unschedulable_since: datetime | None = None
    scheduling_gated: bool = False
    constraints: PodConstraints = UNCONSTRAINED
    preemption_allowed: bool = True
    priority_class: str = ""
    scheduler: str = DEFAULT_SCHEDULER
    nominated_node: str = ""
    pod_group: str = ""
    restart_policy: str = "Always"
    owner_group: str = ""
    # The resourceVersion that this was read at; two pictures of one pod are equal whatever it is.
    version: str = field(default="", compare=False)

    @property
    def runs_to_completion(self) -> bool:
        """Tell whether the pod has work to finish, which is lost with it: a Job's, or one that is not always restarted.

        Controllers of apps/v1 accept no other policy than Always.
        """
        return self.restart_policy != "Always" or runs_to_completion(self.owner_kind or "")

    @property
    def is_finished(self) -> bool:
        """Tell whether the pod has finished and holds nothing on its node."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def sized_containers(self) -> tuple[Container, ...]:
        """The main containers and sidecars, in the pod's order."""
        return tuple([one for one in self.containers if one.role is not ContainerRole.INIT])

    @property
    def workload_name(self) -> str:
        """The workload as `Kind/name`, the pod itself where it has none."""
        return str(self.workload) if self.workload is not None else f"Pod/{self.name}"


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `kubelet_version` is (major, minor), None where unknown. `deleting` is one with a deletionTimestamp.

    `allocatable_extended` also has huge pages and local storage. `cpu_capacity_millicores` and `memory_capacity_bytes`
    are what the machine has, of which a part may be kept from pods; None where unknown. `address` is where its kubelet
    listens within the cluster, empty where unknown.
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

    @property
    def accepts_pods(self) -> bool:
        """Tell whether pods may be planned onto it, cordons and taints apart: it is ready, and not being deleted."""
        return self.ready and not self.deleting


class NodeAutoscalerKind(StrEnum):
    """What adds nodes for pending pods, and removes those that are empty enough."""

    KARPENTER = "karpenter"
    CLUSTER_AUTOSCALER = "cluster-autoscaler"


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller object; `replicas` is None where the kind has none or it is unknown.

    `node_autoscaler` is which one its pods are, None for the pods of any other workload.
    `controller` is what controls it in turn, such as an operator's custom resource. `uid` is kept of those alone that
    nothing controls.
    `memory_limits` and `cpu_limits` are those that its pod template states, by container; None where the template is
    not known.
    `requests` are those of every container of its pod template, empty for one that states none; None where the template
    is not known. `init_containers` are the names of those that the template has among its init containers.
    `is_read` is False where the object itself was not read: then its ReplicaSets or Jobs alone tell of its template.
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

    def has_container(self, container: Container) -> bool:
        """Tell whether the pod template has a container; pods have more where something injects them."""
        is_init = container.role is not ContainerRole.MAIN
        known = self.requests is not None and container.name in self.requests
        return known and is_init == (container.name in self.init_containers)


@dataclass(frozen=True, slots=True)
class PodDisruptionBudget:
    """A PodDisruptionBudget: what it selects and how many disruptions its status allows now.

    `blocks_all_evictions` where it asks for all the pods that it covers.
    """

    namespace: str
    name: str
    selector: LabelSelector
    disruptions_allowed: int
    blocks_all_evictions: bool = False

    @property
    def title(self) -> str:
        """Its kind and name, as in details and in the names of eviction limits."""
        return f"PodDisruptionBudget {self.namespace}/{self.name}"


POD_CONTROLLER_KINDS = frozenset(
    {
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "ReplicaSet",
        "ReplicationController",
        "Rollout",
        "StatefulSet",
    }
)
"""Kinds whose pods name them as their controller, directly or through a ReplicaSet or Job."""


@dataclass(frozen=True, slots=True)
class HorizontalPodAutoscaler:
    """A HorizontalPodAutoscaler and the resources on which it targets utilisation.

    `target_api` is the group and version of what it scales.
    """

    namespace: str
    name: str
    target: WorkloadRef
    utilisation_resources: frozenset[ResourceName]
    target_api: str = ""


@dataclass(frozen=True, slots=True)
class VerticalPodAutoscaler:
    """A VerticalPodAutoscaler; `mode` is as it is written, empty where it is not.

    `is_own` tells those whose recommender is cruise, `is_published` those that cruise has made itself.
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
        """Tell whether somebody else sizes pods by it."""
        return self.target is not None and self.mode != "Off" and not self.is_own


@dataclass(frozen=True, slots=True)
class LimitRangeItem:
    """One entry of a LimitRange's `limits` for type Container or Pod; absent bounds are None.

    `default_limits` are what the API server gives a container that states no limit.
    """

    is_for_pod: bool
    minimum: StatedResources = NOTHING_STATED
    maximum: StatedResources = NOTHING_STATED
    max_cpu_ratio: float | None = None
    max_memory_ratio: float | None = None
    default_limits: StatedResources = NOTHING_STATED

    def max_ratio(self, resource: ResourceName) -> float | None:
        """Return the largest limit / request of one resource, None where the entry has none."""
        return self.max_cpu_ratio if resource is ResourceName.CPU else self.max_memory_ratio


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A whole cluster at one moment; nodes sorted by name, pods by (namespace, name).

    `workloads` is keyed by (namespace, workload), `namespace_annotations`, `limit_ranges` and `quotas` by namespace.
    `oom_kills` are those that the pods' statuses still show, in the pods' order. `scales` has what the scale of an
    autoscaler's target selects, by namespace and target, for kinds whose pods do not name them: None where it was
    answered that there is no such scale; one that was not answered yet is not there. `unreadable_scales` says of others
    why they cannot be read, such as for want of rights. `namespaces` are those seen, None
    where nothing is followed: then what is missing is no answer that comes later. `former_nodes` has one
    node of each kind that was there lately and is not now, where nodes come and go by themselves. `node_claims` are
    nodes that Karpenter has ordered from its `node_pools`, whether they are there yet or not, by the claims' names.
    `taken_at` is when a live cluster was read, in seconds of `time.monotonic`; None for a file or a simulation.
    `listed_kinds` are the kinds of objects in a file, None elsewhere.
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
    namespaces: frozenset[str] | None = None
    removed_nodes: tuple[Node, ...] = ()
    node_pools: tuple[NodePool, ...] = ()
    node_claims: tuple[Node, ...] = ()
    taken_at: float | None = field(default=None, compare=False)
    listed_kinds: frozenset[str] | None = field(default=None, compare=False)

    @property
    def known_nodes(self) -> tuple[Node, ...]:
        """The nodes that there are, and one of each kind that may come again."""
        return self.nodes + self.removed_nodes


@dataclass(frozen=True, slots=True)
class OomKill:
    """One container that ended with reason OOMKilled: at least one of its processes was killed for lack of memory.

    Limit and request are those in force at the kill, None where unstated; `last_working_set_bytes` is the last
    observation before it, None where there is none. `restarts` counts how often the container was started again.
    `runs_to_completion` tells that the workload's next run is another pod.
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

    @property
    def key(self) -> tuple[str, str, datetime]:
        """What makes a replay of the same kill recognisable."""
        return (self.pod_uid, self.container, self.finished_at)
