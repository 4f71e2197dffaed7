"""Whether what a plan says of itself is what its stages do."""

from collections import Counter
from collections.abc import Iterator, Mapping

from cruise.decisions.packing.eviction_rules import (
    EvictionRules,
    find_exceeded_disruption_budgets,
    find_exceeded_eviction_budgets,
)
from cruise.decisions.packing.plan_replay import PlanReplay, PodNeed
from cruise.decisions.scheduling.placements import PodKey, get_pod_key, is_waiting_for_scheduling
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance, NodeCountChange, PackingProposal, PackingSizes
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import UnschedulableCode
from cruise.packer.answer import PackingStatus


def check_plan_figures(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    """Say where figures and status disagree with the stages, and which pods are left out or named twice."""
    yield from _find_forgotten(snapshot, proposal)
    yield from _find_wrong_lines(snapshot, proposal)
    yield from _find_wrong_status(snapshot, proposal)
    if proposal.node_count_change is not None:
        yield from _find_wrong_fleet(snapshot, proposal, proposal.node_count_change)


def _find_forgotten(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    fates = Counter(one.key for one in (*proposal.placed, *proposal.unplaced))
    waiting = {get_pod_key(pod) for pod in snapshot.pods if is_waiting_for_scheduling(pod)}
    held_back = {get_pod_key(pod) for pod in snapshot.pods if pod.node is None and not is_waiting_for_scheduling(pod)}
    for namespace, name in sorted(waiting - fates.keys()):
        yield f"pending pod {namespace}/{name} is neither placed nor unplaced"
    for namespace, name in sorted(fates.keys() - waiting - held_back):
        yield f"pod {namespace}/{name} is placed or unplaced, but was not pending"
    running = Counter(one.key for one in (*proposal.moves, *proposal.preempted))
    for namespace, name in sorted(key for key, many in (fates + running).items() if many > 1):
        yield f"pod {namespace}/{name} has more than one fate"
    for lost in proposal.unplaced:
        # Nothing stands in the way of a pod that merely was not placed in the time.
        if not lost.blocked_by and (lost.impossible or lost.reason.code is not UnschedulableCode.SCHEDULABLE):
            yield f"nothing is said of why pod {lost.namespace}/{lost.pod} stays pending"


def _find_wrong_lines(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    bound, after = _running(snapshot), _running_after(snapshot, proposal)
    listed = [line.priority for line in proposal.by_priority]
    if listed != sorted(set(listed), reverse=True):
        yield "by_priority is not one line a priority, the highest first"
    # A pod that nothing can place needs no line of its own.
    known = bound.keys() | after.keys()
    for priority in sorted(known - set(listed)):
        yield f"by_priority has no line for priority {priority}"
    for line in proposal.by_priority:
        if line.bound != bound[line.priority]:
            yield f"{bound[line.priority]} pods of priority {line.priority} run, not {line.bound}"
        if line.placed != after[line.priority]:
            yield f"{after[line.priority]} pods of priority {line.priority} are placed in the end, not {line.placed}"
        if line.maximum < line.placed:
            yield f"{line.placed} pods of priority {line.priority} are more than the most, {line.maximum}"


def _find_wrong_status(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Iterator[str]:
    improved = _improves(snapshot, proposal)
    if proposal.status in (PackingStatus.OPTIMAL, PackingStatus.FEASIBLE):
        if not improved:
            yield f"the status is {proposal.status}, but what runs now is as good"
    elif proposal.stages:
        yield f"the status is {proposal.status}, but something is done"
    if proposal.status.is_proved:
        for line in proposal.by_priority:
            if line.placed != line.maximum:
                yield f"{line.maximum} pods of priority {line.priority} are not ruled out, though the plan is proved"


def _improves(snapshot: ClusterSnapshot, proposal: PackingProposal) -> bool:
    """Tell whether the plan is better than what runs now, in the order that its sizes stand for."""
    bound, after = _running(snapshot), _running_after(snapshot, proposal)
    priorities = {get_pod_key(pod): pod.priority for pod in snapshot.pods}
    gone = Counter(priorities[one.key] for one in (*proposal.moves, *proposal.preempted))
    for priority in sorted(bound.keys() | after.keys(), reverse=True):
        if after[priority] != bound[priority]:
            return after[priority] > bound[priority]
        if gone[priority] and proposal.sizes is PackingSizes.FIXED and proposal.node_count_change is None:
            return False
    return proposal.node_count_change is not None and _is_cheaper(proposal.node_count_change)


def _is_cheaper(fleet: NodeCountChange) -> bool:
    if fleet.price_before is not None and fleet.price_after is not None:
        return fleet.price_after < fleet.price_before
    return fleet.nodes_after < fleet.nodes_before


def _find_wrong_fleet(snapshot: ClusterSnapshot, proposal: PackingProposal, fleet: NodeCountChange) -> Iterator[str]:
    places = {
        get_pod_key(pod): pod.node
        for pod in snapshot.pods
        if not (pod.is_finished or pod.mirror or pod.owner_kind == "DaemonSet")
    }
    nodes = {node.name for node in snapshot.nodes}
    before = {node for node in places.values() if node in nodes}
    for arrival in (*proposal.placed, *proposal.moves):
        if arrival.key in places:
            places[arrival.key] = arrival.target
    after = {node for node in places.values() if node in nodes}
    if (fleet.nodes_before, fleet.nodes_after) != (len(before), len(after)):
        yield f"{len(before)} nodes are in use and {len(after)} then, not {fleet.nodes_before} and {fleet.nodes_after}"
    if sorted(fleet.drained) != sorted(before - after):
        yield f"{len(before - after)} nodes are emptied, and other ones or {len(fleet.drained)} listed"
    if fleet.nodes_bound > fleet.nodes_after:
        yield f"{fleet.nodes_after} nodes are fewer than {fleet.nodes_bound}, the fewest"
    if proposal.preempted:
        yield "pods are preempted for fewer nodes"


def _running(snapshot: ClusterSnapshot) -> Counter[int]:
    """How many pods of each priority hold room on a node that is there."""
    nodes = {node.name for node in snapshot.nodes}
    return Counter(pod.priority for pod in snapshot.pods if pod.node in nodes and not pod.is_finished)


def _running_after(snapshot: ClusterSnapshot, proposal: PackingProposal) -> Counter[int]:
    priorities = {get_pod_key(pod): pod.priority for pod in snapshot.pods}
    after = _running(snapshot)
    for placed in proposal.placed:
        after[priorities[placed.key]] += 1
    for preempted in proposal.preempted:
        after[priorities[preempted.key]] -= 1
    return after


# The judge's whole opinion of a proposal.

FULL_MODE_POLICY = Policy(mode=Mode.FULL)
NO_STORED_OVERRIDES: StoredOverrides = {}


def find_plan_objections(
    snapshot: ClusterSnapshot,
    proposal: PackingProposal,
    *,
    demands: Mapping[PodKey, PodNeed] | None = None,
    policy: Policy = FULL_MODE_POLICY,
    stored: StoredOverrides = NO_STORED_OVERRIDES,
    allowance: EvictionAllowance = UNLIMITED,
) -> tuple[str, ...]:
    """Say what is wrong with a plan, a line each; none for a plan that may be carried out as it stands.

    The plan is replayed on the snapshot's own pods and nodes, stage by stage, against every filter of kube-scheduler
    and every rule on what cruise may evict. `demands` are those by (namespace, pod) of pods that are sized, from
    which each node's shared headroom is checked; a pod without one needs what it counts. `allowance` is what the
    eviction budgets leave to the whole plan.
    """
    strangers = _find_strangers(snapshot, proposal)
    if strangers:
        return strangers
    leaving = EvictionRules(snapshot, policy, stored)
    replay = PlanReplay(snapshot, proposal, leaving)
    replay.run()
    # What empties nodes goes on for hours: a budget allows again what it did once a replacement is ready.
    at_once = [replay.evicted] if proposal.node_count_change is None else replay.evicted_by_stage
    broken = [line for gone in at_once for line in find_exceeded_disruption_budgets(leaving, gone)]
    objections = [*replay.objections, *broken]
    objections += find_exceeded_eviction_budgets(allowance, replay.evicted)
    if demands is not None:
        objections += replay.find_headroom_shortages(demands)
    return (*objections, *check_plan_figures(snapshot, proposal))


def _find_strangers(snapshot: ClusterSnapshot, proposal: PackingProposal) -> tuple[str, ...]:
    known = {get_pod_key(pod) for pod in snapshot.pods}
    lists = (proposal.placed, proposal.moves, proposal.preempted, proposal.resizes, proposal.unplaced)
    named = {one.key for listed in lists for one in listed}
    return tuple(f"pod {namespace}/{name} does not exist" for namespace, name in sorted(named - known))
