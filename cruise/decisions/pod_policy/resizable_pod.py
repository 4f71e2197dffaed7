"""A pod that cruise may resize, which of its containers, and what kubelets refuse whatever the size.

A refusal of one pod shows the configuration of its node, and is remembered as others are. Kubelets before 1.34 with a
static CPU or memory manager refuse every resize of a Guaranteed pod, with whole cores or not; later ones that of the
managed resource. Kubelets with swap refuse other memory requests of Burstable pods, and with them the whole resize.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cruise.decisions.pod_policy.hpa_bounds import HpaBounds
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims
from cruise.domain.actions import ReasonCode, RefusedResize
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, QosClass
from cruise.domain.policy import CpuLimitPolicy, Mode, Policy, ResizeDirection
from cruise.domain.resources import ResizeState, ResourceName, Resources

FIRST_RESIZING_KUBELET = (1, 33)
FIRST_KUBELET_RESIZING_POD_LEVEL = (1, 36)
_POD_LEVEL_FEATURE = "InPlacePodLevelResourcesVerticalScaling"


def supports_pod_level_resize(node: Node) -> bool:
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
    `managed_by_container` states it for each container, empty if it is the same for all. `template_limits` are the
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
    utilisation_bounds: HpaBounds | None = None
    container_rows: tuple[int, ...] = ()
    containers_with_resources: tuple[Container, ...] = ()

    @property
    def written(self) -> tuple[Container, ...]:
        """What a resize names: the sized containers, and within pod-level resources those that state their own."""
        return (*self.sized, *self.containers_with_resources)


def find_pod_level_resources(pod: Pod, managed: Sequence[frozenset[ResourceName]]) -> frozenset[ResourceName]:
    """Return the resources that a pod states for all its containers, of those that are managed of any of them."""
    any_managed = frozenset(resource for own in managed for resource in own)
    stated = None if pod.pod_level is None else pod.pod_level.requests
    return frozenset(one for one in any_managed if stated is not None and stated.get(one) is not None)


_REFUSAL_BY_MANAGER = {
    ResourceName.CPU: ReasonCode.STATIC_CPU_MANAGER,
    ResourceName.MEMORY: ReasonCode.STATIC_MEMORY_MANAGER,
}
REFUSALS_OF_ANY_SIZE = frozenset({*_REFUSAL_BY_MANAGER.values(), ReasonCode.NODE_SWAP})
"""Reasons of refusals that another size does not avoid."""
_FIRST_KUBELET_COMPARING_RESOURCES = (1, 34)
_MANAGED_BY_REASON = {
    ReasonCode.STATIC_CPU_MANAGER: frozenset({ResourceName.CPU}),
    # Of a pod one refusal is remembered, and the CPU manager refuses before the memory manager.
    ReasonCode.STATIC_MEMORY_MANAGER: frozenset(ResourceName),
}
_NONE: Mapping[ResourceName, ReasonCode] = {}


def explain_infeasible(state: ResizeState) -> ReasonCode:
    """Return why a kubelet refused a resize."""
    if state.memory_swaps:
        return ReasonCode.NODE_SWAP
    return ReasonCode.RESIZE_INFEASIBLE if state.static_manager is None else _REFUSAL_BY_MANAGER[state.static_manager]


def mark_nodes_that_refuse_resizes(snapshot: ClusterSnapshot, refused: Mapping[str, RefusedResize]) -> ClusterSnapshot:
    """Return the snapshot with what refused resizes show of their nodes; `refused` is by pod uid.

    A refusal does not count any more once the node's allocatable has changed.
    """
    relevant = {uid: one for uid, one in refused.items() if one.reason in REFUSALS_OF_ANY_SIZE}
    if not relevant:
        return snapshot
    nodes = {node.name: node for node in snapshot.nodes}
    for pod in snapshot.pods:
        one, node = relevant.get(pod.uid), nodes.get(pod.node or "")
        if one is not None and node is not None and one.free_capacity in (None, node.allocatable):
            nodes[node.name] = replace(
                node,
                static_managers=node.static_managers | _MANAGED_BY_REASON.get(one.reason, frozenset()),
                memory_swaps=node.memory_swaps or one.reason is ReasonCode.NODE_SWAP,
            )
    return replace(snapshot, nodes=tuple(nodes.values()))


def resizes_no_pods(node: Node) -> bool:
    """Return whether a node's kubelet is known to resize no pods."""
    return node.kubelet_version is not None and node.kubelet_version < FIRST_RESIZING_KUBELET


