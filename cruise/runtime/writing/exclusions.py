"""What node passes leave alone for a while, as the OOM reactor and the execution of a packing plan state it."""

from collections.abc import Callable
from datetime import datetime

from cruise.decisions.packing.execution import Subjects
from cruise.domain.actions import Action, EvictPod, Reason, ResizePod

# Why a node pass acts of its own accord; a withdrawal only takes back what was refused, and is always allowed.
OF_A_NODE_PASS = (Reason.RIGHTSIZED, Reason.DOES_NOT_FIT)


class Exclusions:
    """Pods in the cool-down after a kill, and what is `reserved`: what the packing plan under way counts on.

    Pods of its workloads are not evicted elsewhere either, and so many evictions of the hour are left to it.
    While `history_incomplete` the database lacks usage that it had: then no pod is shrunk or evicted because of it.
    """

    def __init__(self) -> None:
        self.reserved = Subjects()
        self.history_incomplete: Callable[[], bool] = lambda: False
        self._cooling: dict[str, datetime] = {}

    def cool_down(self, uid: str, until: datetime, now: datetime) -> None:
        """Exclude a pod until then: what it was just given is to show first."""
        self._cooling = {one: end for one, end in self._cooling.items() if end > now} | {uid: until}

    def why_excluded(self, action: Action, now: datetime) -> Reason | None:
        """Return why a node pass must not do this now, None where it may."""
        if not isinstance(action, ResizePod | EvictPod) or action.reason not in OF_A_NODE_PASS:
            return None
        until = self._cooling.get(action.uid)
        if until is not None and now < until:
            return Reason.COOLING_DOWN
        reserved = action.node in self.reserved.nodes or action.uid in self.reserved.uids
        if isinstance(action, EvictPod):
            reserved = reserved or (action.namespace, action.workload) in self.reserved.workloads
        return Reason.PACKING if reserved else None
