"""The one place where anything is written to a cluster: mode, pause, re-validation, room, budgets, audit."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from cruise.domain.actions import (
    Action,
    ContainerTarget,
    EvictPod,
    Outcome,
    Reason,
    RefusedTarget,
    ResizePod,
    TaintNode,
    UntaintNode,
    Verdict,
)
from cruise.domain.cluster import ContainerRole, Pod, Snapshot, WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.errors import Conflict, NotFound, Refused, Throttled
from cruise.runtime.ports import Cluster, Store

_EVICTION_WINDOW = timedelta(hours=1)


async def apply(
    actions: Sequence[Action], snapshot: Snapshot, cluster: Cluster, store: Store, policy: Policy, now: datetime
) -> list[Outcome]:
    """Do what mode, pause, budgets and the cluster as it is now allow, in the given order; return how each ended.

    `snapshot` is what the actions were decided on. Evictions are audited one by one, so that the budgets survive a
    restart, the rest together at the end. Raises Unavailable where the cluster or the store is out of reach; what
    was done until then is in the audit.
    """
    spent = await store.evictions_since(now - _EVICTION_WINDOW)
    run = _Run(snapshot, cluster, store, policy, now, len(spent))
    unrecorded: list[Outcome] = []
    outcomes: list[Outcome] = []
    try:
        for action in actions:
            outcome = await run.one(action)
            outcomes.append(outcome)
            if isinstance(action, EvictPod) and outcome.verdict is Verdict.DONE:
                await store.record_outcomes([outcome])
            else:
                unrecorded.append(outcome)
    finally:
        await store.record_outcomes(unrecorded)
    return outcomes


class _Run:
    """What one application of a plan has to remember from action to action."""

    def __init__(
        self,
        snapshot: Snapshot,
        cluster: Cluster,
        store: Store,
        policy: Policy,
        now: datetime,
        evictions_this_hour: int,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._now = now
        self._pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        self._allocatable = {node.name: node.allocatable for node in snapshot.nodes}
        self._counted: dict[str, Resources] = {}
        for pod in snapshot.pods:
            if pod.node is not None:
                self._counted[pod.node] = self._counted.get(pod.node, NO_RESOURCES) + counted_requests(pod)
        self._evictions_this_hour = evictions_this_hour
        self._evictions_of_node: Counter[str | None] = Counter()
        self._disrupted: Counter[tuple[str, WorkloadRef | None]] = Counter(
            (pod.namespace, pod.workload)
            for pod in snapshot.pods
            if pod.workload is not None and (pod.terminating or pod.phase == "Pending")
        )

    async def one(self, action: Action) -> Outcome:
        """Guard, perform and judge one action."""
        forbidden = self._forbidden_by_mode(action)
        if forbidden is not None:
            return self._outcome(action, Verdict.OBSERVED, forbidden)
        if await self._store.paused():
            return self._outcome(action, Verdict.OBSERVED, Reason.PAUSED)
        kept_back = await self._kept_back(action)
        if kept_back is not None:
            return self._outcome(action, Verdict.HELD, kept_back)
        return await self._perform(action)

    async def _perform(self, action: Action) -> Outcome:
        try:
            await self._cluster.perform(action)
        except (Conflict, NotFound) as error:
            reason = Reason.GONE if isinstance(error, NotFound) else Reason.CHANGED_SINCE
            return self._outcome(action, Verdict.HELD, reason, str(error))
        except Throttled as error:
            reason = Reason.DISRUPTION_BUDGET if isinstance(action, EvictPod) else Reason.THROTTLED
            return self._outcome(action, Verdict.REFUSED, reason, str(error))
        except Refused as error:
            if isinstance(action, ResizePod):
                await self._remember(action, action.containers)
            return self._outcome(action, Verdict.REFUSED, Reason.REFUSED, str(error))
        await self._account(action)
        return self._outcome(action, Verdict.DONE, action.reason)

    def _forbidden_by_mode(self, action: Action) -> Reason | None:
        needed = Mode.RESIZE if isinstance(action, ResizePod) else Mode.FULL
        return Reason.MODE if self._policy.mode < needed else None

    async def _kept_back(self, action: Action) -> Reason | None:
        """Return why an action is not tried: its pod changed, its node has no room, a budget is spent."""
        if isinstance(action, TaintNode | UntaintNode):
            return None
        changed = self._changed(action, await self._cluster.pod(action.namespace, action.pod))
        if changed is not None:
            return changed
        return self._over_budget(action) if isinstance(action, EvictPod) else self._without_room(action)

    def _changed(self, action: ResizePod | EvictPod, pod: Pod | None) -> Reason | None:
        if pod is None or pod.uid != action.uid or pod.terminating or pod.terminal:
            return Reason.GONE
        decided_on = self._pods.get((action.namespace, action.pod))
        if decided_on is None or decided_on.node != pod.node or spec_targets(decided_on) != spec_targets(pod):
            return Reason.CHANGED_SINCE
        return None

    def _without_room(self, action: ResizePod) -> Reason | None:
        """Hold a grow back until its node's counted sum has room: a shrink frees it only once it is actual."""
        if action.node is None or action.growth == NO_RESOURCES:
            return None
        room = self._allocatable[action.node] - self._counted.get(action.node, NO_RESOURCES)
        return None if action.growth.fits_in(room) else Reason.WAITING_FOR_ROOM

    def _over_budget(self, action: EvictPod) -> Reason | None:
        if self._evictions_this_hour >= self._policy.max_evictions_per_hour:
            return Reason.BUDGET_HOUR
        if self._evictions_of_node[action.node] >= self._policy.max_evictions_per_node:
            return Reason.BUDGET_NODE
        if self._disrupted[(action.namespace, action.workload)] >= self._policy.max_evictions_per_workload:
            return Reason.BUDGET_WORKLOAD
        return None

    async def _account(self, action: Action) -> None:
        match action:
            case EvictPod():
                self._evictions_this_hour += 1
                self._evictions_of_node[action.node] += 1
                self._disrupted[(action.namespace, action.workload)] += 1
            case ResizePod(reason=Reason.WITHDRAWN):
                decided_on = self._pods[(action.namespace, action.pod)]
                await self._remember(action, spec_targets(decided_on))
            case ResizePod() if action.node is not None:
                counted = self._counted.get(action.node, NO_RESOURCES)
                self._counted[action.node] = counted + action.growth
            case _:
                pass

    async def _remember(self, action: ResizePod, containers: Sequence[ContainerTarget]) -> None:
        await self._store.remember_refused(RefusedTarget(action.uid, tuple(containers), Reason.REFUSED, self._now))

    def _outcome(self, action: Action, verdict: Verdict, reason: Reason, detail: str = "") -> Outcome:
        return Outcome(self._now, action, verdict, reason, detail)


def spec_targets(pod: Pod) -> tuple[ContainerTarget, ...]:
    """Return a pod's sizes as its spec has them now."""
    return tuple(
        ContainerTarget(c.name, c.role, c.requests, c.limits)
        for c in pod.containers
        if c.role is not ContainerRole.INIT
    )
