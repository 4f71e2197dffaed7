"""The node pass, as an ordered list of steps: what is read, what is decided, what is written, and what became of it."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from cruise.decisions.admission.replacement_pods import decide_unschedulable_pods, predict_replacement_pods
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, EarlierPasses, PodWrite
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM, HeadroomModel
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.decisions.sizing.sharing import compute_average_sharing
from cruise.domain.actions import (
    Action,
    ActionResult,
    EvictPod,
    Outcome,
    ReasonCode,
    RefusedResize,
    ResizePod,
    SkippedPod,
)
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.runtime.headroom import HeadroomState
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()

# To find one odd node in 5,000 takes 13 halvings.
_MOST_FAILURES = 60


@dataclass(frozen=True, slots=True)
class NodePassResult:
    """What one node pass saw, decided and did; `waiting` are the unschedulable pods that it left as they are.

    `seen` is what the next pass is to know of this one and those before it. `seconds` is how long each step took, by
    its name and in order; `kept_risks` how stated risks were kept lately.
    """

    at: datetime
    snapshot: ClusterSnapshot
    plans: Sequence[NodePlan]
    outcomes: Sequence[Outcome]
    unschedulable: Sequence[SkippedPod] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    observed_risks: Mapping[ResourceName, ObservedRisk] = field(default_factory=dict)
    for_next_pass: EarlierPasses = ASSUME_UNCHANGED

    @property
    def get_remaining(self) -> bool:
        """Tell whether it wrote something, and left something else because its decisions grew too old."""
        is_stale = any(outcome.reason is ReasonCode.STALE_DECISION for outcome in self.outcomes)
        return is_stale and any(outcome.result is ActionResult.DONE for outcome in self.outcomes)


async def run_node_pass(
    cluster: ClusterPort,
    store: StorePort,
    policy: Policy,
    now: datetime,
    *,
    usage: UsageState | None = None,
    headroom: HeadroomState | None = None,
    writer: ClusterWriter | None = None,
    earlier: EarlierPasses = ASSUME_UNCHANGED,
) -> NodePassResult:
    """Rightsize every node once.

    `earlier` is what the pass before saw; without it, what nodes are short of now was so then as well.

    `usage` has the statistics of the process's last usage pass; without it they are read from the store. `headroom`
    prepares the policy's headroom model; without it, headroom is shared by the largest single one. In mode `observe`
    the plans are those of mode `full`, so that people see what would be done; nothing is written. Raises Unavailable
    where the cluster or the store is out of reach: then the pass is dropped whole.
    """
    steps = _NodePassSteps(
        cluster,
        store,
        policy,
        now,
        usage or UsageState(),
        headroom,
        writer or ClusterWriter(cluster, store, policy),
        earlier,
    )
    seconds = {}
    for name, step in STEPS:
        began = time.monotonic()
        await step(steps)
        seconds[name] = time.monotonic() - began
    kept_risks = headroom.observed_risks if headroom is not None else {}
    pods = {pod.uid: pod for pod in steps.snapshot.pods} if steps.outcomes else {}
    seen = summarize_for_next_pass(steps.plans, steps.outcomes, pods, earlier, now)
    return NodePassResult(now, steps.snapshot, steps.plans, steps.outcomes, steps.waiting, seconds, kept_risks, seen)


def summarize_for_next_pass(
    plans: Sequence[NodePlan],
    outcomes: Sequence[Outcome],
    pods: Mapping[str, Pod],
    earlier: EarlierPasses,
    now: datetime,
) -> EarlierPasses:
    """Return what the pass after one is to know of it and of those before it; `pods` are as they were, by uid."""
    refused, resized = set(), dict(earlier.resized)
    writes = [write for write in earlier.recent_resizes if now - write.at < timedelta(days=1)]
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, EvictPod) and outcome.result is ActionResult.REFUSED:
            refused.add(action.uid)
        if isinstance(action, ResizePod) and outcome.result is ActionResult.DONE:
            writes.append(PodWrite(action.uid, now))
            for resource in get_changed_resources(action, pods.get(action.uid)):
                resized[action.uid, resource] = now
    above, below = earlier.over_requested_since or {}, earlier.under_requested_since or {}
    return EarlierPasses(
        eviction_pressure=frozenset((plan.node, one) for plan in plans for one in plan.eviction_pressure),
        refused_evictions=frozenset(refused),
        over_requested_since={
            (plan.node, one): above.get((plan.node, one), now) for plan in plans for one in plan.over_requested
        },
        under_requested_since={key: below.get(key, now) for plan in plans for key in plan.under_requested},
        resized={key: at for key, at in resized.items() if now - at < timedelta(days=1)},
        recent_resizes=tuple(writes),
    )


def get_changed_resources(action: ResizePod, pod: Pod | None) -> frozenset[ResourceName]:
    """Return the resources whose requests a resize changes; both where the pod is not known."""
    if pod is None:
        return frozenset(ResourceName)
    before = {container.name: container.requests for container in pod.containers}
    return frozenset(
        resource
        for resource in ResourceName
        for target in action.containers
        if target.container in before
        and target.requests.get(resource) not in (None, before[target.container].get(resource))
    )


@dataclass(slots=True)
class _NodePassSteps:
    """The steps of one pass; each leaves what those after it need."""

    cluster: ClusterPort
    store: StorePort
    policy: Policy
    now: datetime
    usage: UsageState
    headroom: HeadroomState | None
    writer: ClusterWriter
    earlier: EarlierPasses
    snapshot: ClusterSnapshot = field(init=False)
    statistics: StatisticsTable = field(init=False)
    model: HeadroomModel = field(init=False)
    stored: StoredOverrides = field(init=False)
    refused: Mapping[str, RefusedResize] = field(init=False)
    plans: Sequence[NodePlan] = field(init=False)
    shrunk: Sequence[ResizePod] = field(init=False)
    waiting: Sequence[SkippedPod] = field(init=False)
    outcomes: Sequence[Outcome] = field(init=False)

    async def take_snapshot(self) -> None:
        self.snapshot = await self.cluster.snapshot()

    async def take_statistics(self) -> None:
        self.statistics = await self.usage.statistics(self.store)

    async def prepare_headroom(self) -> None:
        self.model = SHARED_MAX_HEADROOM
        if self.headroom is not None:
            self.model = await self.headroom.prepare(self.store, self.statistics, self.policy)

    async def read_overrides(self) -> None:
        self.stored, self.refused = await self.store.overrides(), await self.store.refused_resizes()

    async def decide_nodes(self) -> None:
        def decide(nodes: frozenset[str]) -> list[NodePlan]:
            return decide_node_plans(
                self.snapshot,
                self.statistics,
                self.policy.planning_policy,
                self.now,
                stored=self.stored,
                refused=self.refused,
                nodes=nodes,
                headroom=self.model,
                earlier=self.earlier,
                replacements=predict_replacement_pods,
            )

        # In a thread, since it takes seconds in a large cluster: Leases are to be renewed, and kills to be answered.
        nodes = sorted(node.name for node in self.snapshot.nodes)
        self.plans = await asyncio.to_thread(plan_nodes_separately, decide, nodes)

    async def note_requests(self) -> None:
        if self.headroom is not None:
            await asyncio.to_thread(self.headroom.note_requests, self.plans, self.outcomes, self.policy)

    async def note_sharing(self) -> None:
        sharing = compute_average_sharing((plan.headroom, plan.headroom_by_pod) for plan in self.plans)
        self.statistics = self.usage.average_sharing(sharing, self.statistics)
        await self.store.record_sharing(sharing)

    async def decide_unschedulable_pods(self) -> None:
        self.shrunk, self.waiting = await asyncio.to_thread(
            decide_unschedulable_pods,
            self.snapshot,
            self.statistics,
            self.policy.planning_policy,
            self.now,
            stored=self.stored,
            refused=self.refused,
        )

    async def write(self) -> None:
        actions = [*self.shrunk, *order_actions(self.plans)]
        self.outcomes = await self.writer.apply_plan(actions, self.snapshot, self.now, statistics=self.statistics)

    async def report(self) -> None:
        log.info(
            "node pass",
            nodes=len(self.plans),
            oversubscribed=sum(plan.reason is ReasonCode.OVERCOMMITTED for plan in self.plans),
            crowded=sum(plan.reason is ReasonCode.UNDER_PRESSURE for plan in self.plans),
            left_alone=dict(Counter(hold.reason.value for plan in self.plans for hold in plan.skipped)),
            outcomes=dict(Counter(outcome.result.value for outcome in self.outcomes)),
        )


STEPS: Sequence[tuple[str, Callable[[_NodePassSteps], Awaitable[None]]]] = (
    # One picture, on which all is decided. Whatever changes after it, the writer's guards find.
    ("snapshot", _NodePassSteps.take_snapshot),
    # After the snapshot, so that a pod in it is sized by the newest statistics that may speak for it.
    ("statistics", _NodePassSteps.take_statistics),
    # Judges the requests that the last pass left in force, before those of this pass take their place.
    ("headroom model", _NodePassSteps.prepare_headroom),
    # Last of what is read: a person's override counts from the next decision on.
    ("stored overrides", _NodePassSteps.read_overrides),
    ("node plans", _NodePassSteps.decide_nodes),
    # Before pods that wait are sized, and for those that are created until the next pass.
    ("sharing", _NodePassSteps.note_sharing),
    # After the plans, and apart from them: a pod without a node is in no node's sums.
    ("waiting pods", _NodePassSteps.decide_unschedulable_pods),
    # Once, for all of it: shrinks free the room that grows wait for, over all nodes.
    ("writes", _NodePassSteps.write),
    # After the writes: a risk is kept by the requests that are in force, and some writes are refused.
    ("requests in force", _NodePassSteps.note_requests),
    ("report", _NodePassSteps.report),
)


def plan_nodes_separately(decide: Callable[[frozenset[str]], list[NodePlan]], nodes: Sequence[str]) -> list[NodePlan]:
    """Return the plans of all nodes but those that `decide` fails on: what is odd about one must not keep the rest.

    Raises what it raised where more than a few are odd: then it is no node's fault.
    """
    plans: list[NodePlan] = []
    failures = 0
    parts = [list(nodes)]
    while parts:
        part = parts.pop()
        try:
            plans += decide(frozenset(part))
        except Exception as mistake:
            failures += 1
            if failures > _MOST_FAILURES:
                raise
            if len(part) <= 1:
                log.error("node left out", nodes=part, error=repr(mistake))
                continue
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
    return plans


def order_actions(plans: Sequence[NodePlan]) -> list[Action]:
    """Return all actions of a pass: every node's shrinks, then the evictions, then the grows."""
    resizes = [resize for plan in plans for resize in plan.resize]
    shrinks = [resize for resize in resizes if not resize.needs_capacity]
    grows = [resize for resize in resizes if resize.needs_capacity]
    return [*shrinks, *(eviction for plan in plans for eviction in plan.evict), *grows]


# What was written before this process began, as far as later passes go by it.


async def add_stored_resizes(earlier: EarlierPasses, store: StorePort, policy: Policy, now: datetime) -> EarlierPasses:
    """Return what earlier passes saw with each pod's last resize of the last day.

    Which resource it changed is not known: both count as written then.
    """
    if not policy.rules.write_damping:
        return earlier
    last = {uid: one.at for uid, one in (await store.original_sizes()).items() if now - one.at < timedelta(days=1)}
    resized = {(uid, resource): at for uid, at in last.items() for resource in ResourceName}
    writes = sorted((PodWrite(uid, at) for uid, at in last.items()), key=lambda write: (write.at, write.uid))
    return replace(earlier, resized=resized, recent_resizes=tuple(writes))
