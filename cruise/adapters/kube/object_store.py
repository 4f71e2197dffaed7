"""The objects of one kind, decoded, and those that cannot be decoded."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from sys import intern
from typing import Generic, Protocol, TypeVar

from cruise.domain.annotations import INSTANCE_TYPE, NODE_GROUPS
from cruise.domain.cluster import Node, Workload, WorkloadRef
from cruise.domain.scheduling import StorageAndNamespaces, get_permanent_taints
from cruise.errors import BadInputError
from cruise.kube_json.objects import storage, volumes
from cruise.kube_json.objects.containers import SharedValues
from cruise.kube_json.objects.owners import OwnerKey, PriorityClass, decode_priority_class
from cruise.kube_json.objects.workloads import READ_CONTROLLERS, decode_workload, read_controller
from cruise.kube_json.reading.stream import UnreadableObject, create_unreadable
from cruise.kube_json.wire import storage_json
from cruise.kube_json.wire.object_json import AnyObject, AnyWorkload

T = TypeVar("T", bound=AnyObject)
T_contra = TypeVar("T_contra", bound=AnyObject, contravariant=True)
V = TypeVar("V")

Key = tuple[str, str]
"""Namespace and name."""


def get_object_key(item: AnyObject | UnreadableObject) -> Key:
    """Return the namespace and name of an object."""
    if isinstance(item, UnreadableObject):
        return item.namespace, item.name
    return intern(item.metadata.namespace or ""), item.metadata.name


class ObjectStore(Generic[T, V]):
    """Values by namespace and name; `changed` receives the key of each object that is added, removed or modified.

    `decode` returns None to leave an object out. Objects that it rejects are in `unreadable`.
    """

    def __init__(self, decode: Callable[[T], V | None], changed: Callable[[Key], None]) -> None:
        self.values: dict[Key, V] = {}
        self.unreadable: dict[Key, UnreadableObject] = {}
        self._decode = decode
        self._changed = changed

    def put(self, item: T | UnreadableObject) -> None:
        """Add or replace an object."""
        key = get_object_key(item)
        if not isinstance(item, UnreadableObject):
            try:
                value = self._decode(item)
            except BadInputError as error:
                item = create_unreadable(item, None, str(error))
            else:
                self._set(key, value)
                return
        self.values.pop(key, None)
        self.unreadable[key] = item
        self._changed(key)

    def drop(self, key: Key) -> None:
        """Remove an object."""
        known = self.values.pop(key, None)
        unreadable = self.unreadable.pop(key, None)
        if known is not None or unreadable is not None:
            self._changed(key)

    def list_keys(self) -> set[Key]:
        """Return the keys of all objects."""
        return self.values.keys() | self.unreadable.keys()

    def _set(self, key: Key, value: V | None) -> None:
        unreadable = self.unreadable.pop(key, None)
        if value is None:
            changed = self.values.pop(key, None) is not None
        else:
            changed = self.values.get(key) != value
            if changed:
                self.values[key] = value
        if changed or unreadable is not None:
            self._changed(key)


class ObjectKeeper(Protocol[T_contra]):
    """A store of the objects of one kind."""

    def put(self, item: T_contra | UnreadableObject) -> None:
        """Add or replace an object."""

    def drop(self, key: Key) -> None:
        """Remove an object."""

    def list_keys(self) -> set[Key]:
        """Return the keys of all objects."""


class WatchedObjectStore:
    """Applies events in the order of versions, also if single objects were read before their event."""

    def __init__(self, keeper: ObjectKeeper[AnyObject]) -> None:
        self._keeper = keeper
        self._read_ahead: dict[Key, int] = {}

    def put(self, item: AnyObject | UnreadableObject, version: str) -> None:
        """Add or replace an object from the watch."""
        key = get_object_key(item)
        if not self._is_outdated(key, version):
            self._keeper.put(item)

    def drop(self, key: Key, version: str) -> None:
        """Remove an object that the watch reports as deleted."""
        if not self._is_outdated(key, version):
            self._keeper.drop(key)

    def retain(self, names: set[Key]) -> None:
        """Remove every object that a list does not have."""
        for key in self._keeper.list_keys() - names:
            self._read_ahead.pop(key, None)
            self._keeper.drop(key)

    def has_objects(self) -> bool:
        """Return whether there is any object."""
        return bool(self._keeper.list_keys())

    def merge(self, item: AnyObject, watched: str | None) -> None:
        """Add an object that was read by itself, unless the watch (at version `watched`) is newer."""
        version, seen = _parse_version(item.metadata.resource_version), _parse_version(watched)
        if version is None or seen is None or version > seen:
            self._keeper.put(item)
            if version is not None:
                self._read_ahead[get_object_key(item)] = version

    def clear(self, key: Key) -> None:
        """Remove an object that was read by itself and not found."""
        self._keeper.drop(key)

    def _is_outdated(self, key: Key, version: str) -> bool:
        """Return whether a newer version than this one was merged."""
        if not self._read_ahead or key not in self._read_ahead:
            return False
        number = _parse_version(version)
        if number is not None and number < self._read_ahead[key]:
            return True
        del self._read_ahead[key]
        return False


def _parse_version(version: str | None) -> int | None:
    """Return a resourceVersion as a number; since Kubernetes 1.35 they are comparable within a kind."""
    return int(version) if version and version.isdecimal() else None


class StorageStores:
    """The kinds that resolve PersistentVolumeClaims; `changed` receives the kind and key of each change.

    An unreadable object leaves out the claims that depend on it. A node with an unreadable CSINode attaches no volume.
    An unreadable CSIDriver has capacity for new volumes only if it publishes that.
    """

    def __init__(self, changed: Callable[[str, Key], None]) -> None:
        self._claims = ObjectStore(storage.decode_claim, partial(changed, "PersistentVolumeClaim"))
        self._volumes = ObjectStore(volumes.decode_volume, partial(changed, "PersistentVolume"))
        self._classes = ObjectStore(storage.decode_storage_class, partial(changed, "StorageClass"))
        self._drivers = ObjectStore(storage.decode_csi_node, partial(changed, "CSINode"))
        self._publishing = ObjectStore(storage.decode_capacity_publishing_driver, partial(changed, "CSIDriver"))
        self._capacities = ObjectStore(storage.decode_storage_capacity, partial(changed, "CSIStorageCapacity"))
        self._attachments = ObjectStore(volumes.decode_attachment, partial(changed, "VolumeAttachment"))

    def list_stores(self) -> dict[str, object]:
        """Return the stores by kind."""
        return {
            "PersistentVolumeClaim": self._claims,
            "PersistentVolume": self._volumes,
            "StorageClass": self._classes,
            "CSINode": self._drivers,
            "CSIDriver": self._publishing,
            "CSIStorageCapacity": self._capacities,
            "VolumeAttachment": self._attachments,
        }

    def resolve(self, namespace_labels: Mapping[str, Mapping[str, str]]) -> StorageAndNamespaces:
        """Return the present state, with labels by namespace."""
        return storage.resolve_storage(
            self._claims.values.values(),
            {name: volume for (_, name), volume in self._volumes.values.items()},
            {name: one for (_, name), one in self._classes.values.items()},
            {name: drivers for (_, name), drivers in self._drivers.values.items()},
            namespace_labels,
            unreadable_nodes=sorted(name for _, name in self._drivers.unreadable),
            capacities=storage.StorageCapacities(
                frozenset(name for _, name in self._publishing.list_keys()), tuple(self._capacities.values.values())
            ),
            attachments=self._attachments.values.values(),
        )


class PriorityClassStore:
    """Priority classes; `by_name` is always up to date."""

    def __init__(self, changed: Callable[[str, Key], None]) -> None:
        self.store = ObjectStore(decode_priority_class, partial(changed, "PriorityClass"))
        self.by_name: Mapping[str, PriorityClass] = _PriorityClassMap(self.store)


class _PriorityClassMap(Mapping[str, PriorityClass]):
    """The objects of a cluster-scoped kind by name."""

    def __init__(self, store: ObjectStore[storage_json.PriorityClassObject, PriorityClass]) -> None:
        self._store = store

    def __getitem__(self, name: str) -> PriorityClass:
        return self._store.values[("", name)]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._store.values)

    def __len__(self) -> int:
        return len(self._store.values)


WorkloadStore = ObjectStore[AnyWorkload, Workload | WorkloadRef]
"""Workloads of one kind; a workload with a controller is stored as the reference to it."""


class ControllerMap(Mapping[OwnerKey, WorkloadRef | None]):
    """The controllers of ReplicaSets and Jobs, always up to date.

    They are looked up in `stores` (by kind), because a Deployment may have ten ReplicaSets.
    """

    def __init__(self, stores: Mapping[str, WorkloadStore]) -> None:
        self._stores = stores

    def __getitem__(self, key: OwnerKey) -> WorkloadRef | None:
        namespace, kind, name = key
        value = self._stores[kind].values[(namespace, name)]
        return value if isinstance(value, WorkloadRef) else value.controller

    def __iter__(self) -> Iterator[OwnerKey]:
        for kind, store in self._stores.items():
            for namespace, name in store.values:
                yield namespace, kind, name

    def __len__(self) -> int:
        return sum(len(store.values) for store in self._stores.values())


class WorkloadDecoder:
    """Decodes workloads of all kinds; equal references to controllers are one object."""

    def __init__(self) -> None:
        self._refs: SharedValues[WorkloadRef, WorkloadRef] = SharedValues()

    def read(self, document: AnyWorkload) -> Workload | WorkloadRef:
        """Return the reference to the controller if the object has one that is read itself, else the workload."""
        control = read_controller(document)
        controller = control[1] if control is not None else None
        if controller is None or controller.kind not in READ_CONTROLLERS:
            return decode_workload(document)
        return self._refs.share(controller, lambda: controller)


# Longer than a weekend; a node type that is no longer offered is assumed for as long.
_REMOVED_NODE_SECONDS = 3 * 24 * 3600
_MAX_NODE_TYPES = 500


class RemovedNodeTypes:
    """The last node of each removed node type (node group, instance type and taints), which may be added again."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._nodes: tuple[Node, ...] = ()
        self._present: Mapping[Hashable, Node] = {}
        self._removed: dict[Hashable, tuple[float, Node]] = {}
        self._result: tuple[Node, ...] = ()

    def get_nodes_of_absent_types(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Update the present nodes, and return one node of each other type, sorted by name.

        The same nodes give the same object.
        """
        if nodes is self._nodes:
            return self._result
        self._nodes = nodes
        now, before = self._clock(), self._present
        self._present = {_node_type(node): node for node in nodes}
        removed = self._removed | {node_type: (now, node) for node_type, node in before.items()}
        recent = [
            (node_type, one)
            for node_type, one in removed.items()
            if node_type not in self._present and now - one[0] <= _REMOVED_NODE_SECONDS
        ]
        recent.sort(key=lambda entry: -entry[1][0])
        self._removed = dict(recent[:_MAX_NODE_TYPES])
        self._result = tuple(sorted((node for _, node in self._removed.values()), key=lambda node: node.name))
        return self._result


def _node_type(node: Node) -> Hashable:
    groups = tuple(node.labels.get(label) for label in NODE_GROUPS)
    return groups, node.labels.get(INSTANCE_TYPE) or node.allocatable, frozenset(get_permanent_taints(node.taints))
