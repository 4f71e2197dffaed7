"""Count dynamically allocated devices as resources of nodes, where counting is enough.

Devices are counted by driver if each is a single thing of one node, and if claims request a number of them by a class
that selects only the driver. Other claims are unsupported.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from sys import intern

from cruise.domain.cluster import Node, Pod
from cruise.kube_json.wire import pod_json, storage_json

DEVICE_KINDS = "device:"
_ANY_CLASS = "deviceclass.resource.kubernetes.io/"
_EXACT_COUNT = "ExactCount"
_ONLY_DRIVER = re.compile(r"""^\s*device\.driver\s*==\s*(?:"([^"\\]+)"|'([^'\\]+)')\s*$""")
_COUNTABLE = storage_json.UncountableDeviceFields()

NamespacedName = tuple[str, str]


@dataclass(slots=True)
class DeviceObjects:
    """The objects about devices by name; `users` are the pods with device claims."""

    classes: dict[str, storage_json.DeviceClassObject] = field(default_factory=dict)
    claims: dict[NamespacedName, storage_json.ResourceClaimObject] = field(default_factory=dict)
    templates: dict[NamespacedName, storage_json.ResourceClaimTemplateObject] = field(default_factory=dict)
    slices: list[storage_json.DeviceSliceSpec] = field(default_factory=list)
    users: dict[NamespacedName, pod_json.PodObject] = field(default_factory=dict)

    def add(self, document: storage_json.AnyDevices) -> None:
        """Add one object."""
        name = (document.metadata.namespace or "default", document.metadata.name)
        match document:
            case storage_json.DeviceClassObject():
                self.classes[document.metadata.name] = document
            case storage_json.ResourceClaimObject():
                self.claims[name] = document
            case storage_json.ResourceClaimTemplateObject():
                self.templates[name] = document
            case storage_json.ResourceSliceObject():
                self.slices.append(document.spec)

    def add_user(self, pod: pod_json.PodObject) -> None:
        """Add a pod if it claims devices."""
        if pod.spec.resource_claims:
            self.users[pod.metadata.namespace or "default", pod.metadata.name] = pod


def add_devices(nodes: Sequence[Node], pods: Sequence[Pod], found: DeviceObjects) -> tuple[list[Node], list[Pod]]:
    """Return nodes with their devices, and pods with those that they use and that can be counted."""
    if not (found.classes or found.slices):
        return list(nodes), list(pods)
    counter = _DeviceCounter(found, pods)
    counted = [counter.add_pod_devices(pod) for pod in pods]
    return [counter.add_node_devices(node) for node in nodes], counted


