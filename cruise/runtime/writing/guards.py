"""The checks before a write: mode, exclusions, capacity of the node, eviction budgets, and the pod's present state."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cruise.decisions.pod_policy.hpa_bounds import HpaChangesSinceDecision
from cruise.decisions.sizing.resizes import INFEASIBLE, is_outgrown_by_usage, remove_growth
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
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, Pod, Workload
from cruise.domain.original_resources import read_signed_original_resources
from cruise.domain.pod_resources import count_pod_requests, get_spec_targets, replace_spec_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, NOTHING_STATED, Resources, StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.writing.evictions import (
    LATE_ARRIVAL,
    NODE_PASS_REASONS,
    EvictionBudgets,
    PendingGrowth,
    PendingGrowths,
    WriteExclusions,
)


@dataclass(frozen=True, slots=True)
class DecidedActions:
    """Actions, and what they were decided on, at `now`: a snapshot and, except for a user's request, statistics.

    Actions that a user requested are done in any mode and while paused. A part of a longer pass has that pass's start.
    """

    actions: Sequence[Action]
    snapshot: ClusterSnapshot
    now: datetime
    user_requested: bool = False
    pass_started_at: datetime | None = None
    statistics: StatisticsTable | None = None


class WriteGuards:
    """The checks of one application of a plan: what it was decided on, and what it has used since."""

    def __init__(
        self,
        decided: DecidedActions,
        policy: Policy,
        growths: PendingGrowths,
        exclusions: WriteExclusions,
        latest: Callable[[], StatisticsTable | None] = lambda: None,
    ) -> None:
        actions, snapshot, now = decided.actions, decided.snapshot, decided.now
        self._decided, self._snapshot = decided, snapshot
        self._latest = latest
        self._policy = policy
        self._growths = growths
        self._exclusions = exclusions
        self._started = growths.get_current()
        self._utilisation_changes = HpaChangesSinceDecision(snapshot)
        self.refusing_nodes: set[str | None] = set()
        addressed = {(one.namespace, one.pod) for one in actions if isinstance(one, ResizePod | EvictPod)}
        self._pods = {key: pod for pod in snapshot.pods if (key := (pod.namespace, pod.name)) in addressed}
        self._capacities = _RemainingCapacities(actions, snapshot)
        self._budgets = EvictionBudgets(
            snapshot,
            policy,
            decided.pass_started_at or now,
            evicting=any(isinstance(one, EvictPod) for one in actions),
        )

    def get_decided_pod(self, action: ResizePod | EvictPod) -> Pod | None:
        """Return the pod in the snapshot that the action was decided on."""
        return self._pods.get((action.namespace, action.pod))

    def is_forbidden_by_mode(self, action: Action) -> bool:
        """Return whether the mode forbids an action; cruise's own taints may always be removed."""
        if isinstance(action, UntaintNode):
            return False
        required = Mode.RESIZE if isinstance(action, ResizePod) else Mode.FULL
        return self._policy.mode < required and not self._decided.user_requested

    def respects_pause(self, action: Action) -> bool:
        """Return whether a pause stops an action; the removal of cruise's own taints is not stopped."""
        return not isinstance(action, UntaintNode)

    def needs_store(self, action: Action) -> bool:
        """Return whether an action must be stored before it is done; the removal of cruise's own taints need not be."""
        return not isinstance(action, UntaintNode)

    def explain_exclusion(self, action: Action) -> ReasonCode | None:
        """Return why a node pass must not change the pod or node now, None if it may."""
        if self._exclusions.history_incomplete() and self._depends_on_history(action):
            return ReasonCode.HISTORY_INCOMPLETE
        return self._exclusions.explain_exclusion(action, self._decided.now)

    def _depends_on_history(self, action: Action) -> bool:
        """Return whether an action decreases or evicts because of past usage."""
        if not isinstance(action, ResizePod | EvictPod) or action.reason not in (
            *NODE_PASS_REASONS,
            ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
        ):
            return False
        pod = self.get_decided_pod(action)
        if isinstance(action, EvictPod) or pod is None:
            return True
        now = {one.container: one for one in get_spec_targets(pod)}
        return any(
            one.container in now
            and (_is_less(one.requests, now[one.container].requests) or _is_less(one.limits, now[one.container].limits))
            for one in action.containers
        )

    def original_sizes(self, actions: Sequence[Action], signing_keys: Sequence[bytes]) -> list[OriginalSizes]:
        """Return the sizes that pods were created with, for those that are resized for the first time.

        These are the sizes that the webhook replaced and signed; otherwise those of the owner's template, because the
        database may have lost an earlier resize; the present requests if no template states any.
        """
        originals = []
        for action in actions:
            if not isinstance(action, ResizePod) or action.reason is ReasonCode.REVERTED:
                continue
            pod = self.get_decided_pod(action)
            if pod is not None and pod.uid == action.uid:
                owner = None if pod.workload is None else self._snapshot.workloads.get((pod.namespace, pod.workload))
                sizes = _get_original_sizes(pod, owner, signing_keys)
                originals.append(OriginalSizes(pod.uid, pod.namespace, pod.name, sizes, self._decided.now))
        return originals

    def has_capacity(self, action: ResizePod) -> bool:
        """Return whether an increase fits the free capacity of its node; a decrease counts once it has taken effect.

        It does not fit on a node where an eviction was refused: the plan counted on that pod's capacity.
        """
        if action.node is None or not action.needs_capacity:
            return True
        if action.node in self.refusing_nodes:
            return False
        others = self._growths.get_on_node(action.node, self._started)
        # An earlier attempt of the same increase must not count twice.
        others.pop(action.uid, None)
        return action.growth.growth_fits_in(self._capacities.left_on(action.node, others))

    def get_capacity_at_refusal(self, action: ResizePod, reason: ReasonCode) -> Resources | None:
        """Return the node's capacity for a pod whose resize was refused, to be stored with the refusal."""
        return self._capacities.at_refusal(action, reason)

    def remove_growth(self, action: ResizePod) -> ResizePod | None:
        """Return the part of a rightsizing or a revert that needs no capacity, None if none is worth a patch."""
        decided_on = self.get_decided_pod(action)
        if decided_on is None or action.reason not in (ReasonCode.RIGHTSIZED, ReasonCode.REVERTED):
            return None
        return remove_growth(decided_on, action, self._snapshot.limit_ranges.get(action.namespace, ()), self._policy)

    def consume(self, action: ResizePod) -> Callable[[], None]:
        """Use the capacity of an increase, just before it is sent; return a function that releases it."""
        if not action.needs_capacity and action.reason is ReasonCode.RIGHTSIZED:
            return lambda: None
        before = self._growths.add(self, action)
        return lambda: self._growths.restore(action, before)

    @property
    def needs_capacity(self) -> bool:
        """Whether any action increases requests on a node."""
        return self._capacities.has_nodes

    @property
    def oldest_in_transit(self) -> datetime:
        """The time of the oldest decision whose write may still be done although no answer was received."""
        return self._decided.now - self._policy.max_decision_age - LATE_ARRIVAL

    def reserve(self, action: ResizePod) -> None:
        """Reserve the capacity of a resize that may be done late, for what it requests more than its pod does now."""
        pod, growth = self._capacities.compute_growth(action)
        known = self._growths.get_on_node(action.node, self._started).get(action.uid)
        if known is not None and (pod is None or not known.is_visible_in(pod)):
            if growth.fits_in(known.growth):
                return
            growth = growth.max_with(known.growth)
        if growth != NO_RESOURCES:
            self._growths.add(self, replace(action, growth=growth))

    def is_resized_by_other(self, action: ResizePod) -> bool:
        """Return whether another plan of this process has resized the pod since the decision.

        Used for pods that are not read again before the write.
        """
        growth = self._growths.get_on_node(action.node, self._started).get(action.uid)
        decided_on = self.get_decided_pod(action)
        return (
            growth is not None
            and growth.plan_run is not self
            and decided_on is not None
            and not growth.is_visible_in(decided_on)
        )

    def is_too_old(self) -> bool:
        """Return whether the snapshot of the decision is older than `max_decision_age`."""
        taken_at = self._snapshot.taken_at
        return (
            taken_at is not None
            and self._growths.get_current() - taken_at > self._policy.max_decision_age.total_seconds()
        )

    def explain_shrink_refusal(self, action: ResizePod, pod: Pod | None) -> ReasonCode | None:
        """Return why a decrease does not fit the pod in the watch, or its usage in the last usage pass."""
        if pod is None or pod is not self.get_decided_pod(action):
            changed = self.explain_change(action, pod)
            if changed is not None or pod is None:
                return changed
        before, now = self._decided.statistics, self._latest()
        if before is None or now is None or now.memory_base_bytes is before.memory_base_bytes:
            return None
        margin = self._policy.working_set_margin
        return ReasonCode.USAGE_INCREASED if is_outgrown_by_usage(action, pod, before, now, margin) else None

    def is_forbidden_by_autoscaler(self, action: ResizePod, now: tuple[HorizontalPodAutoscaler, ...]) -> bool:
        """Return whether an HPA that the resize was decided under has changed; users' own requests are not checked."""
        pod = self.get_decided_pod(action)
        return (
            pod is not None and not self._decided.user_requested and self._utilisation_changes.forbid(action, pod, now)
        )

    def requires_fresh_read(self, action: Action) -> bool:
        """Return whether an action's pod is read from the API server right before the write.

        Not for a pure decrease, which saves a request a pod: `explain_shrink_refusal` compares it with the watch, and
        the server checks uid, version and values.
        """
        if isinstance(action, ResizePod):
            return action.needs_capacity or action.reason is not ReasonCode.RIGHTSIZED or action.node is None
        return isinstance(action, EvictPod)

    def explain_change(self, action: ResizePod | EvictPod, pod: Pod | None) -> ReasonCode | None:
        """Return how a pod that was just read differs from the one that the action was decided on."""
        if pod is None or pod.uid != action.uid or pod.terminating or pod.is_finished:
            return ReasonCode.NOT_FOUND
        decided_on = self.get_decided_pod(action)
        if decided_on is None or decided_on.node != pod.node or get_spec_targets(decided_on) != get_spec_targets(pod):
            return ReasonCode.CHANGED
        return None

    def find_exceeded_budget(self, action: EvictPod, evictions: Sequence[Outcome]) -> ReasonCode | None:
        """Return the budget that an eviction would exceed; `evictions` are the evictions of the last hour."""
        reason = self._budgets.find_exceeded_budget(action, evictions)
        if reason is None and action.reason in NODE_PASS_REASONS and self._is_reserved_for_plan(evictions):
            return ReasonCode.PACKING_PLAN_ACTIVE
        if reason is None and action.node in self.refusing_nodes:
            # The node does not fit without the pod whose eviction was refused: another eviction may not help.
            return ReasonCode.POD_DISRUPTION_BUDGET
        return reason

    def _is_reserved_for_plan(self, evictions: Sequence[Outcome]) -> bool:
        """Return whether the remaining evictions of the hour are reserved for the active packing plan."""
        reserved = self._exclusions.reserved.evictions
        return reserved > 0 and self._budgets.get_remaining_in_hour(evictions) <= reserved


