"""The cluster once a plan is carried out, and which eviction budgets that plan uses up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cruise.decisions.guidance.covering import CoveringBudgets
from cruise.decisions.packing.execution.rest import anew
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
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
    gone, running = Counter[_Key](), Counter[_Key]()
    for pod in snapshot.pods if leaving else ():
        if pod.node is not None and not pod.terminal:
            keys = _budgets_of(pod, covering)
            running.update(keys)
            gone.update(keys if pod.uid in leaving else ())
    disruptions = {(one.namespace, one.name): one.disruptions_allowed for one in snapshot.budgets}
    alike: dict[tuple[Budget, int], list[str]] = {}
    for key, many in gone.items():
        allowed = _allowed(key, allowance, disruptions)
        if allowed is not None and many >= allowed and running[key] > many:
            alike.setdefault((key[0], allowed), []).extend(_name(key))
    return tuple(Spent(budget, tuple(sorted(names)), allowed) for (budget, allowed), names in sorted(alike.items()))


# A budget with what it is of: a node, the namespace and the workload or PodDisruptionBudget, or nothing more.
_Key = tuple[Budget, str, str | WorkloadRef]


def _budgets_of(pod: Pod, covering: CoveringBudgets) -> list[_Key]:
    """Return the budgets against which an eviction of a pod counts."""
    keys: list[_Key] = [(Budget.HOUR, "", ""), (Budget.NODE, "", pod.node or "")]
    if pod.workload is not None:
        keys.append((Budget.WORKLOAD, pod.namespace, pod.workload))
    return [*keys, *((Budget.DISRUPTION, one.namespace, one.name) for one in covering.of(pod))]


def _allowed(key: _Key, allowance: Allowance, disruptions: Mapping[tuple[str, str], int]) -> int | None:
    match key:
        case (Budget.NODE, _, str(node)):
            return allowance.on_node(node)
        case (Budget.WORKLOAD, namespace, WorkloadRef() as ref):
            return allowance.of_workload(namespace, ref)
        case (Budget.DISRUPTION, namespace, str(name)):
            return disruptions[namespace, name]
        case _:
            return allowance.in_all


def _name(key: _Key) -> tuple[str, ...]:
    _, namespace, of = key
    if isinstance(of, WorkloadRef):
        return (f"{of.kind} {namespace}/{of.name}",)
    return (f"{namespace}/{of}" if namespace else of,) if of else ()


def _running(pod: Pod, node: str, containers: Sequence[ContainerTarget]) -> Pod:
    there = replace(anew(pod), node=node, phase="Running", ready=True, unschedulable_since=None, nominated_node="")
    return sized(there, containers)
