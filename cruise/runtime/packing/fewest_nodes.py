"""The plan that needs the fewest nodes, searched for in turns: by any moves, within zones, and without what is shut."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from cruise.decisions.packing.consolidating import Fleet, fleet_change, within_limits
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.cluster import Snapshot
from cruise.domain.details import Detail
from cruise.domain.packing import FleetChange, Proposal
from cruise.packer.answer import packing_of
from cruise.runtime.packing.planning import Made

# Of the time, for a plan that empties nodes by any moves, also between zones.
FIRST_SHARE = 0.25
# Where new nodes would be domains, of what time is left: for what no plan goes below, for each try with fewer of them.
_WITHOUT_SPREAD_SHARE, _FEWER_SHARE, _MOST_TRIED = 0.2, 0.25, 5
# So many constraints are lifted one by one, each with a share of what time is left, if that is worth it.
_MOST_LIFTED, _LIFTED_SHARE, _LEAST_SECONDS = 3, 0.3, 0.5


@dataclass(frozen=True, slots=True)
class Turn:
    """A search in what is left of the time after `taken` seconds: in a share of that.

    A `bound` is one that no plan surpasses, known from before. With `in_zones` pods that are spread over zones stay in
    theirs.
    """

    snapshot: Snapshot
    taken: float = 0.0
    share: float = 1.0
    bound: tuple[int, ...] | None = None
    in_zones: bool = False


# What a turn comes to; its seconds are all that solving has taken by then.
Found = Made[Proposal]
Search = Callable[[Turn], Awaitable[Found]]


async def find_fewest_nodes(search: Search, fleet: Fleet) -> tuple[Found, Fleet]:
    """Return the best plan for a fleet, and the fleet that it was found for.

    That one lacks new nodes where NodePools' limits do not allow all that the best plan would have.
    """
    if _adds_domains(fleet):
        found = await _fewest_with_new_domains(search, fleet)
    else:
        found = await _fewest_nodes(search, fleet.snapshot)
    limited = within_limits(fleet, _new_nodes_used(found, fleet))
    if limited is None:
        return found, fleet
    again = await search(
        Turn(limited.snapshot, found.seconds, bound=found.packing.bound, in_zones=_is_spread(limited.snapshot))
    )
    # With other machines from the same NodePool there may be a place after all.
    impossible = {one.key for one in found.plan.unplaced if one.impossible}
    unplaced = tuple(replace(one, impossible=one.impossible and one.key in impossible) for one in again.plan.unplaced)
    return replace(again, plan=replace(again.plan, unplaced=unplaced)), limited


async def _fewest_with_new_domains(search: Search, fleet: Fleet) -> Found:
    """Return a plan for which few new nodes are domains of a spread, and a bound for plans with any.

    A node that is not ordered is no domain, while all that could be are in the fleet's snapshot.
    """
    everywhere = fleet.snapshot
    found = await search(Turn(everywhere, share=FIRST_SHARE))
    pods = tuple(replace(pod, constraints=replace(pod.constraints, spread=())) for pod in everywhere.pods)
    free = await search(Turn(replace(everywhere, pods=pods), found.seconds, _WITHOUT_SPREAD_SHARE))
    bound, objective = free.packing.bound, found.built.problem.objective
    best, seconds = _bounded(found, bound), free.seconds
    wanted = [_new_nodes_used(free, fleet), _new_nodes_used(found, fleet)]
    for number in range(_MOST_TRIED):
        if best.reached.status.proved or not wanted:
            break
        kept = set(wanted.pop(0))
        nodes = tuple(node for node in everywhere.nodes if node.name not in fleet.types or node.name in kept)
        # The last has all the time that is left, and only moves that have an order.
        last = number == _MOST_TRIED - 1
        share = 1.0 if last else _FEWER_SHARE
        other = await search(Turn(replace(everywhere, nodes=nodes), seconds, share, bound, in_zones=last))
        seconds = other.seconds
        if other.reached.after.key(objective) > best.reached.after.key(objective):
            best = other
        if not wanted:
            used = _new_nodes_used(best, fleet)
            wanted = [used if number == _MOST_TRIED - 2 else used[: len(used) // 2]]
    impossible = {one.key for one in free.plan.unplaced if one.impossible}
    unplaced = tuple(replace(one, impossible=one.key in impossible) for one in best.plan.unplaced)
    return replace(best, plan=replace(best.plan, unplaced=unplaced), seconds=seconds)


def _bounded(found: Found, bound: tuple[int, ...]) -> Found:
    """Return what was found with another bound."""
    packing = packing_of(found.built.problem, found.reached.pod_node, bound, found.packing.notes)
    plan = propose(found.built, packing)
    if isinstance(plan, NoOrder):
        plan = replace(found.plan, status=packing.status)
    return replace(found, packing=packing, plan=plan)


def _adds_domains(fleet: Fleet) -> bool:
    """Tell whether new nodes would be domains of a spread that there are not yet."""
    keys = {one.topology_key for pod in fleet.snapshot.pods for one in pod.constraints.spread if not pod.terminal}
    domains: dict[bool, set[tuple[str, str]]] = {True: set(), False: set()}
    for node in fleet.snapshot.nodes:
        domains[node.name in fleet.types].update((key, node.labels[key]) for key in keys & node.labels.keys())
    return bool(domains[True] - domains[False])


def _new_nodes_used(found: Found, fleet: Fleet) -> list[str]:
    """Return the new nodes of a plan: those of the highest priority first, then those of the most pods."""
    ranks: dict[str, tuple[int, int]] = {}
    for pod, node in zip(found.built.pods, found.reached.pod_node.tolist(), strict=True):
        name = found.built.nodes[node].name if node >= 0 else ""
        if name in fleet.types:
            highest, count = ranks.get(name, (pod.priority, 0))
            ranks[name] = max(highest, pod.priority), count + 1
    return sorted(ranks, key=lambda name: (*(-figure for figure in ranks[name]), name))


async def _fewest_nodes(search: Search, snapshot: Snapshot) -> Found:
    # Moves between zones mostly have no order: they are tried for a while, and say what no plan goes below.
    spread = _is_spread(snapshot)
    found = await search(Turn(snapshot, share=FIRST_SHARE if spread else 1.0))
    if not spread or (found.reached.status.proved and not _is_cut_short(found)):
        return found
    again = await search(Turn(snapshot, found.seconds, bound=found.packing.bound, in_zones=True))
    objective = found.built.problem.objective
    better = again.reached.after.key(objective) > found.reached.after.key(objective)
    return again if better else replace(found, seconds=again.seconds)


def _is_cut_short(found: Found) -> bool:
    """Tell whether the solver's own packing is better, and has no order."""
    objective = found.built.problem.objective
    return found.reached.after.key(objective) < found.packing.after.key(objective)


