"""The few fields of device claims, templates, classes and slices that cruise reads, as structs.

Served as resource.k8s.io/v1; v1beta1 has what `exactly` and `basic` hold in other places, and both are read.
"""

from typing import Any

from cruise.kube_json.wire.pod_json import Metadata, Wire

Anything = tuple[Any, ...] | None
"""A list of which only matters whether there is something in it."""


class CelExpression(Wire, frozen=True):
    expression: str = ""


class DeviceSelector(Wire, frozen=True):
    cel: CelExpression | None = None


class DeviceClassSpec(Wire, frozen=True):
    selectors: tuple[DeviceSelector, ...] | None = None
    extended_resource_name: str | None = None


class DeviceClassObject(Wire, frozen=True, tag_field="kind", tag="DeviceClass"):
    metadata: Metadata
    spec: DeviceClassSpec | None = None


class ExactRequest(Wire, frozen=True):
    device_class_name: str = ""
    selectors: Anything = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None
    capacity: Any = None


class DeviceRequest(ExactRequest, frozen=True):
    """A request, which in v1beta1 has itself what later stands under `exactly`."""

    exactly: ExactRequest | None = None
    first_available: Anything = None


class DeviceRequests(Wire, frozen=True):
    requests: tuple[DeviceRequest, ...] | None = None
    constraints: Anything = None


class DeviceClaimSpec(Wire, frozen=True):
    devices: DeviceRequests | None = None


class AllocatedDevice(Wire, frozen=True):
    driver: str = ""
    pool: str = ""
    admin_access: bool | None = None


class AllocatedDevices(Wire, frozen=True):
    results: tuple[AllocatedDevice, ...] | None = None


class Allocation(Wire, frozen=True):
    devices: AllocatedDevices | None = None


class DeviceClaimStatus(Wire, frozen=True):
    allocation: Allocation | None = None


class DeviceClaimObject(Wire, frozen=True, tag_field="kind", tag="ResourceClaim"):
    metadata: Metadata
    spec: DeviceClaimSpec | None = None
    status: DeviceClaimStatus | None = None


class DeviceClaimTemplate(Wire, frozen=True):
    spec: DeviceClaimSpec | None = None


class DeviceClaimTemplateObject(Wire, frozen=True, tag_field="kind", tag="ResourceClaimTemplate"):
    metadata: Metadata
    spec: DeviceClaimTemplate | None = None


class DevicePool(Wire, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class DeviceParts(Wire, frozen=True):
    """What makes a device other than one thing of a node that one claim takes whole."""

    consumes_counters: Anything = None
    taints: Anything = None
    node_name: str | None = None
    node_selector: Any = None
    all_nodes: bool | None = None
    binds_to_node: bool | None = None
    binding_conditions: Anything = None
    allow_multiple_allocations: bool | None = None


class Device(DeviceParts, frozen=True):
    name: str = ""
    basic: DeviceParts | None = None


class DeviceSliceSpec(Wire, frozen=True):
    driver: str = ""
    pool: DevicePool = DevicePool()
    node_name: str | None = None
    shared_counters: Anything = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] | None = None


class DeviceSliceObject(Wire, frozen=True, tag_field="kind", tag="ResourceSlice"):
    metadata: Metadata
    spec: DeviceSliceSpec = DeviceSliceSpec()


AnyDevices = DeviceClassObject | DeviceClaimObject | DeviceClaimTemplateObject | DeviceSliceObject
"""Every object that the devices of pods are counted with."""
