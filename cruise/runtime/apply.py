"""The one place where anything is written to a cluster: mode, pause, re-validation, room, budgets, audit."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from cruise.decisions.resize import without_growth
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
from cruise.domain.cluster import ContainerRole, Pod, ResizePending, Snapshot, WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.errors import Conflict, NotFound, Refused, Throttled, Unavailable
from cruise.runtime.ports import Cluster, Store

_EVICTION_WINDOW = timedelta(hours=1)
# The API server's cause for a resize that is larger than the pod's node.
_NODE_CAPACITY = "NodeCapacity"


async def apply(
    actions: Sequence[Action], snapshot: Snapshot, cluster: Cluster, store: Store, policy: Policy, now: datetime
) -> list[Outcome]:
    """Do what mode, pause, budgets and the cluster as it is now allow, in the given order; return how each ended.

    `snapshot` is what the actions were decided on. Evictions are audited one by one, so that the budgets survive a
    restart, the rest with them or at the end. What mode or pause forbids is not audited: it comes again with every
    pass. Raises Unavailable where the cluster or the store is out of reach; what was done until then, and what may
    have been, is in the audit.
    """
    spent = await store.evictions_since(now - _EVICTION_WINDOW)
    run = _Run(snapshot, cluster, store, policy, now, len(spent))
    unrecorded: list[Outcome] = []
    outcomes: list[Outcome] = []
    try:
        for action in actions:
            try:
                outcome = await run.one(action)
            except Unavailable as error:
                if run.in_flight is not None:
                    unrecorded.append(Outcome(now, run.in_flight, Verdict.FAILED, action.reason, str(error)))
                raise
            outcomes.append(outcome)
            if outcome.verdict is not Verdict.OBSERVED:
                unrecorded.append(outcome)
            if run.refusal is not None:
                await store.remember_refused([run.refusal])
                run.refusal = None
            if isinstance(action, EvictPod) and outcome.verdict is Verdict.DONE:
                await store.record_outcomes(unrecorded)
                unrecorded = []
    finally:
        if unrecorded:
            await store.record_outcomes(unrecorded)
    return outcomes


class _Run:
    """What one application of a plan has to remember from action to action.

    `in_flight` is the action that was sent and is not answered, `refusal` what the last one taught.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        cluster: Cluster,
        store: Store,
        policy: Policy,
        now: datetime,
        evictions_this_hour: int,
    ) -> None:
        self.in_flight: Action | None = None
        self.refusal: RefusedTarget | None = None
        self._cluster = cluster
        self._store = store
        self._policy = policy
        self._now = now
        self._paused = False
        self._limit_ranges = snapshot.limit_ranges
        self._pods = {(pod.namespace, pod.name): pod for pod in snapshot.pods}
        self._allocatable = {node.name: node.allocatable for node in snapshot.nodes}
        self._counted: dict[str, Resources] = {}
        for pod in snapshot.pods:
            if pod.node is not None:
                self._counted[pod.node] = self._counted.get(pod.node, NO_RESOURCES) + counted_requests(pod)
        self._evictions_this_hour = evictions_this_hour
        self._evictions_of_node: Counter[str | None] = Counter()
        self._refusing_nodes: set[str | None] = set()
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
        # A pause in the middle of a pass ends the pass; going on is for the next one.
        self._paused = self._paused or await self._store.paused()
        if self._paused:
            return self._outcome(action, Verdict.OBSERVED, Reason.PAUSED)
        detail = ""
        if isinstance(action, ResizePod) and self._lacks_room(action):
            part = self._part_without_growth(action)
            if part is None:
                return self._outcome(action, Verdict.HELD, Reason.WAITING_FOR_ROOM)
            action, detail = part, "what would grow waits for room"
        kept_back = await self._kept_back(action)
        if kept_back is not None:
            return self._outcome(action, Verdict.HELD, kept_back)
        return await self._perform(action, detail)

    async def _perform(self, action: Action, detail: str) -> Outcome:
        self.in_flight = action
        try:
            await self._cluster.perform(action)
        except (Conflict, NotFound) as error:
            reason = Reason.GONE if isinstance(error, NotFound) else Reason.CHANGED_SINCE
            return self._answered(action, Verdict.HELD, reason, str(error))
        except Throttled as error:
            reason = Reason.DISRUPTION_BUDGET if isinstance(action, EvictPod) else Reason.THROTTLED
            return self._answered(action, Verdict.REFUSED, reason, str(error))
        except Refused as error:
            outcome = self._answered(action, Verdict.REFUSED, Reason.REFUSED, str(error))
            if isinstance(action, ResizePod):
                why = Reason.RESIZE_INFEASIBLE if error.cause == _NODE_CAPACITY else Reason.REFUSED
                self._remember(action, action.containers, why)
            return outcome
        outcome = self._answered(action, Verdict.DONE, action.reason, detail)
        self._account(action)
        return outcome

    def _answered(self, action: Action, verdict: Verdict, reason: Reason, detail: str) -> Outcome:
        self.in_flight = None
        if isinstance(action, EvictPod) and verdict is Verdict.REFUSED:
            self._refusing_nodes.add(action.node)
        return self._outcome(action, verdict, reason, detail)

    def _forbidden_by_mode(self, action: Action) -> Reason | None:
        needed = Mode.RESIZE if isinstance(action, ResizePod) else Mode.FULL
        return Reason.MODE if self._policy.mode < needed else None

    async def _kept_back(self, action: Action) -> Reason | None:
        """Return why an action is not tried: a budget is spent, or its pod is not what it was decided on."""
        if isinstance(action, TaintNode | UntaintNode):
            return None
        over_budget = self._over_budget(action) if isinstance(action, EvictPod) else None
        return over_budget or self._changed(action, await self._cluster.pod(action.namespace, action.pod))

    def _changed(self, action: ResizePod | EvictPod, pod: Pod | None) -> Reason | None:
        if pod is None or pod.uid != action.uid or pod.terminating or pod.terminal:
            return Reason.GONE
        decided_on = self._pods.get((action.namespace, action.pod))
        if decided_on is None or decided_on.node != pod.node or spec_targets(decided_on) != spec_targets(pod):
            return Reason.CHANGED_SINCE
        return None

    def _lacks_room(self, action: ResizePod) -> bool:
        """Tell whether a grow has to wait for its node's counted sum: a shrink frees room only once it is actual."""
        if action.node is None or action.growth == NO_RESOURCES:
            return False
        allocatable = self._allocatable.get(action.node, NO_RESOURCES)
        return not action.growth.growth_fits_in(allocatable - self._counted.get(action.node, NO_RESOURCES))

    def _part_without_growth(self, action: ResizePod) -> ResizePod | None:
        decided_on = self._pods.get((action.namespace, action.pod))
        if decided_on is None or action.reason is not Reason.RIGHTSIZED:
            return None
        return without_growth(decided_on, action, self._limit_ranges.get(action.namespace, ()), self._policy)

    def _over_budget(self, action: EvictPod) -> Reason | None:
        if self._evictions_this_hour >= self._policy.max_evictions_per_hour:
            return Reason.BUDGET_HOUR
        if self._evictions_of_node[action.node] >= self._policy.max_evictions_per_node:
            return Reason.BUDGET_NODE
        if self._disrupted[(action.namespace, action.workload)] >= self._policy.max_evictions_per_workload:
            return Reason.BUDGET_WORKLOAD
        # Without the pod that had to stay the node does not fit, and who else goes may go in vain.
        return Reason.DISRUPTION_BUDGET if action.node in self._refusing_nodes else None

    def _account(self, action: Action) -> None:
        match action:
            case EvictPod():
                self._evictions_this_hour += 1
                self._evictions_of_node[action.node] += 1
                self._disrupted[(action.namespace, action.workload)] += 1
            case ResizePod(reason=Reason.WITHDRAWN):
                decided_on = self._pods[(action.namespace, action.pod)]
                deferred = decided_on.resize.pending is ResizePending.DEFERRED
                why = Reason.RESIZE_DEFERRED if deferred else Reason.RESIZE_INFEASIBLE
                self._remember(action, spec_targets(decided_on), why)
            case ResizePod() if action.node is not None:
                counted = self._counted.get(action.node, NO_RESOURCES)
                self._counted[action.node] = counted + action.growth
            case _:
                pass

    def _remember(self, action: ResizePod, containers: Sequence[ContainerTarget], why: Reason) -> None:
        self.refusal = RefusedTarget(action.uid, tuple(containers), why, self._now)

    def _outcome(self, action: Action, verdict: Verdict, reason: Reason, detail: str = "") -> Outcome:
        return Outcome(self._now, action, verdict, reason, detail)


def spec_targets(pod: Pod) -> tuple[ContainerTarget, ...]:
    """Return a pod's sizes as its spec has them now."""
    return tuple(
        ContainerTarget(c.name, c.role, c.requests, c.limits)
        for c in pod.containers
        if c.role is not ContainerRole.INIT
    )
