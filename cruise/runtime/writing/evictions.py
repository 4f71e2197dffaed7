"""What writers of one process share: the eviction budgets, exclusions from node passes, and growth in progress."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from cruise.decisions.packing.remaining_plan import PlanDependencies
from cruise.domain.actions import Action, ActionResult, ContainerTarget, EvictPod, Outcome, ReasonCode, ResizePod
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources, StatedResources
from cruise.runtime.ports import StorePort
from cruise.runtime.writing.audit import AuditQueue

BUDGET_WINDOW = timedelta(hours=1)
# Reasons of node passes that exclusions apply to; withdrawing a refused resize is always allowed.
NODE_PASS_REASONS = (ReasonCode.RIGHTSIZED, ReasonCode.NODE_OVER_CAPACITY)
# The largest age of a snapshot when its plan is applied: a minute of the cache, and the time to decide.
_SNAPSHOT_SECONDS = 90.0
_KEPT_SECONDS = 3600.0
# How long after it was sent a write without an answer can be done: the API server ends requests after a minute.
LATE_ARRIVAL = timedelta(seconds=90)


class EvictionLock:
    """Lets one eviction at a time through, each checked against budgets that count all earlier evictions."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self.lost_until: Callable[[], int] = lambda: 0
        """Returns until when (Unix seconds) evictions are missing from the database; 0 for none."""

    def are_known(self, now: datetime) -> bool:
        """Return whether the database has all evictions that count against the hourly budget."""
        return now.timestamp() >= self.lost_until() + BUDGET_WINDOW.total_seconds()

    @asynccontextmanager
    async def acquire(self, store: StorePort, audit: AuditQueue, now: datetime) -> AsyncIterator[Sequence[Outcome]]:
        """Acquire the lock and yield the evictions begun in the last hour, including those not yet stored.

        Outcomes of evictions must be in the audit queue before the lock is released.
        """
        async with self._lock:
            await audit.record(store)
            yield await store.read_evictions_since(now - BUDGET_WINDOW)
            await audit.record(store)


