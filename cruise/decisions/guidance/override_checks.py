"""Overrides that can be read and cannot be meant, which only the cluster shows: unknown containers, absurd sizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cruise.decisions.usage.statistics_table import containers_of_workloads
from cruise.domain.annotations import BOUNDS, OF_ONE_WORKLOAD, PREFIX, Setter, Unreadable
from cruise.domain.cluster import ContainerRole, Pod, Snapshot
from cruise.domain.machine_sizes import LARGEST_MACHINE, LARGEST_RENTED, why_too_large
from cruise.domain.overrides import Resolution, Statement
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

_BOUNDS = {bound.setting: bound for bound in BOUNDS}


@dataclass(frozen=True)
class OverrideChecks:
    """Checks the overrides of pods against one snapshot and the containers that statistics know."""

    snapshot: Snapshot
    statistics: StatisticsTable

    def why_unusable(self, resolution: Resolution, pod: Pod) -> Unreadable | None:
        """Tell which override cannot be meant, with the fix; None where all can be."""
        for one in resolution.statements:
            detail = self._why_misnamed(one, pod) or self._why_too_large(one)
            if detail:
                return Unreadable(f"{one.source}: {PREFIX}{one.setting}: {detail}")
        return None

    def _why_misnamed(self, one: Statement, pod: Pod) -> str:
        """Say what is wrong with the container that a statement names.

        One of a namespace, or of a VerticalPodAutoscaler, may be about other workloads or about what others inject.
        """
        container = one.setting.partition(".")[2]
        if not container or one.source.setter not in OF_ONE_WORKLOAD:
            return ""
        roles = {each.name: each.role for each in pod.containers}
        if roles.get(container) is ContainerRole.INIT:
            return "init containers are not sized; change it in the pod template"
        names = set(roles)
        workload = None if pod.workload is None else self.snapshot.workloads.get((pod.namespace, pod.workload))
        if workload is not None and workload.requests is not None:
            names |= workload.requests.keys()
        # A container may be injected after the webhook has seen the pod, or not into every pod.
        if container in names or container in self._containers_seen.get((pod.namespace, pod.workload_name), ()):
            return ""
        return f"no such container; there is {', '.join(sorted(names))}"

    def _why_too_large(self, one: Statement) -> str:
        bound = _BOUNDS.get(one.setting.partition(".")[0])
        # VPAs are written with a maximum that no node has.
        is_cap = bound is not None and bound.field.startswith("maximum.")
        if bound is None or (is_cap and one.source.setter is Setter.VERTICAL):
            return ""
        resource = ResourceName.CPU if bound.field.endswith("cpu_millicores") else ResourceName.MEMORY
        return why_too_large(resource, one.value, self._largest_node)

    @cached_property
    def _containers_seen(self) -> Mapping[tuple[str, str], set[str]]:
        """The containers that statistics know, by namespace and workload."""
        return containers_of_workloads(self.statistics)

    @cached_property
    def _largest_node(self) -> Resources:
        """What the largest node has of each resource, reserved parts included, and what may be ordered."""
        known = self.snapshot.known_nodes
        largest = LARGEST_MACHINE if not known else NO_RESOURCES
        if self.snapshot.node_autoscaler is not None:
            largest = LARGEST_RENTED
        for node in known:
            whole = Resources(node.cpu_capacity_millicores or 0, node.memory_capacity_bytes or 0)
            largest = largest.at_least(whole).at_least(node.allocatable)
        return largest
