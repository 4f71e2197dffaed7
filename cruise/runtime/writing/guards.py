"""What stands before a write: mode, room on the node, budgets of evictions, and the pod as it is now."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from cruise.decisions.sizing.resize import without_growth
from cruise.domain.actions import Action, EvictPod, OriginalSizes, Outcome, Reason, ResizePod
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.overrides import ORIGINAL_RESOURCES
from cruise.domain.policy import Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.sizes import spec_targets
from cruise.runtime.writing.gate import Gate, Grow


class Guards:
    """The guards of one application of a plan: what it was decided on, and what it has used up since."""

    def __init__(
        self,
        actions: Sequence[Action],
        snapshot: Snapshot,
        policy: Policy,
        gate: Gate,
        now: datetime,
        *,
        asked_for: bool = False,
        pass_began: datetime | None = None,
    ) -> None:
        self._asked_for = asked_for
        self._policy = policy
        self._gate = gate
        self._now = now
        self._began = gate.now()
        self._limit_ranges = snapshot.limit_ranges
        self.refusing_nodes: set[str | None] = set()
        named = {(one.namespace, one.pod) for one in actions if isinstance(one, ResizePod | EvictPod)}
        self._pods = {key: pod for pod in snapshot.pods if (key := (pod.namespace, pod.name)) in named}
        self._rooms = _Rooms(actions, snapshot)
        self._disruptions = _Disruptions(actions, snapshot, policy, pass_began or now)

    def decided_on(self, action: ResizePod | EvictPod) -> Pod | None:
        """Return the pod as it was when the action was decided."""
        return self._pods.get((action.namespace, action.pod))

    def forbidden_by_mode(self, action: Action) -> bool:
        """Tell whether the mode stops short of an action."""
        needed = Mode.RESIZE if isinstance(action, ResizePod) else Mode.FULL
        return self._policy.mode < needed and not self._asked_for

    def why_left_alone(self, action: Action) -> Reason | None:
        """Tell why a node pass must not touch a pod: a kill was answered, or a packing plan counts on pod or node."""
        if not isinstance(action, ResizePod | EvictPod):
            return None
        if action.reason not in (Reason.RIGHTSIZED, Reason.DOES_NOT_FIT):
            return None
        if self._gate.rests(action.uid, self._now):
            return Reason.COOLING_DOWN
        return Reason.PACKING if self._gate.is_reserved(action) else None

    def original_sizes(self, actions: Sequence[Action]) -> list[OriginalSizes]:
        """Return what the pods to be resized ask for now, where no annotation keeps it: it may be the first resize."""
        originals = []
        for action in actions:
            if not isinstance(action, ResizePod) or action.reason is Reason.REVERTED:
                continue
            pod = self.decided_on(action)
            if pod is not None and pod.uid == action.uid and ORIGINAL_RESOURCES not in pod.annotations:
                originals.append(OriginalSizes(pod.uid, pod.namespace, pod.name, spec_targets(pod), self._now))
        return originals

    def has_room(self, action: ResizePod) -> bool:
        """Tell whether a grow fits what its node counts now: a shrink frees room only once it is actual.

        On a node whose pod had to stay nothing does: it was not to be in the sums.
        """
        if action.node is None or action.growth == NO_RESOURCES:
            return True
        if action.node in self.refusing_nodes:
            return False
        others = self._gate.grows_on(action.node, self._began)
        # An earlier try of the same grow may have failed: it does not take the room twice.
        others.pop(action.uid, None)
        return action.growth.growth_fits_in(self._rooms.left_on(action.node, others))

    def part_without_growth(self, action: ResizePod) -> ResizePod | None:
        """Return the part of a rightsizing or a revert that needs no room, None where there is none worth a patch."""
        decided_on = self.decided_on(action)
        if decided_on is None or action.reason not in (Reason.RIGHTSIZED, Reason.REVERTED):
            return None
        return without_growth(decided_on, action, self._limit_ranges.get(action.namespace, ()), self._policy)

    def take(self, action: ResizePod) -> Callable[[], None]:
        """Take the room of a grow, just before it is sent, so that nobody else does; return how to give it back."""
        if not _is_told_to_others(action):
            return lambda: None
        before = self._gate.add_grow(self, action)
        return lambda: self._gate.put_back_grow(action, before)

    def resized_by_another(self, action: ResizePod) -> bool:
        """Tell whether another application in this process has resized the pod since the decision.

        For who is not read anew; reading shows it otherwise.
        """
        grow = self._gate.grows_on(action.node, self._began).get(action.uid)
        decided_on = self.decided_on(action)
        return grow is not None and grow.by is not self and decided_on is not None and not grow.shows_in(decided_on)

    def must_be_read_anew(self, action: Action) -> bool:
        """Tell whether an action's pod is read once more right before.

        For a pure shrink it is not: the server checks uid and values itself, and what the shrink could overwrite is
        sized again by the next pass.
        """
        if isinstance(action, ResizePod):
            return action.growth != NO_RESOURCES or action.reason is not Reason.RIGHTSIZED or action.node is None
        return isinstance(action, EvictPod)

    def why_changed(self, action: ResizePod | EvictPod, pod: Pod | None) -> Reason | None:
        """Tell what about a pod, freshly read, is not as it was when the action was decided."""
        if pod is None or pod.uid != action.uid or pod.terminating or pod.terminal:
            return Reason.GONE
        decided_on = self.decided_on(action)
        if decided_on is None or decided_on.node != pod.node or spec_targets(decided_on) != spec_targets(pod):
            return Reason.CHANGED_SINCE
        return None

    def over_budget(self, action: EvictPod, spent: Sequence[Outcome]) -> Reason | None:
        """Tell which budget an eviction would overdraw; `spent` are the evictions of the last hour."""
        reason = self._disruptions.over_budget(action, spent)
        if reason is None and action.node in self.refusing_nodes:
            # Without the pod that had to stay the node does not fit, and who else goes may go in vain.
            return Reason.DISRUPTION_BUDGET
        return reason


def _is_told_to_others(action: ResizePod) -> bool:
    return action.growth != NO_RESOURCES or action.reason is not Reason.RIGHTSIZED


class _Rooms:
    """What the nodes of a plan's grows have left."""

    def __init__(self, actions: Sequence[Action], snapshot: Snapshot) -> None:
        growing = {one.node for one in actions if isinstance(one, ResizePod) and one.growth != NO_RESOURCES}
        self._allocatable = {node.name: node.allocatable for node in snapshot.nodes if node.name in growing}
        self._counted: dict[str, Resources] = {}
        self._pods: dict[str, Pod] = {}
        for pod in snapshot.pods if growing else ():
            if pod.node in growing and pod.node is not None:
                self._counted[pod.node] = self._counted.get(pod.node, NO_RESOURCES) + counted_requests(pod)
                self._pods[pod.uid] = pod

    def left_on(self, node: str, grows: Mapping[str, Grow]) -> Resources:
        """Return what a node has left once the grows that the snapshot does not show are done."""
        left = self._allocatable.get(node, NO_RESOURCES) - self._counted.get(node, NO_RESOURCES)
        for uid, grow in grows.items():
            if uid in self._pods and not grow.shows_in(self._pods[uid]):
                left -= grow.growth
        return left


