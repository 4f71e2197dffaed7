"""Volumes, claims, storage classes and drivers, and what they make of a claim for kube-scheduler."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from sys import intern

from cruise.domain.annotations import BIND_COMPLETED, OLD_REGION, OLD_ZONE, REGION, SELECTED_NODE, STORAGE_CLASS, ZONE
from cruise.domain.colocation import Claim, Surroundings
from cruise.domain.scheduling import NodeSelectorTerm, Operator, Requirement
from cruise.errors import BadInput
from cruise.kube_json.objects.quantity import read_memory
from cruise.kube_json.objects.selectors import read_node_terms, read_selector
from cruise.kube_json.refusals import label_of, named
from cruise.kube_json.wire import storage_json

_Terms = tuple[NodeSelectorTerm, ...] | None
AttachLimits = Mapping[str, int]
"""How many volumes of each driver a node attaches; drivers without a limit are left out."""

_MADE_BY_HAND = "kubernetes.io/no-provisioner"
_ONE_POD = "ReadWriteOncePod"
_ON_ONE_NODE = {"ReadWriteOnce", _ONE_POD}
_WAITS, _AT_ONCE = "WaitForFirstConsumer", "Immediate"
# The CSI drivers that have taken over from those inside Kubernetes.
_SUCCESSORS = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
_NEW_KEYS = {
    OLD_ZONE: ZONE,
    OLD_REGION: REGION,
}
_ZONE_KEYS = (*_NEW_KEYS, *_NEW_KEYS.values())
_UNZONED = NodeSelectorTerm(tuple(Requirement(key, Operator.DOES_NOT_EXIST) for key in _ZONE_KEYS))


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume: where it may be used, and as what it counts against which driver's limit."""

    name: str
    terms: _Terms
    driver: str | None
    handle: str


