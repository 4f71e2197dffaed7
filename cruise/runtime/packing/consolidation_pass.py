"""The consolidation pass: the fewest nodes that the cluster needs, the moves to get there, and what prevents fewer."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import structlog

from cruise.decisions.packing.consolidation import ConsolidationContext, choose_next_moves
from cruise.decisions.packing.execution import start_plan
from cruise.decisions.packing.node_types import add_candidate_nodes
from cruise.decisions.pod_policy.evictability import is_node_bound_pod
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import UNLIMITED, NodeCountChange, PackingPlan, PackingProposal
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.runtime.packing.packing_pass import PackingSolver, convert_errors_to_conditions, gather_inputs, make_plan
from cruise.runtime.packing.planning import (
    FoundPlan,
    SearchRound,
    build_node_count_change,
    get_base_and_headroom_by_pod,
    minimize_nodes,
)
from cruise.runtime.ports import PassContext, StorePort
from cruise.runtime.usage.usage_state import UsageState

log = structlog.get_logger()

# A search ends here, so packings above it are not searched for.
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ConsolidationPassResult:
    """The result of a pass: a plan with its node change, or why there is none; `seconds` is the time of all solving.

    `autoscaler` removes empty nodes, None if there is none; `empty` are the nodes that are empty now. `started` is the
    part of the plan that is carried out, `waits` why no part is although one could be.
    """

    at: datetime
    plan: PackingProposal | None = None
    condition: PlanCondition | None = None
    seconds: float = 0.0
    autoscaler: NodeAutoscalerKind | None = None
    empty_nodes: tuple[str, ...] = ()
    started: PackingPlan | None = None
    waiting_reason: PlanCondition | None = None

    @property
    def node_count_change(self) -> NodeCountChange | None:
        """The change in nodes that the plan makes."""
        return None if self.plan is None else self.plan.node_count_change


class _NoPlan(Exception):
    """None of the searches found a plan."""

    def __init__(self, why: PlanCondition) -> None:
        super().__init__(why)
        self.reason = why


async def run_consolidation_pass(
    inputs: PassContext,
    solver: PackingSolver,
    *,
    seconds: float,
    known_usage: UsageState,
    statistics_at: datetime | None,
    rest: timedelta | None = None,
    monotonic: Callable[[], float] = time.monotonic,
) -> ConsolidationPassResult:
    """Find the fewest nodes that hold all pods, at the sizes that a node pass would plan.

    With a `rest`, the age from which a pod may be moved, a part of the plan is stored to be carried out; without one
    nothing is. `statistics_at` is when the statistics were last updated: no advice is given from old ones. Raises
    Unavailable if the cluster, the database or the solver is unreachable.
    """
    store, policy, now = inputs.store, inputs.policy, inputs.now
    condition = _explain_no_advice(policy, now, statistics_at)
    if condition is not None:
        return ConsolidationPassResult(now, condition=condition)
    snapshot = await inputs.cluster.snapshot()
    candidate_nodes = await asyncio.to_thread(add_candidate_nodes, snapshot, None)
    planning_inputs = await gather_inputs(candidate_nodes.snapshot, store, known_usage, policy, now)
    # Without eviction budgets: carrying out such a plan takes hours.
    allowance, planning_inputs = (
        planning_inputs.allowance,
        replace(planning_inputs, allowance=UNLIMITED, candidate_nodes=candidate_nodes),
    )

    async def search(search_round: SearchRound) -> FoundPlan:
        time_limit = max(_LEAST_SECONDS, (seconds - search_round.used_seconds) * search_round.share)
        search_inputs = replace(planning_inputs, snapshot=search_round.snapshot, keep_domains=search_round.keeps_zones)
        made = await make_plan(search_inputs, solver, time_limit, monotonic)
        if isinstance(made, PlanCondition):
            raise _NoPlan(made)
        bound = made.packing.bound if search_round.bound is None else search_round.bound
        return replace(
            made, packing=replace(made.packing, bound=bound), seconds=search_round.used_seconds + made.seconds
        )

    async def run_search() -> tuple[FoundPlan, NodeCountChange] | PlanCondition:
        try:
            found, search_inputs = await minimize_nodes(search, candidate_nodes)
            return found, await build_node_count_change(search, found, search_inputs, seconds)
        except _NoPlan as none:
            return none.reason

    result = await convert_errors_to_conditions(run_search(), "consolidation pass")
    if isinstance(result, PlanCondition):
        return ConsolidationPassResult(now, condition=result)
    found, change = result
    log.info(
        "consolidation pass",
        nodes=change.nodes_before,
        after=change.nodes_after,
        at_least=change.nodes_bound,
        moves=len(found.plan.moves),
        seconds=round(found.seconds, 3),
    )
    plan = replace(found.plan, node_count_change=change)
    done = ConsolidationPassResult(
        now, plan, None, found.seconds, snapshot.node_autoscaler, _list_empty_nodes(snapshot)
    )
    if rest is None or policy.mode is not Mode.FULL:
        return done
    context = ConsolidationContext(
        snapshot,
        get_base_and_headroom_by_pod(found.built),
        policy,
        planning_inputs.usage.paused_workloads,
        allowance,
        now,
        rest,
    )
    return await _start_part(done, plan, context, store)


def _explain_no_advice(policy: Policy, now: datetime, statistics_at: datetime | None) -> PlanCondition | None:
    if policy.mode in (Mode.OFF, Mode.INITIAL):
        return PlanCondition(PlanStatusReason.MODE, policy.mode.label)
    if statistics_at is None:
        return PlanCondition(PlanStatusReason.NO_STATISTICS)
    if now - statistics_at > policy.max_age:
        return PlanCondition(PlanStatusReason.STALE_STATISTICS, f"{statistics_at:%Y-%m-%d %H:%M:%S} UTC")
    return None


async def _start_part(
    done: ConsolidationPassResult, plan: PackingProposal, context: ConsolidationContext, store: StorePort
) -> ConsolidationPassResult:
    """Store the part of a plan that may be carried out now as a packing plan in progress."""
    if await store.is_paused():
        return replace(done, waiting_reason=PlanCondition(PlanStatusReason.PAUSED))
    part = await asyncio.to_thread(choose_next_moves, plan, context)
    if isinstance(part, PlanCondition):
        return replace(done, waiting_reason=part)
    under_way = start_plan(part, context.now, context.now, done.seconds, context.policy.mode)
    await store.write_packing_plan(under_way)
    return replace(done, started=under_way)


def _list_empty_nodes(snapshot: ClusterSnapshot) -> tuple[str, ...]:
    """Return the nodes that run no pods except node-bound ones."""
    used = {pod.node for pod in snapshot.pods if not pod.is_finished and not is_node_bound_pod(pod)}
    return tuple(sorted(node.name for node in snapshot.nodes if node.name not in used))
