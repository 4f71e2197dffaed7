"""The objects of a cluster as decisions read them; a snapshot costs only what changed since the last one."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, cast

import structlog

from cruise.adapters.kube.kinds import WatchedKind
from cruise.adapters.kube.object_store import (
    ControllerMap,
    Key,
    ObjectKeeper,
    ObjectStore,
    PriorityClassStore,
    StorageStores,
    WatchedObjectStore,
    WorkloadDecoder,
    WorkloadStore,
)
from cruise.adapters.kube.pod_store import OomKillWatch, PodStore
from cruise.domain.annotations import MODE, OPERATING_SYSTEM
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import (
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    Node,
    PodDisruptionBudget,
    Workload,
    WorkloadRef,
)
from cruise.domain.policy import Mode
from cruise.domain.rightsizing_policies import CLUSTER_POLICY_KIND, POLICY_KIND, RightsizingPolicy
from cruise.domain.scheduling import LabelSelector, StorageAndNamespaces
from cruise.kube_json.objects.node import decode_node, detect_node_autoscaler
from cruise.kube_json.objects.owners import INTERMEDIATE_KINDS, OwnerIndex, SharedStringMaps, add_namespace_name_label
from cruise.kube_json.objects.quantities import decode_quota, group_quotas_by_namespace
from cruise.kube_json.objects.rightsizing_policies import build_unreadable_policy, decode_policy
from cruise.kube_json.objects.workloads import (
    add_template_resources,
    decode_autoscaler,
    decode_budget,
    decode_limit_range,
    decode_vertical_autoscaler,
    find_scale_targets,
)
from cruise.kube_json.reading.stream import UnreadableObject
from cruise.kube_json.wire import object_json, policy_json
from cruise.kube_json.wire.object_json import AnyObject

log = structlog.get_logger()

T = TypeVar("T")

ScaleTargetKey = tuple[str, WorkloadRef]
"""The namespace and the target of an autoscaler."""

_OFF: Mapping[str, str] = {MODE.name: MODE.write(Mode.OFF)}
# All pods of a cluster may be unreadable for the same reason.
_MAX_LOGGED = 20
_WORKLOADS = (
    object_json.DeploymentObject,
    object_json.ReplicaSetObject,
    object_json.StatefulSetObject,
    object_json.DaemonSetObject,
    object_json.JobObject,
    object_json.CronJobObject,
    object_json.CloneSetObject,
)

# The parts of a snapshot that depend on a kind.
_PARTS: Mapping[str, tuple[str, ...]] = {
    "Pod": (),
    "Node": ("nodes", "windows", "names", "node autoscaler"),
    "PodDisruptionBudget": ("budgets",),
    "HorizontalPodAutoscaler": ("autoscalers", "annotations"),
    "VerticalPodAutoscaler": ("vertical autoscalers", "annotations"),
    "RightsizingPolicy": ("rightsizing policies",),
    "ClusterRightsizingPolicy": ("rightsizing policies",),
    "LimitRange": ("limit ranges", "annotations"),
    "ResourceQuota": ("quotas", "annotations"),
    "Namespace": ("annotations", "storage", "namespaces"),
    "PersistentVolumeClaim": ("storage",),
    "PersistentVolume": ("storage",),
    "StorageClass": ("storage",),
    "CSINode": ("storage",),
    "CSIDriver": ("storage",),
    "CSIStorageCapacity": ("storage",),
    "VolumeAttachment": ("storage",),
    "PriorityClass": (),
}
_WORKLOAD_PARTS = ("workloads", "annotations", "node autoscaler")


class ClusterCache:
    """Objects of all kinds; `version` counts changes.

    An object that cannot be decoded is logged once and left out. The node of such a pod is left out too, because its
    free capacity is unknown. Such a PodDisruptionBudget covers its whole namespace and allows no eviction. Such a
    namespace, and a namespace with such an autoscaler, LimitRange, quota or workload, has mode off. Pods that such a
    policy may select are skipped.
    """

    def __init__(self) -> None:
        self.version = 0
        self.oom_watch = OomKillWatch(lambda: self.pods.list_shown_kills())
        self._logged: dict[tuple[str, Key], str] = {}
        self._parts: dict[str, object] = {}
        maps, read_workload = SharedStringMaps(), WorkloadDecoder().read
        self._workloads: dict[str, WorkloadStore] = {
            _tag(shape): ObjectStore(read_workload, partial(self._workload_changed, _tag(shape)))
            for shape in _WORKLOADS
        }
        self.controllers = ControllerMap({kind: self._workloads[kind] for kind in INTERMEDIATE_KINDS})
        self._storage = StorageStores(self._changed)
        self._classes = PriorityClassStore(self._changed)
        self.owners = OwnerIndex(self.controllers, self._workloads["CronJob"].values)
        self.pods = PodStore(
            self.owners, maps, partial(self._changed, "Pod"), self.oom_watch.report, self._classes.by_name
        )
        self._nodes: ObjectStore[object_json.NodeObject, Node] = ObjectStore(
            lambda document: decode_node(document, maps), partial(self._changed, "Node")
        )
        self._budgets = ObjectStore(decode_budget, partial(self._changed, "PodDisruptionBudget"))
        self._autoscalers = ObjectStore(decode_autoscaler, partial(self._changed, "HorizontalPodAutoscaler"))
        self._vertical = ObjectStore(decode_vertical_autoscaler, partial(self._changed, "VerticalPodAutoscaler"))
        self._policies: dict[str, ObjectStore[policy_json.AnyPolicy, RightsizingPolicy]] = {
            kind: ObjectStore(decode_policy, partial(self._changed, kind))
            for kind in (POLICY_KIND, CLUSTER_POLICY_KIND)
        }
        self._scales: Mapping[ScaleTargetKey, LabelSelector | None] = {}
        self._unreadable_scales: Mapping[ScaleTargetKey, str] = {}
        self._limit_ranges = ObjectStore(decode_limit_range, partial(self._changed, "LimitRange"))
        self._quotas = ObjectStore(decode_quota, partial(self._changed, "ResourceQuota"))
        self._namespaces = ObjectStore(partial(_decode_namespace, maps), partial(self._changed, "Namespace"))
        keepers: dict[str, object] = {
            "Pod": self.pods,
            "Node": self._nodes,
            "PodDisruptionBudget": self._budgets,
            "HorizontalPodAutoscaler": self._autoscalers,
            "VerticalPodAutoscaler": self._vertical,
            "LimitRange": self._limit_ranges,
            "ResourceQuota": self._quotas,
            "Namespace": self._namespaces,
            "PriorityClass": self._classes.store,
            **self._policies,
            **self._storage.list_stores(),
            **self._workloads,
        }
        # Each keeper receives only objects of its own kind.
        self._watched = {
            kind: WatchedObjectStore(cast(ObjectKeeper[AnyObject], keeper)) for kind, keeper in keepers.items()
        }
        self._unreadable = {
            kind: cast(ObjectStore[AnyObject, object], keeper).unreadable for kind, keeper in keepers.items()
        }

    def get_store(self, kind: WatchedKind) -> WatchedObjectStore:
        """Return the store that receives the objects of a kind."""
        return self._watched[_tag(kind.shape)]

    def get_node(self, name: str) -> Node | None:
        """Return one node."""
        return self._nodes.values.get(("", name))

    def list_unreadable(self) -> Iterator[UnreadableObject]:
        """Yield the objects that cannot be decoded."""
        for unreadable in self._unreadable.values():
            yield from unreadable.values()

    def list_scale_targets(self) -> dict[ScaleTargetKey, str]:
        """Return the targets of autoscalers whose kind is not watched, each with its group and version."""
        return find_scale_targets(self._autoscalers.values.values(), self._vertical.values.values())

    def set_scales(
        self, scales: Mapping[ScaleTargetKey, LabelSelector | None], unreadable: Mapping[ScaleTargetKey, str]
    ) -> None:
        """Set the selectors of scales (None if the target has no scale), and the errors of unreadable ones."""
        if scales != self._scales:
            self._scales = dict(scales)
            self.version += 1
        if unreadable != self._unreadable_scales:
            self._unreadable_scales = dict(unreadable)
            self.version += 1

    def snapshot(self) -> ClusterSnapshot:
        """Return the present state; later changes do not affect it."""
        nodes = self._part("nodes", lambda: tuple(_sorted(self._nodes.values)))
        windows = self._part("windows", lambda: frozenset(node.name for node in nodes if _runs_windows(node)))
        names = self._part("names", lambda: frozenset(node.name for node in nodes))
        workloads = self._part("workloads", self._all_workloads)
        unknown = {one.node for one in self.pods.unreadable.values() if one.node is not None}
        return ClusterSnapshot(
            nodes=tuple(node for node in nodes if node.name not in unknown) if unknown else nodes,
            ended_pods=self.pods.list_ended_pods(),
            pods=self.pods.pods(windows, self.pods.find_nodes_in_use() - names),
            workloads=workloads,
            budgets=self._part("budgets", self._all_budgets),
            autoscalers=self.list_autoscalers(),
            vertical_autoscalers=self._part("vertical autoscalers", lambda: tuple(_sorted(self._vertical.values))),
            rightsizing_policies=self._part("rightsizing policies", self._all_policies),
            scales=self._scales,
            unreadable_scales=self._unreadable_scales,
            namespaces=self._part("namespaces", lambda: frozenset(name for _, name in self._all_namespaces())),
            limit_ranges=self._part("limit ranges", self._all_limit_ranges),
            quotas=self._part("quotas", self._all_quotas),
            namespace_annotations=self._part("annotations", self._all_annotations),
            oom_kills=tuple(self.pods.list_shown_kills()),
            storage_and_namespaces=self._storage_and_namespaces(),
            node_autoscaler=self._part("node autoscaler", lambda: detect_node_autoscaler(nodes, workloads.values())),
        )

    def list_autoscalers(self) -> tuple[HorizontalPodAutoscaler, ...]:
        """Return all HPAs; the same tuple until one changes."""
        return self._part("autoscalers", lambda: tuple(_sorted(self._autoscalers.values)))

    def _all_namespaces(self) -> Iterator[Key]:
        yield from self._namespaces.values
        yield from self._namespaces.unreadable

    def _all_workloads(self) -> Mapping[tuple[str, WorkloadRef], Workload]:
        found: dict[tuple[str, WorkloadRef], Workload] = {}
        below: list[Workload] = []
        for kind, store in self._workloads.items():
            workloads = [one for one in store.values.values() if isinstance(one, Workload)]
            if kind in INTERMEDIATE_KINDS:
                below += [one for one in workloads if one.controller is not None]
                workloads = [one for one in workloads if one.controller is None]
            found |= {(one.namespace, one.ref): one for one in workloads}
        return add_template_resources(found, below)

    def _all_budgets(self) -> tuple[PodDisruptionBudget, ...]:
        unreadable = {
            (namespace, name): PodDisruptionBudget(namespace, name, LabelSelector(), 0)
            for namespace, name in self._budgets.unreadable
        }
        return tuple(_sorted(self._budgets.values | unreadable))

    def _all_policies(self) -> tuple[RightsizingPolicy, ...]:
        found: dict[Key, RightsizingPolicy] = {}
        for store in self._policies.values():
            found |= store.values
            found |= {key: build_unreadable_policy(*key, one.problem) for key, one in store.unreadable.items()}
        return tuple(_sorted(found))

    def _all_limit_ranges(self) -> Mapping[str, tuple[LimitRangeItem, ...]]:
        ranges: dict[str, tuple[LimitRangeItem, ...]] = {}
        for (namespace, _), items in sorted(self._limit_ranges.values.items(), key=_key):
            ranges[namespace] = ranges.get(namespace, ()) + items
        return ranges

    def _all_quotas(self) -> Mapping[str, tuple[ResourceQuota, ...]]:
        return group_quotas_by_namespace(
            (namespace, quota) for (namespace, _), quota in sorted(self._quotas.values.items(), key=_key)
        )

    def _storage_and_namespaces(self) -> StorageAndNamespaces:
        found = self._part("storage", self._resolve_storage)
        labels = found.namespace_labels
        missing = {
            name: add_namespace_name_label(None, name) for name in self.pods.list_namespaces() if name not in labels
        }
        return replace(found, namespace_labels={**labels, **missing}) if missing else found

    def _resolve_storage(self) -> StorageAndNamespaces:
        return self._storage.resolve({name: metadata.labels for (_, name), metadata in self._namespaces.values.items()})

    def _all_annotations(self) -> Mapping[str, Mapping[str, str]]:
        annotations = {name: metadata.annotations for (_, name), metadata in self._namespaces.values.items()}
        annotations = {name: values for name, values in annotations.items() if values}
        off = {name for _, name in self._namespaces.unreadable}
        for kind, unreadable in self._unreadable.items():
            if "annotations" in _PARTS.get(kind, _WORKLOAD_PARTS):
                off |= {namespace for namespace, _ in unreadable if namespace}
        return annotations | dict.fromkeys(off, _OFF)

    def _part(self, name: str, make: Callable[[], T]) -> T:
        """Return a part of the snapshot, built again only after a change of what it depends on."""
        if name not in self._parts:
            self._parts[name] = make()
        return cast(T, self._parts[name])

    def _workload_changed(self, kind: str, key: Key) -> None:
        if kind in INTERMEDIATE_KINDS or kind == "CronJob":
            self.pods.invalidate_workloads(key[0])
        self._changed(kind, key)

    def _changed(self, kind: str, key: Key) -> None:
        self.version += 1
        for part in _PARTS.get(kind, _WORKLOAD_PARTS):
            self._parts.pop(part, None)
        unreadable = self._unreadable[kind].get(key)
        if unreadable is None:
            self._logged.pop((kind, key), None)
        elif self._logged.get((kind, key)) != unreadable.problem:
            if len(self._logged) < _MAX_LOGGED:
                log.warning("unreadable object", problem=unreadable.problem)
            elif len(self._logged) == _MAX_LOGGED:
                log.warning("more unreadable objects", problem=unreadable.problem)
            self._logged[(kind, key)] = unreadable.problem


def _tag(shape: type[AnyObject]) -> str:
    return str(shape.__struct_config__.tag)


@dataclass(frozen=True, slots=True)
class _NamespaceMetadata:
    """The fields that are read of a namespace."""

    annotations: Mapping[str, str]
    labels: Mapping[str, str]


def _decode_namespace(maps: SharedStringMaps, document: object_json.NamespaceObject) -> _NamespaceMetadata:
    metadata = document.metadata
    return _NamespaceMetadata(
        maps.share_annotations(metadata.annotations),
        maps.share_labels(add_namespace_name_label(metadata.labels, metadata.name)),
    )


def _runs_windows(node: Node) -> bool:
    return node.labels.get(OPERATING_SYSTEM) == "windows"


def _key(entry: tuple[Key, object]) -> Key:
    return entry[0]


def _sorted(values: Mapping[Key, T]) -> Iterator[T]:
    return (value for _, value in sorted(values.items(), key=_key))
