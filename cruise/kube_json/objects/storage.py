"""Decode claims, storage classes and drivers, and resolve claims to the topology of their volumes."""

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
from cruise.kube_json.object_errors import format_object_label, name_object_in_errors
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
from cruise.kube_json.wire import storage_json

_NO_PROVISIONER = "kubernetes.io/no-provisioner"
_READ_WRITE_ONCE_POD = "ReadWriteOncePod"
_SINGLE_NODE_MODES = {"ReadWriteOnce", _READ_WRITE_ONCE_POD}
_WAIT_FOR_FIRST_CONSUMER, _IMMEDIATE = "WaitForFirstConsumer", "Immediate"


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass; `provisions_volumes` is False if its volumes are created by hand."""

    name: str
    waits_for_first_consumer: bool
    provisioner: str
    terms: Terms

    @property
    def provisions_volumes(self) -> bool:
        """Whether a driver creates volumes on demand."""
        return bool(self.provisioner) and self.provisioner != _NO_PROVISIONER


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """A claim without its volume and class, which are names; empty if it has none.

    `controller` is the uid of the pod that owns it, or empty.
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
    requested_bytes: int = 0
    controller: str = ""


def decode_claim(document: storage_json.VolumeClaimObject) -> ClaimSpec:
    """Return a claim without resolving it."""
    metadata, spec = document.metadata, document.spec or storage_json.VolumeClaimSpecJson()
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
        single_pod=_READ_WRITE_ONCE_POD in (spec.access_modes or ()),
        single_node=bool(spec.access_modes) and _SINGLE_NODE_MODES.issuperset(spec.access_modes or ()),
        requested_bytes=_read_requested_bytes(document),
        controller=(controller.uid or "") if controller else "",
    )


def _read_requested_bytes(document: storage_json.VolumeClaimObject) -> int:
    resources = document.spec.resources if document.spec else None
    requested = (resources.requests or {}).get("storage") if resources else None
    with name_object_in_errors("PersistentVolumeClaim", document.metadata.namespace, document.metadata.name):
        return read_memory(requested, "spec.resources.requests.storage") or 0


def decode_storage_class(document: storage_json.StorageClassObject) -> StorageClass:
    """Return a storage class; BadInputError names class, place and fix."""
    name, mode = document.metadata.name, document.volume_binding_mode
    if mode not in (None, "", _WAIT_FOR_FIRST_CONSUMER, _IMMEDIATE):
        label = format_object_label("StorageClass", None, name)
        raise BadInputError(
            f'{label}: volumeBindingMode: "{mode}" is unknown; write one of {_IMMEDIATE}, {_WAIT_FOR_FIRST_CONSUMER}'
        )
    terms = [
        NodeSelectorTerm(tuple(LabelRequirement(intern(r.key), SelectorOperator.IN, r.values) for r in expressions))
        for term in document.allowed_topologies or ()
        if (expressions := term.match_label_expressions or ())
    ]
    return StorageClass(
        name=intern(name),
        waits_for_first_consumer=mode == _WAIT_FOR_FIRST_CONSUMER,
        provisioner=intern(document.provisioner),
        terms=tuple(terms) if document.allowed_topologies else None,
    )


@dataclass(frozen=True, slots=True)
class CsiNode:
    """A CSINode: attach limits by driver, without unlimited drivers.

    `migrated` are the in-tree plugins that are migrated to CSI on the node.
    """

    limits: Mapping[str, int] = field(default_factory=dict)
    migrated: frozenset[str] = frozenset()


def decode_csi_node(document: storage_json.CsiNodeObject) -> CsiNode:
    """Return a node's drivers; BadInputError names node, place and fix."""
    limits = {}
    for index, driver in enumerate(document.spec.drivers or () if document.spec else ()):
        count = driver.allocatable.count if driver.allocatable else None
        if count is None:
            continue
        if count < 0:
            label = format_object_label("CSINode", None, document.metadata.name)
            place = f"{label}: spec.drivers[{index}].allocatable.count"
            raise BadInputError(f"{place}: {count} is negative; write 0 or more")
        limits[intern(driver.name)] = count
    migrated = (document.metadata.annotations or {}).get(MIGRATED_PLUGINS, "")
    return CsiNode(limits, frozenset(IN_TREE_PLUGINS.keys() & set(migrated.split(","))))


