"""Decode pods of watch events, admission reviews and snapshot files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from sys import intern
from typing import Any

from cruise.domain.annotations import MIRROR_POD, OPERATING_SYSTEM, POD_GROUP_ANNOTATIONS, POD_GROUP_LABELS
from cruise.domain.autoscalers import get_foreign_api_group
from cruise.domain.cluster import DEFAULT_SCHEDULER, POD_LEVEL, Container, ContainerRole, Pod, QosClass, WorkloadRef
from cruise.domain.pod_resources import compute_qos_class
from cruise.domain.resources import (
    NO_RESIZE,
    NO_RESOURCES,
    NOTHING_STATED,
    ResizePending,
    ResizeState,
    ResourceName,
    Resources,
    StatedResources,
)
from cruise.domain.scheduling import PodConstraints, SchedulingConstraints
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import convert_to_single_line, convert_to_struct, format_object_label
from cruise.kube_json.objects.containers import ContainerDecoder, Extended, SharedValues
from cruise.kube_json.objects.heaps import HeapBoundReader
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
from cruise.kube_json.objects.pod_constraints import PodConstraintDecoder
from cruise.kube_json.objects.quantities import read_amounts, read_time
from cruise.kube_json.objects.scheduling import SchedulingConstraintDecoder, get_pinned_node
from cruise.kube_json.wire.pod_json import PodCondition, PodObject, PodSpec, PodStatus

_NO_STATUS = PodStatus()
_READ_CONDITIONS = frozenset({"Ready", "PodScheduled", "PodResizePending", "PodResizeInProgress"})
_STATIC_MANAGER = re.compile(r"Guaranteed Pods alongside (CPU|Memory) Manager", re.IGNORECASE)
_SWAP = "resize of containers with swap"
_QOS_CLASSES = {stated.value: stated for stated in QosClass}
# Without the environment, whose values may be secret.
_get_container_fields = attrgetter(
    "name", "ports", "resources", "resize_policy", "restart_policy", "restart_policy_rules"
)
_get_template_fields = attrgetter(
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
    """The fields that replicas share; `source` are the JSON fields that they were read from."""

    source: tuple[object, ...]
    namespace: str
    labels: Mapping[str, str]
    owner_kind: str | None
    owner_name: str | None
    owner_group: str
    placement: SchedulingConstraints
    containers: tuple[Container, ...]
    extended: Extended
    pod_level: Container | None
    overhead: Resources
    qos: QosClass
    windows: bool
    constraints: PodConstraints
    preemption_allowed: bool
    priority_class: str
    scheduler: str
    restart_policy: str


@dataclass(frozen=True, slots=True)
class PodDecoder:
    """Decodes pods; equal parts of them are one object.

    A pod without a priority gets that of its class, if `classes` has it.
    """

    owners: OwnerIndex = NO_OWNERS
    maps: SharedStringMaps = field(default_factory=SharedStringMaps)
    classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    _containers: ContainerDecoder = field(default_factory=ContainerDecoder)
    _heaps: HeapBoundReader = field(default_factory=HeapBoundReader)
    _placements: SchedulingConstraintDecoder = field(default_factory=SchedulingConstraintDecoder)
    _constraints: PodConstraintDecoder = field(default_factory=PodConstraintDecoder)
    _workloads: SharedValues[WorkloadRef, WorkloadRef] = field(default_factory=SharedValues)
    # Of the last pod: replicas follow one another in lists.
    _latest: list[_SharedPodFields] = field(default_factory=list)

    def read(self, document: PodObject) -> Pod:
        """Return the pod; BadInputError names pod, place and fix."""
        try:
            return self._read(document)
        except BadInputError as error:
            metadata = document.metadata
            label = format_object_label("Pod", metadata.namespace or "default", metadata.name)
            raise BadInputError(convert_to_single_line(f"{label}: {error}")) from error

    def _read(self, document: PodObject) -> Pod:
        metadata, spec, status = document.metadata, document.spec, document.status or _NO_STATUS
        shared = self._read_shared_fields(document, status)
        node = intern(spec.node_name) if spec.node_name else None
        workload = self.owners.find_workload(
            shared.namespace,
            shared.owner_kind,
            shared.owner_name,
            shared.labels,
            metadata.annotations or {},
            restarts=shared.restart_policy == "Always",
        )
        annotations = self.maps.share_annotations(metadata.annotations)
        identity = read_pod_identity(shared.owner_kind, metadata.name, node or get_pinned_node(shared.placement))
        given = find_priority_class(shared.priority_class, self.classes) if spec.priority is None else None
        phase = status.phase or ("Running" if node else "Pending")
        conditions = [condition for condition in status.conditions or () if condition.type in _READ_CONDITIONS]
        created_at = read_time(metadata.creation_timestamp, "metadata.creationTimestamp")
        for condition in conditions:
            read_time(condition.last_transition_time, f"status.conditions[{condition.type}].lastTransitionTime")
        return Pod(
            namespace=shared.namespace,
            name=metadata.name,
            uid=metadata.uid or "",
            resource_version=metadata.resource_version or "",
            containers=shared.containers,
            node=node,
            workload=self._workloads.share(workload, lambda: workload) if workload else None,
            owner_kind=shared.owner_kind,
            owner_name=shared.owner_name,
            owner_group=shared.owner_group,
            identity=intern(identity),
            labels=shared.labels,
            annotations=annotations,
            phase=intern(phase),
            ready=_is_ready(phase, conditions),
            ready_since=_get_ready_since(conditions),
            started_at=read_time(status.start_time, "status.startTime"),
            terminating=metadata.deletion_timestamp is not None,
            created_at=created_at,
            priority=given.priority if given else spec.priority or 0,
            qos=_read_qos_class(status) or shared.qos,
            overhead=shared.overhead,
            pod_level=shared.pod_level,
            extended_requests=shared.extended,
            runs_on_windows=shared.windows,
            is_mirror_pod=shared.owner_kind == "Node" or MIRROR_POD in annotations,
            resize=_read_resize_state(conditions),
            placement=shared.placement,
            unschedulable_since=_get_unschedulable_since(conditions, created_at),
            scheduling_gated=bool(spec.scheduling_gates),
            constraints=self._constraints.with_claims(shared.constraints, spec, metadata.name),
            may_preempt=shared.preemption_allowed and (given is None or given.may_preempt),
            priority_class=shared.priority_class,
            scheduler=shared.scheduler,
            nominated_node="" if node else intern(status.nominated_node_name or ""),
            restart_policy=shared.restart_policy,
            pod_group=_find_pod_group(spec, shared.labels, metadata.annotations),
        )

    def _read_shared_fields(self, document: PodObject, status: PodStatus) -> _SharedPodFields:
        """Return the fields that a pod shares with its replicas; BadInputError names the place."""
        metadata, spec = document.metadata, document.spec
        heaps = [self._heaps.read(one) for one in (*(spec.init_containers or ()), *spec.containers)]
        source = (
            metadata.namespace,
            metadata.labels,
            metadata.owner_references,
            _get_template_fields(spec),
            [_get_container_fields(one) for one in spec.containers],
            [_get_container_fields(one) for one in spec.init_containers or ()],
            heaps,
            status.init_container_statuses,
            status.container_statuses,
            (status.resources, status.allocated_resources) if spec.resources else None,
        )
        if self._latest and self._latest[0].source == source:
            return self._latest[0]
        namespace, labels = intern(metadata.namespace or "default"), self.maps.share_labels(metadata.labels)
        owner = find_controller(metadata.owner_references)
        placement = self._placements.read(spec)
        containers, extended = self._containers.read_all(spec, status, heaps)
        pod_level = _read_pod_level_resources(spec, status, containers)
        shared = _SharedPodFields(
            source=source,
            namespace=namespace,
            labels=labels,
            owner_kind=intern(qualify_kind(owner.api_version, owner.kind)) if owner else None,
            owner_name=intern(owner.name) if owner else None,
            owner_group=intern(get_foreign_api_group(owner.api_version)) if owner else "",
            placement=placement,
            containers=containers,
            extended=extended,
            pod_level=pod_level,
            preemption_allowed=read_preemption_policy(spec.preemption_policy, "spec.preemptionPolicy"),
            overhead=read_amounts(spec.overhead, "spec.overhead").resources if spec.overhead else NO_RESOURCES,
            qos=compute_qos_class(containers, pod_level),
            windows=(spec.os is not None and spec.os.name == "windows")
            or placement.requires_label(OPERATING_SYSTEM, "windows"),
            constraints=self._constraints.read(spec, namespace, labels),
            priority_class=intern(spec.priority_class_name or ""),
            scheduler=intern(spec.scheduler_name or DEFAULT_SCHEDULER),
            restart_policy=intern(spec.restart_policy or "Always"),
        )
        self._latest[:] = [shared]
        return shared


def decode_pod(document: PodObject | Mapping[str, Any], owners: OwnerIndex = NO_OWNERS) -> Pod:
    """Return the pod of a struct or of decoded JSON; a pod in creation may have no name yet.

    BadInputError names pod, place and fix.
    """
    return PodDecoder(owners).read(
        document if isinstance(document, PodObject) else convert_to_struct(document, PodObject)
    )


def _read_pod_level_resources(spec: PodSpec, status: PodStatus, containers: tuple[Container, ...]) -> Container | None:
    """Read pod-level resources with the kubelet's report; None if the pod states none.

    With a limit, absent requests become what kube-apiserver makes them: the containers' sum if any is stated, else the
    limit.
    """
    stated = spec.resources
    if stated is None or not (stated.requests or stated.limits):
        return None
    requests = read_amounts(stated.requests, "spec.resources.requests")
    limits = read_amounts(stated.limits, "spec.resources.limits")
    if limits != NOTHING_STATED:
        running = [container.requests for container in containers if container.role is not ContainerRole.INIT]
        requests = requests.with_defaults(
            StatedResources(
                _sum_requests(limits.cpu_millicores, [one.cpu_millicores for one in running]),
                _sum_requests(limits.memory_bytes, [one.memory_bytes for one in running]),
            )
        )
    allocated, actual = status.allocated_resources, status.resources
    return Container(
        name=POD_LEVEL,
        role=ContainerRole.POD,
        requests=requests,
        limits=limits,
        allocated=None if allocated is None else read_amounts(allocated, "status.allocatedResources"),
        actual=None if actual is None else read_amounts(actual.requests, "status.resources.requests"),
        actual_limits=None if actual is None else read_amounts(actual.limits, "status.resources.limits"),
    )


def _sum_requests(limit: int | None, requests: list[int | None]) -> int | None:
    stated = [request for request in requests if request is not None]
    return sum(stated) if stated else limit


def _find_pod_group(spec: PodSpec, labels: Mapping[str, str], annotations: Mapping[str, str] | None) -> str:
    """Return the group that a pod is scheduled with, from its spec or from another scheduler's label or annotation."""
    if spec.scheduling_group is not None:
        return spec.scheduling_group.pod_group_name or "schedulingGroup"
    named = [labels[key] for key in POD_GROUP_LABELS if labels.get(key)]
    named += [annotations[key] for key in POD_GROUP_ANNOTATIONS if annotations.get(key)] if annotations else []
    return intern(named[0]) if named else ""