class _Disruptions:
    """Who is being disrupted, in the snapshot and by evictions that it does not show yet."""

    def __init__(self, actions: Sequence[Action], snapshot: Snapshot, policy: Policy, pass_began: datetime) -> None:
        self._policy = policy
        self._pass_began = pass_began
        evicting = any(isinstance(one, EvictPod) for one in actions)
        self._alive: set[str] = set()
        self._in_snapshot: Counter[tuple[str, WorkloadRef | None]] = Counter()
        self._youngest_unsized: dict[tuple[str, WorkloadRef | None, str | None], datetime] = {}
        for pod in snapshot.pods if evicting else ():
            if pod.created_at is not None and ORIGINAL_RESOURCES not in pod.annotations:
                place = (pod.namespace, pod.workload, pod.node)
                self._youngest_unsized[place] = max(pod.created_at, self._youngest_unsized.get(place, pod.created_at))
            if pod.terminating or pod.phase == "Pending":
                self._in_snapshot[(pod.namespace, pod.workload)] += pod.workload is not None
            else:
                self._alive.add(pod.uid)

    def over_budget(self, action: EvictPod, spent: Sequence[Outcome]) -> Reason | None:
        """Tell which budget an eviction would overdraw."""
        policy = self._policy
        if action.node is None:
            # Nobody misses a pod that runs nowhere.
            return None
        spent = [line for line in spent if line.action.node is not None]
        if len(spent) >= policy.max_evictions_per_hour:
            return Reason.BUDGET_HOUR
        recent = [
            line.action
            for line in spent
            if isinstance(line.action, EvictPod) and (line.at >= self._pass_began or line.action.uid in self._alive)
        ]
        if any(self._came_back(line) for line in spent if line.action.node == action.node):
            return Reason.CAME_BACK
        if sum(one.node == action.node for one in recent) >= policy.max_evictions_per_node:
            return Reason.BUDGET_NODE
        whose = (action.namespace, action.workload)
        disrupted = self._in_snapshot[whose] + sum((one.namespace, one.workload) == whose for one in recent)
        return Reason.BUDGET_WORKLOAD if disrupted >= policy.max_evictions_per_workload else None

    def _came_back(self, line: Outcome) -> bool:
        """Tell whether who was evicted is on its node again, asking for as little as before: the next would be, too."""
        evicted = line.action
        if not isinstance(evicted, EvictPod):
            return False
        youngest = self._youngest_unsized.get((evicted.namespace, evicted.workload, evicted.node))
        return youngest is not None and youngest > line.at