def decode_capacity_publishing_driver(document: storage_json.DriverObject) -> str | None:
    """Return the name of a driver that publishes its remaining capacity, or None."""
    publishes = document.spec is not None and document.spec.storage_capacity
    return document.metadata.name if publishes else None


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """The largest volume that a class can still provide to the nodes of a term."""

    storage_class: str
    term: NodeSelectorTerm
    maximum_bytes: int


def decode_storage_capacity(document: storage_json.StorageCapacityObject) -> StorageCapacity | None:
    """Return a CSIStorageCapacity, None for one without nodes; BadInputError names it."""
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
    """The drivers that publish their capacity, and the capacities."""

    publishing: frozenset[str] = frozenset()
    capacities: tuple[StorageCapacity, ...] = ()

    def find_node_terms(self, storage: StorageClass, requested_bytes: int) -> Terms:
        """Return where a class has capacity for a volume; None for every node."""
        if storage.provisioner not in self.publishing or not requested_bytes:
            return None
        listed: dict[str, list[str]] = {}
        terms: list[NodeSelectorTerm] = []
        for capacity in self.capacities:
            if capacity.storage_class != storage.name or capacity.maximum_bytes < requested_bytes:
                continue
            expressions = capacity.term.expressions
            only = expressions[0] if len(expressions) == 1 else None
            if only is not None and only.operator is SelectorOperator.IN:
                # Local storage has an object for each node: one term for all of them.
                listed.setdefault(only.key, []).extend(only.values)
            else:
                terms.append(capacity.term)
        merged = [
            NodeSelectorTerm((LabelRequirement(key, SelectorOperator.IN, tuple(all_)),)) for key, all_ in listed.items()
        ]
        return (*merged, *terms)


NO_PUBLISHED_CAPACITY = StorageCapacities()


def resolve_storage(
    claims: Iterable[ClaimSpec],
    volumes: Mapping[str, PersistentVolume],
    classes: Mapping[str, StorageClass],
    drivers: Mapping[str, CsiNode],
    namespace_labels: Mapping[str, Mapping[str, str]],
    unreadable_nodes: Collection[str] = (),
    capacities: StorageCapacities = NO_PUBLISHED_CAPACITY,
    attachments: Iterable[VolumeAttachment] = (),
) -> StorageAndNamespaces:
    """Resolve claims; `volumes` and `classes` are by name, `drivers` by node; those of `unreadable_nodes` are unknown.

    A claim is unsupported if its volume or class is unknown, if volumes of its class are created by hand, or if its
    driver may have limits but no CSINode is known, although every kubelet reports its own.
    """
    resolver = _ClaimResolver(volumes, classes, capacities, [one.migrated for one in drivers.values()])
    found: dict[tuple[str, str], PersistentVolumeClaim] = {}
    unsupported: dict[tuple[str, str], str] = {}
    for request in claims:
        key, claim = (request.namespace, request.name), resolver.resolve(request)
        if isinstance(claim, str):
            unsupported[key] = claim
        elif claim.driver is not None and not (drivers or unreadable_nodes):
            unsupported[key] = "no CSINode is known"
        else:
            found[key] = replace(claim, replacement_claim=resolver.resolve_replacement(request))
    used_drivers = sorted({claim.driver for claim in found.values() if claim.driver is not None})
    limits = {node: one.limits for node, one in drivers.items() if one.limits}
    return StorageAndNamespaces(
        claims=found,
        attach_limits=limits | dict.fromkeys(unreadable_nodes, dict.fromkeys(used_drivers, 0)),
        namespace_labels=namespace_labels,
        unsupported=unsupported,
        attached=group_attachments_by_node(attachments, volumes),
    )


