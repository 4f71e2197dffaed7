"""Controllers of ReplicaSets and Jobs, looked up where these are kept: there may be ten for each Deployment."""

from collections.abc import Iterator, Mapping

from cruise.adapters.kube.following.shelf import Shelf
from cruise.domain.cluster import Workload, WorkloadRef
from cruise.kube_json.objects.around_pods import READ_CONTROLLERS, control_of, decode_workload
from cruise.kube_json.objects.owners import OwnerKey
from cruise.kube_json.objects.shared_values import SharedValues
from cruise.kube_json.wire.object_json import AnyWorkload

WorkloadShelf = Shelf[AnyWorkload, Workload | WorkloadRef]
"""Workloads of one kind; in place of one that another controls, that one's name."""


class Controllers(Mapping[OwnerKey, WorkloadRef | None]):
    """The controllers as `kube_json.owners` reads them, always up to date; `shelves` are by kind."""

    def __init__(self, shelves: Mapping[str, WorkloadShelf]) -> None:
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
        control = control_of(document)
        controller = control[1] if control is not None else None
        if controller is None or controller.kind not in READ_CONTROLLERS:
            return decode_workload(document)
        return self._refs.one(controller, lambda: controller)
