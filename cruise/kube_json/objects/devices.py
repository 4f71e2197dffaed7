"""Devices that are allocated dynamically, as counted resources of nodes where counting is all that they take.

They are counted by driver, where each device of the driver is one thing of one node, and a pod's claims ask for a
number of them by classes that name the driver and nothing else. What asks for more is not judged.
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
_PLAIN = storage_json.DeviceParts()

Name = tuple[str, str]


@dataclass(slots=True)
class DeviceObjects:
    """Everything about devices in a list, by name; `users` are the pods that ask for some."""

    classes: dict[str, storage_json.DeviceClassObject] = field(default_factory=dict)
    claims: dict[Name, storage_json.DeviceClaimObject] = field(default_factory=dict)
    templates: dict[Name, storage_json.DeviceClaimTemplateObject] = field(default_factory=dict)
    slices: list[storage_json.DeviceSliceSpec] = field(default_factory=list)
    users: dict[Name, pod_json.PodObject] = field(default_factory=dict)

    def add(self, document: storage_json.AnyDevices) -> None:
        """Take in one object."""
        name = (document.metadata.namespace or "default", document.metadata.name)
        match document:
            case storage_json.DeviceClassObject():
                self.classes[document.metadata.name] = document
            case storage_json.DeviceClaimObject():
                self.claims[name] = document
            case storage_json.DeviceClaimTemplateObject():
                self.templates[name] = document
            case storage_json.DeviceSliceObject():
                self.slices.append(document.spec)

    def add_user(self, pod: pod_json.PodObject) -> None:
        """Note a pod that asks for devices."""
        if pod.spec.resource_claims:
            self.users[pod.metadata.namespace or "default", pod.metadata.name] = pod


def add_devices(nodes: Sequence[Node], pods: Sequence[Pod], found: DeviceObjects) -> tuple[list[Node], list[Pod]]:
    """Return nodes with the devices that they offer, and pods with those that they take and can be counted."""
    if not (found.classes or found.slices):
        return list(nodes), list(pods)
    counting = _Counting(found, pods)
    counted = [counting.counted(pod) for pod in pods]
    return [counting.offering(node) for node in nodes], counted


class _Counting:
    def __init__(self, found: DeviceObjects, pods: Sequence[Pod]) -> None:
        self._found = found
        self._offered = _offered(found.slices)
        self._drivers = {name: driver for name, one in found.classes.items() if (driver := self._driver_of(one))}
        by_extended_name = {one.spec.extended_resource_name for one in found.classes.values() if one.spec}
        self._as_extended = by_extended_name - {None}
        # What is taken by claims, until it is found which pods these are of.
        self._taken: defaultdict[tuple[str, str], Counter[Name]] = defaultdict(Counter)
        homes = {(one.driver, one.pool.name): one.node_name for one in found.slices if one.node_name}
        for name, claim in found.claims.items():
            for one in _results(claim):
                home = homes.get((one.driver, one.pool))
                if home is not None and not one.admin_access:
                    self._taken[home, one.driver][name] += 1
        self._shared = Counter(
            name
            for pod in pods
            if not pod.is_finished and (user := found.users.get((pod.namespace, pod.name)))
            for name in filter(None, (_claim_of(user, one) for one in user.spec.resource_claims or ()))
        )

    def offering(self, node: Node) -> Node:
        """Return a node with its devices, those apart that claims of no pod, or of several, have."""
        mine = {
            DEVICE_KINDS + driver: max(0, count - self._taken[name, driver].total())
            for (name, driver), count in self._offered.items()
            if name == node.name
        }
        return replace(node, allocatable_extended={**node.allocatable_extended, **mine}) if mine else node

    def counted(self, pod: Pod) -> Pod:
        """Return a pod with its devices counted; it is not judged for those that it wants otherwise."""
        named = {name for name, _ in pod.extended_requests}
        odd = sorted(name for name in named if name in self._as_extended or name.startswith(_ANY_CLASS))
        user = self._found.users.get((pod.namespace, pod.name))
        if pod.is_finished or (user is None and not odd):
            return pod
        takes: Counter[str] = Counter()
        unjudged = [*(text for text in pod.constraints.unsupported_constraints if not text.startswith("device "))]
        unjudged += [f"device {name}" for name in odd]
        for one in user.spec.resource_claims or () if user else ():
            wanted = self._wanted(pod, user, one) if user else None
            if wanted is None:
                unjudged.append(f"device {one.name}")
            else:
                takes += wanted
        extended = tuple(sorted([*pod.extended_requests, *((intern(DEVICE_KINDS + d), n) for d, n in takes.items())]))
        constraints = replace(pod.constraints, unsupported_constraints=tuple(sorted(unjudged)))
        return replace(pod, extended_requests=extended, constraints=constraints)

    def _wanted(self, pod: Pod, user: pod_json.PodObject, one: pod_json.PodResourceClaim) -> Counter[str] | None:
        """Return how many devices of each driver a claim of a pod asks for, None where more than counting decides."""
        name = _claim_of(user, one)
        claim = self._found.claims.get(name) if name else None
        if claim is not None:
            spec = claim.spec
        else:
            template = self._found.templates.get((pod.namespace, one.resource_claim_template_name or ""))
            spec = template.spec.spec if template and template.spec else None
        wanted = self._counted(spec)
        results = _results(claim) if claim else ()
        # One that is made for the pod alone is made anew with it, and any node's devices serve.
        if wanted is None or not one.resource_claim_template_name or (pod.node is None and results):
            return None
        if pod.node is None:
            return wanted
        if claim is None or name is None or Counter(result.driver for result in results) != wanted:
            return None
        for driver, count in wanted.items():
            if self._taken[pod.node, driver][name] != count or self._shared[name] > 1:
                return None
        for driver in wanted:
            del self._taken[pod.node, driver][name]
        return wanted

    def _counted(self, spec: storage_json.DeviceClaimSpec | None) -> Counter[str] | None:
        if spec is None or spec.devices is None or spec.devices.constraints or not spec.devices.requests:
            return None
        wanted: Counter[str] = Counter()
        for request in spec.devices.requests:
            exact = request.exactly or request
            driver = self._drivers.get(exact.device_class_name)
            plain = exact.allocation_mode in (None, "", _EXACT_COUNT) and not exact.capacity and not exact.selectors
            if driver is None or not plain or exact.admin_access or request.first_available:
                return None
            wanted[driver] += 1 if exact.count is None else exact.count
        return wanted

    def _driver_of(self, device_class: storage_json.DeviceClassObject) -> str | None:
        """Return the driver all of whose devices a class means, None for a class that asks for something else."""
        selectors = (device_class.spec.selectors if device_class.spec else None) or ()
        matches = [_ONLY_DRIVER.match(one.cel.expression) if one.cel else None for one in selectors]
        drivers = {match.group(1) or match.group(2) if match else None for match in matches}
        driver = drivers.pop() if len(drivers) == 1 else None
        return driver if any(driver == name for _, name in self._offered) else None


def _offered(slices: Sequence[storage_json.DeviceSliceSpec]) -> Mapping[tuple[str, str], int]:
    """Return how many devices of each driver a node has, of drivers all of whose devices are alike to a count."""
    newest: dict[tuple[str, str], int] = {}
    for one in slices:
        key = (one.driver, one.pool.name)
        newest[key] = max(newest.get(key, 0), one.pool.generation)
    current = [one for one in slices if one.pool.generation == newest[one.driver, one.pool.name]]
    seen = Counter((one.driver, one.pool.name) for one in current)
    odd = {
        one.driver
        for one in current
        if not _is_plain(one) or seen[one.driver, one.pool.name] != one.pool.resource_slice_count
    }
    offered: Counter[tuple[str, str]] = Counter()
    for one in current:
        if one.driver not in odd and one.node_name:
            offered[one.node_name, one.driver] += len(one.devices or ())
    return offered


def _is_plain(one: storage_json.DeviceSliceSpec) -> bool:
    if not one.node_name or one.shared_counters or one.per_device_node_selection:
        return False
    return all(_parts(device) == _PLAIN for device in one.devices or ())


def _parts(device: storage_json.Device) -> storage_json.DeviceParts:
    """Return what makes a device special, an empty list as nothing."""
    held = device.basic or device
    fields = {name: getattr(held, name) or None for name in storage_json.DeviceParts.__struct_fields__}
    return storage_json.DeviceParts(**fields)


def _claim_of(user: pod_json.PodObject, one: pod_json.PodResourceClaim) -> Name | None:
    """Return the claim that a pod has for one of those that it lists, None before it is made."""
    made: Iterable[pod_json.PodResourceClaimStatus] = (user.status.resource_claim_statuses or ()) if user.status else ()
    name = one.resource_claim_name or next((it.resource_claim_name for it in made if it.name == one.name), None)
    return (user.metadata.namespace or "default", name) if name else None


def _results(claim: storage_json.DeviceClaimObject) -> tuple[storage_json.AllocatedDevice, ...]:
    allocation = claim.status.allocation if claim.status else None
    return (allocation.devices.results or ()) if allocation and allocation.devices else ()