def _get_original_sizes(pod: Pod, owner: Workload | None, signing_keys: Sequence[bytes]) -> tuple[ContainerTarget, ...]:
    signed = read_signed_original_resources(pod, signing_keys)
    if signed is not None:
        return tuple(
            replace(one, requests=signed[one.container][0], limits=signed[one.container][1])
            if one.container in signed
            else one
            for one in get_spec_targets(pod)
        )
    return tuple(one if owner is None else _get_template_sizes(one, owner) for one in get_spec_targets(pod))


def _get_template_sizes(now: ContainerTarget, owner: Workload) -> ContainerTarget:
    """Return the sizes in the owner's template; values that it does not state were set by a default or a webhook."""
    name = now.container
    stated = (owner.requests or {}).get(name, NOTHING_STATED)
    limits = StatedResources((owner.cpu_limits or {}).get(name), (owner.memory_limits or {}).get(name))
    return replace(now, requests=_fill_missing(stated, now.requests), limits=_fill_missing(limits, now.limits))


def _fill_missing(stated: StatedResources, otherwise: StatedResources) -> StatedResources:
    cpu, memory = stated.cpu_millicores, stated.memory_bytes
    return StatedResources(
        otherwise.cpu_millicores if cpu is None else cpu, otherwise.memory_bytes if memory is None else memory
    )