def node_refuses_resizes(node: Node) -> bool:
    """Return whether the node's kubelet is known to refuse any resize whatever the size."""
    return bool(node.static_managers) or node.memory_swaps


def find_unresizable_resources(pod: Pod, node: Node) -> Mapping[ResourceName, ReasonCode]:
    """Return the resources of a pod that its node's kubelet does not resize, with the reason.

    Nothing while a resize is pending: it is withdrawn first.
    """
    if pod.resize.pending is not None:
        return _NONE
    if pod.qos is not QosClass.GUARANTEED:
        return {ResourceName.MEMORY: ReasonCode.NODE_SWAP} if node.memory_swaps else _NONE
    version = node.kubelet_version
    refuses_all = version is not None and version < _FIRST_KUBELET_COMPARING_RESOURCES
    if node.static_managers and refuses_all:
        is_memory = ResourceName.MEMORY in node.static_managers
        return dict.fromkeys(ResourceName, _REFUSAL_BY_MANAGER[ResourceName.MEMORY if is_memory else ResourceName.CPU])
    return {resource: _REFUSAL_BY_MANAGER[resource] for resource in node.static_managers}


_CPU = frozenset({ResourceName.CPU})
SKIP_REASON_BY_MODE = {
    Mode.OFF: ReasonCode.MODE_OFF,
    Mode.OBSERVE: ReasonCode.MODE_OBSERVE,
    Mode.INITIAL: ReasonCode.MODE_INITIAL,
}


class ManagedContainers(NamedTuple):
    """The main containers and sidecars that are sized, in the pod's order, and the resources that are sized of each.

    `have_equal_resources`: whether there are containers, and the same resources are sized of all.
    """

    sized: tuple[Container, ...]
    resources: tuple[frozenset[ResourceName], ...]
    have_equal_resources: bool

    def find_resources(self) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
        """Return whether CPU and memory are sized of any container, and whether a resize of them restarts one."""
        if self.have_equal_resources:
            for one in self.sized:
                if one.cpu_resize_restarts or one.memory_resize_restarts:
                    break
            else:
                own = self.resources[0]
                return (ResourceName.CPU in own, ResourceName.MEMORY in own), (False, False)
        cpu = memory = restarts_for_cpu = restarts_for_memory = False
        for one, own in zip(self.sized, self.resources, strict=True):
            if ResourceName.CPU in own:
                cpu = True
                restarts_for_cpu |= one.cpu_resize_restarts
            if ResourceName.MEMORY in own:
                memory = True
                restarts_for_memory |= one.memory_resize_restarts
        return (cpu, memory), (restarts_for_cpu, restarts_for_memory)


NO_MANAGED_CONTAINERS = ManagedContainers((), (), have_equal_resources=False)


def build_managed_containers(
    sized: Sequence[Container], resources: Sequence[frozenset[ResourceName]]
) -> ManagedContainers:
    """Return the containers with the resources that are sized of each."""
    are_equal = bool(resources) and resources.count(resources[0]) == len(resources)
    return ManagedContainers(tuple(sized), tuple(resources), are_equal)


