"""Claims, storage classes and drivers, and what they make of a claim for kube-scheduler, with its volume."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from sys import intern

from cruise.domain.annotations import BIND_COMPLETED, MIGRATED_PLUGINS, SELECTED_NODE, STORAGE_CLASS
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaim,
    SelectorOperator,
    StorageAndNamespaces,
)
from cruise.errors import BadInputError
from cruise.kube_json.objects.owners import find_controller
from cruise.kube_json.objects.quantities import read_memory
from cruise.kube_json.objects.scheduling import read_selector
from cruise.kube_json.objects.volumes import (
    IN_TREE_PLUGINS,
    PersistentVolume,
    Terms,
    VolumeAttachment,
    group_attachments_by_node,
    intersect_terms,
)
from cruise.kube_json.refusals import format_object_label, name_object_in_errors
from cruise.kube_json.wire import storage_json

_MADE_BY_HAND = "kubernetes.io/no-provisioner"
_ONE_POD = "ReadWriteOncePod"
_ON_ONE_NODE = {"ReadWriteOnce", _ONE_POD}
_WAITS, _AT_ONCE = "WaitForFirstConsumer", "Immediate"


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass; `makes_volumes` is False where they are made by hand."""

    name: str
    waits_for_first_consumer: bool
    provisioner: str
    terms: Terms

    @property
    def makes_volumes(self) -> bool:
        """Tell whether there is a driver that makes a volume where one is wanted."""
        return bool(self.provisioner) and self.provisioner != _MADE_BY_HAND


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """A claim by itself: `volume`, `storage_class` and `selected_node` are names, empty where it has none.

    `controller` is the uid of the pod that it was made with, empty for none.
    """

    namespace: str
    name: str
    volume: str
    bound: bool
    usable: bool
    storage_class: str
    selected_node: str
    single_pod: bool
    single_node: bool = False
    wanted_bytes: int = 0
    controller: str = ""


def decode_claim(document: storage_json.ClaimObject) -> ClaimSpec:
    """Return a claim by itself."""
    metadata, spec = document.metadata, document.spec or storage_json.ClaimSpecJson()
    annotations = metadata.annotations or {}
    phase = (document.status.phase if document.status else None) or ""
    volume, controller = spec.volume_name or "", find_controller(metadata.owner_references)
    return ClaimSpec(
        namespace=intern(metadata.namespace or "default"),
        name=metadata.name,
        volume=volume,
        bound=bool(volume) and (phase == "Bound" or BIND_COMPLETED in annotations),
        usable=phase != "Lost" and metadata.deletion_timestamp is None,
        storage_class=intern(annotations.get(STORAGE_CLASS) or spec.storage_class_name or ""),
        selected_node=intern(annotations.get(SELECTED_NODE, "")),
        single_pod=_ONE_POD in (spec.access_modes or ()),
        single_node=bool(spec.access_modes) and _ON_ONE_NODE.issuperset(spec.access_modes or ()),
        wanted_bytes=_wanted_bytes(document),
        controller=(controller.uid or "") if controller else "",
    )


def _wanted_bytes(document: storage_json.ClaimObject) -> int:
    resources = document.spec.resources if document.spec else None
    wanted = (resources.requests or {}).get("storage") if resources else None
    with name_object_in_errors("PersistentVolumeClaim", document.metadata.namespace, document.metadata.name):
        return read_memory(wanted, "spec.resources.requests.storage") or 0


def decode_storage_class(document: storage_json.StorageClassObject) -> StorageClass:
    """Return a storage class. Raises BadInputError that names class, place and fix."""
    name, mode = document.metadata.name, document.volume_binding_mode
    if mode not in (None, "", _WAITS, _AT_ONCE):
        label = format_object_label("StorageClass", None, name)
        raise BadInputError(f'{label}: volumeBindingMode: "{mode}" is unknown; write one of {_AT_ONCE}, {_WAITS}')
    terms = [
        NodeSelectorTerm(tuple(LabelRequirement(intern(r.key), SelectorOperator.IN, r.values) for r in expressions))
        for term in document.allowed_topologies or ()
        if (expressions := term.match_label_expressions or ())
    ]
    return StorageClass(
        name=intern(name),
        waits_for_first_consumer=mode == _WAITS,
        provisioner=intern(document.provisioner),
        terms=tuple(terms) if document.allowed_topologies else None,
    )


