"""What further plans would add to one that eviction budgets end."""

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from cruise.decisions.packing.execution.afterwards import budgets_spent, cluster_after
from cruise.domain.packing import UNLIMITED, Allowance, Budget, Go, Larger, Later, Proposal
from cruise.domain.unplaced import Pattern
from cruise.runtime.packing.planning import Scene
from cruise.runtime.writing.evictions import EvictionBudgets

# Of the time that a plan is searched for, beside it.
_LATER_SHARE = 0.5
# More are hardly ever waited for: the cluster will be another by then.
_MOST_GOES = 4
# Of the time that is left, for each of them; and the least that one is tried in.
_SHARE, _LEAST_SECONDS = 0.5, 0.2

# Plans for a scene in so many seconds; None where no plan comes of it.
Make = Callable[[Scene, float], Awaitable[Proposal | None]]


def whole_allowance(scene: Scene) -> Allowance:
    """Return what a plan may evict where nothing was evicted before it; pods that do not serve count all the same."""
    return EvictionBudgets(scene.snapshot, scene.policy, scene.usage.now).allowance(())


async def later_of(
    scene: Scene, proposal: Proposal, make: Make, seconds: float, monotonic: Callable[[], float] = time.monotonic
) -> Later | None:
    """Plan on from where a plan ends, for as long as that adds something, and half of the `seconds` of the plan last.

    None where the plan leaves no pod that budgets could have kept out.
    """
    waiting = {
        one.key for one in proposal.unplaced if not one.impossible and one.finding.pattern is not Pattern.NOT_JUDGED
    }
    spent = budgets_spent(scene.snapshot, proposal, scene.allowance)
    end, goes, larger = monotonic() + seconds * _LATER_SHARE, list[Go](), None
    # The same budgets again do for no other pod what they did not do for this plan.
    again = bool(spent) or scene.allowance != whole_allowance(scene)
    scene = replace(scene, snapshot=cluster_after(scene.snapshot, proposal))
    while again and waiting and len(goes) < _MOST_GOES and (left := end - monotonic()) > _LEAST_SECONDS:
        after = await make(replace(scene, allowance=whole_allowance(scene)), left * _SHARE)
        again = after is not None and bool(_placed(after, waiting))
        if after is not None and again:
            goes.append(Go(_placed(after, waiting), len(after.evicted)))
            waiting -= {one.key for one in after.placed}
            scene = replace(scene, snapshot=cluster_after(scene.snapshot, after))
    if waiting and not again and (left := end - monotonic()) > _LEAST_SECONDS:
        free = await make(replace(scene, allowance=UNLIMITED), left)
        larger = None if free is None or not _placed(free, waiting) else _larger(scene, free, waiting)
    return Later(spent, tuple(goes), larger) if goes or larger is not None else None


def _placed(proposal: Proposal, waiting: set[tuple[str, str]]) -> int:
    return sum(one.key in waiting for one in proposal.placed)


def _larger(scene: Scene, proposal: Proposal, waiting: set[tuple[str, str]]) -> Larger:
    policy, gone = scene.policy, [pod for pod in scene.snapshot.pods if pod.uid in proposal.evicted]
    of_nodes = Counter(pod.node for pod in gone)
    of_workloads = Counter((pod.namespace, pod.workload) for pod in gone)
    needs = (
        (Budget.HOUR, len(gone), policy.max_evictions_per_hour),
        (Budget.NODE, max(of_nodes.values(), default=0), policy.max_evictions_per_node),
        (Budget.WORKLOAD, max(of_workloads.values(), default=0), policy.max_evictions_per_workload),
    )
    more = tuple((budget, many) for budget, many, allowed in needs if many > allowed)
    return Larger(_placed(proposal, waiting), len(gone), more)
