"""Pods: one decoder for watch events, admission reviews and snapshot files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from sys import intern
from typing import Any

from cruise.domain.annotations import MIRROR_POD, OPERATING_SYSTEM, POD_GROUP_ANNOTATIONS, POD_GROUP_LABELS
from cruise.domain.cluster import (
    DEFAULT_SCHEDULER,
    NO_RESIZE,
    Container,
    ContainerRole,
    Pod,
    QosClass,
    ResizePending,
    ResizeState,
    WorkloadRef,
)
from cruise.domain.cluster_policies import get_foreign_group
from cruise.domain.pod_resources import compute_qos_class
from cruise.domain.resources import NO_RESOURCES, Resources, StatedResources
from cruise.domain.scheduling import PodConstraints, SchedulingConstraints
from cruise.errors import BadInputError
from cruise.kube_json.objects.containers import ContainerReader, Extended, SharedValues
from cruise.kube_json.objects.owners import (
    NO_OWNERS,
    OwnerIndex,
    PriorityClass,
    SharedStringMaps,
    find_controller,
    find_priority_class,
    qualify_kind,
    read_pod_identity,
    read_preemption_policy,
)
from cruise.kube_json.objects.pod_constraints import PodConstraintReader
from cruise.kube_json.objects.quantities import read_amounts
from cruise.kube_json.objects.scheduling import SchedulingConstraintReader, get_pinned_node
from cruise.kube_json.refusals import convert_to_struct, format_object_label, to_single_line
from cruise.kube_json.wire.pod_json import PodCondition, PodObject, PodSpec, PodStatus

_NO_STATUS = PodStatus()
_READ_CONDITIONS = frozenset({"Ready", "PodScheduled", "PodResizePending", "PodResizeInProgress"})
_QOS_CLASSES = {stated.value: stated for stated in QosClass}
_OF_TEMPLATE = attrgetter(
    "containers",
    "init_containers",
    "overhead",
    "resources",
    "os",
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
    "host_network",
    "preemption_policy",
    "priority_class_name",
    "scheduler_name",
    "restart_policy",
    "host_users",
)


@dataclass(frozen=True, slots=True)
class _SharedPodFields:
    """What replicas have in common, and what was `written` in the pod that it was read from."""

    written: tuple[object, ...]
    namespace: str
    labels: Mapping[str, str]
    owner_kind: str | None
    owner_name: str | None
    owner_group: str
    placement: SchedulingConstraints
    containers: tuple[Container, ...]
    extended: Extended
    requests: StatedResources | None
    limits: StatedResources | None
    overhead: Resources
    qos: QosClass
    windows: bool
    constraints: PodConstraints
    preempts: bool
    priority_class: str
    scheduler: str
    restart_policy: str


@dataclass(frozen=True, slots=True)
class PodReader:
    """Decodes pods and shares what is equal between those that are still held.

    A pod that states no priority has that of its class, as far as `classes` are known when it is read.
    """

    owners: OwnerIndex = NO_OWNERS
    maps: SharedStringMaps = field(default_factory=SharedStringMaps)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    _containers: ContainerReader = field(default_factory=ContainerReader)
    _placements: SchedulingConstraintReader = field(default_factory=SchedulingConstraintReader)
    _constraints: PodConstraintReader = field(default_factory=PodConstraintReader)
    _workloads: SharedValues[WorkloadRef, WorkloadRef] = field(default_factory=SharedValues)
    # Of the pod that was read last: lists have replicas one behind the other.
    _latest: list[_SharedPodFields] = field(default_factory=list)

    def read(self, document: PodObject) -> Pod:
        """Return the pod. Raises BadInputError that names pod, place and fix."""
        try:
            return self._read(document)
        except BadInputError as error:
            metadata = document.metadata
            label = format_object_label("Pod", metadata.namespace or "default", metadata.name)
            raise BadInputError(to_single_line(f"{label}: {error}")) from error

    def _read(self, document: PodObject) -> Pod:
        metadata, spec, status = document.metadata, document.spec, document.status or _NO_STATUS
        shape = self._shape(document, status)
        node = intern(spec.node_name) if spec.node_name else None
        workload = self.owners.find_workload(shape.namespace, shape.owner_kind, shape.owner_name, shape.labels)
        annotations = self.maps.annotations(metadata.annotations)
        identity = read_pod_identity(shape.owner_kind, metadata.name, node or get_pinned_node(shape.placement))
        given = find_priority_class(shape.priority_class, self.classes) if spec.priority is None else None
        phase = status.phase or ("Running" if node else "Pending")
        conditions = [condition for condition in status.conditions or () if condition.type in _READ_CONDITIONS]
        return Pod(
            namespace=shape.namespace,
            name=metadata.name,
            uid=metadata.uid or "",
            version=metadata.resource_version or "",
            containers=shape.containers,
            node=node,
            workload=self._workloads.share(workload, lambda: workload) if workload else None,
            owner_kind=shape.owner_kind,
            owner_name=shape.owner_name,
            owner_group=shape.owner_group,
            identity=intern(identity),
            labels=shape.labels,
            annotations=annotations,
            phase=intern(phase),
            ready=_is_ready(phase, conditions),
            terminating=metadata.deletion_timestamp is not None,
            created_at=metadata.creation_timestamp,
            priority=given.priority if given else spec.priority or 0,
            qos=_stated_qos(status) or shape.qos,
            overhead=shape.overhead,
            pod_requests=shape.requests,
            pod_limits=shape.limits,
            extended_requests=shape.extended,
            windows=shape.windows,
            mirror=shape.owner_kind == "Node" or MIRROR_POD in annotations,
            resize=_resize_state(conditions),
            placement=shape.placement,
            unschedulable_since=_unschedulable_since(conditions, metadata.creation_timestamp),
            scheduling_gated=bool(spec.scheduling_gates),
            constraints=self._constraints.with_claims(shape.constraints, spec, metadata.name),
            preemption_allowed=shape.preempts and (given is None or given.preempts),
            priority_class=shape.priority_class,
            scheduler=shape.scheduler,
            nominated_node="" if node else intern(status.nominated_node_name or ""),
            restart_policy=shape.restart_policy,
            pod_group=_pod_group(spec, shape.labels, metadata.annotations),
        )

    def _shape(self, document: PodObject, status: PodStatus) -> _SharedPodFields:
        """Return what a pod has in common with its replicas. Raises BadInputError that names the place."""
        metadata, spec = document.metadata, document.spec
        written = (
            metadata.namespace,
            metadata.labels,
            metadata.owner_references,
            _OF_TEMPLATE(spec),
            status.init_container_statuses,
            status.container_statuses,
        )
        if self._latest and self._latest[0].written == written:
            return self._latest[0]
        namespace, labels = intern(metadata.namespace or "default"), self.maps.labels(metadata.labels)
        owner = find_controller(metadata.owner_references)
        placement = self._placements.read(spec)
        containers, extended = self._containers.read_all(spec, status)
        requests, limits = _pod_level(spec, containers)
        shape = _SharedPodFields(
            written=written,
            namespace=namespace,
            labels=labels,
            owner_kind=intern(qualify_kind(owner.api_version, owner.kind)) if owner else None,
            owner_name=intern(owner.name) if owner else None,
            owner_group=intern(get_foreign_group(owner.api_version)) if owner else "",
            placement=placement,
            containers=containers,
            extended=extended,
            requests=requests,
            limits=limits,
            preempts=read_preemption_policy(spec.preemption_policy, "spec.preemptionPolicy"),
            overhead=read_amounts(spec.overhead, "spec.overhead").resources if spec.overhead else NO_RESOURCES,
            qos=compute_qos_class(containers, requests, limits),
            windows=_is_windows(spec),
            constraints=self._constraints.read(spec, namespace, labels),
            priority_class=intern(spec.priority_class_name or ""),
            scheduler=intern(spec.scheduler_name or DEFAULT_SCHEDULER),
            restart_policy=intern(spec.restart_policy or "Always"),
        )
        self._latest[:] = [shape]
        return shape


def decode_pod(document: PodObject | Mapping[str, Any], owners: OwnerIndex = NO_OWNERS) -> Pod:
    """Return one pod from its decoded JSON or its struct; a pod in creation may have no name yet.

    Raises BadInputError that names pod, place and fix.
    """
    return PodReader(owners).read(
        document if isinstance(document, PodObject) else convert_to_struct(document, PodObject)
    )


def _pod_level(
    spec: PodSpec, containers: tuple[Container, ...]
) -> tuple[StatedResources | None, StatedResources | None]:
    """Read pod-level requests and limits, None where there are none.

    Absent requests are what kube-apiserver makes them: the containers' sum where a container states any, else the
    limit.
    """
    stated = spec.resources
    if stated is None or not (stated.requests or stated.limits):
        return None, None
    requests = read_amounts(stated.requests, "spec.resources.requests")
    limits = read_amounts(stated.limits, "spec.resources.limits")
    limited = StatedResources(
        _sum_or(limits.cpu_millicores, [container.requests.cpu_millicores for container in _running(containers)]),
        _sum_or(limits.memory_bytes, [container.requests.memory_bytes for container in _running(containers)]),
    )
    return requests.with_defaults(limited), limits if stated.limits else None


def _running(containers: tuple[Container, ...]) -> list[Container]:
    return [container for container in containers if container.role is not ContainerRole.INIT]


def _sum_or(limit: int | None, requests: list[int | None]) -> int | None:
    stated = [request for request in requests if request is not None]
    return limit if limit is None or not stated else sum(stated)


def _pod_group(spec: PodSpec, labels: Mapping[str, str], annotations: Mapping[str, str] | None) -> str:
    """Return the group that a pod is scheduled with: by its spec, else by what other schedulers go by."""
    if spec.scheduling_group is not None:
        return spec.scheduling_group.pod_group_name or "schedulingGroup"
    named = [labels[key] for key in POD_GROUP_LABELS if labels.get(key)]
    named += [annotations[key] for key in POD_GROUP_ANNOTATIONS if annotations.get(key)] if annotations else []
    return intern(named[0]) if named else ""


def _stated_qos(status: PodStatus) -> QosClass | None:
    if not status.qos_class:
        return None
    stated = _QOS_CLASSES.get(status.qos_class)
    if stated is None:
        raise BadInputError(f'status.qosClass: "{status.qos_class}" is no class; write one of {", ".join(QosClass)}')
    return stated


def _is_windows(spec: PodSpec) -> bool:
    return (spec.os is not None and spec.os.name == "windows") or (
        spec.node_selector is not None and spec.node_selector.get(OPERATING_SYSTEM) == "windows"
    )


def _resize_state(conditions: Sequence[PodCondition]) -> ResizeState:
    pending, since, in_progress, error = None, None, False, False
    for condition in conditions:
        if condition.status != "True":
            continue
        if condition.type == "PodResizePending":
            pending, since = _pending(condition.reason), condition.last_transition_time
        elif condition.type == "PodResizeInProgress":
            in_progress, error = True, condition.reason == "Error"
    if pending is None and not in_progress:
        return NO_RESIZE
    return ResizeState(pending, since, in_progress, error)


def _pending(reason: str | None) -> ResizePending | None:
    return ResizePending(reason) if reason in ("Deferred", "Infeasible") else None


def _is_ready(phase: str, conditions: Sequence[PodCondition]) -> bool:
    """Tell whether a pod serves; one that runs and shows no condition, as in files written by hand, is taken to."""
    stated = [condition.status == "True" for condition in conditions if condition.type == "Ready"]
    return phase == "Running" and all(stated)


def _unschedulable_since(conditions: Sequence[PodCondition], created_at: datetime | None) -> datetime | None:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.last_transition_time or created_at
    return None
