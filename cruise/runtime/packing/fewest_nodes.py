"""The plan that needs the fewest nodes, searched for in turns: by any moves, within zones, and without what is shut."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from cruise.decisions.packing.building import Built
from cruise.decisions.packing.consolidating import Fleet, fleet_change
from cruise.decisions.packing.proposing.propose import CUT_SHORT
from cruise.domain.cluster import Snapshot
from cruise.domain.details import Detail, code_of
from cruise.domain.packing import FleetChange, Proposal
from cruise.packer.answer import Packing

# Of the time, for a plan that empties nodes by any moves, also between zones.
FIRST_SHARE = 0.25
# So many constraints are lifted one by one, each with a share of what time is left, if that is worth it.
_MOST_LIFTED, _LIFTED_SHARE, _LEAST_SECONDS = 3, 0.3, 0.5


@dataclass(frozen=True, slots=True)
class Found:
    """A packing, the plan that carries it out, and the seconds that solving has taken by then."""

    built: Built
    packing: Packing
    plan: Proposal
    seconds: float


@dataclass(frozen=True, slots=True)
class Turn:
    """A search in what is left of the time after `taken` seconds: in a share of that.

    With the `bound` of a plan by any moves, pods that are spread over zones stay in theirs.
    """

    snapshot: Snapshot
    taken: float = 0.0
    share: float = 1.0
    bound: tuple[int, ...] | None = None


Search = Callable[[Turn], Awaitable[Found]]


async def find_fewest_nodes(search: Search, snapshot: Snapshot) -> Found:
    """Return the best plan for a snapshot that has the nodes which could be ordered."""
    # Moves between zones mostly have no order: they are tried for a while, and say what no plan goes below.
    spread = any(pod.constraints.spread for pod in snapshot.pods)
    found = await search(Turn(snapshot, share=FIRST_SHARE if spread else 1.0))
    if not spread or (CUT_SHORT not in found.plan.notes and found.packing.status.proved):
        return found
    again = await search(Turn(snapshot, found.seconds, bound=found.packing.bound))
    objective = found.built.problem.objective
    better = again.packing.after.key(objective) > found.packing.after.key(objective)
    return again if better else replace(found, seconds=again.seconds)


async def change_of(search: Search, found: Found, fleet: Fleet, seconds: float) -> FleetChange:
    """Say what a plan makes of the nodes, and, once the least is proved, what shut budgets cost each.

    Those are the PodDisruptionBudgets that keep most nodes; `seconds` is how long all searches may take together.
    """
    change = fleet_change(found.built, found.packing, found.plan, fleet)
    snapshot, taken = fleet.snapshot, found.seconds
    if found.packing.after.price > -found.packing.bound[len(found.packing.after.tiers)]:
        return change
    without: list[tuple[str, int]] = []
    for name in [detail.partition(": ")[2] for detail, _ in change.kept if code_of(detail) is Detail.BUDGET_EXHAUSTED]:
        if len(without) == _MOST_LIFTED or seconds - taken < _LEAST_SECONDS:
            break
        budgets = tuple(one for one in snapshot.budgets if f"PodDisruptionBudget {one.namespace}/{one.name}" != name)
        other = await search(Turn(replace(snapshot, budgets=budgets), taken, _LIFTED_SHARE))
        taken = other.seconds
        if other.packing.after.price < found.packing.after.price:
            nodes = fleet_change(other.built, other.packing, other.plan, fleet).nodes_after
            without.append((name, nodes))
    return replace(change, without=tuple(without))