@dataclass(frozen=True, slots=True)
class StorageClass:
    """A StorageClass; `makes_volumes` is False where they are made by hand."""

    name: str
    waits: bool
    provisioner: str
    terms: _Terms

    @property
    def makes_volumes(self) -> bool:
        """Tell whether there is a driver that makes a volume where one is wanted."""
        return bool(self.provisioner) and self.provisioner != _MADE_BY_HAND


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A claim by itself: `volume`, `storage_class` and `selected_node` are names, empty where it has none."""

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


def decode_volume(document: storage_json.VolumeObject) -> Volume:
    """Return a volume. Raises BadInput that names volume, place and fix."""
    spec, name = document.spec or storage_json.VolumeSpec(), document.metadata.name
    required = spec.node_affinity.required if spec.node_affinity else None
    with named("PersistentVolume", None, name):
        terms = None if required is None else read_node_terms(required, "spec.nodeAffinity")
    for key in _ZONE_KEYS:
        zones = (document.metadata.labels or {}).get(key)
        if zones is not None:
            terms = _both(terms, _in_zones(key, tuple(zones.split("__"))))
    driver, handle = _driver_of(spec)
    return Volume(intern(name), terms, intern(driver) if driver else None, handle or name)


def _in_zones(key: str, zones: tuple[str, ...]) -> _Terms:
    """Return where a volume with a zone label may be used: there, and on nodes that know of no zones at all."""
    terms = [NodeSelectorTerm((Requirement(key, Operator.IN, zones),)), _UNZONED]
    if key in _NEW_KEYS:
        by_new_key = (Requirement(key, Operator.DOES_NOT_EXIST), Requirement(_NEW_KEYS[key], Operator.IN, zones))
        terms.append(NodeSelectorTerm(by_new_key))
    return tuple(terms)


def _driver_of(spec: storage_json.VolumeSpec) -> tuple[str | None, str]:
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    for disk, old in (
        (spec.aws_elastic_block_store, "kubernetes.io/aws-ebs"),
        (spec.azure_disk, "kubernetes.io/azure-disk"),
        (spec.cinder, "kubernetes.io/cinder"),
        (spec.gce_persistent_disk, "kubernetes.io/gce-pd"),
        (spec.vsphere_volume, "kubernetes.io/vsphere-volume"),
    ):
        if disk is not None:
            return _SUCCESSORS[old], disk.volume_id or disk.pd_name or disk.disk_name or disk.volume_path
    return None, ""


def decode_claim(document: storage_json.ClaimObject) -> ClaimRequest:
    """Return a claim by itself."""
    metadata, spec = document.metadata, document.spec or storage_json.ClaimSpec()
    annotations = metadata.annotations or {}
    phase = (document.status.phase if document.status else None) or ""
    volume = spec.volume_name or ""
    return ClaimRequest(
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
    )


def _wanted_bytes(document: storage_json.ClaimObject) -> int:
    resources = document.spec.resources if document.spec else None
    wanted = (resources.requests or {}).get("storage") if resources else None
    with named("PersistentVolumeClaim", document.metadata.namespace, document.metadata.name):
        return read_memory(wanted, "spec.resources.requests.storage") or 0


def decode_storage_class(document: storage_json.StorageClassObject) -> StorageClass:
    """Return a storage class. Raises BadInput that names class, place and fix."""
    name, mode = document.metadata.name, document.volume_binding_mode
    if mode not in (None, "", _WAITS, _AT_ONCE):
        label = label_of("StorageClass", None, name)
        raise BadInput(f'{label}: volumeBindingMode: "{mode}" is unknown; write one of {_AT_ONCE}, {_WAITS}')
    terms = [
        NodeSelectorTerm(tuple(Requirement(intern(r.key), Operator.IN, r.values) for r in expressions))
        for term in document.allowed_topologies or ()
        if (expressions := term.match_label_expressions or ())
    ]
    return StorageClass(
        name=intern(name),
        waits=mode == _WAITS,
        provisioner=intern(_SUCCESSORS.get(document.provisioner, document.provisioner)),
        terms=tuple(terms) if document.allowed_topologies else None,
    )


def decode_attach_limits(document: storage_json.NodeDriversObject) -> AttachLimits:
    """Return a node's limits. Raises BadInput that names node, place and fix."""
    limits = {}
    for index, driver in enumerate(document.spec.drivers or () if document.spec else ()):
        count = driver.allocatable.count if driver.allocatable else None
        if count is None:
            continue
        if count < 0:
            place = f"{label_of('CSINode', None, document.metadata.name)}: spec.drivers[{index}].allocatable.count"
            raise BadInput(f"{place}: {count} is negative; write 0 or more")
        limits[intern(driver.name)] = count
    return limits


@dataclass(frozen=True, slots=True)
class StorageRoom:
    """How large a volume a class can still give to the nodes of one term."""

    storage_class: str
    term: NodeSelectorTerm
    most_bytes: int


def decode_storage_room(document: storage_json.CapacityObject) -> StorageRoom | None:
    """Return what one CSIStorageCapacity says, None for one without nodes. Raises BadInput that names it."""
    name = document.metadata.name
    if document.node_topology is None:
        return None
    with named("CSIStorageCapacity", document.metadata.namespace, name):
        selector = read_selector(document.node_topology, "nodeTopology")
        sizes = [
            read_memory(document.maximum_volume_size, "maximumVolumeSize"),
            read_memory(document.capacity, "capacity"),
        ]
    most = next((size for size in sizes if size is not None), 0)
    everywhere = (Requirement("metadata.name", Operator.EXISTS),) if not selector.requirements else ()
    return StorageRoom(intern(document.storage_class_name), NodeSelectorTerm(selector.requirements, everywhere), most)


@dataclass(frozen=True, slots=True)
class StorageRooms:
    """What is known of the storage that drivers can still give: which of them publish it, and how much."""

    publishing: frozenset[str] = frozenset()
    rooms: tuple[StorageRoom, ...] = ()

    def terms(self, storage: StorageClass, wanted_bytes: int) -> _Terms:
        """Return where a class has room for a volume; None for everywhere."""
        if storage.provisioner not in self.publishing:
            return None
        return tuple(
            room.term for room in self.rooms if room.storage_class == storage.name and room.most_bytes >= wanted_bytes
        )


