"""The cluster once a plan is carried out, and which eviction budgets that plan uses up."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.packing_plan import (
    EvictionAllowance,
    EvictionBudgetKind,
    PackingPlan,
    PackingProposal,
    PlannedPlacement,
    PlanStage,
    SpentBudget,
)
from cruise.domain.pod_resources import count_pod_requests, predict_actuated_pod, replace_spec_resources
from cruise.domain.resources import Resources

# What is left of a plan, and what its pods ask for.

PodsByUid = Mapping[str, Pod]


def index_pods_by_uid(snapshot: ClusterSnapshot) -> PodsByUid:
    """Return all pods by uid."""
    return {pod.uid: pod for pod in snapshot.pods}


def get_current_stage(plan: PackingPlan) -> PlanStage | None:
    """Return the stage that is being carried out, None where all are done."""
    stages = plan.proposal.stages
    return stages[plan.stage] if plan.stage < len(stages) else None


@dataclass(frozen=True, slots=True)
class PlanSubjects:
    """What is left of a plan counts on: nodes, pods by uid, workloads that it evicts from, and so many evictions."""

    nodes: frozenset[str] = frozenset()
    uids: frozenset[str] = frozenset()
    workloads: frozenset[tuple[str, WorkloadRef]] = frozenset()
    evictions: int = 0


def get_plan_subjects(plan: PackingPlan, snapshot: ClusterSnapshot) -> PlanSubjects:
    """Return what the stages that are left of a plan count on."""
    nodes: set[str | None] = set()
    uids: set[str] = set()
    for stage in plan.proposal.stages[plan.stage :]:
        nodes |= {one.node for one in stage.resizes} | {one.source for one in stage.evictions}
        nodes |= {one.target for one in stage.arrivals}
        uids |= {one.uid for one in (*stage.resizes, *stage.evictions, *stage.arrivals)}
    departed = {one.uid for one in plan.evicted}
    leaving = {one.uid for stage in plan.proposal.stages[plan.stage :] for one in stage.evictions} - departed
    refs = {(pod.namespace, pod.workload) for pod in snapshot.pods if pod.uid in leaving and pod.workload is not None}
    return PlanSubjects(
        frozenset(node for node in nodes if node is not None), frozenset(uids), frozenset(refs), len(leaving)
    )


def get_arrival_sizes(stage: PlanStage, arrival: PlannedPlacement) -> tuple[ContainerTarget, ...]:
    """Return what a pod is to ask for where it arrives: its own sizes, or those of its resize before; none as it is."""
    return arrival.containers or next((one.containers for one in stage.resizes if one.uid == arrival.uid), ())


def has_sizes(pod: Pod, containers: Sequence[ContainerTarget]) -> bool:
    """Tell whether a pod's spec has these sizes."""
    spec = {one.name: (one.requests, one.limits) for one in pod.containers}
    wanted = {one.container: (one.requests, one.limits) for one in containers}
    # None wants nothing.
    return wanted.keys() <= spec.keys() and all(
        amounts.with_defaults(stated) == stated
        for name in wanted
        for amounts, stated in zip(wanted[name], spec[name], strict=True)
    )


def count_arrival_requests(pod: Pod, containers: Sequence[ContainerTarget] = ()) -> Resources:
    """Return what a pod counts where it arrives, with these sizes: nothing of it runs there yet."""
    return count_pod_requests(replace_spec_resources(replace(reset_kubelet_status(pod), phase="Pending"), containers))


def reset_kubelet_status(pod: Pod) -> Pod:
    """Return the pod as a new one of its kind: no kubelet has given it anything."""
    return replace(
        pod, containers=tuple(replace(container, allocated=None, actual=None) for container in pod.containers)
    )


def predict_cluster_after_plan(snapshot: ClusterSnapshot, proposal: PackingProposal) -> ClusterSnapshot:
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
            pods.append(replace(reset_kubelet_status(pod), node=None, phase="Pending", ready=False))
        else:
            pods.append(predict_actuated_pod(pod, sizes[pod.uid]) if pod.uid in sizes else pod)
    return replace(snapshot, pods=tuple(pods))


def find_spent_budgets(
    snapshot: ClusterSnapshot, proposal: PackingProposal, allowance: EvictionAllowance
) -> tuple[SpentBudget, ...]:
    """Return the budgets that a plan uses up where they hold others back; none that were spent before it."""
    leaving = proposal.evicted
    covering = DisruptionBudgetIndex(snapshot.budgets)
    gone, running = Counter[_Of](), Counter[_Of]()
    for pod in snapshot.pods if leaving else ():
        if pod.node is not None and not pod.is_finished:
            budgets = _budgets_of(pod, pod.node, covering, allowance)
            running.update(budgets)
            gone.update(budgets if pod.uid in leaving else ())
    alike: dict[tuple[EvictionBudgetKind, int], list[str]] = {}
    for one, many in gone.items():
        budget, name, allowed = one
        if allowed is not None and many >= allowed and running[one] > many:
            alike.setdefault((budget, allowed), []).extend([name] if name else ())
    return tuple(
        SpentBudget(budget, tuple(sorted(names)), allowed) for (budget, allowed), names in sorted(alike.items())
    )


# A budget with the name of what it is of, empty for all, and how many evictions it allows, None for any number.
_Of = tuple[EvictionBudgetKind, str, int | None]


def _budgets_of(pod: Pod, node: str, covering: DisruptionBudgetIndex, allowance: EvictionAllowance) -> list[_Of]:
    """Return the budgets against which an eviction of a pod from its node counts."""
    found: list[_Of] = [
        (EvictionBudgetKind.HOUR, "", allowance.total),
        (EvictionBudgetKind.NODE, node, allowance.get_for_node(node)),
    ]
    space, ref = pod.namespace, pod.workload
    if ref is not None:
        found.append(
            (EvictionBudgetKind.WORKLOAD, f"{ref.kind} {space}/{ref.name}", allowance.get_for_workload(space, ref))
        )
    return found + [
        (EvictionBudgetKind.DISRUPTION, f"{space}/{one.name}", one.disruptions_allowed)
        for one in covering.find_for_pod(pod)
    ]


def _running(pod: Pod, node: str, containers: Sequence[ContainerTarget]) -> Pod:
    there = replace(
        reset_kubelet_status(pod), node=node, phase="Running", ready=True, unschedulable_since=None, nominated_node=""
    )
    return predict_actuated_pod(there, containers)
