"""Planning: builds, packs, orders and verifies a plan; for consolidation, searches for the fewest nodes in rounds."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from cruise.decisions.packing.consolidation import summarize_node_count_change
from cruise.decisions.packing.node_types import CandidateNodes, limit_new_nodes_to_pools
from cruise.decisions.packing.plan_replay import BaseAndHeadroom
from cruise.decisions.packing.problem import NO_USAGE, BuiltProblem, UsageInputs, build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal, get_reached_packing
from cruise.decisions.packing.resources import remove_lower_priority_nominations
from cruise.decisions.packing.verification import find_plan_objections
from cruise.decisions.scheduling.placements import PodKey, get_pod_key
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance, NodeCountChange, PackingProposal, PackingSizes
from cruise.domain.policy import Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import Resources
from cruise.packer.answer import Packing, build_packing
from cruise.packer.problem import PackingProblem

P = TypeVar("P", bound=PackingProposal | MoveOrderFailure)

# How often a problem is built again because some pods must keep their present sizes.
_MOST_PROBLEMS = 4

# Packs a problem, given the seconds spent before; returns the packing and the seconds spent in all.
PackFunction = Callable[[PackingProblem, float], Awaitable[tuple[Packing, float]]]
# Share of the time for a plan that drains nodes by any moves, also between zones.
FIRST_SHARE = 0.25
# If new nodes would be topology domains, shares of the remaining time: for the bound, and for each try with fewer.
_WITHOUT_SPREAD_SHARE, _FEWER_SHARE, _MOST_TRIED = 0.2, 0.25, 5
# This many constraints are lifted one by one, each in a share of the remaining time.
_MOST_LIFTED, _LIFTED_SHARE, _LEAST_SECONDS = 3, 0.3, 0.5


@dataclass(frozen=True, slots=True)
class PlanningInputs:
    """What a problem is built from; with `candidate_nodes` the objective is the fewest nodes."""

    snapshot: ClusterSnapshot
    policy: Policy
    usage: UsageInputs = NO_USAGE
    allowance: EvictionAllowance = UNLIMITED
    sizes: PackingSizes = PackingSizes.RIGHTSIZED
    candidate_nodes: CandidateNodes | None = None
    keep_domains: bool = False


@dataclass(frozen=True, slots=True)
class PlanningResult(Generic[P]):
    """A plan, or why there is none, with its inputs and the time of solving."""

    built: BuiltProblem
    packing: Packing
    plan: P
    seconds: float

    @property
    def evicts_unproved(self) -> bool:
        """Return whether the plan evicts pods although it is not proved that evictions are needed."""
        return isinstance(self.plan, PackingProposal) and bool(self.plan.evicted) and not self.packing.needs_evictions

    @property
    def planned_packing(self) -> Packing:
        """The packing after the plan, which may place fewer pods than the solver's packing."""
        assert isinstance(self.plan, PackingProposal)
        return get_reached_packing(self.built, self.packing, self.plan)


async def plan_packing(
    inputs: PlanningInputs, pack: PackFunction, busy: Callable[[str], AbstractContextManager[object]] = nullcontext
) -> PlanningResult[PackingProposal | MoveOrderFailure]:
    """Build, pack and order; `busy` wraps steps that take long, by name.

    If pods stay pending that may use capacity reserved for a nominated pod of lower priority, that is tried as well.
    """
    made = await _plan_once(inputs, pack, busy, 0.0)
    if inputs.candidate_nodes is not None or isinstance(made.plan, MoveOrderFailure):
        return made
    waiting = {one.key for one in made.plan.unplaced}
    freed = remove_lower_priority_nominations(
        inputs.snapshot, [pod for pod in made.built.pods if get_pod_key(pod) in waiting]
    )
    if freed is None:
        return made
    other = await _plan_once(replace(inputs, snapshot=freed), pack, busy, made.seconds)
    if isinstance(other.plan, MoveOrderFailure) or _count_placed(other.plan) <= _count_placed(made.plan):
        return replace(made, seconds=other.seconds)
    # Verification uses the present nominations.
    objections = find_objections(other.plan, replace(other.built, snapshot=inputs.snapshot), inputs.allowance)
    return replace(made, seconds=other.seconds) if objections else other


def _count_placed(plan: PackingProposal) -> list[int]:
    """Return how many pods of each priority a plan places, the highest first."""
    return [tier.placed for tier in plan.by_priority]


async def _plan_once(
    inputs: PlanningInputs, pack: PackFunction, busy: Callable[[str], AbstractContextManager[object]], seconds: float
) -> PlanningResult[PackingProposal | MoveOrderFailure]:
    usage = inputs.usage
    for left in reversed(range(_MOST_PROBLEMS)):
        with busy("putting the cluster into numbers"):
            built = await asyncio.to_thread(_build, replace(inputs, usage=usage))
        packing, took = await pack(built.problem, seconds)
        seconds += took
        with busy("putting the plan in order"):
            plan = await asyncio.to_thread(build_proposal, built, packing)
        if not isinstance(plan, MoveOrderFailure) or plan.not_resizable <= usage.not_resizable or not left:
            break
        # Some pods keep their present sizes, which is known only after all are sized together.
        usage = replace(usage, not_resizable=usage.not_resizable | plan.not_resizable)
    return PlanningResult(built, packing, plan, seconds)


