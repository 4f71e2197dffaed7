"""The eviction budgets, and the turn that makes several writers spend them once."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.decisions.packing.remaining_plan import PlanSubjects
from cruise.domain.actions import Action, ActionResult, ContainerTarget, EvictPod, Outcome, ReasonCode, ResizePod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources, StatedResources
from cruise.runtime.ports import StorePort
from cruise.runtime.writing.audit import AuditQueue

BUDGET_WINDOW = timedelta(hours=1)


class EvictionLock:
    """One eviction at a time in a process, each on budgets that count all evictions before it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.lost_until: Callable[[], int] = lambda: 0
        """Returns until when (Unix seconds) the database has lost evictions that were done; 0 for never."""

    def are_known(self, now: datetime) -> bool:
        """Tell whether the database has all evictions that count against the budget of the hour."""
        return now.timestamp() >= self.lost_until() + BUDGET_WINDOW.total_seconds()

    @asynccontextmanager
    async def acquire(self, store: StorePort, audit: AuditQueue, now: datetime) -> AsyncIterator[Sequence[Outcome]]:
        """Wait for the turn; give the evictions begun in the last hour, with those that waited for the store.

        What is done during the turn has to be in the audit at its end.
        """
        async with self._lock:
            await audit.record(store)
            yield await store.evictions_since(now - BUDGET_WINDOW)
            await audit.record(store)


class EvictionBudgets:
    """The budgets as the snapshot leaves them, and as evictions do that it does not show yet."""

    def __init__(
        self, snapshot: ClusterSnapshot, policy: Policy, pass_began: datetime, *, evicting: bool = True
    ) -> None:
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

    def find_exceeded_budget(self, action: EvictPod, spent: Sequence[Outcome]) -> ReasonCode | None:
        """Return the budget that an eviction would overdraw; `spent` are the evictions of the last hour."""
        policy = self._policy
        if action.node is None:
            # A pod that runs nowhere serves nothing.
            return None
        if self.get_remaining_in_hour(spent) <= 0:
            return ReasonCode.HOURLY_EVICTION_BUDGET_SPENT
        spent = [line for line in spent if line.action.node is not None]
        recent = self._recent(spent)
        if any(self._came_back(line) for line in spent if line.action.node == action.node):
            return ReasonCode.REPLACEMENT_NOT_RESIZED
        if sum(one.node == action.node for one in recent) >= policy.max_evictions_per_node:
            return ReasonCode.NODE_EVICTION_BUDGET_SPENT
        is_counted = action.reason is ReasonCode.NODE_OVER_CAPACITY and action.namespace in self._quotas
        if is_counted and any(one.namespace == action.namespace for one in recent):
            # Each replacement was granted all that the quota leaves: the first may take it from the second.
            return ReasonCode.QUOTA_EXCEEDED
        workload = (action.namespace, action.workload)
        # What does not serve already loses nothing by its own eviction.
        disrupted = self._disrupted.get(workload, set()) - {action.uid}
        disrupted |= {one.uid for one in recent if (one.namespace, one.workload) == workload}
        return (
            ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT if len(disrupted) >= policy.max_evictions_per_workload else None
        )

    def get_remaining_in_hour(self, spent: Sequence[Outcome]) -> int:
        """Return how many pods may be evicted yet; those that ran nowhere are not counted."""
        return self._policy.max_evictions_per_hour - sum(line.action.node is not None for line in spent)

    def get_allowance(self, spent: Sequence[Outcome]) -> EvictionAllowance:
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
        return EvictionAllowance(
            total=max(0, self.get_remaining_in_hour(spent)),
            per_workload=each_workload,
            by_workload={
                (namespace, ref): max(0, each_workload - many)
                for (namespace, ref), many in of_workload.items()
                if ref is not None and many
            },
            per_node=each_node,
            by_node={node: max(0, each_node - many) for node, many in on_node.items()},
        )

    def _recent(self, spent: Sequence[Outcome]) -> list[EvictPod]:
        """Return the evictions of this pass, and those that the snapshot does not show yet."""
        return [
            line.action
            for line in spent
            if isinstance(line.action, EvictPod)
            # What failed was compared with the cluster since: its pod serves.
            and (
                line.at >= self._pass_began
                or (line.action.uid in self._alive and line.result is not ActionResult.FAILED)
            )
        ]

    def _came_back(self, line: Outcome) -> bool:
        """Tell whether an evicted pod's replacement is on its node again and as small: the next eviction is in vain."""
        evicted = line.action
        if not isinstance(evicted, EvictPod) or line.result is not ActionResult.DONE:
            return False
        youngest = self._youngest_unsized.get((evicted.namespace, evicted.workload, evicted.node))
        return youngest is not None and youngest > line.at


