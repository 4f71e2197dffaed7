"""A pod that cruise may resize, and which kubelets can."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cruise.decisions.pod_policy.utilisation_bounds import UtilisationBounds
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import Container, Node, Pod
from cruise.domain.policy import CpuLimitPolicy, Policy, ResizeDirection
from cruise.domain.resources import ResourceName, Resources

FIRST_RESIZING_KUBELET = (1, 33)
FIRST_KUBELET_RESIZING_POD_LEVEL = (1, 36)
_POD_LEVEL_FEATURE = "InPlacePodLevelResourcesVerticalScaling"


def resizes_pod_level(node: Node) -> bool:
    """Return whether a node's kubelet resizes pod-level resources in place (KEP-5419); False if that is unknown.

    No kubelet is newer than its API server, so its version holds for both.
    """
    if node.declared_features is not None:
        return _POD_LEVEL_FEATURE in node.declared_features
    return node.kubelet_version is not None and node.kubelet_version >= FIRST_KUBELET_RESIZING_POD_LEVEL


def has_working_kubelet(node: Node | None) -> bool:
    """Return whether a node's kubelet resizes and ends pods: it is ready, and reports what its machine has.

    A kubelet that cannot read its machine reports a capacity of 0. True for an unknown node.
    """
    if node is None:
        return True
    return node.ready and bool(node.allocatable.cpu_millicores and node.allocatable.memory_bytes)


class ResizablePod(NamedTuple):
    """A pod that cruise may resize: its effective policy, and for each sized container the row of its statistic.

    `sized` are main containers and sidecars in the pod's order, `kept_containers` those that keep their size.
    `stated_resources` has four numbers for each: CPU request, memory request, CPU limit, memory limit, 0 for none.
    `manages_cpu` and `manages_memory`: which resources are not left to the user or another autoscaler;
    `managed_by_container` tells it for each container, empty if it is the same for all. `template_limits` are the
    template's memory limits by container, None if unknown. `submitted_requests` are the template's requests by
    container (None if unknown), only if the effective policy requests more than administrators configured.
    `utilisation_bounds` are those of an HPA. A pod with pod-level resources is sized like one container, `POD_LEVEL`:
    `container_rows` are the rows of all its containers, and `containers_with_resources` those that state resources of
    their own and do not keep them.
    """

    pod: Pod
    effective_policy: EffectivePolicy
    sized: tuple[Container, ...]
    rows: tuple[int, ...]
    stated_resources: tuple[int, ...]
    manages_cpu: bool
    manages_memory: bool
    template_limits: Mapping[str, int] | None = None
    submitted_requests: tuple[Resources | None, ...] = ()
    managed_by_container: tuple[frozenset[ResourceName], ...] = ()
    kept_containers: tuple[Container, ...] = ()
    utilisation_bounds: UtilisationBounds | None = None
    container_rows: tuple[int, ...] = ()
    containers_with_resources: tuple[Container, ...] = ()

    @property
    def written(self) -> tuple[Container, ...]:
        """What a resize names: the sized containers, and within pod-level resources those that state their own."""
        return (*self.sized, *self.containers_with_resources)


def select_containers_with_resources(
    containers: Sequence[Container], effective_policy: EffectivePolicy, policy: Policy
) -> tuple[Container, ...]:
    """Return the containers that state CPU or memory, and may change in both directions without a CPU limit to keep."""

    def may_change(one: Container) -> bool:
        own = effective_policy.get_for_container(one.name)
        keeps_cpu_limit = (own.cpu_limits or policy.cpu_limits) is CpuLimitPolicy.KEEP
        return own.direction is ResizeDirection.BOTH and not (keeps_cpu_limit and one.limits.cpu_millicores is not None)

    stating = (one for one in containers if not (one.requests.is_empty and one.limits.is_empty))
    return tuple([one for one in stating if may_change(one)])


def find_pod_level_resources(pod: Pod, managed: Sequence[frozenset[ResourceName]]) -> frozenset[ResourceName]:
    """Return the resources that a pod states for all its containers, of those that are managed of any of them."""
    any_managed = frozenset(resource for own in managed for resource in own)
    stated = None if pod.pod_level is None else pod.pod_level.requests
    return frozenset(one for one in any_managed if stated is not None and stated.get(one) is not None)