def _is_spread(snapshot: Snapshot) -> bool:
    return any(pod.constraints.spread for pod in snapshot.pods)


async def change_of(search: Search, found: Found, fleet: Fleet, seconds: float) -> FleetChange:
    """Say what a plan makes of the nodes, and, once the least is proved, what shut budgets cost each.

    Those are the PodDisruptionBudgets that keep most nodes; `seconds` is how long all searches may take together.
    """
    change = fleet_change(found.built, found.reached, found.plan, fleet)
    snapshot, taken = fleet.snapshot, found.seconds
    if found.reached.after.price > -found.packing.bound[len(found.reached.after.tiers)]:
        return change
    without: list[tuple[str, int]] = []
    exhausted = {Detail.BUDGET_EXHAUSTED.of(budget.title): budget for budget in snapshot.budgets}
    for budget in [exhausted[detail] for detail, _ in change.kept if detail in exhausted]:
        if len(without) == _MOST_LIFTED or seconds - taken < _LEAST_SECONDS:
            break
        budgets = tuple(one for one in snapshot.budgets if one is not budget)
        other = await search(Turn(replace(snapshot, budgets=budgets), taken, _LIFTED_SHARE))
        taken = other.seconds
        if other.reached.after.price < found.reached.after.price:
            nodes = fleet_change(other.built, other.reached, other.plan, fleet).nodes_after
            without.append((budget.title, nodes))
    return replace(change, without=tuple(without))
