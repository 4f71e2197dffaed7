"""Verifies a plan: its stages against kube-scheduler and the eviction rules, and its figures against its stages."""

from collections import Counter
from collections.abc import Iterator, Mapping

from cruise.decisions.packing.eviction_rules import (
    EvictionRules,
    find_exceeded_disruption_budgets,
    find_exceeded_eviction_budgets,
)
from cruise.decisions.packing.plan_replay import BaseAndHeadroom, PlanReplay
from cruise.decisions.scheduling.placements import PodKey, get_pod_key, is_waiting_for_scheduling
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance, NodeCountChange, PackingProposal, PackingSizes
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import UnschedulableCode
from cruise.packer.answer import PackingStatus


def check_plan_figures(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    """Yield where figures and status disagree with the stages, and which pods are missing or listed twice."""
    yield from _find_missing_pods(snapshot, proposal)
    yield from _find_wrong_priorities(snapshot, proposal)
    yield from _find_wrong_status(snapshot, proposal)
    if proposal.node_count_change is not None:
        yield from _find_wrong_node_counts(snapshot, proposal, proposal.node_count_change)


def _find_missing_pods(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    outcomes = Counter(one.key for one in (*proposal.placed, *proposal.unplaced))
    pending = {get_pod_key(pod) for pod in snapshot.pods if is_waiting_for_scheduling(pod)}
    not_schedulable = {
        get_pod_key(pod) for pod in snapshot.pods if pod.node is None and not is_waiting_for_scheduling(pod)
    }
    for namespace, name in sorted(pending - outcomes.keys()):
        yield f"pending pod {namespace}/{name} is neither placed nor unplaced"
    for namespace, name in sorted(outcomes.keys() - pending - not_schedulable):
        yield f"pod {namespace}/{name} is placed or unplaced, but was not pending"
    evicted = Counter(one.key for one in (*proposal.moves, *proposal.preempted))
    for namespace, name in sorted(key for key, count in (outcomes + evicted).items() if count > 1):
        yield f"pod {namespace}/{name} is listed more than once"
    for unplaced in proposal.unplaced:
        # A pod that was only not placed in time has no obstacle.
        if not unplaced.blocked_by and (
            unplaced.impossible or unplaced.reason.code is not UnschedulableCode.SCHEDULABLE
        ):
            yield f"pod {unplaced.namespace}/{unplaced.pod} stays pending without a reason"


def _find_wrong_priorities(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    running, running_after = _count_running(snapshot), _count_running_after(snapshot, proposal)
    listed = [line.priority for line in proposal.by_priority]
    if listed != sorted(set(listed), reverse=True):
        yield "by_priority is not one line a priority, the highest first"
    # A priority of which no pod can be placed needs no line.
    priorities = running.keys() | running_after.keys()
    for priority in sorted(priorities - set(listed)):
        yield f"by_priority has no line for priority {priority}"
    for line in proposal.by_priority:
        if line.running != running[line.priority]:
            yield f"{running[line.priority]} pods of priority {line.priority} run, not {line.running}"
        if line.placed != running_after[line.priority]:
            count = running_after[line.priority]
            yield f"{count} pods of priority {line.priority} are placed in the end, not {line.placed}"
        if line.maximum < line.placed:
            yield f"{line.placed} pods of priority {line.priority} are more than the most, {line.maximum}"


def _find_wrong_status(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    improved = _is_improvement(snapshot, proposal)
    if proposal.status in (PackingStatus.OPTIMAL, PackingStatus.FEASIBLE):
        if not improved:
            yield f"the status is {proposal.status}, but what runs now is as good"
    elif proposal.stages:
        yield f"the status is {proposal.status}, but something is done"
    if proposal.status.is_proved:
        for line in proposal.by_priority:
            if line.placed != line.maximum:
                yield f"{line.maximum} pods of priority {line.priority} are not ruled out, though the plan is proved"


def _is_improvement(snapshot: ClusterSnapshot, proposal: PackingProposal) -> bool:
    """Return whether the plan is better than the present state, by the objective of its sizes."""
    running, running_after = _count_running(snapshot), _count_running_after(snapshot, proposal)
    priorities = {get_pod_key(pod): pod.priority for pod in snapshot.pods}
    evicted = Counter(priorities[one.key] for one in (*proposal.moves, *proposal.preempted))
    for priority in sorted(running.keys() | running_after.keys(), reverse=True):
        if running_after[priority] != running[priority]:
            return running_after[priority] > running[priority]
        if evicted[priority] and proposal.sizes is PackingSizes.FIXED and proposal.node_count_change is None:
            return False
    return proposal.node_count_change is not None and _is_cheaper(proposal.node_count_change)


def _is_cheaper(change: NodeCountChange) -> bool:
    if change.price_before is not None and change.price_after is not None:
        return change.price_after < change.price_before
    return change.nodes_after < change.nodes_before


def _find_wrong_node_counts(
    snapshot: ClusterSnapshot, proposal: PackingProposal, change: NodeCountChange
) -> Iterator[str]:
    node_of_pod = {
        get_pod_key(pod): pod.node
        for pod in snapshot.pods
        if not (pod.is_finished or pod.is_mirror_pod or pod.owner_kind == "DaemonSet")
    }
    nodes = {node.name for node in snapshot.nodes}
    before = {node for node in node_of_pod.values() if node in nodes}
    for arrival in (*proposal.placed, *proposal.moves):
        if arrival.key in node_of_pod:
            node_of_pod[arrival.key] = arrival.target
    after = {node for node in node_of_pod.values() if node in nodes}
    if (change.nodes_before, change.nodes_after) != (len(before), len(after)):
        stated = f"{change.nodes_before} and {change.nodes_after}"
        yield f"{len(before)} nodes are in use and {len(after)} then, not {stated}"
    if sorted(change.drained) != sorted(before - after):
        yield f"{len(before - after)} nodes are drained, and other ones or {len(change.drained)} listed"
    if change.nodes_bound > change.nodes_after:
        yield f"{change.nodes_after} nodes are fewer than {change.nodes_bound}, the fewest"
    if proposal.preempted:
        yield "pods are preempted to drain nodes"


def _count_running(snapshot: ClusterSnapshot) -> Counter[int]:
    """Return how many pods of each priority are bound to known nodes."""
    nodes = {node.name for node in snapshot.nodes}
    return Counter(pod.priority for pod in snapshot.pods if pod.node in nodes and not pod.is_finished)


def _count_running_after(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Counter[int]:
    priorities = {get_pod_key(pod): pod.priority for pod in snapshot.pods}
    after = _count_running(snapshot)
    for placed in proposal.placed:
        after[priorities[placed.key]] += 1
    for preempted in proposal.preempted:
        after[priorities[preempted.key]] -= 1
    return after


FULL_MODE_POLICY = Policy(mode=Mode.FULL)


def find_plan_objections(
    snapshot: ClusterSnapshot,
    proposal: PackingProposal,
    *,
    demands: Mapping[PodKey, BaseAndHeadroom] | None = None,
    policy: Policy = FULL_MODE_POLICY,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
    allowance: EvictionAllowance = UNLIMITED,
) -> tuple[str, ...]:
    """Return what is wrong with a plan, one line each; empty if it may be carried out as it is.

    The plan is replayed on the snapshot stage by stage, against kube-scheduler's filters and the rules about evictions.
    With `demands`, by (namespace, pod), the shared headroom of each node is checked; a pod without one needs its
    requests. `allowance` is what the eviction budgets leave to the whole plan.
    """
    unknown = _find_unknown_pods(snapshot, proposal)
    if unknown:
        return unknown
    eviction_rules = EvictionRules(snapshot, policy, paused_workloads)
    replay = PlanReplay(snapshot, proposal, eviction_rules)
    replay.run()
    # Consolidation takes hours, and a budget allows the next eviction once a replacement is ready.
    simultaneous = [replay.evicted] if proposal.node_count_change is None else replay.evicted_by_stage
    exceeded = [line for evicted in simultaneous for line in find_exceeded_disruption_budgets(eviction_rules, evicted)]
    objections = [*replay.objections, *exceeded]
    objections += find_exceeded_eviction_budgets(allowance, replay.evicted)
    if demands is not None:
        objections += replay.find_headroom_shortages(demands)
    return (*objections, *check_plan_figures(snapshot, proposal))


def _find_unknown_pods(snapshot: ClusterSnapshot, proposal: PackingProposal) -> tuple[str, ...]:
    known = {get_pod_key(pod) for pod in snapshot.pods}
    lists = (proposal.placed, proposal.moves, proposal.preempted, proposal.resizes, proposal.unplaced)
    named = {one.key for listed in lists for one in listed}
    return tuple(f"pod {namespace}/{name} does not exist" for namespace, name in sorted(named - known))
