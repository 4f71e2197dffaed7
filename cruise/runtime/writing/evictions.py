"""The eviction budgets, and the turn that makes several writers spend them once."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from cruise.domain.actions import EvictPod, Outcome, Reason, Verdict
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.packing import Allowance
from cruise.domain.policy import Policy
from cruise.runtime.ports import Store
from cruise.runtime.writing.audit import AuditQueue

BUDGET_WINDOW = timedelta(hours=1)


class EvictionTurns:
    """One eviction at a time in a process, each on budgets that count all evictions before it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.lost_until: Callable[[], int] = lambda: 0
        """Returns until when (Unix seconds) the database has lost evictions that were done; 0 for never."""

    def are_known(self, now: datetime) -> bool:
        """Tell whether the database has all evictions that count against the budget of the hour."""
        return now.timestamp() >= self.lost_until() + BUDGET_WINDOW.total_seconds()

    @asynccontextmanager
    async def turn(self, store: Store, audit: AuditQueue, now: datetime) -> AsyncIterator[Sequence[Outcome]]:
        """Wait for the turn; give the evictions begun in the last hour, with those that waited for the store.

        What is done during the turn has to be in the audit at its end.
        """
        async with self._lock:
            await audit.record(store)
            yield await store.evictions_since(now - BUDGET_WINDOW)
            await audit.record(store)


class EvictionBudgets:
    """The budgets as the snapshot leaves them, and as evictions do that it does not show yet."""

    def __init__(self, snapshot: Snapshot, policy: Policy, pass_began: datetime, *, evicting: bool = True) -> None:
        """Read the pods of a snapshot, unless nothing is evicted anyway."""
        self._policy = policy
        self._pass_began = pass_began
        self._quotas = snapshot.quotas if policy.rules.quotas else {}
        self._alive: set[str] = set()
        self._disrupted: dict[tuple[str, WorkloadRef | None], set[str]] = {}
        self._youngest_unsized: dict[tuple[str, WorkloadRef | None, str | None], datetime] = {}
        for pod in snapshot.pods if evicting else ():
            if pod.created_at is not None and ORIGINAL_RESOURCES not in pod.annotations:
                place = (pod.namespace, pod.workload, pod.node)
                self._youngest_unsized[place] = max(pod.created_at, self._youngest_unsized.get(place, pod.created_at))
            down = pod.terminating or pod.phase == "Pending"
            if not down:
                self._alive.add(pod.uid)
            if pod.workload is not None and (down or _is_unready(pod, policy)):
                self._disrupted.setdefault((pod.namespace, pod.workload), set()).add(pod.uid)

    def over_budget(self, action: EvictPod, spent: Sequence[Outcome]) -> Reason | None:
        """Return the budget that an eviction would overdraw; `spent` are the evictions of the last hour."""
        policy = self._policy
        if action.node is None:
            # A pod that runs nowhere serves nothing.
            return None
        if self.left_in_the_hour(spent) <= 0:
            return Reason.BUDGET_HOUR
        spent = [line for line in spent if line.action.node is not None]
        recent = self._recent(spent)
        if any(self._came_back(line) for line in spent if line.action.node == action.node):
            return Reason.CAME_BACK
        if sum(one.node == action.node for one in recent) >= policy.max_evictions_per_node:
            return Reason.BUDGET_NODE
        is_counted = action.reason is Reason.DOES_NOT_FIT and action.namespace in self._quotas
        if is_counted and any(one.namespace == action.namespace for one in recent):
            # Each replacement was granted all that the quota leaves: the first may take it from the second.
            return Reason.QUOTA
        workload = (action.namespace, action.workload)
        # What does not serve already loses nothing by its own eviction.
        disrupted = self._disrupted.get(workload, set()) - {action.uid}
        disrupted |= {one.uid for one in recent if (one.namespace, one.workload) == workload}
        return Reason.BUDGET_WORKLOAD if len(disrupted) >= policy.max_evictions_per_workload else None

    def left_in_the_hour(self, spent: Sequence[Outcome]) -> int:
        """Return how many pods may be evicted yet; those that ran nowhere are not counted."""
        return self._policy.max_evictions_per_hour - sum(line.action.node is not None for line in spent)

    def allowance(self, spent: Sequence[Outcome]) -> Allowance:
        """Return what is left of the budgets for a whole plan; `spent` are the evictions of the last hour."""
        policy = self._policy
        spent = [line for line in spent if line.action.node is not None]
        on_node = Counter[str]()
        of_workload = Counter({workload: len(uids) for workload, uids in self._disrupted.items()})
        for one in self._recent(spent):
            on_node[one.node or ""] += 1
            of_workload[one.namespace, one.workload] += 1
        for line in spent:
            if self._came_back(line):
                on_node[line.action.node or ""] = policy.max_evictions_per_node
        each_node, each_workload = policy.max_evictions_per_node, policy.max_evictions_per_workload
        return Allowance(
            in_all=max(0, self.left_in_the_hour(spent)),
            each_workload=each_workload,
            of_workloads={
                (namespace, ref): max(0, each_workload - many)
                for (namespace, ref), many in of_workload.items()
                if ref is not None and many
            },
            each_node=each_node,
            of_nodes={node: max(0, each_node - many) for node, many in on_node.items()},
        )

    def _recent(self, spent: Sequence[Outcome]) -> list[EvictPod]:
        """Return the evictions of this pass, and those that the snapshot does not show yet."""
        return [
            line.action
            for line in spent
            if isinstance(line.action, EvictPod)
            # What failed was compared with the cluster since: its pod serves.
            and (line.at >= self._pass_began or (line.action.uid in self._alive and line.verdict is not Verdict.FAILED))
        ]

    def _came_back(self, line: Outcome) -> bool:
        """Tell whether an evicted pod's replacement is on its node again and as small: the next eviction is in vain."""
        evicted = line.action
        if not isinstance(evicted, EvictPod) or line.verdict is not Verdict.DONE:
            return False
        youngest = self._youngest_unsized.get((evicted.namespace, evicted.workload, evicted.node))
        return youngest is not None and youngest > line.at


def _is_unready(pod: Pod, policy: Policy) -> bool:
    return policy.rules.careful_evictions and not pod.ready and not pod.terminal