def find_objections(proposal: PackingProposal, built: BuiltProblem, allowance: EvictionAllowance) -> Sequence[str]:
    """Return the violations that verification finds in a plan for a problem."""
    return find_plan_objections(
        built.snapshot,
        proposal,
        demands=get_base_and_headroom_by_pod(built) if built.sizes is PackingSizes.RIGHTSIZED else None,
        policy=built.policy,
        paused_workloads=built.usage.paused_workloads,
        allowance=allowance,
    )


def get_base_and_headroom_by_pod(built: BuiltProblem) -> Mapping[PodKey, BaseAndHeadroom]:
    """Return what each pod of a problem needs on its node, for verification."""
    problem = built.problem
    cpu, memory = problem.resources.index("cpu"), problem.resources.index("memory")
    of_class = [
        BaseAndHeadroom(Resources(int(base[cpu]), int(base[memory])), Resources(int(share[cpu]), int(share[memory])))
        for base, share in zip(problem.demands, problem.headroom, strict=True)
    ]
    return {
        get_pod_key(pod): of_class[number] for pod, number in zip(built.pods, problem.pod_class.tolist(), strict=True)
    }


def _build(inputs: PlanningInputs) -> BuiltProblem:
    return build_packing_problem(
        inputs.snapshot,
        inputs.policy,
        inputs.sizes,
        inputs.usage,
        allowance=inputs.allowance,
        prices=None if inputs.candidate_nodes is None else inputs.candidate_nodes.prices,
        keep_domains=inputs.keep_domains,
    )


@dataclass(frozen=True, slots=True)
class SearchRound:
    """A search that uses a share of the time left after `taken` seconds.

    `bound` is a known bound of all plans. With `keeps_zones`, pods that are spread over zones stay in theirs.
    """

    snapshot: ClusterSnapshot
    used_seconds: float = 0.0
    share: float = 1.0
    bound: tuple[int, ...] | None = None
    keeps_zones: bool = False


# The result of a round; its seconds are those of all solving until then.
FoundPlan = PlanningResult[PackingProposal]
SearchFunction = Callable[[SearchRound], Awaitable[FoundPlan]]


async def minimize_nodes(search: SearchFunction, candidate_nodes: CandidateNodes) -> tuple[FoundPlan, CandidateNodes]:
    """Return the best plan for a set of nodes, and the nodes that it was found for.

    New nodes beyond the limits of NodePools are left out.
    """
    if _adds_domains(candidate_nodes):
        found = await _search_with_new_domains(search, candidate_nodes)
    else:
        found = await _search_fewest_nodes(search, candidate_nodes.snapshot)
    limited = limit_new_nodes_to_pools(candidate_nodes, _list_used_new_nodes(found, candidate_nodes))
    if limited is None:
        return found, candidate_nodes
    again = await search(
        SearchRound(
            limited.snapshot, found.seconds, bound=found.packing.bound, keeps_zones=_is_spread(limited.snapshot)
        )
    )
    # Other machine types of the same NodePool may fit.
    impossible = {one.key for one in found.plan.unplaced if one.impossible}
    unplaced = tuple(replace(one, impossible=one.impossible and one.key in impossible) for one in again.plan.unplaced)
    return replace(again, plan=replace(again.plan, unplaced=unplaced)), limited


