"""Where the pods of a stage are: those that wait, and those that come in place of evicted ones."""

from collections.abc import Sequence
from dataclasses import replace

from cruise.decisions.packing.execution.rest import PodsByUid, need_of, pods_of, sizes_of
from cruise.domain.actions import ResizePod
from cruise.domain.annotations import STEERED
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.packing import Arrival, Landing, PackingPlan, Preemption, Proposal, Stage, Steering


def steered_note(one: Steering) -> str:
    """Return what is written down on a pod that is steered."""
    return f"{one.replaces} {one.node}"


def who_left(plan: PackingPlan, stage: Stage, pods: PodsByUid) -> frozenset[str]:
    """Return the uids of pods evicted in the present stage, or gone by themselves when that was about to begin."""
    departed = {departure.uid for departure in plan.departed}
    if plan.ready_at is not None:
        # After a restart it may not be known which pod was evicted last.
        leaving = {leave.uid for leave in stage.leaves} | {one.replaces for one in plan.expected}
        departed |= {uid for uid in leaving if uid not in pods or pods[uid].terminating}
    return frozenset(departed)


class Places:
    """The arrivals of a stage and the pods that they have become."""

    def __init__(self, plan: PackingPlan, stage: Stage, snapshot: Snapshot) -> None:
        self.pods = pods_of(snapshot)
        self.left = who_left(plan, stage, self.pods)
        self.evicting = any(leave.uid in self.left for leave in stage.leaves)
        self._plan = plan
        self._stage = stage
        self._become: dict[str, Pod] = {}
        self._instead = _find_instead(plan, self.pods)
        self._find_known()
        self._find_new(snapshot.pods)

    @property
    def landed(self) -> tuple[Landing, ...]:
        """What has come in whose place, in the order of arrival."""
        found = ((one, self.pod_of(one)) for one in self._stage.arrivals)
        return tuple(
            Landing(one.uid, pod.uid, pod.node)
            for one, pod in found
            if pod is not None and (pod.node is not None or one.uid in self.left)
        )

    def pod_of(self, arrival: Arrival) -> Pod | None:
        """Return the pod that an arrival is now, None where it is not replaced yet, or is gone.

        For one that waited that may be another that waited as well, and that kube-scheduler took first.
        """
        if arrival.uid in self.left:
            return self._become.get(arrival.uid)
        if arrival.source is not None:
            return None
        return self._instead.get(arrival.uid) or self.pods.get(arrival.uid)

    def node_of(self, arrival: Arrival) -> str | None:
        """Return the node that an arrival is bound to, None while it is to none."""
        pod = self.pod_of(arrival)
        return None if pod is None else pod.node

    def pictured(self, arrival: Arrival) -> Pod | None:
        """Return the pod that an arrival is now, or the one in whose place it comes as long as that one is known."""
        return self.pod_of(arrival) or self.pods.get(arrival.uid)

    def all_gone(self) -> bool:
        """Tell whether no pod that left holds room any more."""
        return not any(uid in self.pods for uid in self.left)

    def still_to_leave(self) -> list[Arrival | Preemption]:
        """Return the pods that have not left yet, in the plan's order."""
        return [leave for leave in self._stage.leaves if leave.uid not in self.left]

    def still_to_recreate(self) -> list[Arrival]:
        """Return the pending pods that are to be created anew and are not yet."""
        expected = {one.replaces for one in self._plan.expected}
        return [
            one
            for one in self._stage.arrivals
            if one.source is None and one.uid in expected and one.uid not in self.left and self._waits(one)
        ]

    def _waits(self, arrival: Arrival) -> bool:
        """Tell whether a pod that is to be created anew waits still, and no other has come in its place."""
        own = self.pods.get(arrival.uid)
        return (own is None or own.node is None) and self.node_of(arrival) is None

    def _find_known(self) -> None:
        for landing in self._plan.landed:
            pod = self.pods.get(landing.by)
            if pod is not None and _counts(pod) and landing.uid != landing.by:
                self._become[landing.uid] = pod

    def _find_new(self, pods: Sequence[Pod]) -> None:
        """Take pods annotated as replacements, then those that came since and that no other plan entry expects."""
        waited_for = [
            one for one in self._plan.expected if one.replaces in self.left and one.replaces not in self._become
        ]
        if not waited_for:
            return
        before = set(self._plan.bystanders) | {pod.uid for pod in self._become.values()}
        new = [pod for pod in pods if pod.uid not in before and pod.owner_name is not None and _counts(pod)]
        notes = {steered_note(one) for one in self._plan.expected}
        for one in waited_for:
            theirs = [pod for pod in new if _could_replace(pod, one)]
            marked = [pod for pod in theirs if pod.annotations.get(STEERED) == steered_note(one)]
            unmarked = [pod for pod in theirs if pod.annotations.get(STEERED) not in notes]
            for pod in (*marked, *unmarked)[:1]:
                self._become[one.replaces] = pod
                new.remove(pod)


