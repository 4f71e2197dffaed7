"""What stands before a write: mode, exclusions, room on the node, eviction budgets, and the pod as it is now."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from cruise.decisions.sizing.resizes import is_below_usage, remove_growth
from cruise.domain.actions import (
    Action,
    ContainerTarget,
    EvictPod,
    OriginalSizes,
    Outcome,
    ReasonCode,
    ResizePod,
    UntaintNode,
)
from cruise.domain.cluster import ClusterSnapshot, Pod, Workload
from cruise.domain.original_resources import read_signed_original_resources
from cruise.domain.pod_resources import count_pod_requests, get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED, Resources, StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.writing.evictions import (
    NODE_PASS_REASONS,
    EvictionBudgets,
    PendingGrowth,
    PendingGrowths,
    WriteExclusions,
)


class WriteGuards:
    """The guards of one application of a plan: what it was decided on, and what it has used up since."""

    def __init__(
        self,
        actions: Sequence[Action],
        snapshot: ClusterSnapshot,
        policy: Policy,
        now: datetime,
        *,
        grows: PendingGrowths,
        exclusions: WriteExclusions,
        asked_for: bool = False,
        pass_began: datetime | None = None,
        statistics: StatisticsTable | None = None,
        latest: Callable[[], StatisticsTable | None] = lambda: None,
    ) -> None:
        self._taken_at = snapshot.taken_at
        self._statistics, self._latest = statistics, latest
        self._asked_for = asked_for
        self._policy = policy
        self._grows = grows
        self._exclusions = exclusions
        self._now = now
        self._began = grows.get_current()
        self._limit_ranges = snapshot.limit_ranges
        self._workloads = snapshot.workloads
        self.refusing_nodes: set[str | None] = set()
        named = {(one.namespace, one.pod) for one in actions if isinstance(one, ResizePod | EvictPod)}
        self._pods = {key: pod for pod in snapshot.pods if (key := (pod.namespace, pod.name)) in named}
        self._rooms = _RemainingCapacities(actions, snapshot)
        self._budgets = EvictionBudgets(
            snapshot, policy, pass_began or now, evicting=any(isinstance(one, EvictPod) for one in actions)
        )

    def set_decision(self, action: ResizePod | EvictPod) -> Pod | None:
        """Return the pod as it was when the action was decided."""
        return self._pods.get((action.namespace, action.pod))

    def is_forbidden_by_mode(self, action: Action) -> bool:
        """Tell whether the mode stops short of an action; cruise's own taints may always be taken off."""
        if isinstance(action, UntaintNode):
            return False
        needed = Mode.RESIZE if isinstance(action, ResizePod) else Mode.FULL
        return self._policy.mode < needed and not self._asked_for

    def respects_pause(self, action: Action) -> bool:
        """Tell whether a pause holds an action back: a taint of cruise's own must not outlast its reason."""
        return not isinstance(action, UntaintNode)

    def needs_store(self, action: Action) -> bool:
        """Tell whether an action is not done unless it is recorded before: a taint that stays harms, and is seen."""
        return not isinstance(action, UntaintNode)

    def explain_exclusion(self, action: Action) -> ReasonCode | None:
        """Return why a node pass must leave the pod or node alone now, None where it need not."""
        if self._exclusions.history_incomplete() and self._rests_on_history(action):
            return ReasonCode.HISTORY_INCOMPLETE
        return self._exclusions.explain_exclusion(action, self._now)

    def _rests_on_history(self, action: Action) -> bool:
        """Tell whether an action takes something from a pod because of what its usage was."""
        if not isinstance(action, ResizePod | EvictPod) or action.reason not in (
            *NODE_PASS_REASONS,
            ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
        ):
            return False
        pod = self.set_decision(action)
        if isinstance(action, EvictPod) or pod is None:
            return True
        now = {one.container: one for one in get_spec_targets(pod)}
        return any(
            one.container in now
            and (_is_less(one.requests, now[one.container].requests) or _is_less(one.limits, now[one.container].limits))
            for one in action.containers
        )

    def original_sizes(self, actions: Sequence[Action], signing_keys: Sequence[bytes]) -> list[OriginalSizes]:
        """Return what the pods to be resized were submitted with, where this is their first resize.

        It is what the webhook replaced and signed; else what the owner's template states, since the store may have
        forgotten an earlier resize; and what they request now where no template states anything.
        """
        originals = []
        for action in actions:
            if not isinstance(action, ResizePod) or action.reason is ReasonCode.REVERTED:
                continue
            pod = self.set_decision(action)
            if pod is not None and pod.uid == action.uid:
                owner = None if pod.workload is None else self._workloads.get((pod.namespace, pod.workload))
                sizes = _submitted(pod, owner, signing_keys)
                originals.append(OriginalSizes(pod.uid, pod.namespace, pod.name, sizes, self._now))
        return originals

    def has_capacity(self, action: ResizePod) -> bool:
        """Tell whether a grow fits what its node counts now: a shrink frees room only once it is actual.

        On a node whose pod had to stay nothing does: it was not to be in the sums.
        """
        if action.node is None or not action.needs_capacity:
            return True
        if action.node in self.refusing_nodes:
            return False
        others = self._grows.get_on_node(action.node, self._began)
        # An earlier try of the same grow may have failed: it does not take the room twice.
        others.pop(action.uid, None)
        return action.growth.growth_fits_in(self._rooms.left_on(action.node, others))

    def get_capacity_at_refusal(self, action: ResizePod, why: ReasonCode) -> Resources | None:
        """Return what the node had for a pod whose resize was refused, as a refusal is remembered."""
        return self._rooms.at_refusal(action, why)

    def remove_growth(self, action: ResizePod) -> ResizePod | None:
        """Return the part of a rightsizing or a revert that needs no room, None where there is none worth a patch."""
        decided_on = self.set_decision(action)
        if decided_on is None or action.reason not in (ReasonCode.RIGHTSIZED, ReasonCode.REVERTED):
            return None
        return remove_growth(decided_on, action, self._limit_ranges.get(action.namespace, ()), self._policy)

    def consume(self, action: ResizePod) -> Callable[[], None]:
        """Take the room of a grow, just before it is sent; return how to give it back."""
        if not action.needs_capacity and action.reason is ReasonCode.RIGHTSIZED:
            return lambda: None
        before = self._grows.add(self, action)
        return lambda: self._grows.restore(action, before)

    def is_resized_by_other(self, action: ResizePod) -> bool:
        """Tell whether another plan in this process has resized the pod since the decision.

        For pods that are not read again; reading shows it otherwise.
        """
        grow = self._grows.get_on_node(action.node, self._began).get(action.uid)
        decided_on = self.set_decision(action)
        return (
            grow is not None
            and grow.plan_run is not self
            and decided_on is not None
            and not grow.is_visible_in(decided_on)
        )

    def is_too_old(self) -> bool:
        """Tell whether the snapshot that was decided on is older than `max_decision_age`."""
        taken_at = self._taken_at
        return (
            taken_at is not None
            and self._grows.get_current() - taken_at > self._policy.max_decision_age.total_seconds()
        )

    def explain_shrink_refusal(self, action: ResizePod, pod: Pod | None) -> ReasonCode | None:
        """Return why a shrink does not fit the pod as the watch has it now, or its usage as of the last usage pass."""
        if pod is None or pod is not self.set_decision(action):
            changed = self.explain_change(action, pod)
            if changed is not None or pod is None:
                return changed
        before, now = self._statistics, self._latest()
        if before is None or now is None or now.memory_base_bytes is before.memory_base_bytes:
            return None
        margin = self._policy.working_set_margin
        return ReasonCode.USAGE_INCREASED if is_below_usage(action, pod, before, now, margin) else None

    def requires_fresh_read(self, action: Action) -> bool:
        """Tell whether an action's pod is read once more from the API server right before.

        For a pure shrink it is not, which spares a request a pod: `why_not_to_shrink` compares it with what the watch
        has, and the server checks uid, version and values itself.
        """
        if isinstance(action, ResizePod):
            return action.needs_capacity or action.reason is not ReasonCode.RIGHTSIZED or action.node is None
        return isinstance(action, EvictPod)

    def explain_change(self, action: ResizePod | EvictPod, pod: Pod | None) -> ReasonCode | None:
        """Return what about a pod, freshly read, is not as it was when the action was decided."""
        if pod is None or pod.uid != action.uid or pod.terminating or pod.is_finished:
            return ReasonCode.NOT_FOUND
        decided_on = self.set_decision(action)
        if decided_on is None or decided_on.node != pod.node or get_spec_targets(decided_on) != get_spec_targets(pod):
            return ReasonCode.CHANGED
        return None

    def find_exceeded_budget(self, action: EvictPod, spent: Sequence[Outcome]) -> ReasonCode | None:
        """Return the budget that an eviction would overdraw; `spent` are the evictions of the last hour."""
        reason = self._budgets.find_exceeded_budget(action, spent)
        if reason is None and action.reason in NODE_PASS_REASONS and self._is_left_to_the_plan(spent):
            return ReasonCode.PACKING_PLAN_ACTIVE
        if reason is None and action.node in self.refusing_nodes:
            # Without the pod that had to stay the node does not fit: another eviction may be in vain.
            return ReasonCode.POD_DISRUPTION_BUDGET
        return reason

    def _is_left_to_the_plan(self, spent: Sequence[Outcome]) -> bool:
        """Tell whether the packing plan under way would miss one more eviction of this hour."""
        reserved = self._exclusions.reserved.evictions
        return reserved > 0 and self._budgets.get_remaining_in_hour(spent) <= reserved