async def _search_with_new_domains(search: SearchFunction, candidate_nodes: CandidateNodes) -> FoundPlan:
    """Return a plan that needs few of the new nodes that are domains of a spread, and a bound for plans with any.

    A node that is not created is no domain, but the snapshot has all that could be created.
    """
    everywhere = candidate_nodes.snapshot
    found = await search(SearchRound(everywhere, share=FIRST_SHARE))
    pods = tuple(replace(pod, constraints=replace(pod.constraints, spread=())) for pod in everywhere.pods)
    free = await search(SearchRound(replace(everywhere, pods=pods), found.seconds, _WITHOUT_SPREAD_SHARE))
    bound, objective = free.packing.bound, found.built.problem.objective
    best, seconds = _replace_bound(found, bound), free.seconds
    wanted = [_list_used_new_nodes(free, candidate_nodes), _list_used_new_nodes(found, candidate_nodes)]
    for number in range(_MOST_TRIED):
        if best.planned_packing.status.is_proved or not wanted:
            break
        kept = set(wanted.pop(0))
        nodes = tuple(node for node in everywhere.nodes if node.name not in candidate_nodes.types or node.name in kept)
        # The last round has all the remaining time, and only moves that can be ordered.
        last = number == _MOST_TRIED - 1
        share = 1.0 if last else _FEWER_SHARE
        other = await search(SearchRound(replace(everywhere, nodes=nodes), seconds, share, bound, keeps_zones=last))
        seconds = other.seconds
        if other.planned_packing.planned.get_key(objective) > best.planned_packing.planned.get_key(objective):
            best = other
        if not wanted:
            used = _list_used_new_nodes(best, candidate_nodes)
            wanted = [used if number == _MOST_TRIED - 2 else used[: len(used) // 2]]
    impossible = {one.key for one in free.plan.unplaced if one.impossible}
    unplaced = tuple(replace(one, impossible=one.key in impossible) for one in best.plan.unplaced)
    return replace(best, plan=replace(best.plan, unplaced=unplaced), seconds=seconds)


def _replace_bound(found: FoundPlan, bound: tuple[int, ...]) -> FoundPlan:
    """Return the result with another bound."""
    packing = build_packing(found.built.problem, found.planned_packing.pod_node, bound, found.packing.notes)
    plan = build_proposal(found.built, packing)
    if isinstance(plan, MoveOrderFailure):
        plan = replace(found.plan, status=packing.status)
    return replace(found, packing=packing, plan=plan)


def _adds_domains(candidate_nodes: CandidateNodes) -> bool:
    """Return whether new nodes would add domains to a spread."""
    keys = {
        one.topology_key
        for pod in candidate_nodes.snapshot.pods
        for one in pod.constraints.spread
        if not pod.is_finished
    }
    domains: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for node in candidate_nodes.snapshot.nodes:
        domains[node.name in candidate_nodes.types].update((key, node.labels[key]) for key in keys & node.labels.keys())
    return bool(domains[True] - domains[False])


def _list_used_new_nodes(found: FoundPlan, candidate_nodes: CandidateNodes) -> list[str]:
    """Return the new nodes of a plan: those of the highest priority first, then those with the most pods."""
    ranks: dict[str, tuple[int, int]] = {}
    for pod, node in zip(found.built.pods, found.planned_packing.pod_node.tolist(), strict=True):
        name = found.built.nodes[node].name if node >= 0 else ""
        if name in candidate_nodes.types:
            highest, count = ranks.get(name, (pod.priority, 0))
            ranks[name] = max(highest, pod.priority), count + 1
    return sorted(ranks, key=lambda name: (*(-figure for figure in ranks[name]), name))


async def _search_fewest_nodes(search: SearchFunction, snapshot: ClusterSnapshot) -> FoundPlan:
    # Moves between zones can rarely be ordered: they are tried for a share of the time, and give the bound.
    spread = _is_spread(snapshot)
    found = await search(SearchRound(snapshot, share=FIRST_SHARE if spread else 1.0))
    if not spread or (found.planned_packing.status.is_proved and not _is_cut_short(found)):
        return found
    again = await search(SearchRound(snapshot, found.seconds, bound=found.packing.bound, keeps_zones=True))
    objective = found.built.problem.objective
    better = again.planned_packing.planned.get_key(objective) > found.planned_packing.planned.get_key(objective)
    return again if better else replace(found, seconds=again.seconds)


def _is_cut_short(found: FoundPlan) -> bool:
    """Return whether the solver's own packing is better but its moves cannot be ordered."""
    objective = found.built.problem.objective
    return found.planned_packing.planned.get_key(objective) < found.packing.planned.get_key(objective)


def _is_spread(snapshot: ClusterSnapshot) -> bool:
    return any(pod.constraints.spread for pod in snapshot.pods)


async def build_node_count_change(
    search: SearchFunction, found: FoundPlan, candidate_nodes: CandidateNodes, seconds: float
) -> NodeCountChange:
    """Describe the change in nodes, and, once the fewest are proved, how many nodes each exhausted budget keeps.

    These are the PodDisruptionBudgets that keep most nodes; `seconds` is the time limit of all searches together.
    """
    change = summarize_node_count_change(found.built, found.planned_packing, found.plan, candidate_nodes)
    snapshot, taken = candidate_nodes.snapshot, found.seconds
    if found.planned_packing.planned.price > -found.packing.bound[len(found.planned_packing.planned.priorities)]:
        return change
    without: list[tuple[str, int]] = []
    exhausted = {ReasonDetailCode.BUDGET_EXHAUSTED.create(budget.title): budget for budget in snapshot.budgets}
    for budget in [exhausted[detail] for detail, _ in change.kept_by_reason if detail in exhausted]:
        if len(without) == _MOST_LIFTED or seconds - taken < _LEAST_SECONDS:
            break
        budgets = tuple(one for one in snapshot.budgets if one is not budget)
        other = await search(SearchRound(replace(snapshot, budgets=budgets), taken, _LIFTED_SHARE))
        taken = other.seconds
        if other.planned_packing.planned.price < found.planned_packing.planned.price:
            nodes = summarize_node_count_change(
                other.built, other.planned_packing, other.plan, candidate_nodes
            ).nodes_after
            without.append((budget.title, nodes))
    return replace(change, nodes_after_by_lifted_constraint=tuple(without))