class EvictionBudgets:
    """The eviction budgets, less the disruptions in the snapshot and the evictions that it does not show yet."""

    def __init__(
        self, snapshot: ClusterSnapshot, policy: Policy, pass_started_at: datetime, *, evicting: bool = True
    ) -> None:
        """Read the pods of a snapshot, unless nothing is evicted."""
        self._policy = policy
        self._pass_started_at = pass_started_at
        # The time of an eviction is that of its decision, which may be written until it is too old.
        self._oldest_in_transit = pass_started_at - policy.max_decision_age - LATE_ARRIVAL
        self._quotas = snapshot.quotas if policy.rules.quotas else {}
        self._alive: set[str] = set()
        self._disrupted: dict[tuple[str, WorkloadRef | None], set[str]] = {}
        self._youngest_unsized: dict[tuple[str, WorkloadRef | None, str | None], datetime] = {}
        for pod in snapshot.pods if evicting else ():
            if pod.created_at is not None and ORIGINAL_RESOURCES not in pod.annotations:
                owner_on_node = (pod.namespace, pod.workload, pod.node)
                self._youngest_unsized[owner_on_node] = max(
                    pod.created_at, self._youngest_unsized.get(owner_on_node, pod.created_at)
                )
            is_down = pod.terminating or pod.phase == "Pending"
            if not is_down:
                self._alive.add(pod.uid)
            if pod.workload is not None and (is_down or _is_unready(pod, policy)):
                self._disrupted.setdefault((pod.namespace, pod.workload), set()).add(pod.uid)

    def find_exceeded_budget(self, action: EvictPod, evictions: Sequence[Outcome]) -> ReasonCode | None:
        """Return the budget that an eviction would exceed; `evictions` are the evictions of the last hour."""
        policy = self._policy
        if action.node is None:
            # A pending pod serves nothing.
            return None
        if self.get_remaining_in_hour(evictions) <= 0:
            return ReasonCode.HOURLY_EVICTION_BUDGET_SPENT
        evictions = [line for line in evictions if line.action.node is not None]
        # A second eviction of the same pod disrupts nothing more than the first one, if that is done late.
        recent = self._list_recent([line for line in evictions if not _is_retried_by(action, line)])
        if any(self._is_replaced_in_place(line) for line in evictions if line.action.node == action.node):
            return ReasonCode.REPLACEMENT_NOT_RESIZED
        # A node that kills its pods for lack of memory kills them again until they leave, a few in every pass.
        is_killed = action.reason is ReasonCode.OOM_KILLED and policy.rules.eviction_safeguards
        on_node = 0 if is_killed else sum(one.node == action.node for one in recent)
        if on_node >= policy.max_evictions_per_node:
            return ReasonCode.NODE_EVICTION_BUDGET_SPENT
        is_counted = action.reason is ReasonCode.NODE_OVER_CAPACITY and action.namespace in self._quotas
        if is_counted and any(one.namespace == action.namespace for one in recent):
            # Each replacement pod may use all that the quota leaves, so two of them may exceed it.
            return ReasonCode.QUOTA_EXCEEDED
        workload = (action.namespace, action.workload)
        # The eviction of an unavailable pod disrupts nothing more.
        disrupted = self._disrupted.get(workload, set()) - {action.uid}
        disrupted |= {one.uid for one in recent if (one.namespace, one.workload) == workload}
        return (
            ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT if len(disrupted) >= policy.max_evictions_per_workload else None
        )

    def get_remaining_in_hour(self, evictions: Sequence[Outcome]) -> int:
        """Return how many more pods may be evicted this hour; pending pods do not count."""
        return self._policy.max_evictions_per_hour - sum(line.action.node is not None for line in evictions)

    def get_allowance(self, evictions: Sequence[Outcome]) -> EvictionAllowance:
        """Return the rest of the budgets for a whole plan; `evictions` are the evictions of the last hour."""
        policy = self._policy
        evictions = [line for line in evictions if line.action.node is not None]
        on_node = Counter[str]()
        by_workload = Counter({workload: len(uids) for workload, uids in self._disrupted.items()})
        for one in self._list_recent(evictions):
            on_node[one.node or ""] += 1
            by_workload[one.namespace, one.workload] += 1
        for line in evictions:
            if self._is_replaced_in_place(line):
                on_node[line.action.node or ""] = policy.max_evictions_per_node
        per_node, per_workload = policy.max_evictions_per_node, policy.max_evictions_per_workload
        return EvictionAllowance(
            total=max(0, self.get_remaining_in_hour(evictions)),
            default_per_workload=per_workload,
            by_workload={
                (namespace, ref): max(0, per_workload - count)
                for (namespace, ref), count in by_workload.items()
                if ref is not None and count
            },
            default_per_node=per_node,
            by_node={node: max(0, per_node - count) for node, count in on_node.items()},
        )

    def _list_recent(self, evictions: Sequence[Outcome]) -> list[EvictPod]:
        """Return the evictions of this pass, and those that the snapshot does not show yet or that may be done late."""
        return [
            line.action
            for line in evictions
            if isinstance(line.action, EvictPod)
            and (
                line.at >= self._pass_started_at
                or (
                    line.action.uid in self._alive
                    # Of an eviction without an answer, a running pod shows after a while that it was never done.
                    and (line.result is not ActionResult.FAILED or line.at >= self._oldest_in_transit)
                )
            )
        ]

    def _is_replaced_in_place(self, line: Outcome) -> bool:
        """Return whether an evicted pod's replacement is on the same node with its old size: no capacity is freed."""
        evicted = line.action
        if not isinstance(evicted, EvictPod) or evicted.uid in self._alive:
            return False
        youngest = self._youngest_unsized.get((evicted.namespace, evicted.workload, evicted.node))
        return youngest is not None and youngest > line.at


def _is_retried_by(action: EvictPod, line: Outcome) -> bool:
    """Return whether an action evicts the pod of an eviction without an answer."""
    return isinstance(line.action, EvictPod) and line.action.uid == action.uid and line.result is ActionResult.FAILED