def _find_instead(plan: PackingPlan, pods: PodsByUid) -> dict[str, Pod]:
    """Return the pods that stand for arrivals which waited, since kube-scheduler took another one first.

    On the node of an arrival that may be a pod that the plan leaves out, or one of a later stage, for which the one
    that is named then stands in turn. Each is as important and no larger, so that as much is gained and no less room
    is left.
    """
    stages = plan.proposal.stages
    waiting = {
        one.uid: (number, one) for number, stage in enumerate(stages) for one in stage.arrivals if one.source is None
    }
    left_out = {one.key for one in plan.proposal.unplaced}
    came: dict[str, list[Pod]] = {}
    for pod in pods.values() if waiting else ():
        if pod.node is not None and _counts(pod) and (pod.uid in waiting or (pod.namespace, pod.name) in left_out):
            came.setdefault(pod.node, []).append(pod)
    found: dict[str, Pod] = {}
    for number, stage in enumerate(stages[: plan.stage + 1] if came else ()):
        for one in stage.arrivals:
            named = (found.get(one.uid) or pods.get(one.uid)) if one.source is None else None
            if named is None or named.node is not None:
                continue
            need = need_of(named, sizes_of(stage, one))
            for pod in came.get(one.target, ()):
                at, later = waiting.get(pod.uid, (len(stages), None))
                if at <= number or pod.priority < named.priority or not need_of(pod).fits_in(need):
                    continue
                if later is not None and not _alike(named, pod):
                    continue
                found[one.uid] = pod
                came[one.target].remove(pod)
                if later is not None:
                    found[later.uid] = named
                break
    return found


def _alike(one: Pod, other: Pod) -> bool:
    """Tell whether two pods are of one owner and ask for as much: where one was to go the other may."""
    owners = [(pod.namespace, pod.owner_kind, pod.owner_name, pod.priority) for pod in (one, other)]
    return one.owner_name is not None and owners[0] == owners[1] and need_of(one) == need_of(other)


def _counts(pod: Pod) -> bool:
    return not (pod.terminal or pod.terminating)


def _could_replace(pod: Pod, one: Steering) -> bool:
    same = (pod.namespace, pod.owner_kind, pod.owner_name) == (one.namespace, one.owner_kind, one.owner_name)
    return same and one.pod in (None, pod.name)


def rest_of(plan: PackingPlan, places: Places) -> Proposal:
    """Return the stages that are left as a plan of their own, before any pod of the present one was evicted.

    A pod that waited and has a node already is not in it; one created anew is there by the new name.
    """
    return plan.proposal.of_stages([_without_bound(stage, places) for stage in plan.proposal.stages[plan.stage :]])


def _without_bound(stage: Stage, places: Places) -> Stage:
    arrivals = tuple(_as_now(one, places) for one in stage.arrivals if places.node_of(one) is None)
    resizes = tuple(one for one in stage.resizes if _still_to_resize(one, places))
    return replace(stage, resizes=resizes, arrivals=arrivals)


def _still_to_resize(one: ResizePod, places: Places) -> bool:
    """Tell whether a resize is of any use: none is for a pod that waited and has a node, or was created anew."""
    pod = places.pods.get(one.uid)
    return one.uid not in places.left and not (one.node is None and pod is not None and pod.node is not None)


def _as_now(arrival: Arrival, places: Places) -> Arrival:
    pod = places.pod_of(arrival) if arrival.uid in places.left or arrival.source is None else None
    return arrival if pod is None else replace(arrival, pod=pod.name, uid=pod.uid, source=None)
