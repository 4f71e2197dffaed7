"""The few fields of volumes, claims, storage classes, drivers and priority classes that cruise reads, as structs."""

from msgspec import field

from cruise.kube_json.wire.pod_json import Metadata, NodeSelector, QuantityText, ResourceRequirements, Selector, Wire


class CsiSource(Wire, frozen=True):
    driver: str
    volume_handle: str = ""


class DiskSource(Wire, frozen=True):
    """A volume of a driver from before CSI, by whichever name that driver has for its disks."""

    volume_id: str = field(name="volumeID", default="")
    pd_name: str = ""
    disk_name: str = ""
    volume_path: str = ""


class VolumeNodeAffinity(Wire, frozen=True):
    required: NodeSelector | None = None


class VolumeSpec(Wire, frozen=True):
    csi: CsiSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    gce_persistent_disk: DiskSource | None = None
    vsphere_volume: DiskSource | None = None
    node_affinity: VolumeNodeAffinity | None = None


class VolumeObject(Wire, frozen=True, tag_field="kind", tag="PersistentVolume"):
    metadata: Metadata
    spec: VolumeSpec | None = None


class ClaimSpec(Wire, frozen=True):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    resources: ResourceRequirements | None = None


class ClaimStatus(Wire, frozen=True):
    phase: str | None = None


class ClaimObject(Wire, frozen=True, tag_field="kind", tag="PersistentVolumeClaim"):
    metadata: Metadata
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class TopologyRequirement(Wire, frozen=True):
    key: str
    values: tuple[str, ...]


class TopologyTerm(Wire, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClassObject(Wire, frozen=True, tag_field="kind", tag="StorageClass"):
    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class DriverLimit(Wire, frozen=True):
    count: int | None = None


class NodeDriver(Wire, frozen=True):
    name: str
    allocatable: DriverLimit | None = None


class NodeDrivers(Wire, frozen=True):
    drivers: tuple[NodeDriver, ...] | None = None


class NodeDriversObject(Wire, frozen=True, tag_field="kind", tag="CSINode"):
    metadata: Metadata
    spec: NodeDrivers | None = None


class PriorityClassObject(Wire, frozen=True, tag_field="kind", tag="PriorityClass"):
    metadata: Metadata
    value: int
    global_default: bool | None = None
    preemption_policy: str | None = None


class DriverSpec(Wire, frozen=True):
    storage_capacity: bool | None = None


class DriverObject(Wire, frozen=True, tag_field="kind", tag="CSIDriver"):
    metadata: Metadata
    spec: DriverSpec | None = None


class AttachmentSource(Wire, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(Wire, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource | None = None


class AttachmentObject(Wire, frozen=True, tag_field="kind", tag="VolumeAttachment"):
    """A volume that is attached to a node, is to be, or is being detached."""

    metadata: Metadata
    spec: AttachmentSpec | None = None


class CapacityObject(Wire, frozen=True, tag_field="kind", tag="CSIStorageCapacity"):
    """How much more a class can give to the nodes of a topology; none where no selector is."""

    metadata: Metadata
    storage_class_name: str
    node_topology: Selector | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


AnyStorage = (
    VolumeObject
    | ClaimObject
    | StorageClassObject
    | NodeDriversObject
    | DriverObject
    | CapacityObject
    | AttachmentObject
)
"""Every object that claims are resolved with."""