def _is_unready(pod: Pod, policy: Policy) -> bool:
    return policy.rules.eviction_safeguards and not pod.ready and not pod.is_finished


class WriteExclusions:
    """What node passes must not change now: pods in the cooldown after a kill, subjects of the active packing plan.

    `reserved` are the plan's nodes, pods and workloads, and its evictions of the hour. While `history_incomplete` the
    database lacks usage that it had: then no pod is shrunk or evicted for its usage.
    """

    def __init__(self) -> None:
        self.reserved = PlanDependencies()
        self.history_incomplete: Callable[[], bool] = lambda: False
        self._cooldowns: dict[str, datetime] = {}

    def add_cooldown(self, uid: str, until: datetime, now: datetime) -> None:
        """Exclude a pod until a time, so that its new size takes effect first."""
        self._cooldowns = {one: end for one, end in self._cooldowns.items() if end > now} | {uid: until}

    def explain_exclusion(self, action: Action, now: datetime) -> ReasonCode | None:
        """Return why a node pass must not perform an action now, None if it may."""
        if not isinstance(action, ResizePod | EvictPod) or action.reason not in NODE_PASS_REASONS:
            return None
        until = self._cooldowns.get(action.uid)
        if until is not None and now < until:
            return ReasonCode.COOLDOWN
        reserved = action.node in self.reserved.nodes or action.uid in self.reserved.uids
        if isinstance(action, EvictPod):
            reserved = reserved or (action.namespace, action.workload) in self.reserved.workloads
        return ReasonCode.PACKING_PLAN_ACTIVE if reserved else None


@dataclass(frozen=True, slots=True)
class PendingGrowth:
    """A resize that needs capacity on a node; `plan_run` identifies the application of a plan that sends it."""

    plan_run: object
    at: float
    growth: Resources
    targets: tuple[ContainerTarget, ...]

    def is_visible_in(self, pod: Pod) -> bool:
        """Return whether the pod's spec has these sizes."""
        spec = {part.name: part for part in pod.resizable_parts}
        return all(
            target.container in spec
            and _matches(spec[target.container].requests, target.requests)
            and _matches(spec[target.container].limits, target.limits)
            for target in self.targets
        )


class PendingGrowths:
    """The last growth of each pod by node, from just before it is sent until every snapshot shows it.

    Plans that are applied at the same time use it so that they do not use the same capacity twice.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._by_node: dict[str | None, dict[str, PendingGrowth]] = {}

    def get_current(self) -> float:
        """Return the time that growths are ordered by, in monotonic seconds."""
        return self._monotonic()

    def add(self, plan_run: object, action: ResizePod) -> PendingGrowth | None:
        """Add a resize that is about to be sent; return the pod's earlier one, to restore if this one is not done."""
        on_node = self._by_node.setdefault(action.node, {})
        oldest = self.get_current() - _KEPT_SECONDS
        for uid in [uid for uid, growth in on_node.items() if growth.at < oldest]:
            del on_node[uid]
        before = on_node.get(action.uid)
        on_node[action.uid] = PendingGrowth(plan_run, self.get_current(), action.growth, action.containers)
        return before

    def restore(self, action: ResizePod, before: PendingGrowth | None) -> None:
        """Remove a resize that was not done."""
        on_node = self._by_node.get(action.node, {})
        on_node.pop(action.uid, None)
        if before is not None:
            on_node[action.uid] = before

    def get_on_node(self, node: str | None, started: float) -> dict[str, PendingGrowth]:
        """Return, by pod uid, the growths on a node that a plan applied since `started` may not see in its snapshot."""
        on_node = self._by_node.get(node, {})
        return {uid: growth for uid, growth in on_node.items() if growth.at >= started - _SNAPSHOT_SECONDS}


def _matches(stated: StatedResources, wanted: StatedResources) -> bool:
    """Return whether the stated resources have the wanted values; None matches any."""
    return wanted.cpu_millicores in (None, stated.cpu_millicores) and wanted.memory_bytes in (
        None,
        stated.memory_bytes,
    )