def _submitted(pod: Pod, owner: Workload | None, signing_keys: Sequence[bytes]) -> tuple[ContainerTarget, ...]:
    noted = read_signed_original_resources(pod, signing_keys)
    if noted is not None:
        return tuple(
            replace(one, requests=noted[one.container][0], limits=noted[one.container][1])
            if one.container in noted
            else one
            for one in get_spec_targets(pod)
        )
    return tuple(one if owner is None else _as_in_template(one, owner) for one in get_spec_targets(pod))


def _as_in_template(now: ContainerTarget, owner: Workload) -> ContainerTarget:
    """Return what the template states for a container; what it does not state, a default or a webhook has set."""
    name = now.container
    stated = (owner.requests or {}).get(name, NOTHING_STATED)
    limits = StatedResources((owner.cpu_limits or {}).get(name), (owner.memory_limits or {}).get(name))
    return replace(now, requests=_else(stated, now.requests), limits=_else(limits, now.limits))


def _else(stated: StatedResources, otherwise: StatedResources) -> StatedResources:
    cpu, memory = stated.cpu_millicores, stated.memory_bytes
    return StatedResources(
        otherwise.cpu_millicores if cpu is None else cpu, otherwise.memory_bytes if memory is None else memory
    )


def _is_less(target: StatedResources, now: StatedResources) -> bool:
    pairs = ((target.cpu_millicores, now.cpu_millicores), (target.memory_bytes, now.memory_bytes))
    return any(new is not None and old is not None and new < old for new, old in pairs)


