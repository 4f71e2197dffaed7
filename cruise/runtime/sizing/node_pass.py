"""The node pass: one snapshot and the statistics in, plans for all nodes, and what became of them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from cruise.decisions.admission.unscheduled import decide_unscheduled
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import Action, Hold, Outcome
from cruise.domain.cluster import Snapshot
from cruise.domain.policy import Mode, Policy
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.sizing.pass_headroom import PassHeadroom
from cruise.runtime.writing.writer import Writer

log = structlog.get_logger()

# To find one odd node in 5,000 takes 13 halvings.
_MOST_FAILURES = 60


@dataclass(frozen=True, slots=True)
class NodePass:
    """What one node pass saw, decided and did; `waiting` are the unschedulable pods that it left as they are."""

    at: datetime
    snapshot: Snapshot
    plans: Sequence[NodePlan]
    outcomes: Sequence[Outcome]
    waiting: Sequence[Hold] = ()


async def node_pass(
    cluster: Cluster,
    store: Store,
    policy: Policy,
    now: datetime,
    *,
    writer: Writer | None = None,
    headroom: PassHeadroom | None = None,
) -> NodePass:
    """Rightsize every node once; `writer` shares with the others of the process what keeps plans apart.

    `headroom` prepares the policy's headroom model; without it, headroom is shared by the largest single one.

    In mode `observe` the plans are those of mode `full`, so that people see what would be done; nothing is written.
    Raises Unavailable where the cluster or the store is out of reach: then the pass is dropped whole.
    """
    snapshot = await cluster.snapshot()
    statistics = await store.read_statistics()
    decided_as = replace(policy, mode=Mode.FULL) if policy.mode is Mode.OBSERVE else policy
    model = SHARED_MAX if headroom is None else await headroom.prepare(store, statistics, policy)
    stored, refused = await store.overrides(), await store.refused_targets()

    def decide(nodes: frozenset[str]) -> list[NodePlan]:
        return decide_node_plans(
            snapshot, statistics, decided_as, now, stored=stored, refused=refused, nodes=nodes, headroom=model
        )

    # In a thread, since it takes seconds in a large cluster: leases are to be renewed, and kills to be answered.
    plans = await asyncio.to_thread(plans_of_sound_nodes, decide, sorted(node.name for node in snapshot.nodes))
    if headroom is not None:
        await asyncio.to_thread(headroom.expect, plans, policy)
    shrunk, waiting = await asyncio.to_thread(
        decide_unscheduled, snapshot, statistics, decided_as, now, stored=stored, refused=refused
    )
    outcomes = await (writer or Writer(cluster, store, policy)).apply([*shrunk, *ordered(plans)], snapshot, now)
    log.info(
        "node pass",
        nodes=len(plans),
        oversubscribed=sum(not plan.fits for plan in plans),
        left_alone=dict(Counter(hold.reason.value for plan in plans for hold in plan.hold)),
        outcomes=dict(Counter(outcome.verdict.value for outcome in outcomes)),
    )
    return NodePass(now, snapshot, plans, outcomes, waiting)


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
    shrinks = [resize for resize in resizes if not _grows(resize.growth.cpu_millicores, resize.growth.memory_bytes)]
    grows = [resize for resize in resizes if _grows(resize.growth.cpu_millicores, resize.growth.memory_bytes)]
    return [*shrinks, *(eviction for plan in plans for eviction in plan.evict), *grows]


def _grows(cpu_millicores: int, memory_bytes: int) -> bool:
    return cpu_millicores > 0 or memory_bytes > 0
