"""The cluster once a plan is carried out, and which eviction budgets that plan uses up."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from cruise.decisions.guidance.covering import CoveringBudgets
from cruise.decisions.packing.execution.rest import anew
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.packing import Allowance, Budget, Proposal, Spent
from cruise.domain.sizes import sized


def cluster_after(snapshot: Snapshot, proposal: Proposal) -> Snapshot:
    """Return the cluster with every pod where a plan puts it, ready and as large as planned.

    Pods keep their names and uids, though replacements have others; disruption budgets allow what they allow now.
    """
    arrivals = {one.uid: one for one in (*proposal.placed, *proposal.moves)}
    gone = {one.uid for one in proposal.preempted}
    sizes = {one.uid: one.containers for one in proposal.resizes}
    pods = []
    for pod in snapshot.pods:
        one = arrivals.get(pod.uid)
        if one is not None:
            pods.append(_running(pod, one.target, one.containers or sizes.get(pod.uid, ())))
        elif pod.uid in gone:
            pods.append(replace(anew(pod), node=None, phase="Pending", ready=False))
        else:
            pods.append(sized(pod, sizes[pod.uid]) if pod.uid in sizes else pod)
    return replace(snapshot, pods=tuple(pods))


def budgets_spent(snapshot: Snapshot, proposal: Proposal, allowance: Allowance) -> tuple[Spent, ...]:
    """Return the budgets that a plan uses up where they hold others back; none that were spent before it."""
    leaving = proposal.evicted
    covering = CoveringBudgets(snapshot.budgets)
    gone, running = Counter[_Of](), Counter[_Of]()
    for pod in snapshot.pods if leaving else ():
        if pod.node is not None and not pod.terminal:
            budgets = _budgets_of(pod, pod.node, covering, allowance)
            running.update(budgets)
            gone.update(budgets if pod.uid in leaving else ())
    alike: dict[tuple[Budget, int], list[str]] = {}
    for one, many in gone.items():
        budget, name, allowed = one
        if allowed is not None and many >= allowed and running[one] > many:
            alike.setdefault((budget, allowed), []).extend([name] if name else ())
    return tuple(Spent(budget, tuple(sorted(names)), allowed) for (budget, allowed), names in sorted(alike.items()))


# A budget with the name of what it is of, empty for all, and how many evictions it allows, None for any number.
_Of = tuple[Budget, str, int | None]


def _budgets_of(pod: Pod, node: str, covering: CoveringBudgets, allowance: Allowance) -> list[_Of]:
    """Return the budgets against which an eviction of a pod from its node counts."""
    found: list[_Of] = [(Budget.HOUR, "", allowance.in_all), (Budget.NODE, node, allowance.on_node(node))]
    space, ref = pod.namespace, pod.workload
    if ref is not None:
        found.append((Budget.WORKLOAD, f"{ref.kind} {space}/{ref.name}", allowance.of_workload(space, ref)))
    return found + [(Budget.DISRUPTION, f"{space}/{one.name}", one.disruptions_allowed) for one in covering.of(pod)]


def _running(pod: Pod, node: str, containers: Sequence[ContainerTarget]) -> Pod:
    there = replace(anew(pod), node=node, phase="Running", ready=True, unschedulable_since=None, nominated_node="")
    return sized(there, containers)