ROOM_UNKNOWN = StorageRooms()


def surroundings_of(
    claims: Iterable[ClaimRequest],
    volumes: Mapping[str, Volume],
    classes: Mapping[str, StorageClass],
    limits: Mapping[str, AttachLimits],
    namespace_labels: Mapping[str, Mapping[str, str]],
    blind: Collection[str] = (),
    rooms: StorageRooms = ROOM_UNKNOWN,
) -> Surroundings:
    """Resolve claims; `volumes` and `classes` are by name, `limits` by node, `blind` are nodes with unreadable limits.

    A claim of which not all is known is not judged: its volume or class was not seen, volumes of its class are made
    by hand, or its driver may have limits but no node's were seen, though every kubelet reports its own.
    """
    found: dict[tuple[str, str], Claim] = {}
    unjudged: dict[tuple[str, str], str] = {}
    for request in claims:
        key, claim = (request.namespace, request.name), _resolved(request, volumes, classes, rooms)
        if isinstance(claim, str):
            unjudged[key] = claim
        elif claim.driver is not None and not (limits or blind):
            unjudged[key] = "no CSINode is known"
        else:
            found[key] = replace(claim, anew=_anew(request, classes, rooms))
    drivers = sorted({claim.driver for claim in found.values() if claim.driver is not None})
    nothing = dict.fromkeys(drivers, 0)
    return Surroundings(
        claims=found,
        attach_limits={node: of_node for node, of_node in limits.items() if of_node} | dict.fromkeys(blind, nothing),
        namespace_labels=namespace_labels,
        unjudged=unjudged,
    )


def _anew(request: ClaimRequest, classes: Mapping[str, StorageClass], rooms: StorageRooms) -> Claim | None:
    """Return the claim as it is made again with a pod: without a volume, and without a node chosen for one."""
    fresh = replace(request, volume="", bound=False, usable=True, selected_node="")
    claim = _resolved(fresh, {}, classes, rooms)
    return claim if isinstance(claim, Claim) and claim.waits else None


def _resolved(
    request: ClaimRequest,
    volumes: Mapping[str, Volume],
    classes: Mapping[str, StorageClass],
    rooms: StorageRooms,
) -> Claim | str:
    """Return a claim, or what is missing to judge it."""
    if request.volume:
        volume = volumes.get(request.volume)
        if volume is None:
            return f"volume {request.volume} is not known"
        return Claim(
            request.namespace,
            request.name,
            bound=request.bound and request.usable,
            terms=volume.terms,
            driver=volume.driver,
            volume=volume.handle,
            single_pod=request.single_pod,
            single_node=request.single_node,
        )
    storage = classes.get(request.storage_class)
    if storage is None and request.storage_class:
        return f"storage class {request.storage_class} is not known"
    waits = request.usable and storage is not None and storage.waits
    if waits and storage is not None and not storage.makes_volumes:
        return f"volumes of class {storage.name} are made by hand"
    terms = storage.terms if storage else None
    if waits and storage is not None and not request.selected_node:
        terms = _both(terms, rooms.terms(storage, request.wanted_bytes))
    if request.selected_node:
        by_name = Requirement("metadata.name", Operator.IN, (request.selected_node,))
        terms = _both(terms, (NodeSelectorTerm(fields=(by_name,)),))
    return Claim(
        request.namespace,
        request.name,
        bound=False,
        waits=waits,
        terms=terms,
        driver=storage.provisioner if storage and storage.makes_volumes else None,
        volume=f"{request.namespace}/{request.name}",
        single_pod=request.single_pod,
        single_node=request.single_node,
    )


def _both(one: _Terms, other: _Terms) -> _Terms:
    """Return terms that hold where both do; an empty term holds nowhere and takes others with it."""
    if one is None or other is None:
        return other if one is None else one
    return tuple(
        NodeSelectorTerm(a.expressions + b.expressions, a.fields + b.fields)
        for a, b in product(one, other)
        if (a.expressions or a.fields) and (b.expressions or b.fields)
    )
