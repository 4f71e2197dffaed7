"""Whether what a plan says of itself is what its stages do."""

from collections import Counter
from collections.abc import Iterator

from cruise.decisions.scheduling.board import key_of, waits_for_a_node
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import FleetChange, Proposal, Sizes
from cruise.domain.unplaced import Pattern
from cruise.packer.answer import Status


def find_wrong_accounts(snapshot: Snapshot, proposal: Proposal) -> Iterator[str]:
    """Say where figures and status disagree with the stages, and which pods are left out or named twice."""
    yield from _find_forgotten(snapshot, proposal)
    yield from _find_wrong_lines(snapshot, proposal)
    yield from _find_wrong_status(snapshot, proposal)
    if proposal.fleet is not None:
        yield from _find_wrong_fleet(snapshot, proposal, proposal.fleet)


def _find_forgotten(snapshot: Snapshot, proposal: Proposal) -> Iterator[str]:
    fates = Counter(one.key for one in (*proposal.placed, *proposal.unplaced))
    waiting = {key_of(pod) for pod in snapshot.pods if waits_for_a_node(pod)}
    held_back = {key_of(pod) for pod in snapshot.pods if pod.node is None and not waits_for_a_node(pod)}
    for namespace, name in sorted(waiting - fates.keys()):
        yield f"pending pod {namespace}/{name} is neither placed nor unplaced"
    for namespace, name in sorted(fates.keys() - waiting - held_back):
        yield f"pod {namespace}/{name} is placed or unplaced, but was not pending"
    running = Counter(one.key for one in (*proposal.moves, *proposal.preempted))
    for namespace, name in sorted(key for key, many in (fates + running).items() if many > 1):
        yield f"pod {namespace}/{name} has more than one fate"
    for lost in proposal.unplaced:
        # Nothing stands in the way of a pod that merely was not placed in the time.
        if not lost.blocked_by and (lost.impossible or lost.finding.pattern is not Pattern.OPEN):
            yield f"nothing is said of why pod {lost.namespace}/{lost.pod} stays pending"


def _find_wrong_lines(snapshot: Snapshot, proposal: Proposal) -> Iterator[str]:
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
        if line.most < line.placed:
            yield f"{line.placed} pods of priority {line.priority} are more than the most, {line.most}"


def _find_wrong_status(snapshot: Snapshot, proposal: Proposal) -> Iterator[str]:
    improved = _improves(snapshot, proposal)
    if proposal.status in (Status.OPTIMAL, Status.FEASIBLE):
        if not improved:
            yield f"the status is {proposal.status}, but what runs now is as good"
    elif proposal.stages:
        yield f"the status is {proposal.status}, but something is done"
    if proposal.status.proved:
        for line in proposal.by_priority:
            if line.placed != line.most:
                yield f"{line.most} pods of priority {line.priority} are not ruled out, though the plan is proved"


def _improves(snapshot: Snapshot, proposal: Proposal) -> bool:
    """Tell whether the plan is better than what runs now, in the order that its sizes stand for."""
    bound, after = _running(snapshot), _running_after(snapshot, proposal)
    priorities = {key_of(pod): pod.priority for pod in snapshot.pods}
    gone = Counter(priorities[one.key] for one in (*proposal.moves, *proposal.preempted))
    for priority in sorted(bound.keys() | after.keys(), reverse=True):
        if after[priority] != bound[priority]:
            return after[priority] > bound[priority]
        if gone[priority] and proposal.sizes is Sizes.FIXED and proposal.fleet is None:
            return False
    return proposal.fleet is not None and _is_cheaper(proposal.fleet)


def _is_cheaper(fleet: FleetChange) -> bool:
    if fleet.price_before is not None and fleet.price_after is not None:
        return fleet.price_after < fleet.price_before
    return fleet.nodes_after < fleet.nodes_before


def _find_wrong_fleet(snapshot: Snapshot, proposal: Proposal, fleet: FleetChange) -> Iterator[str]:
    places = {
        key_of(pod): pod.node
        for pod in snapshot.pods
        if not (pod.terminal or pod.mirror or pod.owner_kind == "DaemonSet")
    }
    nodes = {node.name for node in snapshot.nodes}
    before = {node for node in places.values() if node in nodes}
    for arrival in (*proposal.placed, *proposal.moves):
        if arrival.key in places:
            places[arrival.key] = arrival.target
    after = {node for node in places.values() if node in nodes}
    if (fleet.nodes_before, fleet.nodes_after) != (len(before), len(after)):
        yield f"{len(before)} nodes are in use and {len(after)} then, not {fleet.nodes_before} and {fleet.nodes_after}"
    if sorted(fleet.emptied) != sorted(before - after):
        yield f"{len(before - after)} nodes are emptied, and other ones or {len(fleet.emptied)} listed"
    if fleet.nodes_bound > fleet.nodes_after:
        yield f"{fleet.nodes_after} nodes are fewer than {fleet.nodes_bound}, the fewest"
    if proposal.preempted:
        yield "pods are preempted for fewer nodes"


def _running(snapshot: Snapshot) -> Counter[int]:
    """How many pods of each priority hold room on a node that is there."""
    nodes = {node.name for node in snapshot.nodes}
    return Counter(pod.priority for pod in snapshot.pods if pod.node in nodes and not pod.terminal)


def _running_after(snapshot: Snapshot, proposal: Proposal) -> Counter[int]:
    priorities = {key_of(pod): pod.priority for pod in snapshot.pods}
    after = _running(snapshot)
    for placed in proposal.placed:
        after[priorities[placed.key]] += 1
    for preempted in proposal.preempted:
        after[priorities[preempted.key]] -= 1
    return after