def select_containers_with_resources(
    managed: ManagedContainers, pod_level: frozenset[ResourceName], effective_policy: EffectivePolicy, policy: Policy
) -> tuple[Container, ...]:
    """Return the containers that state CPU or memory, and may change as their pod with `pod_level` resources does.

    Those keep their sizes of which not all of these resources are managed, which may change in one direction only, or
    which have a CPU limit to keep.
    """

    def may_change(one: Container) -> bool:
        own = effective_policy.get_for_container(one.name)
        keeps_cpu_limit = (own.cpu_limits or policy.cpu_limits) is CpuLimitPolicy.KEEP
        return own.direction is ResizeDirection.BOTH and not (keeps_cpu_limit and one.limits.cpu_millicores is not None)

    pairs = zip(managed.sized, managed.resources, strict=True)
    stating = (one for one, own in pairs if own >= pod_level and not (one.requests.is_empty and one.limits.is_empty))
    return tuple([one for one in stating if may_change(one)])


def find_shared_resources(
    effective_policy: EffectivePolicy, claims: AutoscalerClaims
) -> frozenset[ResourceName] | None:
    """Return the resources that are sized of each container, None if containers differ."""
    if effective_policy.containers or claims.left_by_vpa:
        return None
    return effective_policy.resources - claims.scaled


def find_managed_containers(
    pod: Pod,
    effective_policy: EffectivePolicy,
    claims: AutoscalerClaims,
    needed: Mode,
    shared: frozenset[ResourceName] | None,
) -> ManagedContainers:
    """Return the containers whose mode is at least `needed` and that neither overrides nor autoscalers exclude.

    `shared` is what `find_shared_resources` returns.
    """
    sized = pod.sized_containers
    if shared is not None:
        return ManagedContainers(sized, (shared,) * len(sized), bool(sized)) if shared else NO_MANAGED_CONTAINERS
    found = []
    for container in sized:
        own = effective_policy.get_for_container(container.name)
        resources = own.resources & claims.get_unclaimed_resources(container.name)
        if own.mode >= needed and resources:
            found.append((container, resources))
    return build_managed_containers([one for one, _ in found], [resources for _, resources in found])


def exclude_cpu(managed: ManagedContainers) -> ManagedContainers:
    """Return the containers without CPU, and those without any other resource left out."""
    pairs = [(one, own - _CPU) for one, own in zip(managed.sized, managed.resources, strict=True) if own - _CPU]
    return build_managed_containers([one for one, _ in pairs], [own for _, own in pairs])


def flatten_requests_and_limits(containers: tuple[Container, ...]) -> tuple[int, ...]:
    """Return four numbers for each container: CPU request, memory request, CPU limit, memory limit, 0 for none.

    They are read while the pod is in the CPU cache: later passes visit pods node by node.
    """
    found: list[int] = []
    for one in containers:
        requests, limits = one.requests, one.limits
        found += (
            requests.cpu_millicores or 0,
            requests.memory_bytes or 0,
            limits.cpu_millicores or 0,
            limits.memory_bytes or 0,
        )
    return tuple(found)


def explain_no_managed_containers(
    pod: Pod, effective_policy: EffectivePolicy, claims: AutoscalerClaims, needed: Mode
) -> tuple[ReasonCode, str]:
    """Return why none of a pod's containers is sized, with a detail."""
    policies = [effective_policy.get_for_container(one.name) for one in pod.sized_containers]
    modes = [one.mode if one.resources else Mode.OFF for one in policies]
    mode = max(modes, default=needed)
    if mode < needed:
        return SKIP_REASON_BY_MODE[mode], ", ".join(one.name for one in pod.sized_containers)
    if claims.sized_by:
        return ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, claims.sized_by
    return ReasonCode.MANAGED_BY_HPA, claims.scaled_by


def select_kept_containers(pod: Pod, sized: tuple[Container, ...]) -> tuple[Container, ...]:
    """Return the main containers and sidecars that are not sized: they keep what they request."""
    if len(sized) == len(pod.sized_containers):
        return ()
    names = {one.name for one in sized}
    return tuple([one for one in pod.sized_containers if one.name not in names])