def _is_less(target: StatedResources, now: StatedResources) -> bool:
    pairs = ((target.cpu_millicores, now.cpu_millicores), (target.memory_bytes, now.memory_bytes))
    return any(new is not None and old is not None and new < old for new, old in pairs)


class _RemainingCapacities:
    """The free capacity of the nodes on which a plan increases requests."""

    def __init__(self, actions: Sequence[Action], snapshot: ClusterSnapshot) -> None:
        growing_nodes = {
            one.node
            for one in actions
            if isinstance(one, ResizePod) and (one.needs_capacity or one.reason is ReasonCode.WITHDRAWN)
        }
        self._allocatable = {node.name: node.allocatable for node in snapshot.nodes if node.name in growing_nodes}
        self._counted: dict[str, Resources] = {}
        self._pods: dict[str, Pod] = {}
        for pod in snapshot.pods if growing_nodes else ():
            if pod.node in growing_nodes and pod.node is not None:
                self._counted[pod.node] = self._counted.get(pod.node, NO_RESOURCES) + count_pod_requests(pod)
                self._pods[pod.uid] = pod

    @property
    def has_nodes(self) -> bool:
        """Whether requests increase on any node."""
        return bool(self._allocatable)

    def compute_growth(self, action: ResizePod) -> tuple[Pod | None, Resources]:
        """Return a pod of one of these nodes, None for others, and what it will count more after a resize."""
        pod = self._pods.get(action.uid)
        if pod is None:
            return None, action.growth.max_with(NO_RESOURCES)
        more = count_pod_requests(replace_spec_resources(pod, action.containers)) - count_pod_requests(pod)
        return pod, more.max_with(NO_RESOURCES)

    def at_refusal(self, action: ResizePod, reason: ReasonCode) -> Resources | None:
        """Return the node's allocatable capacity if it can never do a resize, otherwise what its other pods leave."""
        allocatable, pod = self._allocatable.get(action.node or ""), self._pods.get(action.uid)
        if allocatable is None or action.node is None or reason in INFEASIBLE:
            return allocatable
        if pod is None or reason is not ReasonCode.RESIZE_DEFERRED:
            return None
        return allocatable - self._counted[action.node] + count_pod_requests(pod)

    def left_on(self, node: str, growths: Mapping[str, PendingGrowth]) -> Resources:
        """Return the free capacity of a node once the growths that the snapshot does not show are done."""
        remaining = self._allocatable.get(node, NO_RESOURCES) - self._counted.get(node, NO_RESOURCES)
        for uid, growth in growths.items():
            if uid in self._pods and not growth.is_visible_in(self._pods[uid]):
                remaining -= growth.growth
        return remaining
