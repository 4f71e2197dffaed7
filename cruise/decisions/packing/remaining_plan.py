"""Predicts the sizes and the cluster that a plan leads to, and what its remaining stages depend on."""

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
from cruise.domain.pod_resources import (
    count_pod_requests,
    predict_actuated_pod,
    replace_spec_resources,
    reset_kubelet_status,
)
from cruise.domain.resources import Resources

PodsByUid = Mapping[str, Pod]


def index_pods_by_uid(snapshot: ClusterSnapshot) -> PodsByUid:
    """Return all pods by uid."""
    return {pod.uid: pod for pod in snapshot.pods}


def get_current_stage(plan: PackingPlan) -> PlanStage | None:
    """Return the stage that is being carried out; None if all are done."""
    stages = plan.proposal.stages
    return stages[plan.stage] if plan.stage < len(stages) else None


@dataclass(frozen=True, slots=True)
class PlanDependencies:
    """What the remaining stages depend on: nodes, uids of pods, workloads with evictions, the number of evictions."""

    nodes: frozenset[str] = frozenset()
    uids: frozenset[str] = frozenset()
    workloads: frozenset[tuple[str, WorkloadRef]] = frozenset()
    evictions: int = 0


def get_plan_dependencies(plan: PackingPlan, snapshot: ClusterSnapshot) -> PlanDependencies:
    """Return what the remaining stages of a plan depend on."""
    nodes: set[str | None] = set()
    uids: set[str] = set()
    for stage in plan.proposal.stages[plan.stage :]:
        nodes |= {one.node for one in stage.resizes} | {one.source for one in stage.evictions}
        nodes |= {one.target for one in stage.arrivals}
        uids |= {one.uid for one in (*stage.resizes, *stage.evictions, *stage.arrivals)}
    evicted = {one.uid for one in plan.evicted}
    leaving = {one.uid for stage in plan.proposal.stages[plan.stage :] for one in stage.evictions} - evicted
    workloads = {
        (pod.namespace, pod.workload) for pod in snapshot.pods if pod.uid in leaving and pod.workload is not None
    }
    return PlanDependencies(
        frozenset(node for node in nodes if node is not None), frozenset(uids), frozenset(workloads), len(leaving)
    )


def get_arrival_sizes(stage: PlanStage, arrival: PlannedPlacement) -> tuple[ContainerTarget, ...]:
    """Return the planned sizes of an arrival: its own, or those of its resize before; empty if it keeps its sizes."""
    return arrival.containers or next((one.containers for one in stage.resizes if one.uid == arrival.uid), ())


def has_spec_sizes(pod: Pod, containers: Sequence[ContainerTarget]) -> bool:
    """Return whether a pod's spec has these sizes."""
    spec = {part.name: (part.requests, part.limits) for part in pod.resizable_parts}
    targets = {container.container: (container.requests, container.limits) for container in containers}
    # None leaves a value as it is.
    return targets.keys() <= spec.keys() and all(
        amounts.with_defaults(stated) == stated
        for name in targets
        for amounts, stated in zip(targets[name], spec[name], strict=True)
    )


def count_arrival_requests(pod: Pod, containers: Sequence[ContainerTarget] = ()) -> Resources:
    """Return what a pod counts on arrival with these sizes, before a kubelet reports anything."""
    return count_pod_requests(replace_spec_resources(replace(reset_kubelet_status(pod), phase="Pending"), containers))


def predict_cluster_after_plan(snapshot: ClusterSnapshot, proposal: PackingProposal) -> ClusterSnapshot:
    """Return the cluster with every pod where a plan places it, ready and with its planned sizes.

    Pods keep their names and uids, though replacements have others; disruption budgets allow what they allow now.
    """
    arrivals = {arrival.uid: arrival for arrival in (*proposal.placed, *proposal.moves)}
    preempted = {arrival.uid for arrival in proposal.preempted}
    sizes = {arrival.uid: arrival.containers for arrival in proposal.resizes}
    pods = []
    for pod in snapshot.pods:
        arrival = arrivals.get(pod.uid)
        if arrival is not None:
            pods.append(_predict_running(pod, arrival.target, arrival.containers or sizes.get(pod.uid, ())))
        elif pod.uid in preempted:
            pods.append(replace(reset_kubelet_status(pod), node=None, phase="Pending", ready=False))
        else:
            pods.append(predict_actuated_pod(pod, sizes[pod.uid]) if pod.uid in sizes else pod)
    return replace(snapshot, pods=tuple(pods))


def find_spent_budgets(
    snapshot: ClusterSnapshot, proposal: PackingProposal, allowance: EvictionAllowance
) -> tuple[SpentBudget, ...]:
    """Return the budgets that a plan uses up while other pods could still be evicted."""
    evicted_uids = proposal.evicted
    disruption_budgets = DisruptionBudgetIndex(snapshot.budgets)
    evicted, running = Counter[_BudgetKey](), Counter[_BudgetKey]()
    for pod in snapshot.pods if evicted_uids else ():
        if pod.node is not None and not pod.is_finished:
            budgets = _list_budgets(pod, pod.node, disruption_budgets, allowance)
            running.update(budgets)
            evicted.update(budgets if pod.uid in evicted_uids else ())
    names_by_budget: dict[tuple[EvictionBudgetKind, int], list[str]] = {}
    for budget_key, count in evicted.items():
        kind, name, allowed = budget_key
        if allowed is not None and count >= allowed and running[budget_key] > count:
            names_by_budget.setdefault((kind, allowed), []).extend([name] if name else ())
    return tuple(
        SpentBudget(kind, tuple(sorted(names)), allowed) for (kind, allowed), names in sorted(names_by_budget.items())
    )


# The kind of a budget, the object it is for (empty: the cluster), and how many evictions it allows; None for any
# number.
_BudgetKey = tuple[EvictionBudgetKind, str, int | None]


def _list_budgets(
    pod: Pod, node: str, disruption_budgets: DisruptionBudgetIndex, allowance: EvictionAllowance
) -> list[_BudgetKey]:
    """Return the budgets against which an eviction of a pod from its node counts."""
    budgets: list[_BudgetKey] = [
        (EvictionBudgetKind.HOUR, "", allowance.total),
        (EvictionBudgetKind.NODE, node, allowance.get_for_node(node)),
    ]
    namespace, ref = pod.namespace, pod.workload
    if ref is not None:
        budgets.append(
            (
                EvictionBudgetKind.WORKLOAD,
                f"{ref.kind} {namespace}/{ref.name}",
                allowance.get_for_workload(namespace, ref),
            )
        )
    return budgets + [
        (EvictionBudgetKind.DISRUPTION, f"{namespace}/{budget.name}", budget.disruptions_allowed)
        for budget in disruption_budgets.find_for_pod(pod)
    ]


def _predict_running(pod: Pod, node: str, containers: Sequence[ContainerTarget]) -> Pod:
    running = replace(
        reset_kubelet_status(pod), node=node, phase="Running", ready=True, unschedulable_since=None, nominated_node=""
    )
    return predict_actuated_pod(running, containers)
