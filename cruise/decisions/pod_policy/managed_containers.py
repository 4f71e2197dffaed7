"""Which containers of a pod are sized, and which of their resources."""

from typing import NamedTuple

from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import Container, Pod
from cruise.domain.policy import Mode
from cruise.domain.resources import ResourceName

_CPU = frozenset({ResourceName.CPU})
SKIP_REASON_BY_MODE = {
    Mode.OFF: ReasonCode.MODE_OFF,
    Mode.OBSERVE: ReasonCode.MODE_OBSERVE,
    Mode.INITIAL: ReasonCode.MODE_INITIAL,
}


class ManagedContainers(NamedTuple):
    """The main containers and sidecars that are sized, in the pod's order, and the resources that are sized of each."""

    sized: tuple[Container, ...]
    resources: tuple[frozenset[ResourceName], ...]

    def manages(self, resource: ResourceName) -> bool:
        """Return whether a resource is sized of any container."""
        return any([resource in own for own in self.resources])

    def restarts_for(self, resource: ResourceName) -> bool:
        """Return whether sizing a resource restarts a container."""
        for one, own in zip(self.sized, self.resources, strict=True):
            restarts = one.cpu_resize_restarts if resource is ResourceName.CPU else one.memory_resize_restarts
            if restarts and resource in own:
                return True
        return False


def find_managed_containers(
    pod: Pod, effective_policy: EffectivePolicy, claims: AutoscalerClaims, needed: Mode
) -> ManagedContainers:
    """Return the containers whose mode is at least `needed` and that neither overrides nor autoscalers exclude."""
    sized = pod.sized_containers
    if not effective_policy.containers and not claims.left_by_vpa:
        resources = effective_policy.resources - claims.scaled
        return ManagedContainers(sized, (resources,) * len(sized)) if resources else ManagedContainers((), ())
    found = []
    for container in sized:
        own = effective_policy.get_for_container(container.name)
        resources = own.resources & claims.get_free_resources(container.name)
        if own.mode >= needed and resources:
            found.append((container, resources))
    return ManagedContainers(tuple([one for one, _ in found]), tuple([resources for _, resources in found]))


def keep_cpu(managed: ManagedContainers) -> ManagedContainers:
    """Return the containers without CPU, and those without any other resource left out."""
    pairs = [(one, own - _CPU) for one, own in zip(managed.sized, managed.resources, strict=True)]
    return ManagedContainers(tuple([one for one, own in pairs if own]), tuple([own for _, own in pairs if own]))


def read_stated_resources(containers: tuple[Container, ...]) -> tuple[int, ...]:
    """Return four numbers for each container: CPU request, memory request, CPU limit, memory limit, 0 for none.

    They are read while the pod is in the CPU cache: later passes visit pods node by node.
    """
    found: list[int] = []
    for one in containers:
        found += (one.requests.cpu_millicores or 0, one.requests.memory_bytes or 0)
        found += (one.limits.cpu_millicores or 0, one.limits.memory_bytes or 0)
    return tuple(found)


def explain_none_managed(
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
