"""The objects of one kind, decoded, and those apart that cannot be."""

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
    """Return the key of an object."""
    if isinstance(item, UnreadableObject):
        return item.namespace, item.name
    return intern(item.metadata.namespace or ""), item.metadata.name


class ObjectStore(Generic[T, V]):
    """Values by namespace and name. `changed` gets the key of every object that is added, removed or modified.

    `decode` may leave an object out by None. What it refuses is in `odd`.
    """

    def __init__(self, decode: Callable[[T], V | None], changed: Callable[[Key], None]) -> None:
        self.values: dict[Key, V] = {}
        self.unreadable: dict[Key, UnreadableObject] = {}
        self._decode = decode
        self._changed = changed

    def put(self, item: T | UnreadableObject) -> None:
        """Take an object as it is now."""
        key = get_object_key(item)
        if not isinstance(item, UnreadableObject):
            try:
                value = self._decode(item)
            except BadInputError as error:
                item = create_unreadable(item, None, str(error))
            else:
                self._keep(key, value)
                return
        self.values.pop(key, None)
        self.unreadable[key] = item
        self._changed(key)

    def drop(self, key: Key) -> None:
        """Remove an object."""
        known = self.values.pop(key, None)
        odd = self.unreadable.pop(key, None)
        if known is not None or odd is not None:
            self._changed(key)

    def names(self) -> set[Key]:
        """Return the keys of all objects."""
        return self.values.keys() | self.unreadable.keys()

    def _keep(self, key: Key, value: V | None) -> None:
        odd = self.unreadable.pop(key, None)
        if value is None:
            changed = self.values.pop(key, None) is not None
        else:
            changed = self.values.get(key) != value
            if changed:
                self.values[key] = value
        if changed or odd is not None:
            self._changed(key)


class ObjectKeeper(Protocol[T_contra]):
    """What keeps the objects of one kind."""

    def put(self, item: T_contra | UnreadableObject) -> None:
        """Take an object as it is now."""
        ...

    def drop(self, key: Key) -> None:
        """Remove an object."""
        ...

    def names(self) -> set[Key]:
        """Return the keys of all objects."""
        ...


class WatchedObjectStore:
    """Takes the events of one kind in the order of versions, also where single objects were read ahead of the watch."""

    def __init__(self, keeper: ObjectKeeper[AnyObject]) -> None:
        self._keeper = keeper
        self._read_ahead: dict[Key, int] = {}

    def put(self, item: AnyObject | UnreadableObject, version: str) -> None:
        """Take an object from the watch."""
        key = get_object_key(item)
        if not self._is_passed(key, version):
            self._keeper.put(item)

    def drop(self, key: Key, version: str) -> None:
        """Remove an object that the watch reports as deleted."""
        if not self._is_passed(key, version):
            self._keeper.drop(key)

    def retain(self, names: set[Key]) -> None:
        """Remove every object that a list did not have."""
        for key in self._keeper.names() - names:
            self._read_ahead.pop(key, None)
            self._keeper.drop(key)

    def merge(self, item: AnyObject, watched: str | None) -> None:
        """Take an object that was read by itself, unless the watch, which is at version `watched`, is ahead."""
        version, seen = _number(item.metadata.resource_version), _number(watched)
        if version is None or seen is None or version > seen:
            self._keeper.put(item)
            if version is not None:
                self._read_ahead[get_object_key(item)] = version

    def clear(self, key: Key) -> None:
        """Remove an object that was read by itself and not found."""
        self._keeper.drop(key)

    def _is_passed(self, key: Key, version: str) -> bool:
        """Tell whether something newer than `version` was merged."""
        if not self._read_ahead or key not in self._read_ahead:
            return False
        number = _number(version)
        if number is not None and number < self._read_ahead[key]:
            return True
        del self._read_ahead[key]
        return False


def _number(version: str | None) -> int | None:
    """Return a version as a number: those of one kind grow, as of server version 1.35 by contract."""
    return int(version) if version and version.isdecimal() else None


# Claims, volumes, the classes and limits that say where they may be used, and priority classes, as watched.


class StorageStores:
    """The kinds that claims are resolved with; `changed` gets kind and key of each change.

    What cannot be read leaves the claims out that depend on it; a node whose limits cannot be read attaches nothing. A
    driver that cannot be read has room for new volumes only where it publishes that.
    """

    def __init__(self, changed: Callable[[str, Key], None]) -> None:
        self._claims: ObjectStore[storage_json.ClaimObject, storage.ClaimSpec] = ObjectStore(
            storage.decode_claim, partial(changed, "PersistentVolumeClaim")
        )
        self._volumes: ObjectStore[storage_json.VolumeObject, volumes.PersistentVolume] = ObjectStore(
            volumes.decode_volume, partial(changed, "PersistentVolume")
        )
        self._classes: ObjectStore[storage_json.StorageClassObject, storage.StorageClass] = ObjectStore(
            storage.decode_storage_class, partial(changed, "StorageClass")
        )
        self._drivers: ObjectStore[storage_json.CsiNodeObject, storage.CsiNode] = ObjectStore(
            storage.decode_csi_node, partial(changed, "CSINode")
        )
        self._publishing: ObjectStore[storage_json.DriverObject, str] = ObjectStore(
            storage.decode_capacity_publishing_driver, partial(changed, "CSIDriver")
        )
        self._rooms: ObjectStore[storage_json.CapacityObject, storage.StorageCapacity] = ObjectStore(
            storage.decode_storage_capacity, partial(changed, "CSIStorageCapacity")
        )
        self._attachments: ObjectStore[storage_json.AttachmentObject, volumes.VolumeAttachment] = ObjectStore(
            volumes.decode_attachment, partial(changed, "VolumeAttachment")
        )

    def keepers(self) -> dict[str, object]:
        """Return what keeps the objects of each kind."""
        return {
            "PersistentVolumeClaim": self._claims,
            "PersistentVolume": self._volumes,
            "StorageClass": self._classes,
            "CSINode": self._drivers,
            "CSIDriver": self._publishing,
            "CSIStorageCapacity": self._rooms,
            "VolumeAttachment": self._attachments,
        }

    def resolve(self, namespace_labels: Mapping[str, Mapping[str, str]]) -> StorageAndNamespaces:
        """Return everything as it is now, with labels by namespace."""
        return storage.resolve_storage(
            self._claims.values.values(),
            {name: volume for (_, name), volume in self._volumes.values.items()},
            {name: one for (_, name), one in self._classes.values.items()},
            {name: drivers for (_, name), drivers in self._drivers.values.items()},
            namespace_labels,
            blind=sorted(name for _, name in self._drivers.unreadable),
            rooms=storage.StorageCapacities(
                frozenset(name for _, name in self._publishing.names()), tuple(self._rooms.values.values())
            ),
            attachments=self._attachments.values.values(),
        )


