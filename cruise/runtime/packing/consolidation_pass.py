"""The consolidation pass: with how few nodes the cluster would do, by which moves, and what keeps the others."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from cruise.decisions.guidance.daemons import belongs_to_node
from cruise.decisions.packing.consolidating import Ground, next_moves, with_new_nodes
from cruise.decisions.packing.execution import begun
from cruise.domain.cluster import NodeAutoscaler, Snapshot
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.packing import UNLIMITED, FleetChange, PackingPlan, Proposal
from cruise.domain.policy import Mode, Policy
from cruise.runtime.packing.fewest_nodes import Found, Turn, change_of, find_fewest_nodes
from cruise.runtime.packing.packing_pass import Solver, gathered, make, mistakes_as_reasons
from cruise.runtime.packing.planning import demands_of
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.usage.state import UsageState

log = structlog.get_logger()

# A search ends here, so what is above is not looked for at all.
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ConsolidationPass:
    """What one look came to: a plan with its `fleet`, or why there is none; `seconds` is all of solving.

    `autoscaler` removes the nodes that are empty, None where nothing does; `empty` are those that are so already.
    `begun` is what is carried out of the plan, `waits` why nothing is where something could be.
    """

    at: datetime
    plan: Proposal | None = None
    why: Halt | None = None
    seconds: float = 0.0
    autoscaler: NodeAutoscaler | None = None
    empty: tuple[str, ...] = ()
    begun: PackingPlan | None = None
    waits: Halt | None = None

    @property
    def fleet(self) -> FleetChange | None:
        """What the plan makes of the nodes."""
        return None if self.plan is None else self.plan.fleet


class _NoPlan(Exception):
    """No search of a turn came to a plan."""

    def __init__(self, why: Halt) -> None:
        super().__init__(why)
        self.why = why


async def consolidation_pass(
    cluster: Cluster,
    store: Store,
    solver: Solver,
    policy: Policy,
    now: datetime,
    *,
    seconds: float,
    known_usage: UsageState,
    statistics_at: datetime | None,
    rest: timedelta | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> ConsolidationPass:
    """Find the fewest nodes that hold all pods, at the sizes that a node pass would give them.

    With a `rest`, after which a pod may be moved, a part of the plan is stored to be carried out; else nothing is.
    `statistics_at` is when the statistics were last brought up to date: old ones are no ground for advice. Raises
    Unavailable where cluster, store or solver are out of reach.
    """
    why_not = _why_no_advice(policy, now, statistics_at)
    if why_not is not None:
        return ConsolidationPass(now, why=why_not)
    snapshot = await cluster.snapshot()
    fleet = await asyncio.to_thread(with_new_nodes, snapshot, None)
    scene = await gathered(fleet.snapshot, store, known_usage, policy, now)
    # Whatever may be evicted in one go: such a plan takes hours.
    allowance, scene = scene.allowance, replace(scene, allowance=UNLIMITED, fleet=fleet)

    async def search(turn: Turn) -> Found:
        left = max(_LEAST_SECONDS, (seconds - turn.taken) * turn.share)
        there = replace(scene, snapshot=turn.snapshot, keep_domains=turn.in_zones)
        made = await make(there, solver, left, monotonic)
        if isinstance(made, Halt):
            raise _NoPlan(made)
        bound = made.packing.bound if turn.bound is None else turn.bound
        return replace(made, packing=replace(made.packing, bound=bound), seconds=turn.taken + made.seconds)

    async def looked() -> tuple[Found, FleetChange] | Halt:
        try:
            found, there = await find_fewest_nodes(search, fleet)
            return found, await change_of(search, found, there, seconds)
        except _NoPlan as none:
            return none.why

    came = await mistakes_as_reasons(looked(), "consolidation pass")
    if isinstance(came, Halt):
        return ConsolidationPass(now, why=came)
    found, change = came
    log.info(
        "consolidation pass",
        nodes=change.nodes_before,
        after=change.nodes_after,
        at_least=change.nodes_bound,
        moves=len(found.plan.moves),
        seconds=round(found.seconds, 3),
    )
    plan = replace(found.plan, fleet=change)
    done = ConsolidationPass(now, plan, None, found.seconds, snapshot.node_autoscaler, _empty_nodes(snapshot))
    if rest is None or policy.mode is not Mode.FULL:
        return done
    ground = Ground(snapshot, demands_of(found.built), policy, scene.usage.stored, allowance, now, rest)
    return await _with_a_part_begun(done, plan, ground, store)


def _why_no_advice(policy: Policy, now: datetime, statistics_at: datetime | None) -> Halt | None:
    if policy.mode in (Mode.OFF, Mode.INITIAL):
        return Halt(HaltCode.MODE, policy.mode.label)
    if statistics_at is None:
        return Halt(HaltCode.NO_STATISTICS)
    if now - statistics_at > policy.max_age:
        return Halt(HaltCode.OLD_STATISTICS, f"{statistics_at:%Y-%m-%d %H:%M:%S} UTC")
    return None


async def _with_a_part_begun(
    done: ConsolidationPass, plan: Proposal, ground: Ground, store: Store
) -> ConsolidationPass:
    """Store what may be carried out of a plan now as a packing plan under way."""
    if await store.paused():
        return replace(done, waits=Halt(HaltCode.PAUSED))
    part = await asyncio.to_thread(next_moves, plan, ground)
    if isinstance(part, Halt):
        return replace(done, waits=part)
    under_way = begun(part, ground.now, ground.now, done.seconds, ground.policy.mode)
    await store.save_packing(under_way)
    return replace(done, begun=under_way)


def _empty_nodes(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the nodes that nothing runs on but what belongs to nodes."""
    used = {pod.node for pod in snapshot.pods if not pod.terminal and not belongs_to_node(pod)}
    return tuple(sorted(node.name for node in snapshot.nodes if node.name not in used))
