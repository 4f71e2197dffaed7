"""A snapshot put together from objects that come one by one, in any order."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from cruise.domain.annotations import OPERATING_SYSTEM
from cruise.domain.cluster import (
    Autoscaler,
    DisruptionBudget,
    LimitRangeItem,
    Node,
    NodeAutoscaler,
    OomKill,
    Pod,
    Snapshot,
    VerticalAutoscaler,
    Workload,
    WorkloadRef,
)
from cruise.domain.node_pools import NodePool
from cruise.domain.quotas import Quota
from cruise.errors import BadInput
from cruise.kube_json.objects.annotations import StringMaps, trimmed, with_name
from cruise.kube_json.objects.around_pods import (
    control_of,
    decode_autoscaler,
    decode_budget,
    decode_limit_range,
    decode_vertical_autoscaler,
    decode_workload,
    has_known_controller,
    scale_targets,
    with_known_through,
)
from cruise.kube_json.objects.devices import Devices, with_devices
from cruise.kube_json.objects.node import decode_node
from cruise.kube_json.objects.node_autoscaling import autoscaler_of, autoscaler_told_by
from cruise.kube_json.objects.node_pools import decode_node_pool
from cruise.kube_json.objects.oom_kills import oom_kills_of
from cruise.kube_json.objects.owners import INTERMEDIATE_KINDS, OwnerKey, Owners, is_of_another
from cruise.kube_json.objects.pod import PodReader
from cruise.kube_json.objects.priority_classes import PriorityClass, class_of, decode_priority_class
from cruise.kube_json.objects.quotas import by_namespace, decode_quota
from cruise.kube_json.objects.storage import (
    ClaimRequest,
    NodeDrivers,
    StorageClass,
    StorageRoom,
    StorageRooms,
    decode_claim,
    decode_node_drivers,
    decode_publishing_driver,
    decode_storage_class,
    decode_storage_room,
    surroundings_of,
)
from cruise.kube_json.objects.volumes import Attachment, Volume, decode_attachment, decode_volume
from cruise.kube_json.refusals import label_of
from cruise.kube_json.wire import device_json, object_json, pod_json, storage_json


@dataclass(slots=True)
class Gathering:
    """Objects decoded so far; equal parts of pods are shared for as long as it lives."""

    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    workloads: dict[tuple[str, WorkloadRef], Workload] = field(default_factory=dict)
    controllers: dict[OwnerKey, WorkloadRef | None] = field(default_factory=dict)
    budgets: list[DisruptionBudget] = field(default_factory=list)
    autoscalers: list[Autoscaler] = field(default_factory=list)
    vertical_autoscalers: list[VerticalAutoscaler] = field(default_factory=list)
    oom_kills: list[OomKill] = field(default_factory=list)
    limit_ranges: dict[str, tuple[LimitRangeItem, ...]] = field(default_factory=dict)
    quotas: list[tuple[str, Quota]] = field(default_factory=list)
    namespace_annotations: dict[str, Mapping[str, str]] = field(default_factory=dict)
    namespace_labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    claims: list[ClaimRequest] = field(default_factory=list)
    volumes: dict[str, Volume] = field(default_factory=dict)
    storage_classes: dict[str, StorageClass] = field(default_factory=dict)
    node_drivers: dict[str, NodeDrivers] = field(default_factory=dict)
    attachments: list[Attachment] = field(default_factory=list)
    publishing_drivers: set[str] = field(default_factory=set)
    storage_rooms: list[StorageRoom] = field(default_factory=list)
    devices: Devices = field(default_factory=Devices)
    priority_classes: dict[str, PriorityClass] = field(default_factory=dict)
    node_autoscalers: set[NodeAutoscaler] = field(default_factory=set)
    node_pools: list[NodePool] = field(default_factory=list)
    node_claims: list[Node] = field(default_factory=list)
    _kinds: set[str] = field(default_factory=set)
    # For each pod the class that its priority comes from, empty for the default; None where it states one.
    _class_names: list[str | None] = field(default_factory=list)
    # ReplicaSets and Jobs of controllers that may not be read themselves.
    _below: list[Workload] = field(default_factory=list)
    _maps: StringMaps = field(default_factory=StringMaps)
    _pod_reader: PodReader = field(init=False)

    def __post_init__(self) -> None:
        """Share labels between nodes and pods."""
        self._pod_reader = PodReader(maps=self._maps)

    def add(self, document: object_json.AnyObject) -> None:
        """Decode one object. Raises BadInput that names object, place and fix."""
        if not document.metadata.name:
            kind, namespace = document.__struct_config__.tag, document.metadata.namespace
            where = f"{kind} in namespace {namespace}" if namespace else kind
            raise BadInput(f"{where}: has no name; add metadata.name")
        self._kinds.add(str(document.__struct_config__.tag))
        match document:
            case pod_json.PodObject():
                pod = self._pod_reader.read(document)
                self.pods.append(pod)
                stated = document.spec.priority is not None
                self._class_names.append(None if stated else document.spec.priority_class_name or "")
                self.devices.use(document)
                self.oom_kills.extend(oom_kills_of(pod, document.status))
            case object_json.NodeObject():
                self.nodes.append(decode_node(document, self._maps))
            case object_json.WorkloadObject():
                self._add_workload(document)
            case object_json.BudgetObject():
                budget = decode_budget(document)
                self.budgets += [budget] if budget else []
            case object_json.AutoscalerObject() | object_json.VerticalAutoscalerObject():
                self._add_autoscaler(document)
            case object_json.LimitRangeObject() | object_json.QuotaObject() | object_json.NamespaceObject():
                self._add_namespaced(document)
            case object_json.NodePoolObject() | object_json.NodeClaimObject() | object_json.ConfigMapObject():
                self._add_node_autoscaling(document)
            case storage_json.PriorityClassObject():
                self.priority_classes[document.metadata.name] = decode_priority_class(document)
            case _:
                self._add_storage_or_devices(document)

    def _add_node_autoscaling(
        self, document: object_json.NodePoolObject | object_json.NodeClaimObject | object_json.ConfigMapObject
    ) -> None:
        if isinstance(document, object_json.NodeClaimObject):
            self.node_claims.append(decode_node(document, self._maps))
            return
        told = autoscaler_told_by(document)
        self.node_autoscalers |= {told} if told else set()
        if isinstance(document, object_json.NodePoolObject) and told:
            self.node_pools.append(decode_node_pool(document))

    def _add_autoscaler(self, document: object_json.AutoscalerObject | object_json.VerticalAutoscalerObject) -> None:
        if isinstance(document, object_json.AutoscalerObject):
            self.autoscalers.append(decode_autoscaler(document))
        else:
            self.vertical_autoscalers.append(decode_vertical_autoscaler(document))

    def _add_storage_or_devices(self, document: storage_json.AnyStorage | device_json.AnyDevices) -> None:
        name = document.metadata.name
        match document:
            case storage_json.ClaimObject():
                self.claims.append(decode_claim(document))
            case storage_json.VolumeObject():
                self.volumes[name] = decode_volume(document)
            case storage_json.StorageClassObject():
                self.storage_classes[name] = decode_storage_class(document)
            case storage_json.NodeDriversObject():
                self.node_drivers[name] = decode_node_drivers(document)
            case storage_json.AttachmentObject():
                attachment = decode_attachment(document)
                self.attachments += [attachment] if attachment else []
            case storage_json.DriverObject():
                publishing = decode_publishing_driver(document)
                self.publishing_drivers |= {publishing} if publishing else set()
            case storage_json.CapacityObject():
                room = decode_storage_room(document)
                self.storage_rooms += [room] if room else []
            case _:
                self.devices.add(document)

    def _add_workload(self, document: object_json.WorkloadObject) -> None:
        control = control_of(document)
        if control is not None:
            key, controller = control
            self.controllers[key] = controller
        workload = decode_workload(document)
        key_of = (workload.namespace, workload.ref)
        if control is not None and workload.controller is not None:
            self._below += [] if has_known_controller(workload) else [workload]
        elif key_of not in self.workloads or not is_of_another(workload.api_version):
            # Of two lookalikes of one name, Kubernetes' own counts.
            self.workloads[key_of] = workload

    def _add_namespaced(
        self, document: object_json.LimitRangeObject | object_json.QuotaObject | object_json.NamespaceObject
    ) -> None:
        if isinstance(document, object_json.NamespaceObject):
            name = document.metadata.name
            annotations = trimmed(document.metadata.annotations)
            if annotations:
                self.namespace_annotations[name] = annotations
            self.namespace_labels[name] = self._maps.labels(with_name(document.metadata.labels, name))
            return
        namespace = document.metadata.namespace or "default"
        if isinstance(document, object_json.QuotaObject):
            self.quotas.append((namespace, decode_quota(document)))
            return
        self.limit_ranges[namespace] = self.limit_ranges.get(namespace, ()) + decode_limit_range(document)

    def snapshot(self) -> Snapshot:
        """Return everything as one snapshot, sorted, with owners followed to the top.

        Pods that have finished or are going, on a node that is gone already, are left out: they hold nothing. Their
        kills stay, since the workload's next pod has the same limits. Other
        pods may be on nodes that are not listed, since nodes are printed before pods and come meanwhile.
        Raises BadInput for duplicates, and for running pods where no node at all is listed.
        """
        nodes = sorted(self.nodes, key=lambda node: node.name)
        _refuse_duplicates("Node", [("", node.name) for node in nodes])
        pods = sorted(self._finished_pods(nodes), key=lambda pod: (pod.namespace, pod.name))
        _refuse_duplicates("Pod", [(pod.namespace, pod.name) for pod in pods])
        nodes, pods = with_devices(nodes, pods, self.devices)
        return Snapshot(
            nodes=tuple(nodes),
            pods=tuple(pods),
            workloads=with_known_through(self.workloads, self._below),
            budgets=tuple(sorted(self.budgets, key=lambda budget: (budget.namespace, budget.name))),
            autoscalers=tuple(sorted(self.autoscalers, key=lambda scaler: (scaler.namespace, scaler.name))),
            vertical_autoscalers=tuple(sorted(self.vertical_autoscalers, key=lambda vpa: (vpa.namespace, vpa.name))),
            # A file has no scales, and none comes later.
            scales=dict.fromkeys(scale_targets(self.autoscalers, self.vertical_autoscalers)),
            limit_ranges=self.limit_ranges,
            namespace_annotations=self.namespace_annotations,
            oom_kills=tuple(_with_workloads(self.oom_kills, self.pods)),
            quotas=by_namespace(self.quotas),
            surroundings=surroundings_of(
                self.claims,
                self.volumes,
                self.storage_classes,
                self.node_drivers,
                {pod.namespace: with_name(None, pod.namespace) for pod in pods} | self.namespace_labels,
                rooms=StorageRooms(frozenset(self.publishing_drivers), tuple(self.storage_rooms)),
                attachments=self.attachments,
            ),
            node_autoscaler=autoscaler_of(nodes, self.workloads.values(), self.node_autoscalers),
            node_pools=tuple(sorted(self.node_pools, key=lambda pool: pool.name)),
            node_claims=tuple(sorted(self.node_claims, key=lambda claim: claim.name)),
            listed_kinds=frozenset(self._kinds),
        )

    def _finished_pods(self, nodes: Iterable[Node]) -> Iterable[Pod]:
        """Yield the pods with what only the other objects tell: the topmost controller, the node's system."""
        cron_jobs = {(namespace, ref.name) for namespace, ref in self.workloads if ref.kind == "CronJob"}
        owners = Owners(self.controllers, cron_jobs)
        windows = {node.name: node.labels.get(OPERATING_SYSTEM) == "windows" for node in nodes}
        for pod, class_name in zip(self.pods, self._class_names, strict=True):
            on_windows = False
            changes: dict[str, object] = {}
            if pod.owner_kind in INTERMEDIATE_KINDS:
                workload = owners.workload_of(pod.namespace, pod.owner_kind, pod.owner_name, pod.labels)
                if workload != pod.workload:
                    # Nothing else has seen the pod yet, and to make it anew takes as long as half of reading it.
                    object.__setattr__(pod, "workload", workload)
            if pod.node is not None:
                if pod.node not in windows and (pod.terminal or pod.terminating):
                    continue
                if not windows:
                    label = label_of("Pod", pod.namespace, pod.name)
                    raise BadInput(
                        f"{label}: is on node {pod.node}, and no node is listed; print nodes and pods together"
                    )
                on_windows = windows.get(pod.node, False)
            if on_windows and not pod.windows:
                changes["windows"] = True
            if class_name is not None:
                changes |= self._from_class(pod, class_name)
            for name, value in changes.items():
                object.__setattr__(pod, name, value)
            yield pod

    def _from_class(self, pod: Pod, name: str) -> Mapping[str, object]:
        """Return what a pod has from the class called `name`."""
        given = class_of(name, self.priority_classes)
        if given is None and name:
            label = label_of("Pod", pod.namespace, pod.name)
            raise BadInput(
                f'{label}: spec.priorityClassName: "{name}" is not in the list; '
                "print priorityclasses too, or add spec.priority"
            )
        if given is None or (given.priority, given.preempts) == (pod.priority, True):
            return {}
        return {"priority": given.priority, "preempts": pod.preempts and given.preempts}


def _with_workloads(kills: Iterable[OomKill], pods: Iterable[Pod]) -> Iterable[OomKill]:
    """Return kills sorted by pod, with the workloads that the pods were found to have."""
    killed = {(kill.namespace, kill.pod) for kill in kills}
    if not killed:
        return ()
    workloads = {(pod.namespace, pod.name): pod.workload for pod in pods if (pod.namespace, pod.name) in killed}
    found = [replace(kill, workload=workloads[kill.namespace, kill.pod]) for kill in kills]
    return sorted(found, key=lambda kill: (kill.namespace, kill.pod))


def _refuse_duplicates(kind: str, names: Sequence[tuple[str, str]]) -> None:
    """Refuse two equal neighbours in sorted names."""
    for earlier, later in pairwise(names):
        if earlier == later:
            raise BadInput(f"{label_of(kind, *later)}: is in the list twice; keep one of the two")