class PriorityClassStore:
    """Priority classes; `by_name` is always up to date."""

    def __init__(self, changed: Callable[[str, Key], None]) -> None:
        self.store: ObjectStore[storage_json.PriorityClassObject, PriorityClass] = ObjectStore(
            decode_priority_class, partial(changed, "PriorityClass")
        )
        self.by_name: Mapping[str, PriorityClass] = _PriorityClassMap(self.store)


class _PriorityClassMap(Mapping[str, PriorityClass]):
    """A shelf of objects without a namespace, by their names."""

    def __init__(self, shelf: ObjectStore[storage_json.PriorityClassObject, PriorityClass]) -> None:
        self._shelf = shelf

    def __getitem__(self, name: str) -> PriorityClass:
        return self._shelf.values[("", name)]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._shelf.values)

    def __len__(self) -> int:
        return len(self._shelf.values)


# Controllers of ReplicaSets and Jobs, looked up where these are kept: there may be ten for each Deployment.

WorkloadStore = ObjectStore[AnyWorkload, Workload | WorkloadRef]
"""Workloads of one kind; in place of one that another controls, that one's name."""


class ControllerMap(Mapping[OwnerKey, WorkloadRef | None]):
    """The controllers as `kube_json.owners` reads them, always up to date; `shelves` are by kind."""

    def __init__(self, shelves: Mapping[str, WorkloadStore]) -> None:
        self._shelves = shelves

    def __getitem__(self, key: OwnerKey) -> WorkloadRef | None:
        namespace, kind, name = key
        value = self._shelves[kind].values[(namespace, name)]
        return value if isinstance(value, WorkloadRef) else value.controller

    def __iter__(self) -> Iterator[OwnerKey]:
        for kind, shelf in self._shelves.items():
            for namespace, name in shelf.values:
                yield namespace, kind, name

    def __len__(self) -> int:
        return sum(len(shelf.values) for shelf in self._shelves.values())


class WorkloadReader:
    """Decodes workloads of all kinds; equal names of controllers are one object."""

    def __init__(self) -> None:
        self._refs: SharedValues[WorkloadRef, WorkloadRef] = SharedValues()

    def read(self, document: AnyWorkload) -> Workload | WorkloadRef:
        """Return the controller of a ReplicaSet or Job that is read itself, else the workload that the object is."""
        control = read_controller(document)
        controller = control[1] if control is not None else None
        if controller is None or controller.kind not in READ_CONTROLLERS:
            return decode_workload(document)
        return self._refs.share(controller, lambda: controller)


# Which kinds of nodes have been there lately: those that an autoscaler took away at night may be ordered again.

# Longer than a weekend. What is not for sale any more misleads for as long.
_KEPT_SECONDS = 3 * 24 * 3600
_MOST_KINDS = 500


class RemovedNodes:
    """The last node of each kind: of one group, instance type and set of taints."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._nodes: tuple[Node, ...] = ()
        self._present: Mapping[Hashable, Node] = {}
        self._former: dict[Hashable, tuple[float, Node]] = {}
        self._shown: tuple[Node, ...] = ()

    def get_not_in(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """Take note of the nodes that there are, and return one of each other kind, sorted by name.

        For the same nodes the answer is the same object.
        """
        if nodes is self._nodes:
            return self._shown
        self._nodes = nodes
        now, before = self._clock(), self._present
        self._present = {_kind_of(node): node for node in nodes}
        left = self._former | {kind: (now, node) for kind, node in before.items()}
        lately = [
            (kind, one) for kind, one in left.items() if kind not in self._present and now - one[0] <= _KEPT_SECONDS
        ]
        lately.sort(key=lambda entry: -entry[1][0])
        self._former = dict(lately[:_MOST_KINDS])
        self._shown = tuple(sorted((node for _, node in self._former.values()), key=lambda node: node.name))
        return self._shown


def _kind_of(node: Node) -> Hashable:
    groups = tuple(node.labels.get(label) for label in NODE_GROUPS)
    return groups, node.labels.get(INSTANCE_TYPE) or node.allocatable, frozenset(get_permanent_taints(node.taints))