def _read_qos_class(status: PodStatus) -> QosClass | None:
    if not status.qos_class:
        return None
    stated = _QOS_CLASSES.get(status.qos_class)
    if stated is None:
        raise BadInputError(f'status.qosClass: "{status.qos_class}" is not a class; write one of {", ".join(QosClass)}')
    return stated


def _read_resize_state(conditions: Sequence[PodCondition]) -> ResizeState:
    pending, since, in_progress, error, message = None, None, False, False, ""
    for condition in conditions:
        if condition.status != "True":
            continue
        if condition.type == "PodResizePending":
            pending, since = _read_pending_reason(condition.reason), condition.last_transition_time
            message = condition.message or ""
        elif condition.type == "PodResizeInProgress":
            in_progress, error = True, condition.reason == "Error"
    if pending is None and not in_progress:
        return NO_RESIZE
    return ResizeState(pending, since, in_progress, error, _find_static_manager(message), _SWAP in message)


def _find_static_manager(message: str) -> ResourceName | None:
    """Return the resource whose static manager makes a resize infeasible, as kubelets 1.33 to 1.36 say it."""
    found = _STATIC_MANAGER.search(message)
    return None if found is None else ResourceName(found[1].lower())


def _read_pending_reason(reason: str | None) -> ResizePending:
    """Return why a resize is pending; one for an unknown reason may still be done, hence counts as deferred."""
    return ResizePending.INFEASIBLE if reason == "Infeasible" else ResizePending.DEFERRED


def _is_ready(phase: str, conditions: Sequence[PodCondition]) -> bool:
    """Return whether a pod is ready; a running one without the condition, as in files source by hand, is."""
    stated = [condition.status == "True" for condition in conditions if condition.type == "Ready"]
    return phase == "Running" and all(stated)


def _get_ready_since(conditions: Sequence[PodCondition]) -> datetime | None:
    for condition in conditions:
        if condition.type == "Ready" and condition.status == "True":
            return condition.last_transition_time
    return None


def _get_unschedulable_since(conditions: Sequence[PodCondition], created_at: datetime | None) -> datetime | None:
    for condition in conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason == "Unschedulable":
            return condition.last_transition_time or created_at
    return None
