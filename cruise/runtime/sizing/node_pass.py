"""The node pass, as an ordered list of steps: what is read, what is decided, what is written, and what became of it."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import structlog

from cruise.decisions.admission.replacing import replacements
from cruise.decisions.admission.unscheduled import decide_unscheduled
from cruise.decisions.eviction.earlier import SAME_AGAIN, Earlier, PodWrite
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.risk_level import KeptRisk
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.decisions.sizing.sharing import average_sharing
from cruise.domain.actions import Action, EvictPod, Hold, Outcome, Reason, RefusedTarget, ResizePod, Verdict
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticsTable
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.sizing.pass_headroom import PassHeadroom
from cruise.runtime.usage.state import UsageState
from cruise.runtime.writing.writer import Writer

log = structlog.get_logger()

# To find one odd node in 5,000 takes 13 halvings.
_MOST_FAILURES = 60


@dataclass(frozen=True, slots=True)
class NodePass:
    """What one node pass saw, decided and did; `waiting` are the unschedulable pods that it left as they are.

    `seen` is what the next pass is to know of this one and those before it. `seconds` is how long each step took, by
    its name and in order; `kept_risks` how stated risks were kept lately.
    """

    at: datetime
    snapshot: Snapshot
    plans: Sequence[NodePlan]
    outcomes: Sequence[Outcome]
    waiting: Sequence[Hold] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    kept_risks: Mapping[ResourceName, KeptRisk] = field(default_factory=dict)
    seen: Earlier = SAME_AGAIN

    @property
    def left_behind(self) -> bool:
        """Tell whether it wrote something, and left something else because its decisions grew too old."""
        is_stale = any(outcome.reason is Reason.STALE_DECISION for outcome in self.outcomes)
        return is_stale and any(outcome.verdict is Verdict.DONE for outcome in self.outcomes)


async def node_pass(
    cluster: Cluster,
    store: Store,
    policy: Policy,
    now: datetime,
    *,
    usage: UsageState | None = None,
    headroom: PassHeadroom | None = None,
    writer: Writer | None = None,
    earlier: Earlier = SAME_AGAIN,
) -> NodePass:
    """Rightsize every node once.

    `earlier` is what the pass before saw; without it, what nodes are short of now was so then as well.

    `usage` has the statistics of the process's last usage pass; without it they are read from the store. `headroom`
    prepares the policy's headroom model; without it, headroom is shared by the largest single one. In mode `observe`
    the plans are those of mode `full`, so that people see what would be done; nothing is written. Raises Unavailable
    where the cluster or the store is out of reach: then the pass is dropped whole.
    """
    steps = _Steps(
        cluster, store, policy, now, usage or UsageState(), headroom, writer or Writer(cluster, store, policy), earlier
    )
    seconds = {}
    for name, step in ORDER:
        began = time.monotonic()
        await step(steps)
        seconds[name] = time.monotonic() - began
    kept_risks = headroom.kept_risks if headroom is not None else {}
    pods = {pod.uid: pod for pod in steps.snapshot.pods} if steps.outcomes else {}
    seen = seen_by(steps.plans, steps.outcomes, pods, earlier, now)
    return NodePass(now, steps.snapshot, steps.plans, steps.outcomes, steps.waiting, seconds, kept_risks, seen)


def seen_by(
    plans: Sequence[NodePlan], outcomes: Sequence[Outcome], pods: Mapping[str, Pod], earlier: Earlier, now: datetime
) -> Earlier:
    """Return what the pass after one is to know of it and of those before it; `pods` are as they were, by uid."""
    refused, resized = set(), dict(earlier.resized)
    writes = [write for write in earlier.writes if now - write.at < timedelta(days=1)]
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, EvictPod) and outcome.verdict is Verdict.REFUSED:
            refused.add(action.uid)
        if isinstance(action, ResizePod) and outcome.verdict is Verdict.DONE:
            writes.append(PodWrite(action.uid, now))
            for resource in changed_requests(action, pods.get(action.uid)):
                resized[action.uid, resource] = now
    above, below = earlier.above or {}, earlier.below or {}
    return Earlier(
        short=frozenset((plan.node, one) for plan in plans for one in plan.pressing),
        refused=frozenset(refused),
        above={(plan.node, one): above.get((plan.node, one), now) for plan in plans for one in plan.above},
        below={key: below.get(key, now) for plan in plans for key in plan.below},
        resized={key: at for key, at in resized.items() if now - at < timedelta(days=1)},
        writes=tuple(writes),
    )


def changed_requests(action: ResizePod, pod: Pod | None) -> frozenset[ResourceName]:
    """Return the resources whose requests a resize changes; both where the pod is not known."""
    if pod is None:
        return frozenset(ResourceName)
    before = {container.name: container.requests for container in pod.containers}
    return frozenset(
        resource
        for resource in ResourceName
        for target in action.containers
        if target.container in before
        and target.requests.of(resource) not in (None, before[target.container].of(resource))
    )


@dataclass(slots=True)
class _Steps:
    """The steps of one pass; each leaves what those after it need."""

    cluster: Cluster
    store: Store
    policy: Policy
    now: datetime
    usage: UsageState
    headroom: PassHeadroom | None
    writer: Writer
    earlier: Earlier
    snapshot: Snapshot = field(init=False)
    statistics: StatisticsTable = field(init=False)
    model: Headroom = field(init=False)
    stored: StoredOverrides = field(init=False)
    refused: Mapping[str, RefusedTarget] = field(init=False)
    plans: Sequence[NodePlan] = field(init=False)
    shrunk: Sequence[ResizePod] = field(init=False)
    waiting: Sequence[Hold] = field(init=False)
    outcomes: Sequence[Outcome] = field(init=False)

    async def take_snapshot(self) -> None:
        self.snapshot = await self.cluster.snapshot()

    async def take_statistics(self) -> None:
        self.statistics = await self.usage.statistics(self.store)

    async def prepare_headroom(self) -> None:
        self.model = SHARED_MAX
        if self.headroom is not None:
            self.model = await self.headroom.prepare(self.store, self.statistics, self.policy)

    async def read_guidance(self) -> None:
        self.stored, self.refused = await self.store.overrides(), await self.store.refused_targets()

    async def decide_nodes(self) -> None:
        def decide(nodes: frozenset[str]) -> list[NodePlan]:
            return decide_node_plans(
                self.snapshot,
                self.statistics,
                self.policy.of_plans,
                self.now,
                stored=self.stored,
                refused=self.refused,
                nodes=nodes,
                headroom=self.model,
                earlier=self.earlier,
                replacements=replacements,
            )

        # In a thread, since it takes seconds in a large cluster: Leases are to be renewed, and kills to be answered.
        nodes = sorted(node.name for node in self.snapshot.nodes)
        self.plans = await asyncio.to_thread(plans_of_sound_nodes, decide, nodes)

    async def note_requests(self) -> None:
        if self.headroom is not None:
            await asyncio.to_thread(self.headroom.note_requests, self.plans, self.outcomes, self.policy)

    async def note_sharing(self) -> None:
        sharing = average_sharing((plan.headroom, plan.own_headrooms) for plan in self.plans)
        self.statistics = self.usage.share(sharing, self.statistics)
        await self.store.record_sharing(sharing)

    async def decide_waiting_pods(self) -> None:
        self.shrunk, self.waiting = await asyncio.to_thread(
            decide_unscheduled,
            self.snapshot,
            self.statistics,
            self.policy.of_plans,
            self.now,
            stored=self.stored,
            refused=self.refused,
        )

    async def write(self) -> None:
        actions = [*self.shrunk, *ordered(self.plans)]
        self.outcomes = await self.writer.apply(actions, self.snapshot, self.now, statistics=self.statistics)

    async def report(self) -> None:
        log.info(
            "node pass",
            nodes=len(self.plans),
            oversubscribed=sum(plan.reason is Reason.OVERSUBSCRIBED for plan in self.plans),
            crowded=sum(plan.reason is Reason.CROWDED for plan in self.plans),
            left_alone=dict(Counter(hold.reason.value for plan in self.plans for hold in plan.hold)),
            outcomes=dict(Counter(outcome.verdict.value for outcome in self.outcomes)),
        )


ORDER: Sequence[tuple[str, Callable[[_Steps], Awaitable[None]]]] = (
    # One picture, on which all is decided. Whatever changes after it, the writer's guards find.
    ("snapshot", _Steps.take_snapshot),
    # After the snapshot, so that a pod in it is sized by the newest statistics that may speak for it.
    ("statistics", _Steps.take_statistics),
    # Judges the requests that the last pass left in force, before those of this pass take their place.
    ("headroom model", _Steps.prepare_headroom),
    # Last of what is read: a person's override counts from the next decision on.
    ("stored overrides", _Steps.read_guidance),
    ("node plans", _Steps.decide_nodes),
    # Before pods that wait are sized, and for those that are created until the next pass.
    ("sharing", _Steps.note_sharing),
    # After the plans, and apart from them: a pod without a node is in no node's sums.
    ("waiting pods", _Steps.decide_waiting_pods),
    # Once, for all of it: shrinks free the room that grows wait for, over all nodes.
    ("writes", _Steps.write),
    # After the writes: a risk is kept by the requests that are in force, and some writes are refused.
    ("requests in force", _Steps.note_requests),
    ("report", _Steps.report),
)


def plans_of_sound_nodes(decide: Callable[[frozenset[str]], list[NodePlan]], nodes: Sequence[str]) -> list[NodePlan]:
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


def ordered(plans: Sequence[NodePlan]) -> list[Action]:
    """Return all actions of a pass: every node's shrinks, then the evictions, then the grows."""
    resizes = [resize for plan in plans for resize in plan.resize]
    shrinks = [resize for resize in resizes if not resize.grows]
    grows = [resize for resize in resizes if resize.grows]
    return [*shrinks, *(eviction for plan in plans for eviction in plan.evict), *grows]
