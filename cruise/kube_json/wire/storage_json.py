"""Structs of storage, devices and priority classes with the fields that cruise reads."""

from typing import Any

from msgspec import field

from cruise.kube_json.wire.pod_json import (
    Int32,
    JsonStruct,
    LabelSelectorJson,
    Metadata,
    NodeSelector,
    QuantityText,
    ResourceRequirements,
)


class CsiSource(JsonStruct, frozen=True):
    driver: str
    volume_handle: str = ""


class DiskSource(JsonStruct, frozen=True):
    """An in-tree volume; each plugin has its own name for the disk."""

    volume_id: str = field(name="volumeID", default="")
    pd_name: str = ""
    disk_name: str = ""
    volume_path: str = ""


class VolumeNodeAffinity(JsonStruct, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(JsonStruct, frozen=True):
    csi: CsiSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    gce_persistent_disk: DiskSource | None = None
    vsphere_volume: DiskSource | None = None
    node_affinity: VolumeNodeAffinity | None = None


class PersistentVolumeObject(JsonStruct, frozen=True, tag_field="kind", tag="PersistentVolume"):
    metadata: Metadata
    spec: PersistentVolumeSpec | None = None


class VolumeClaimSpecJson(JsonStruct, frozen=True):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] | None = None
    resources: ResourceRequirements | None = None


class VolumeClaimStatus(JsonStruct, frozen=True):
    phase: str | None = None


class VolumeClaimObject(JsonStruct, frozen=True, tag_field="kind", tag="PersistentVolumeClaim"):
    metadata: Metadata
    spec: VolumeClaimSpecJson | None = None
    status: VolumeClaimStatus | None = None


class TopologyRequirement(JsonStruct, frozen=True):
    key: str
    values: tuple[str, ...]


class TopologyTerm(JsonStruct, frozen=True):
    match_label_expressions: tuple[TopologyRequirement, ...] | None = None


class StorageClassObject(JsonStruct, frozen=True, tag_field="kind", tag="StorageClass"):
    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: tuple[TopologyTerm, ...] | None = None


class DriverLimit(JsonStruct, frozen=True):
    count: int | None = None


class CsiNodeDriver(JsonStruct, frozen=True):
    name: str
    allocatable: DriverLimit | None = None


class CsiNodeSpec(JsonStruct, frozen=True):
    drivers: tuple[CsiNodeDriver, ...] | None = None


class CsiNodeObject(JsonStruct, frozen=True, tag_field="kind", tag="CSINode"):
    metadata: Metadata
    spec: CsiNodeSpec | None = None


class PriorityClassObject(JsonStruct, frozen=True, tag_field="kind", tag="PriorityClass"):
    metadata: Metadata
    value: Int32
    global_default: bool | None = None
    preemption_policy: str | None = None


class CsiDriverSpec(JsonStruct, frozen=True):
    storage_capacity: bool | None = None


class DriverObject(JsonStruct, frozen=True, tag_field="kind", tag="CSIDriver"):
    metadata: Metadata
    spec: CsiDriverSpec | None = None


class AttachmentSource(JsonStruct, frozen=True):
    persistent_volume_name: str | None = None


class AttachmentSpec(JsonStruct, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachmentSource | None = None


class AttachmentObject(JsonStruct, frozen=True, tag_field="kind", tag="VolumeAttachment"):
    """A volume that is attached to a node, or is being attached or detached."""

    metadata: Metadata
    spec: AttachmentSpec | None = None


class StorageCapacityObject(JsonStruct, frozen=True, tag_field="kind", tag="CSIStorageCapacity"):
    """The storage that a class can still provide to the nodes of a topology; none without a selector."""

    metadata: Metadata
    storage_class_name: str
    node_topology: LabelSelectorJson | None = None
    capacity: QuantityText | None = None
    maximum_volume_size: QuantityText | None = None


AnyStorage = (
    PersistentVolumeObject
    | VolumeClaimObject
    | StorageClassObject
    | CsiNodeObject
    | DriverObject
    | StorageCapacityObject
    | AttachmentObject
)
"""Objects that claims are resolved with."""

# Devices of resource.k8s.io/v1; v1beta1 has the fields of `exactly` and `basic` in other places, and both are read.

AnyList = tuple[Any, ...] | None
"""A list of which only the presence of items is read."""


class CelExpression(JsonStruct, frozen=True):
    expression: str = ""


class DeviceSelector(JsonStruct, frozen=True):
    cel: CelExpression | None = None


class DeviceClassSpec(JsonStruct, frozen=True):
    selectors: tuple[DeviceSelector, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClassObject(JsonStruct, frozen=True, tag_field="kind", tag="DeviceClass"):
    metadata: Metadata
    spec: DeviceClassSpec | None = None


class ExactRequest(JsonStruct, frozen=True):
    device_class_name: str = ""
    selectors: AnyList = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    capacity: Any = None


class DeviceRequest(ExactRequest, frozen=True):
    """A request; in v1beta1 it has the fields of `exactly` itself."""

    exactly: ExactRequest | None = None
    first_available: AnyList = None


class DeviceRequests(JsonStruct, frozen=True):
    requests: tuple[DeviceRequest, ...] | None = None
    constraints: AnyList = None


class ResourceClaimSpec(JsonStruct, frozen=True):
    devices: DeviceRequests | None = None


class AllocatedDevice(JsonStruct, frozen=True):
    driver: str = ""
    pool: str = ""
    admin_access: bool | None = None


class AllocatedDevices(JsonStruct, frozen=True):
    results: tuple[AllocatedDevice, ...] | None = None


class Allocation(JsonStruct, frozen=True):
    devices: AllocatedDevices | None = None


class ResourceClaimStatus(JsonStruct, frozen=True):
    allocation: Allocation | None = None


class ResourceClaimObject(JsonStruct, frozen=True, tag_field="kind", tag="ResourceClaim"):
    metadata: Metadata
    spec: ResourceClaimSpec | None = None
    status: ResourceClaimStatus | None = None


class ResourceClaimTemplateSpec(JsonStruct, frozen=True):
    spec: ResourceClaimSpec | None = None


class ResourceClaimTemplateObject(JsonStruct, frozen=True, tag_field="kind", tag="ResourceClaimTemplate"):
    metadata: Metadata
    spec: ResourceClaimTemplateSpec | None = None


class DevicePool(JsonStruct, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class UncountableDeviceFields(JsonStruct, frozen=True):
    """Fields of devices that cannot be counted; empty for a device that one claim uses as a whole on one node."""

    consumes_counters: AnyList = None
    taints: AnyList = None
    node_name: str | None = None
    node_selector: Any = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: AnyList = None
    allow_multiple_allocations: bool | None = None


class Device(UncountableDeviceFields, frozen=True):
    name: str = ""
    basic: UncountableDeviceFields | None = None


class DeviceSliceSpec(JsonStruct, frozen=True):
    driver: str = ""
    pool: DevicePool = DevicePool()
    node_name: str | None = None
    shared_counters: AnyList = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None


class ResourceSliceObject(JsonStruct, frozen=True, tag_field="kind", tag="ResourceSlice"):
    metadata: Metadata
    spec: DeviceSliceSpec = DeviceSliceSpec()


AnyDevices = DeviceClassObject | ResourceClaimObject | ResourceClaimTemplateObject | ResourceSliceObject
"""Objects that the devices of pods are counted with."""
