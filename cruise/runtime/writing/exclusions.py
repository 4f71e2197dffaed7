"""What node passes leave alone for a while, as the OOM reactor and the execution of a packing plan state it."""

from datetime import datetime

from cruise.domain.actions import Action, EvictPod, Reason, ResizePod
from cruise.domain.cluster import WorkloadRef

# Why a node pass acts of its own accord; a withdrawal only takes back what was refused, and is always allowed.
OF_A_NODE_PASS = (Reason.RIGHTSIZED, Reason.DOES_NOT_FIT)


class Exclusions:
    """Pods in the cool-down after a kill, and the nodes and pods that the packing plan under way counts on."""

    def __init__(self) -> None:
        self.reserved_evictions = 0
        self._cooling: dict[str, datetime] = {}
        self._reserved_nodes: frozenset[str] = frozenset()
        self._reserved_uids: frozenset[str] = frozenset()
        self._reserved_workloads: frozenset[tuple[str, WorkloadRef]] = frozenset()

    def cool_down(self, uid: str, until: datetime, now: datetime) -> None:
        """Exclude a pod until then: what it was just given is to show first."""
        self._cooling = {one: end for one, end in self._cooling.items() if end > now} | {uid: until}

    def reserve(
        self,
        nodes: frozenset[str] = frozenset(),
        uids: frozenset[str] = frozenset(),
        workloads: frozenset[tuple[str, WorkloadRef]] = frozenset(),
        evictions: int = 0,
    ) -> None:
        """Exclude the nodes and pods of a packing plan, in place of those of the plan before.

        Pods of the `workloads` are not evicted elsewhere, and so many `evictions` of the hour are left to it.
        """
        self._reserved_nodes, self._reserved_uids = nodes, uids
        self._reserved_workloads, self.reserved_evictions = workloads, evictions

    def why_excluded(self, action: Action, now: datetime) -> Reason | None:
        """Return why a node pass must not do this now, None where it may."""
        if not isinstance(action, ResizePod | EvictPod) or action.reason not in OF_A_NODE_PASS:
            return None
        until = self._cooling.get(action.uid)
        if until is not None and now < until:
            return Reason.COOLING_DOWN
        reserved = action.node in self._reserved_nodes or action.uid in self._reserved_uids
        if isinstance(action, EvictPod):
            reserved = reserved or (action.namespace, action.workload) in self._reserved_workloads
        return Reason.PACKING if reserved else None