def _is_unready(pod: Pod, policy: Policy) -> bool:
    return policy.rules.eviction_safeguards and not pod.ready and not pod.is_finished


# What node passes leave alone for a while, as the OOM reactor and the execution of a packing plan state it.

# Why a node pass acts of its own accord; a withdrawal only takes back what was refused, and is always allowed.
NODE_PASS_REASONS = (ReasonCode.RIGHTSIZED, ReasonCode.NODE_OVER_CAPACITY)


class WriteExclusions:
    """Pods in the cool-down after a kill, and what is `reserved`: what the packing plan under way counts on.

    Pods of its workloads are not evicted elsewhere either, and so many evictions of the hour are left to it.
    While `history_incomplete` the database lacks usage that it had: then no pod is shrunk or evicted because of it.
    """

    def __init__(self) -> None:
        self.reserved = PlanSubjects()
        self.history_incomplete: Callable[[], bool] = lambda: False
        self._cooling: dict[str, datetime] = {}

    def add_cooldown(self, uid: str, until: datetime, now: datetime) -> None:
        """Exclude a pod until then: what it was just given is to show first."""
        self._cooling = {one: end for one, end in self._cooling.items() if end > now} | {uid: until}

    def explain_exclusion(self, action: Action, now: datetime) -> ReasonCode | None:
        """Return why a node pass must not do this now, None where it may."""
        if not isinstance(action, ResizePod | EvictPod) or action.reason not in NODE_PASS_REASONS:
            return None
        until = self._cooling.get(action.uid)
        if until is not None and now < until:
            return ReasonCode.COOLDOWN
        reserved = action.node in self.reserved.nodes or action.uid in self.reserved.uids
        if isinstance(action, EvictPod):
            reserved = reserved or (action.namespace, action.workload) in self.reserved.workloads
        return ReasonCode.PACKING_PLAN_ACTIVE if reserved else None


# Resizes that take room on a node, from just before they are sent until every snapshot shows them.

# How much older than its application a snapshot may be: a minute of the cache, and the time to decide.
_SNAPSHOT_SECONDS = 90.0
_KEPT_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class PendingGrowth:
    """A resize that takes room on a node; `by` is the application of a plan that sends it."""

    plan_run: object
    at: float
    growth: Resources
    targets: tuple[ContainerTarget, ...]

    def is_visible_in(self, pod: Pod) -> bool:
        """Tell whether a picture of the pod has these sizes in its spec."""
        spec = {container.name: container for container in pod.containers}
        return all(
            target.container in spec
            and _has(spec[target.container].requests, target.requests)
            and _has(spec[target.container].limits, target.limits)
            for target in self.targets
        )


class PendingGrowths:
    """The last grow of each pod by node, so that two plans under way do not take the same room."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._grows: dict[str | None, dict[str, PendingGrowth]] = {}

    def get_current(self) -> float:
        """Return the time in seconds by which grows are ordered."""
        return self._monotonic()

    def add(self, by: object, action: ResizePod) -> PendingGrowth | None:
        """Remember a resize that is about to be sent; return the pod's last one, to be put back if it is not done."""
        on_node = self._grows.setdefault(action.node, {})
        oldest = self.get_current() - _KEPT_SECONDS
        for uid in [uid for uid, grow in on_node.items() if grow.at < oldest]:
            del on_node[uid]
        before = on_node.get(action.uid)
        on_node[action.uid] = PendingGrowth(by, self.get_current(), action.growth, action.containers)
        return before

    def restore(self, action: ResizePod, before: PendingGrowth | None) -> None:
        """Forget a resize that was not done."""
        on_node = self._grows.get(action.node, {})
        on_node.pop(action.uid, None)
        if before is not None:
            on_node[action.uid] = before

    def get_on_node(self, node: str | None, began: float) -> dict[str, PendingGrowth]:
        """Return by pod uid the grows on a node that a snapshot for an application begun then may not show."""
        on_node = self._grows.get(node, {})
        return {uid: grow for uid, grow in on_node.items() if grow.at >= began - _SNAPSHOT_SECONDS}


def _has(stated: StatedResources, wanted: StatedResources) -> bool:
    """Tell whether what is wanted is stated; None wants nothing."""
    return wanted.cpu_millicores in (None, stated.cpu_millicores) and wanted.memory_bytes in (
        None,
        stated.memory_bytes,
    )
