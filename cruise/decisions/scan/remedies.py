"""What a person has to do about a container that was killed for lack of memory."""

from enum import StrEnum

from cruise.decisions.guidance.template_limits import template_limits_of, workload_limits_of
from cruise.decisions.sizing.memory_limit import ceiling_of
from cruise.domain.cluster import Container, ContainerRole, OomKill, Pod, Snapshot
from cruise.domain.policy import Policy


class Remedy(StrEnum):
    """What a person has to do about kills that cruise does not end."""

    RAISE_TEMPLATE_LIMIT = "raise-template-limit"  # the limit is at its ceiling
    SIZE_INIT_CONTAINER = "size-init-container"  # cruise sizes no init containers
    SIZE_TEMPLATE = "size-template"  # the pod ended, and the next one is created from the template
    SIZE_OWNER = "size-owner"  # the same, of a kind whose template cruise does not read
    SIZE_MANIFEST = "size-manifest"  # the pod ended, and no controller creates another one


class Remedies:
    """Tells what a person has to do about a kill."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._nodes = {node.name: node.allocatable.memory_bytes for node in snapshot.nodes}

    def of_kill(self, kill: OomKill) -> Remedy | None:
        """Return the remedy for a container that does not run any more."""
        workload = kill.workload
        limits = None if workload is None else workload_limits_of(kill.namespace, workload, self._snapshot)
        template = None if limits is None else limits.get(kill.container)
        found = self._of(kill.role, kill.memory_limit_bytes, template)
        if found is not None or not kill.runs_to_completion:
            return found
        if workload is None:
            return Remedy.SIZE_MANIFEST
        is_read = (kill.namespace, workload) in self._snapshot.workloads
        return Remedy.SIZE_TEMPLATE if is_read else Remedy.SIZE_OWNER

    def of_running(self, pod: Pod, container: Container) -> Remedy | None:
        """Return the remedy for a container that runs again."""
        limits = template_limits_of(pod, self._snapshot)
        template = None if limits is None else limits.get(container.name)
        return self._of(container.role, container.limits.memory_bytes, template, self._nodes.get(pod.node or ""))

    def _of(
        self, role: ContainerRole, limit: int | None, template: int | None, allocatable: int | None = None
    ) -> Remedy | None:
        if role is ContainerRole.INIT:
            return Remedy.SIZE_INIT_CONTAINER
        at_ceiling = limit is not None and limit >= ceiling_of(template, allocatable, self._policy)
        return Remedy.RAISE_TEMPLATE_LIMIT if at_ceiling else None