@dataclass(frozen=True, slots=True)
class CsiNode:
    """A CSINode: how many volumes of each driver a node attaches, drivers without a limit left out.

    `migrated` are the plugins from before CSI whose volumes are a CSI driver's there.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    migrated: frozenset[str] = frozenset()


def decode_csi_node(document: storage_json.CsiNodeObject) -> CsiNode:
    """Return a node's drivers. Raises BadInputError that names node, place and fix."""
    limits = {}
    for index, driver in enumerate(document.spec.drivers or () if document.spec else ()):
        count = driver.allocatable.count if driver.allocatable else None
        if count is None:
            continue
        if count < 0:
            place = f"{format_object_label('CSINode', None, document.metadata.name)}: spec.drivers[{index}].allocatable.count"
            raise BadInputError(f"{place}: {count} is negative; write 0 or more")
        limits[intern(driver.name)] = count
    migrated = (document.metadata.annotations or {}).get(MIGRATED_PLUGINS, "")
    return CsiNode(limits, frozenset(IN_TREE_PLUGINS.keys() & set(migrated.split(","))))


def decode_capacity_publishing_driver(document: storage_json.DriverObject) -> str | None:
    """Return the name of a driver that publishes how much storage it can still give; None for any other one."""
    publishes = document.spec is not None and document.spec.storage_capacity
    return document.metadata.name if publishes else None


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """How large a volume a class can still give to the nodes of one term."""

    storage_class: str
    term: NodeSelectorTerm
    most_bytes: int


def decode_storage_capacity(document: storage_json.CapacityObject) -> StorageCapacity | None:
    """Return what one CSIStorageCapacity says, None for one without nodes. Raises BadInputError that names it."""
    name = document.metadata.name
    if document.node_topology is None:
        return None
    with name_object_in_errors("CSIStorageCapacity", document.metadata.namespace, name):
        selector = read_selector(document.node_topology, "nodeTopology")
        sizes = [
            read_memory(document.maximum_volume_size, "maximumVolumeSize"),
            read_memory(document.capacity, "capacity"),
        ]
    most = next((size for size in sizes if size is not None), 0)
    everywhere = (LabelRequirement("metadata.name", SelectorOperator.EXISTS),) if not selector.requirements else ()
    return StorageCapacity(
        intern(document.storage_class_name), NodeSelectorTerm(selector.requirements, everywhere), most
    )


@dataclass(frozen=True, slots=True)
class StorageCapacities:
    """What is known of the storage that drivers can still give: which of them publish it, and how much."""

    publishing: frozenset[str] = frozenset()
    capacities: tuple[StorageCapacity, ...] = ()

    def terms(self, storage: StorageClass, wanted_bytes: int) -> Terms:
        """Return where a class has room for a volume; None for everywhere."""
        if storage.provisioner not in self.publishing or not wanted_bytes:
            return None
        listed: dict[str, list[str]] = {}
        terms: list[NodeSelectorTerm] = []
        for room in self.capacities:
            if room.storage_class != storage.name or room.most_bytes < wanted_bytes:
                continue
            only = room.term.expressions[0] if len(room.term.expressions) == 1 else None
            if only is not None and only.operator is SelectorOperator.IN:
                # Storage of single nodes has an object for each node: one term for all of them.
                listed.setdefault(only.key, []).extend(only.values)
            else:
                terms.append(room.term)
        together = [
            NodeSelectorTerm((LabelRequirement(key, SelectorOperator.IN, tuple(all_)),)) for key, all_ in listed.items()
        ]
        return (*together, *terms)


CAPACITY_UNKNOWN = StorageCapacities()


def resolve_storage(
    claims: Iterable[ClaimSpec],
    volumes: Mapping[str, PersistentVolume],
    classes: Mapping[str, StorageClass],
    drivers: Mapping[str, CsiNode],
    namespace_labels: Mapping[str, Mapping[str, str]],
    blind: Collection[str] = (),
    rooms: StorageCapacities = CAPACITY_UNKNOWN,
    attachments: Iterable[VolumeAttachment] = (),
) -> StorageAndNamespaces:
    """Resolve claims; `volumes` and `classes` are by name, `drivers` by node, those of `blind` nodes cannot be read.

    A claim of which not all is known is not judged: its volume or class was not seen, volumes of its class are made
    by hand, or its driver may have limits but no node's were seen, though every kubelet reports its own.
    """
    resolver = _ClaimResolver(volumes, classes, rooms, [one.migrated for one in drivers.values()])
    found: dict[tuple[str, str], PersistentVolumeClaim] = {}
    unjudged: dict[tuple[str, str], str] = {}
    for request in claims:
        key, claim = (request.namespace, request.name), resolver.resolve(request)
        if isinstance(claim, str):
            unjudged[key] = claim
        elif claim.driver is not None and not (drivers or blind):
            unjudged[key] = "no CSINode is known"
        else:
            found[key] = replace(claim, replacement_claim=resolver.resolve_replacement(request))
    known = sorted({claim.driver for claim in found.values() if claim.driver is not None})
    limits = {node: one.limits for node, one in drivers.items() if one.limits}
    return StorageAndNamespaces(
        claims=found,
        attach_limits=limits | dict.fromkeys(blind, dict.fromkeys(known, 0)),
        namespace_labels=namespace_labels,
        unsupported=unjudged,
        attached=group_attachments_by_node(attachments, volumes),
    )


