"""The node pass, an ordered list of steps: read the cluster, decide each node's plan, write it, report the outcomes."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from cruise.decisions.admission.replacement_pods import decide_unschedulable_pods, predict_replacement_pods
from cruise.decisions.eviction.ranking import ASSUME_UNCHANGED, CompletedResize, EarlierPassResults
from cruise.decisions.pod_policy.policy_objects import PolicyIndex, reuse_policy_index
from cruise.decisions.pod_policy.skip_reason_unlocks import EligibilityInputs
from cruise.decisions.scan.coverage import Coverage, estimate_coverage
from cruise.decisions.scan.waste import list_pod_requests
from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM, HeadroomModel
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.decisions.sizing.headroom_shares import compute_average_headroom_share
from cruise.decisions.sizing.node_plans import NodePlan, SizingContext, decide_node_plans
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
from cruise.domain.overrides import PausedWorkloads
from cruise.domain.policy import Policy
from cruise.domain.records import truncate_to_minute
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.errors import pause_garbage_collection
from cruise.runtime.headroom import HeadroomState
from cruise.runtime.ports import ClusterPort, PassContext, StorePort
from cruise.runtime.usage.usage_state import UsageState
from cruise.runtime.writing.writer import ClusterWriter

log = structlog.get_logger()

# Bisection finds one failing node among 5,000 in 13 steps.
_MOST_FAILURES = 60


@dataclass(frozen=True, slots=True)
class NodePassResult:
    """What one node pass read, decided and did.

    `unschedulable` are the pending pods that it skipped. `for_next_pass` is what the next pass must know of this one
    and earlier ones. `seconds` is the duration of each step, by name and in order. `coverage` is by namespace, None if
    it could not be computed. `policy_index` saves the next pass time while policies stay the same.
    """

    at: datetime
    snapshot: ClusterSnapshot
    plans: Sequence[NodePlan]
    outcomes: Sequence[Outcome]
    unschedulable: Sequence[SkippedPod] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    observed_risks: Mapping[ResourceName, ObservedRisk] = field(default_factory=dict)
    for_next_pass: EarlierPassResults = ASSUME_UNCHANGED
    coverage: Mapping[str, Coverage] | None = None
    policy_index: PolicyIndex | None = None

    @property
    def has_stale_writes(self) -> bool:
        """Whether the pass wrote something and skipped other writes because its decisions became too old."""
        is_stale = any(outcome.reason is ReasonCode.STALE_DECISION for outcome in self.outcomes)
        return is_stale and any(outcome.result is ActionResult.DONE for outcome in self.outcomes)


async def run_node_pass(
    inputs: PassContext,
    *,
    usage: UsageState | None = None,
    headroom: HeadroomState | None = None,
    writer: ClusterWriter | None = None,
    earlier: EarlierPassResults = ASSUME_UNCHANGED,
    policy_index: PolicyIndex | None = None,
) -> NodePassResult:
    """Rightsize every node once.

    `earlier` describes the earlier passes; without it, nodes are assumed to have been under the same pressure.
    `policy_index` is that of an earlier pass, used again if nothing changed. `usage` has the statistics of the
    process's last usage pass; without it they are read from the database. `headroom` prepares the policy's headroom
    model; without it, the largest single headroom of a node is shared. In mode `observe` the plans are those of mode
    `full`, so that users see what would be done; nothing is written. Raises UnavailableError if the cluster or the
    database is unreachable: then the whole pass is dropped.
    """
    steps = _NodePassSteps(
        inputs.cluster,
        inputs.store,
        inputs.policy,
        inputs.now,
        usage or UsageState(),
        headroom,
        writer or ClusterWriter(inputs.cluster, inputs.store, inputs.policy),
        earlier,
        policy_index,
    )
    seconds = {}
    for name, step in STEPS:
        started = time.monotonic()
        await step(steps)
        seconds[name] = time.monotonic() - started
    observed_risks = headroom.observed_risks if headroom is not None else {}
    pods = {pod.uid: pod for pod in steps.snapshot.pods} if steps.outcomes else {}
    for_next_pass = summarize_for_next_pass(steps.plans, steps.outcomes, pods, earlier, inputs.now)
    return NodePassResult(
        inputs.now,
        steps.snapshot,
        steps.plans,
        steps.outcomes,
        steps.skipped_pending,
        seconds,
        observed_risks,
        for_next_pass,
        steps.coverage,
        steps.policy_index,
    )


def summarize_for_next_pass(
    plans: Sequence[NodePlan],
    outcomes: Sequence[Outcome],
    pods: Mapping[str, Pod],
    earlier: EarlierPassResults,
    now: datetime,
) -> EarlierPassResults:
    """Return what the next pass must know of a pass and of earlier ones.

    `pods` are all pods as they were before it, by uid; none if it wrote nothing.
    """
    refused, resized = set(), dict(earlier.resized)
    writes = [write for write in earlier.recent_resizes if now - write.at < timedelta(days=1)]
    if pods:
        # A cluster that replaces its pods all day long would fill the memory with pods that are gone.
        resized = {key: at for key, at in resized.items() if key[0] in pods}
        gone: dict[datetime, CompletedResize] = {}
        for write in writes:
            if write.uid not in pods:
                # Those of one minute together, or a pass every few seconds would leave 40,000 a day.
                minute = truncate_to_minute(write.at)
                before = gone.get(minute, CompletedResize("", write.at, 0))
                gone[minute] = CompletedResize("", max(before.at, write.at), before.number + write.number)
        writes = [*gone.values(), *(write for write in writes if write.uid in pods)]
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, EvictPod) and outcome.result is ActionResult.REFUSED:
            refused.add(action.uid)
        if isinstance(action, ResizePod) and outcome.result is ActionResult.DONE:
            writes.append(CompletedResize(action.uid, now))
            for resource in get_changed_resources(action, pods.get(action.uid)):
                resized[action.uid, resource] = now
    above, below = earlier.over_requested_since or {}, earlier.under_requested_since or {}
    return EarlierPassResults(
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
    """Return the resources whose requests a resize changes; both if the pod is not known."""
    if pod is None:
        return frozenset(ResourceName)
    before = {part.name: part.requests for part in pod.resizable_parts}
    return frozenset(
        resource
        for resource in ResourceName
        for target in action.containers
        if target.container in before
        and target.requests.get(resource) not in (None, before[target.container].get(resource))
    )


@dataclass(slots=True)
class _NodePassSteps:
    """The steps of one pass and what they pass on to each other."""

    cluster: ClusterPort
    store: StorePort
    policy: Policy
    now: datetime
    usage: UsageState
    headroom: HeadroomState | None
    writer: ClusterWriter
    earlier: EarlierPassResults
    earlier_policy_index: PolicyIndex | None
    snapshot: ClusterSnapshot = field(init=False)
    policy_index: PolicyIndex = field(init=False)
    statistics: StatisticsTable = field(init=False)
    model: HeadroomModel = field(init=False)
    paused_workloads: PausedWorkloads = field(init=False)
    refused: Mapping[str, RefusedResize] = field(init=False)
    plans: Sequence[NodePlan] = field(init=False)
    pending_resizes: Sequence[ResizePod] = field(init=False)
    skipped_pending: Sequence[SkippedPod] = field(init=False)
    outcomes: Sequence[Outcome] = field(init=False)
    coverage: Mapping[str, Coverage] | None = field(init=False, default=None)

    async def take_snapshot(self) -> None:
        self.snapshot = await self.cluster.snapshot()
        self.policy_index = reuse_policy_index(self.snapshot, self.earlier_policy_index)
        self.policy_index.forget_gone_pods(len(self.snapshot.pods))

    async def take_statistics(self) -> None:
        self.statistics = await self.usage.get_statistics(self.store)

    async def prepare_headroom(self) -> None:
        self.model = SHARED_MAX_HEADROOM
        if self.headroom is not None:
            self.model = await self.headroom.prepare(self.store, self.statistics, self.policy)

    async def read_paused_workloads(self) -> None:
        self.paused_workloads, self.refused = (
            await self.store.read_paused_workloads(),
            await self.store.read_refused_resizes(),
        )

    async def decide_nodes(self) -> None:
        def decide(nodes: frozenset[str]) -> list[NodePlan]:
            return decide_node_plans(
                self.snapshot,
                self.statistics,
                self.policy.planning_policy,
                self.now,
                paused_workloads=self.paused_workloads,
                refused=self.refused,
                nodes=nodes,
                headroom=self.model,
                earlier=self.earlier,
                replacements=predict_replacement_pods,
                policy_index=self.policy_index,
            )

        # In a thread: this takes seconds in a large cluster, while Leases are renewed and kills handled.
        nodes = sorted(node.name for node in self.snapshot.nodes)
        with pause_garbage_collection():
            self.plans = await asyncio.to_thread(plan_nodes_separately, decide, nodes)

    async def note_requests(self) -> None:
        if self.headroom is not None:
            await asyncio.to_thread(self.headroom.record_requests, self.plans, self.outcomes, self.policy)

    async def record_average_headroom_share(self) -> None:
        average_share = compute_average_headroom_share((plan.headroom, plan.headroom_by_pod) for plan in self.plans)
        self.statistics = self.usage.set_average_headroom_share(average_share, self.statistics)
        await self.store.record_average_headroom_share(average_share)

    async def decide_unschedulable_pods(self) -> None:
        self.pending_resizes, self.skipped_pending = await asyncio.to_thread(
            decide_unschedulable_pods,
            self.snapshot,
            self.statistics,
            self.policy.planning_policy,
            self.now,
            paused_workloads=self.paused_workloads,
            refused=self.refused,
        )

    async def write(self) -> None:
        actions = [*self.pending_resizes, *order_actions(self.plans)]
        self.outcomes = await self.writer.apply_plan(actions, self.snapshot, self.now, statistics=self.statistics)

    async def estimate_coverage(self) -> None:
        def estimate() -> Mapping[str, Coverage]:
            return estimate_coverage(
                EligibilityInputs(self.snapshot, self.paused_workloads, self.policy.planning_policy, self.policy_index),
                self.statistics,
                self.now,
                list_pod_requests(self.snapshot, self.plans),
                SizingContext(self.refused, self.model, self.earlier, predict_replacement_pods),
            )

        try:
            with pause_garbage_collection():
                self.coverage = await asyncio.to_thread(estimate)
        except Exception as error:
            # It decides on pods that the pass skips: what is wrong with one of them must not fail the pass.
            log.error("coverage not computed", error=repr(error))

    async def report(self) -> None:
        log.info(
            "node pass",
            nodes=len(self.plans),
            overcommitted=sum(plan.reason is ReasonCode.OVERCOMMITTED for plan in self.plans),
            under_pressure=sum(plan.reason is ReasonCode.UNDER_PRESSURE for plan in self.plans),
            skipped=dict(Counter(skipped.reason.value for plan in self.plans for skipped in plan.skipped)),
            outcomes=dict(Counter(outcome.result.value for outcome in self.outcomes)),
        )


STEPS: Sequence[tuple[str, Callable[[_NodePassSteps], Awaitable[None]]]] = (
    # Everything is decided from one snapshot; the writer's guards detect what has changed since.
    ("snapshot", _NodePassSteps.take_snapshot),
    # After the snapshot, so that its pods are sized by the newest statistics that apply to them.
    ("statistics", _NodePassSteps.take_statistics),
    # Evaluates the requests that the last pass left in effect, before this pass replaces them.
    ("headroom model", _NodePassSteps.prepare_headroom),
    # Read last, so that a new pause applies to the next decision.
    ("paused workloads", _NodePassSteps.read_paused_workloads),
    ("node plans", _NodePassSteps.decide_nodes),
    # Before pending pods are sized, and for pods that are created before the next pass.
    ("average headroom share", _NodePassSteps.record_average_headroom_share),
    # After the plans and separate from them: a pod without a node counts on no node.
    ("pending pods", _NodePassSteps.decide_unschedulable_pods),
    # In one plan for all nodes: decreases free the capacity that increases wait for.
    ("writes", _NodePassSteps.write),
    # After the writes: the observed risk depends on the requests in effect, and some writes are refused.
    ("requests in effect", _NodePassSteps.note_requests),
    # After everything that sizes pods: it only informs.
    ("coverage", _NodePassSteps.estimate_coverage),
    ("report", _NodePassSteps.report),
)


def plan_nodes_separately(decide: Callable[[frozenset[str]], list[NodePlan]], nodes: Sequence[str]) -> list[NodePlan]:
    """Return the plans of all nodes except those that `decide` fails on, so that one bad node does not stop the rest.

    Raises the exception of `decide` if more than a few nodes fail: then the cause is not a node.
    """
    plans: list[NodePlan] = []
    failures = 0
    parts = [list(nodes)]
    while parts:
        part = parts.pop()
        try:
            plans += decide(frozenset(part))
        except Exception as error:
            failures += 1
            if failures > _MOST_FAILURES:
                raise
            if len(part) <= 1:
                log.error("node skipped", nodes=part, error=repr(error))
                continue
            middle = len(part) // 2
            parts += [part[middle:], part[:middle]]
    return plans


def order_actions(plans: Sequence[NodePlan]) -> list[Action]:
    """Return all actions of a pass: every node's decreases, then the evictions, then the increases."""
    resizes = [resize for plan in plans for resize in plan.resize]
    decreases = [resize for resize in resizes if not resize.needs_capacity]
    increases = [resize for resize in resizes if resize.needs_capacity]
    return [*decreases, *(eviction for plan in plans for eviction in plan.evict), *increases]


async def add_stored_resizes(
    earlier: EarlierPassResults, store: StorePort, pods: Sequence[Pod], policy: Policy, now: datetime
) -> EarlierPassResults:
    """Return `earlier` with the last stored resize of the last day of each of the pods, and the number of others.

    The database does not say which resource a resize changed: both count as written.
    """
    if not policy.rules.write_damping:
        return earlier
    last = await store.read_last_resizes([pod.uid for pod in pods], now - timedelta(days=1))
    resized = {(uid, resource): at for uid, at in last.by_pod.items() for resource in ResourceName}
    gone = [CompletedResize("", at, number) for at, number in last.others_by_minute.items()]
    writes = [*gone, *(CompletedResize(uid, at) for uid, at in last.by_pod.items())]
    return replace(earlier, resized=resized, recent_resizes=tuple(sorted(writes, key=lambda one: (one.at, one.uid))))
