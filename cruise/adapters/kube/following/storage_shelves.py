"""Claims, volumes, the classes and limits that say where they may be used, and priority classes, as watched."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from cruise.adapters.kube.following.shelf import Key, Shelf
from cruise.domain.colocation import Surroundings
from cruise.kube_json.objects import storage, volumes
from cruise.kube_json.objects.priority_classes import PriorityClass, decode_priority_class
from cruise.kube_json.wire import storage_json


class StorageShelves:
    """The kinds that claims are resolved with; `changed` gets kind and key of each change.

    What cannot be read leaves the claims out that depend on it; a node whose limits cannot be read attaches nothing. A
    driver that cannot be read has room for new volumes only where it publishes that.
    """

    def __init__(self, changed: Callable[[str, Key], None]) -> None:
        self._claims: Shelf[storage_json.ClaimObject, storage.ClaimRequest] = Shelf(
            storage.decode_claim, partial(changed, "PersistentVolumeClaim")
        )
        self._volumes: Shelf[storage_json.VolumeObject, volumes.Volume] = Shelf(
            volumes.decode_volume, partial(changed, "PersistentVolume")
        )
        self._classes: Shelf[storage_json.StorageClassObject, storage.StorageClass] = Shelf(
            storage.decode_storage_class, partial(changed, "StorageClass")
        )
        self._drivers: Shelf[storage_json.NodeDriversObject, storage.NodeDrivers] = Shelf(
            storage.decode_node_drivers, partial(changed, "CSINode")
        )
        self._publishing: Shelf[storage_json.DriverObject, str] = Shelf(
            storage.decode_publishing_driver, partial(changed, "CSIDriver")
        )
        self._rooms: Shelf[storage_json.CapacityObject, storage.StorageRoom] = Shelf(
            storage.decode_storage_room, partial(changed, "CSIStorageCapacity")
        )
        self._attachments: Shelf[storage_json.AttachmentObject, volumes.Attachment] = Shelf(
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

    def surroundings(self, namespace_labels: Mapping[str, Mapping[str, str]]) -> Surroundings:
        """Return everything as it is now, with labels by namespace."""
        return storage.surroundings_of(
            self._claims.values.values(),
            {name: volume for (_, name), volume in self._volumes.values.items()},
            {name: one for (_, name), one in self._classes.values.items()},
            {name: drivers for (_, name), drivers in self._drivers.values.items()},
            namespace_labels,
            blind=sorted(name for _, name in self._drivers.odd),
            rooms=storage.StorageRooms(
                frozenset(name for _, name in self._publishing.names()), tuple(self._rooms.values.values())
            ),
            attachments=self._attachments.values.values(),
        )


class ClassShelf:
    """Priority classes; `by_name` is always up to date."""

    def __init__(self, changed: Callable[[str, Key], None]) -> None:
        self.shelf: Shelf[storage_json.PriorityClassObject, PriorityClass] = Shelf(
            decode_priority_class, partial(changed, "PriorityClass")
        )
        self.by_name: Mapping[str, PriorityClass] = _ByName(self.shelf)


class _ByName(Mapping[str, PriorityClass]):
    """A shelf of objects without a namespace, by their names."""

    def __init__(self, shelf: Shelf[storage_json.PriorityClassObject, PriorityClass]) -> None:
        self._shelf = shelf

    def __getitem__(self, name: str) -> PriorityClass:
        return self._shelf.values[("", name)]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._shelf.values)

    def __len__(self) -> int:
        return len(self._shelf.values)