@dataclass(frozen=True, slots=True)
class _ClaimResolver:
    """Resolves claims by what is known; `migrated` has the plugins that are migrated on each node with CSI drivers."""

    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]
    capacities: StorageCapacities
    migrated: Collection[frozenset[str]]
    _room_terms: dict[tuple[str, int], Terms] = field(default_factory=dict)

    def resolve(self, request: ClaimSpec) -> PersistentVolumeClaim | str:
        """Return a claim, or what is missing to judge it."""
        claim = PersistentVolumeClaim(
            request.namespace,
            request.name,
            single_pod=request.single_pod,
            single_node=request.single_node,
            controller=request.controller,
        )
        if not request.volume:
            return self._without_volume(request, claim)
        volume = self.volumes.get(request.volume)
        if volume is None:
            return f"volume {request.volume} is not known"
        migrated = self._is_migrated(volume.plugin)
        if migrated is None:
            return f"volume {request.volume} is of {volume.plugin}, which is migrated to CSI on some nodes alone"
        return replace(
            claim,
            bound=request.bound and request.usable,
            terms=volume.migrated_terms if volume.plugin and migrated else volume.terms,
            driver=volume.driver if migrated else None,
            volume=volume.handle,
        )

    def resolve_replacement(self, request: ClaimSpec) -> PersistentVolumeClaim | None:
        """Return the claim as it is made again with a pod: without a volume, and without a node chosen for one."""
        fresh = replace(request, volume="", bound=False, usable=True, selected_node="", controller="")
        claim = self.resolve(fresh)
        return claim if isinstance(claim, PersistentVolumeClaim) and claim.waits_for_first_consumer else None

    def _without_volume(self, request: ClaimSpec, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | str:
        storage = self.classes.get(request.storage_class)
        if storage is None and request.storage_class:
            return f"storage class {request.storage_class} is not known"
        waits = request.usable and storage is not None and storage.waits_for_first_consumer
        if waits and storage is not None and not storage.makes_volumes:
            return f"volumes of class {storage.name} are made by hand"
        migrated = self._is_migrated(storage.provisioner) if storage else False
        if migrated is None:
            return f"class {request.storage_class} is of a plugin that is migrated to CSI on some nodes alone"
        terms = storage.terms if storage else None
        if waits and storage is not None:
            # Also once a node is chosen: kube-scheduler asks anew each time.
            terms = intersect_terms(terms, self._with_room(storage, request.wanted_bytes))
        if request.selected_node:
            by_name = LabelRequirement("metadata.name", SelectorOperator.IN, (request.selected_node,))
            terms = intersect_terms(terms, (NodeSelectorTerm(fields=(by_name,)),))
        return replace(
            claim,
            bound=False,
            waits_for_first_consumer=waits,
            terms=terms,
            driver=_driver_of(storage) if storage and storage.makes_volumes and migrated else None,
            volume=f"{request.namespace}/{request.name}",
        )

    def _with_room(self, storage: StorageClass, wanted_bytes: int) -> Terms:
        key = (storage.name, wanted_bytes)
        if key not in self._room_terms:
            self._room_terms[key] = self.capacities.terms(storage, wanted_bytes)
        return self._room_terms[key]

    def _is_migrated(self, plugin: str) -> bool | None:
        """Tell whether volumes of a provisioner are a CSI driver's on the nodes, None where that differs among them."""
        if plugin not in IN_TREE_PLUGINS or not self.migrated:
            return True
        there = sum(plugin in of_node for of_node in self.migrated)
        return None if 0 < there < len(self.migrated) else there > 0


def _driver_of(storage: StorageClass) -> str:
    plugin = IN_TREE_PLUGINS.get(storage.provisioner)
    return plugin.driver if plugin else storage.provisioner