class _DeviceCounter:
    def __init__(self, found: DeviceObjects, pods: Sequence[Pod]) -> None:
        self._found = found
        self._device_counts = _device_counts(found.slices)
        self._drivers = {name: driver for name, one in found.classes.items() if (driver := self._get_class_driver(one))}
        by_extended_name = {one.spec.extended_resource_name for one in found.classes.values() if one.spec}
        self._as_extended = by_extended_name - {None}
        # Allocated devices by node and driver; entries of claims are removed once their pod is known.
        self._allocated: defaultdict[tuple[str, str], Counter[NamespacedName]] = defaultdict(Counter)
        node_by_pool = {(one.driver, one.pool.name): one.node_name for one in found.slices if one.node_name}
        for name, claim in found.claims.items():
            for one in _get_results(claim):
                node = node_by_pool.get((one.driver, one.pool))
                if node is not None and not one.admin_access:
                    self._allocated[node, one.driver][name] += 1
        self._claim_users = Counter(
            name
            for pod in pods
            if not pod.is_finished and (user := found.users.get((pod.namespace, pod.name)))
            for name in filter(None, (_find_claim(user, one) for one in user.spec.resource_claims or ()))
        )

    def add_node_devices(self, node: Node) -> Node:
        """Return a node with its devices, without those allocated to claims of no pod or of several."""
        devices = {
            DEVICE_KINDS + driver: max(0, count - self._allocated[name, driver].total())
            for (name, driver), count in self._device_counts.items()
            if name == node.name
        }
        return replace(node, allocatable_extended={**node.allocatable_extended, **devices}) if devices else node

    def add_pod_devices(self, pod: Pod) -> Pod:
        """Return a pod with its devices counted; others become unsupported constraints."""
        named = {name for name, _ in pod.extended_requests}
        uncountable = sorted(name for name in named if name in self._as_extended or name.startswith(_ANY_CLASS))
        user = self._found.users.get((pod.namespace, pod.name))
        if pod.is_finished or (user is None and not uncountable):
            return pod
        devices: Counter[str] = Counter()
        unsupported = [*(text for text in pod.constraints.unsupported_constraints if not text.startswith("device "))]
        unsupported += [f"device {name}" for name in uncountable]
        for one in user.spec.resource_claims or () if user else ():
            requested = self._count_claim(pod, user, one) if user else None
            if requested is None:
                unsupported.append(f"device {one.name}")
            else:
                devices += requested
        extended = tuple(sorted([*pod.extended_requests, *((intern(DEVICE_KINDS + d), n) for d, n in devices.items())]))
        constraints = replace(pod.constraints, unsupported_constraints=tuple(sorted(unsupported)))
        return replace(pod, extended_requests=extended, constraints=constraints)

    def _count_claim(self, pod: Pod, user: pod_json.PodObject, one: pod_json.PodResourceClaim) -> Counter[str] | None:
        """Return how many devices of each driver a pod's claim requests, None if counting is not enough."""
        name = _find_claim(user, one)
        claim = self._found.claims.get(name) if name else None
        if claim is not None:
            spec = claim.spec
        else:
            template = self._found.templates.get((pod.namespace, one.resource_claim_template_name or ""))
            spec = template.spec.spec if template and template.spec else None
        requested = self._count_requests(spec)
        results = _get_results(claim) if claim else ()
        # Only a claim from a template is created again with the pod, so that it can use another node's devices.
        if requested is None or not one.resource_claim_template_name or (pod.node is None and results):
            return None
        if pod.node is None:
            return requested
        if claim is None or name is None or Counter(result.driver for result in results) != requested:
            return None
        for driver, count in requested.items():
            if self._allocated[pod.node, driver][name] != count or self._claim_users[name] > 1:
                return None
        for driver in requested:
            del self._allocated[pod.node, driver][name]
        return requested

    def _count_requests(self, spec: storage_json.ResourceClaimSpec | None) -> Counter[str] | None:
        if spec is None or spec.devices is None or spec.devices.constraints or not spec.devices.requests:
            return None
        requested: Counter[str] = Counter()
        for request in spec.devices.requests:
            exact = request.exactly or request
            driver = self._drivers.get(exact.device_class_name)
            is_countable = (
                exact.allocation_mode in (None, "", _EXACT_COUNT) and not exact.capacity and not exact.selectors
            )
            if driver is None or not is_countable or exact.admin_access or request.first_available:
                return None
            requested[driver] += 1 if exact.count is None else exact.count
        return requested

    def _get_class_driver(self, device_class: storage_json.DeviceClassObject) -> str | None:
        """Return the driver whose devices a class selects, None for a class with other conditions."""
        selectors = (device_class.spec.selectors if device_class.spec else None) or ()
        matches = [_ONLY_DRIVER.match(one.cel.expression) if one.cel else None for one in selectors]
        drivers = {match.group(1) or match.group(2) if match else None for match in matches}
        driver = drivers.pop() if len(drivers) == 1 else None
        return driver if any(driver == name for _, name in self._device_counts) else None


def _device_counts(slices: Sequence[storage_json.DeviceSliceSpec]) -> Mapping[tuple[str, str], int]:
    """Return the number of devices by node and driver, for drivers whose devices are all countable."""
    newest: dict[tuple[str, str], int] = {}
    for one in slices:
        key = (one.driver, one.pool.name)
        newest[key] = max(newest.get(key, 0), one.pool.generation)
    current = [one for one in slices if one.pool.generation == newest[one.driver, one.pool.name]]
    seen = Counter((one.driver, one.pool.name) for one in current)
    uncountable = {
        one.driver
        for one in current
        if not _is_countable(one) or seen[one.driver, one.pool.name] != one.pool.resource_slice_count
    }
    offered: Counter[tuple[str, str]] = Counter()
    for one in current:
        if one.driver not in uncountable and one.node_name:
            offered[one.node_name, one.driver] += len(one.devices or ())
    return offered


def _is_countable(one: storage_json.DeviceSliceSpec) -> bool:
    if not one.node_name or one.shared_counters or one.per_device_node_selection:
        return False
    return all(_get_uncountable_fields(device) == _COUNTABLE for device in one.devices or ())


def _get_uncountable_fields(device: storage_json.Device) -> storage_json.UncountableDeviceFields:
    """Return the fields of a device that make it uncountable; empty lists count as absent."""
    source = device.basic or device
    fields = {name: getattr(source, name) or None for name in storage_json.UncountableDeviceFields.__struct_fields__}
    return storage_json.UncountableDeviceFields(**fields)


def _find_claim(user: pod_json.PodObject, one: pod_json.PodResourceClaim) -> NamespacedName | None:
    """Return the claim of a pod's entry, None before it is created."""
    statuses: Iterable[pod_json.PodResourceClaimStatus] = (
        (user.status.resource_claim_statuses or ()) if user.status else ()
    )
    name = one.resource_claim_name or next((it.resource_claim_name for it in statuses if it.name == one.name), None)
    return (user.metadata.namespace or "default", name) if name else None


def _get_results(claim: storage_json.ResourceClaimObject) -> tuple[storage_json.AllocatedDevice, ...]:
    allocation = claim.status.allocation if claim.status else None
    return (allocation.devices.results or ()) if allocation and allocation.devices else ()