class _RemainingCapacities:
    """What the nodes of a plan's grows have left."""

    def __init__(self, actions: Sequence[Action], snapshot: ClusterSnapshot) -> None:
        growing = {
            one.node
            for one in actions
            if isinstance(one, ResizePod) and (one.needs_capacity or one.reason is ReasonCode.WITHDRAWN)
        }
        self._allocatable = {node.name: node.allocatable for node in snapshot.nodes if node.name in growing}
        self._counted: dict[str, Resources] = {}
        self._pods: dict[str, Pod] = {}
        for pod in snapshot.pods if growing else ():
            if pod.node in growing and pod.node is not None:
                self._counted[pod.node] = self._counted.get(pod.node, NO_RESOURCES) + count_pod_requests(pod)
                self._pods[pod.uid] = pod

    def at_refusal(self, action: ResizePod, why: ReasonCode) -> Resources | None:
        """Return all that the node has where it cannot do a resize, else what its other pods left."""
        allocatable, pod = self._allocatable.get(action.node or ""), self._pods.get(action.uid)
        if allocatable is None or action.node is None or why is ReasonCode.RESIZE_INFEASIBLE:
            return allocatable
        if pod is None or why is not ReasonCode.RESIZE_DEFERRED:
            return None
        return allocatable - self._counted[action.node] + count_pod_requests(pod)

    def left_on(self, node: str, grows: Mapping[str, PendingGrowth]) -> Resources:
        """Return what a node has left once the grows that the snapshot does not show are done."""
        left = self._allocatable.get(node, NO_RESOURCES) - self._counted.get(node, NO_RESOURCES)
        for uid, grow in grows.items():
            if uid in self._pods and not grow.is_visible_in(self._pods[uid]):
                left -= grow.growth
        return left