@dataclass(frozen=True, slots=True)
class _ClaimResolver:
    """Resolves claims; `migrated` has the migrated plugins of each node with CSI drivers."""

    volumes: Mapping[str, PersistentVolume]
    classes: Mapping[str, StorageClass]
    capacities: StorageCapacities
    migrated: Collection[frozenset[str]]
    _capacity_terms: dict[tuple[str, int], Terms] = field(default_factory=dict)

    def resolve(self, request: ClaimSpec) -> PersistentVolumeClaim | str:
        """Return a claim, or what is missing to evaluate it."""
        claim = PersistentVolumeClaim(
            request.namespace,
            request.name,
            single_pod=request.single_pod,
            single_node=request.single_node,
            controller=request.controller,
        )
        if not request.volume:
            return self._resolve_unbound(request, claim)
        volume = self.volumes.get(request.volume)
        if volume is None:
            return f"volume {request.volume} is not known"
        migrated = self._is_migrated(volume.plugin)
        if migrated is None:
            return f"volume {request.volume} is of {volume.plugin}, which is migrated to CSI only on some nodes"
        return replace(
            claim,
            bound=request.bound and request.usable,
            terms=volume.migrated_terms if volume.plugin and migrated else volume.terms,
            driver=volume.driver if migrated else None,
            volume=volume.handle,
        )

    def resolve_replacement(self, request: ClaimSpec) -> PersistentVolumeClaim | None:
        """Return the claim as it is created again with a pod: without volume and selected node."""
        fresh = replace(request, volume="", bound=False, usable=True, selected_node="", controller="")
        claim = self.resolve(fresh)
        return claim if isinstance(claim, PersistentVolumeClaim) and claim.waits_for_first_consumer else None

    def _resolve_unbound(self, request: ClaimSpec, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | str:
        storage = self.classes.get(request.storage_class)
        if storage is None and request.storage_class:
            return f"storage class {request.storage_class} is not known"
        waits = request.usable and storage is not None and storage.waits_for_first_consumer
        if waits and storage is not None and not storage.provisions_volumes:
            return f"volumes of class {storage.name} are created by hand"
        migrated = self._is_migrated(storage.provisioner) if storage else False
        if migrated is None:
            return f"class {request.storage_class} is of a plugin that is migrated to CSI only on some nodes"
        terms = storage.terms if storage else None
        if waits and storage is not None:
            # Also with a selected node: kube-scheduler checks the capacity each time.
            terms = intersect_terms(terms, self._find_capacity_terms(storage, request.requested_bytes))
        if request.selected_node:
            by_name = LabelRequirement("metadata.name", SelectorOperator.IN, (request.selected_node,))
            terms = intersect_terms(terms, (NodeSelectorTerm(fields=(by_name,)),))
        return replace(
            claim,
            bound=False,
            waits_for_first_consumer=waits,
            terms=terms,
            driver=_get_driver(storage) if storage and storage.provisions_volumes and migrated else None,
            volume=f"{request.namespace}/{request.name}",
        )

    def _find_capacity_terms(self, storage: StorageClass, requested_bytes: int) -> Terms:
        key = (storage.name, requested_bytes)
        if key not in self._capacity_terms:
            self._capacity_terms[key] = self.capacities.find_node_terms(storage, requested_bytes)
        return self._capacity_terms[key]

    def _is_migrated(self, plugin: str) -> bool | None:
        """Return whether a CSI driver serves the volumes of a provisioner, None if that differs between nodes."""
        if plugin not in IN_TREE_PLUGINS or not self.migrated:
            return True
        count = sum(plugin in plugins for plugins in self.migrated)
        return None if 0 < count < len(self.migrated) else count > 0


def _get_driver(storage: StorageClass) -> str:
    plugin = IN_TREE_PLUGINS.get(storage.provisioner)
    return plugin.driver if plugin else storage.provisioner
