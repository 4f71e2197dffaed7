"""Build a snapshot from objects in any order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cruise.domain.annotations import OPERATING_SYSTEM
from cruise.domain.autoscalers import LimitRangeItem, NodeAutoscalerKind, NodePool, ResourceQuota
from cruise.domain.cluster import (
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    Node,
    OomKill,
    Pod,
    PodDisruptionBudget,
    VerticalPodAutoscaler,
    Workload,
    WorkloadRef,
)
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import format_object_label
from cruise.kube_json.objects.containers import read_oom_kills
from cruise.kube_json.objects.devices import DeviceObjects, add_devices
from cruise.kube_json.objects.node import (
    decode_node,
    decode_node_pool,
    detect_node_autoscaler,
    detect_node_autoscaler_object,
)
from cruise.kube_json.objects.owners import (
    INTERMEDIATE_KINDS,
    OwnerIndex,
    OwnerKey,
    PriorityClass,
    SharedStringMaps,
    add_namespace_name_label,
    decode_priority_class,
    find_priority_class,
    is_foreign_api_group,
    keep_read_annotations,
)
from cruise.kube_json.objects.pod import PodDecoder
from cruise.kube_json.objects.quantities import decode_quota, group_quotas_by_namespace
from cruise.kube_json.objects.rightsizing_policies import decode_policy
from cruise.kube_json.objects.storage import (
    ClaimSpec,
    CsiNode,
    StorageCapacities,
    StorageCapacity,
    StorageClass,
    decode_capacity_publishing_driver,
    decode_claim,
    decode_csi_node,
    decode_storage_capacity,
    decode_storage_class,
    resolve_storage,
)
from cruise.kube_json.objects.volumes import PersistentVolume, VolumeAttachment, decode_attachment, decode_volume
from cruise.kube_json.objects.workloads import (
    add_template_resources,
    decode_autoscaler,
    decode_budget,
    decode_limit_range,
    decode_vertical_autoscaler,
    decode_workload,
    find_scale_targets,
    is_controller_kind_read,
    read_controller,
)
from cruise.kube_json.wire import object_json, pod_json, policy_json, storage_json
from cruise.kube_json.wire import storage_json as device_json


@dataclass(slots=True)
class ObjectCollection:
    """The objects decoded so far; equal parts of pods are shared."""

    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    workloads: dict[tuple[str, WorkloadRef], Workload] = field(default_factory=dict)
    controllers: dict[OwnerKey, WorkloadRef | None] = field(default_factory=dict)
    budgets: list[PodDisruptionBudget] = field(default_factory=list)
    autoscalers: list[HorizontalPodAutoscaler] = field(default_factory=list)
    vertical_autoscalers: list[VerticalPodAutoscaler] = field(default_factory=list)
    rightsizing_policies: list[RightsizingPolicy] = field(default_factory=list)
    oom_kills: list[OomKill] = field(default_factory=list)
    limit_ranges: dict[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    quotas: list[tuple[str, ResourceQuota]] = field(default_factory=list)
    namespace_annotations: dict[str, Mapping[str, str]] = field(default_factory=dict)
    namespace_labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    claims: list[ClaimSpec] = field(default_factory=list)
    volumes: dict[str, PersistentVolume] = field(default_factory=dict)
    storage_classes: dict[str, StorageClass] = field(default_factory=dict)
    node_drivers: dict[str, CsiNode] = field(default_factory=dict)
    attachments: list[VolumeAttachment] = field(default_factory=list)
    capacity_publishing_drivers: set[str] = field(default_factory=set)
    storage_capacities: list[StorageCapacity] = field(default_factory=list)
    devices: DeviceObjects = field(default_factory=DeviceObjects)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    node_autoscalers: set[NodeAutoscalerKind] = field(default_factory=set)
    node_pools: list[NodePool] = field(default_factory=list)
    node_claims: list[Node] = field(default_factory=list)
    _kinds: set[str] = field(default_factory=set)
    # For each pod the class that gives its priority, empty for the default; None if the pod states one.
    _class_names: list[str | None] = field(default_factory=list)
    # ReplicaSets and Jobs whose controllers may not be in the list.
    _children: list[Workload] = field(default_factory=list)
    _maps: SharedStringMaps = field(default_factory=SharedStringMaps)
    _pod_reader: PodDecoder = field(init=False)

    def __post_init__(self) -> None:
        """Share labels between nodes and pods."""
        self._pod_reader = PodDecoder(maps=self._maps)

    def add(self, document: object_json.AnyObject) -> None:
        """Decode one object; BadInputError names object, place and fix."""
        if not document.metadata.name:
            kind, namespace = document.__struct_config__.tag, document.metadata.namespace
            where = f"{kind} in namespace {namespace}" if namespace else kind
            raise BadInputError(f"{where}: has no name; add metadata.name")
        self._kinds.add(str(document.__struct_config__.tag))
        match document:
            case pod_json.PodObject():
                pod = self._pod_reader.read(document)
                self.pods.append(pod)
                stated = document.spec.priority is not None
                self._class_names.append(None if stated else document.spec.priority_class_name or "")
                self.devices.add_user(document)
                self.oom_kills.extend(read_oom_kills(pod, document.status))
            case object_json.NodeObject():
                self.nodes.append(decode_node(document, self._maps))
            case object_json.WorkloadObject():
                self._add_workload(document)
            case object_json.DisruptionBudgetObject():
                budget = decode_budget(document)
                self.budgets += [budget] if budget else []
            case object_json.HorizontalAutoscalerObject() | object_json.VerticalAutoscalerObject():
                self._add_autoscaler(document)
            case policy_json.PolicyObject():
                self.rightsizing_policies.append(decode_policy(document))
            case object_json.LimitRangeObject() | object_json.QuotaObject() | object_json.NamespaceObject():
                self._add_namespaced(document)
            case object_json.NodePoolObject() | object_json.NodeClaimObject() | object_json.ConfigMapObject():
                self._add_node_autoscaling(document)
            case _:
                self._add_storage_or_devices(document)

    def _add_node_autoscaling(
        self, document: object_json.NodePoolObject | object_json.NodeClaimObject | object_json.ConfigMapObject
    ) -> None:
        if isinstance(document, object_json.NodeClaimObject):
            self.node_claims.append(decode_node(document, self._maps))
            return
        autoscaler = detect_node_autoscaler_object(document)
        self.node_autoscalers |= {autoscaler} if autoscaler else set()
        if isinstance(document, object_json.NodePoolObject) and autoscaler:
            self.node_pools.append(decode_node_pool(document))

    def _add_autoscaler(
        self, document: object_json.HorizontalAutoscalerObject | object_json.VerticalAutoscalerObject
    ) -> None:
        if isinstance(document, object_json.HorizontalAutoscalerObject):
            self.autoscalers.append(decode_autoscaler(document))
        else:
            self.vertical_autoscalers.append(decode_vertical_autoscaler(document))

    def _add_storage_or_devices(
        self, document: storage_json.AnyStorage | storage_json.PriorityClassObject | device_json.AnyDevices
    ) -> None:
        name = document.metadata.name
        match document:
            case storage_json.PriorityClassObject():
                self.priority_classes[name] = decode_priority_class(document)
            case storage_json.VolumeClaimObject():
                self.claims.append(decode_claim(document))
            case storage_json.PersistentVolumeObject():
                self.volumes[name] = decode_volume(document)
            case storage_json.StorageClassObject():
                self.storage_classes[name] = decode_storage_class(document)
            case storage_json.CsiNodeObject():
                self.node_drivers[name] = decode_csi_node(document)
            case storage_json.AttachmentObject():
                attachment = decode_attachment(document)
                self.attachments += [attachment] if attachment else []
            case storage_json.DriverObject():
                driver_name = decode_capacity_publishing_driver(document)
                self.capacity_publishing_drivers |= {driver_name} if driver_name else set()
            case storage_json.StorageCapacityObject():
                capacity = decode_storage_capacity(document)
                self.storage_capacities += [capacity] if capacity else []
            case _:
                self.devices.add(document)

    def _add_workload(self, document: object_json.WorkloadObject) -> None:
        control = read_controller(document)
        if control is not None:
            key, controller = control
            self.controllers[key] = controller
        workload = decode_workload(document)
        key_of = (workload.namespace, workload.ref)
        if control is not None and workload.controller is not None:
            self._children += [] if is_controller_kind_read(workload) else [workload]
        elif key_of not in self.workloads or not is_foreign_api_group(workload.api_version):
            # Kubernetes' own object replaces a foreign one with the same kind and name.
            self.workloads[key_of] = workload

    def _add_namespaced(
        self, document: object_json.LimitRangeObject | object_json.QuotaObject | object_json.NamespaceObject
    ) -> None:
        if isinstance(document, object_json.NamespaceObject):
            name = document.metadata.name
            annotations = keep_read_annotations(document.metadata.annotations)
            if annotations:
                self.namespace_annotations[name] = annotations
            self.namespace_labels[name] = self._maps.share_labels(
                add_namespace_name_label(document.metadata.labels, name)
            )
            return
        namespace = document.metadata.namespace or "default"
        if isinstance(document, object_json.QuotaObject):
            self.quotas.append((namespace, decode_quota(document)))
            return
        self.limit_ranges[namespace] = self.limit_ranges.get(namespace, ()) + decode_limit_range(document)

    def build_snapshot(self) -> ClusterSnapshot:
        """Return all objects as one snapshot, sorted, with the workloads of pods.

        Finished or terminating pods on nodes that are not listed are left out, but not their OOM kills: the workload's
        next pod has the same limits. Other pods may be on unlisted nodes, which were created after nodes were printed.
        BadInputError for duplicates, and for running pods if no node is listed.
        """
        nodes = sorted(self.nodes, key=lambda node: node.name)
        _check_duplicates("Node", [("", node.name) for node in nodes])
        pods = sorted(self._complete_pods(nodes), key=lambda pod: (pod.namespace, pod.name))
        _check_duplicates("Pod", [(pod.namespace, pod.name) for pod in pods])
        nodes, pods = add_devices(nodes, pods, self.devices)
        return ClusterSnapshot(
            nodes=tuple(nodes),
            pods=tuple(pods),
            workloads=add_template_resources(self.workloads, self._children),
            budgets=tuple(sorted(self.budgets, key=lambda budget: (budget.namespace, budget.name))),
            autoscalers=tuple(sorted(self.autoscalers, key=lambda scaler: (scaler.namespace, scaler.name))),
            vertical_autoscalers=tuple(sorted(self.vertical_autoscalers, key=lambda vpa: (vpa.namespace, vpa.name))),
            rightsizing_policies=tuple(sorted(self.rightsizing_policies, key=lambda one: (one.namespace, one.name))),
            # A file has no scale subresources.
            scales=dict.fromkeys(find_scale_targets(self.autoscalers, self.vertical_autoscalers)),
            limit_ranges=self.limit_ranges,
            namespace_annotations=self.namespace_annotations,
            oom_kills=tuple(_with_workloads(self.oom_kills, self.pods)),
            quotas=group_quotas_by_namespace(self.quotas),
            storage_and_namespaces=resolve_storage(
                self.claims,
                self.volumes,
                self.storage_classes,
                self.node_drivers,
                {pod.namespace: add_namespace_name_label(None, pod.namespace) for pod in pods} | self.namespace_labels,
                capacities=StorageCapacities(
                    frozenset(self.capacity_publishing_drivers), tuple(self.storage_capacities)
                ),
                attachments=self.attachments,
            ),
            node_autoscaler=detect_node_autoscaler(nodes, self.workloads.values(), self.node_autoscalers),
            node_pools=tuple(sorted(self.node_pools, key=lambda pool: pool.name)),
            node_claims=tuple(sorted(self.node_claims, key=lambda claim: claim.name)),
            listed_kinds=frozenset(self._kinds),
        )

    def _complete_pods(self, nodes: Iterable[Node]) -> Iterable[Pod]:
        """Yield the pods with what other objects state: workload, priority and operating system."""
        cron_jobs = {(namespace, ref.name) for namespace, ref in self.workloads if ref.kind == "CronJob"}
        owners = OwnerIndex(self.controllers, cron_jobs)
        windows = {node.name: node.labels.get(OPERATING_SYSTEM) == "windows" for node in nodes}
        for pod, class_name in zip(self.pods, self._class_names, strict=True):
            on_windows = False
            changes: dict[str, object] = {}
            if pod.owner_kind in INTERMEDIATE_KINDS:
                workload = owners.find_workload_of(pod)
                if workload != pod.workload:
                    # No other code has the pod yet, and a copy would take half as long as decoding it.
                    object.__setattr__(pod, "workload", workload)
            if pod.node is not None:
                if pod.node not in windows and (pod.is_finished or pod.terminating):
                    continue
                if not windows:
                    label = format_object_label("Pod", pod.namespace, pod.name)
                    raise BadInputError(
                        f"{label}: is on node {pod.node}, and no node is listed; print nodes and pods together"
                    )
                on_windows = windows.get(pod.node, False)
            if on_windows and not pod.runs_on_windows:
                changes["runs_on_windows"] = True
            if class_name is not None:
                changes |= self._read_priority_class(pod, class_name)
            for name, value in changes.items():
                object.__setattr__(pod, name, value)
            yield pod

    def _read_priority_class(self, pod: Pod, name: str) -> Mapping[str, object]:
        """Return the fields that a pod gets from its PriorityClass."""
        priority_class = find_priority_class(name, self.priority_classes)
        if priority_class is None and name:
            label = format_object_label("Pod", pod.namespace, pod.name)
            raise BadInputError(
                f'{label}: spec.priorityClassName: "{name}" is not in the list; '
                "print priorityclasses too, or add spec.priority"
            )
        if priority_class is None or (priority_class.priority, priority_class.may_preempt) == (
            pod.priority,
            True,
        ):
            return {}
        return {
            "priority": priority_class.priority,
            "may_preempt": pod.may_preempt and priority_class.may_preempt,
        }


def _with_workloads(kills: Iterable[OomKill], pods: Iterable[Pod]) -> Iterable[OomKill]:
    """Return kills sorted by pod, with the pods' workloads."""
    killed = {(kill.namespace, kill.pod) for kill in kills}
    if not killed:
        return ()
    workloads = {(pod.namespace, pod.name): pod.workload for pod in pods if (pod.namespace, pod.name) in killed}
    found = [replace(kill, workload=workloads[kill.namespace, kill.pod]) for kill in kills]
    return sorted(found, key=lambda kill: (kill.namespace, kill.pod))


def _check_duplicates(kind: str, names: Sequence[tuple[str, str]]) -> None:
    """Reject equal neighbours in sorted names."""
    for earlier, later in pairwise(names):
        if earlier == later:
            raise BadInputError(f"{format_object_label(kind, *later)}: is in the list twice; remove one")
