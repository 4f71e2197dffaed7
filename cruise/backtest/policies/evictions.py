"""Evictions and OOM reactions of cruise under replay: destinations, eviction budgets and the OOM reactor."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from cruise.backtest.policies.replayed_pods import ReplayedPods, get_container_sizes
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.statistics_lookup import ReplayedStatisticsLookup
from cruise.backtest.replay.nodes import parse_node_index
from cruise.backtest.replay.policy import ReplayClusterView, ReplayedOomKill, ReplayedOomReaction
from cruise.decisions.eviction.destinations import ReplacementPrediction
from cruise.decisions.eviction.ranking import EvictionDestinations
from cruise.decisions.oom import OomContext, build_oom_record, decide_oom_reaction
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, ResizePod
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import OomKill, Pod
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets
from cruise.simulation.cluster.state import convert_to_datetime


class _ReplayedEviction(NamedTuple):
    source: int
    own: Resources
    target: int | None
    need: Resources


@dataclass(slots=True)
class ReplayedDestinations:
    """The destinations of the pods that one pass evicts, as `decisions.eviction.destinations` for equal nodes.

    `counted` are the pods' present requests, at the places `find_index` by uid; the pods may show older ones. `free`
    is the capacity that kube-scheduler counts as free, `spare_capacity` what the targets of the node's pods leave: one
    row per node with CPU and memory. `placements` is the number of further pods. Evictions change all three. A node is
    added for a replacement pod that fits on none of them.
    """

    replacement: ReplacementPrediction
    find_index: Callable[[str], int]
    counted: Mapping[ResourceName, Int64Array]
    node: Resources
    exists: BoolArray
    free: Int64Array
    spare_capacity: Int64Array
    placements: Int64Array
    _evictions: dict[str, _ReplayedEviction] = field(default_factory=dict)

    def get_for_node(self, pods: Sequence[Pod]) -> EvictionDestinations:
        """Return the destinations of one node's pods."""
        return _ReplayedNodeEvictions(self, pods)

    def get_reserved_capacity(self) -> dict[int, Resources]:
        """Return the capacity that replacement pods use, by node."""
        reserved: dict[int, Resources] = {}
        for eviction in self._evictions.values():
            if eviction.target is not None:
                reserved[eviction.target] = reserved.get(eviction.target, NO_RESOURCES) + eviction.need
        return reserved

    def evict(self, pod: Pod) -> bool:
        """Evict a pod and place its replacement.

        Return False, without any change, if the replacement fits nowhere, or kube-scheduler would choose the same node,
        at once or when the pod has terminated.
        """
        replacement = self.replacement(pod)
        if replacement is None or pod.node is None:
            return False
        source, index, need = parse_node_index(pod.node), self.find_index(pod.uid), count_pod_requests(replacement)
        own = Resources(*(int(self.counted[resource][index]) for resource in ResourceName))
        remaining = self._compute_remaining(need)
        feasible = (remaining >= 0).all(axis=1) & self.exists & (self.placements > 0)
        if self._prefers_node(source, remaining, feasible):
            return False
        fits_once_terminated = (remaining[source] + (own.cpu_millicores, own.memory_bytes) >= 0).all()
        self._count(source, own, 1)
        target = self._find_target(need, source)
        # The pod has terminated before a node is added.
        will_get_new_node = need.fits_in(self.node) and (feasible.any() or not fits_once_terminated)
        if target is None and not will_get_new_node:
            self._count(source, own, -1)
            return False
        if target is not None:
            self._count(target, need, -1)
            self.spare_capacity[target] -= (need.cpu_millicores, need.memory_bytes)
        self._evictions[pod.uid] = _ReplayedEviction(source, own, target, need)
        return True

    def undo_eviction(self, pod: Pod) -> None:
        """Restore a pod to its node."""
        eviction = self._evictions.pop(pod.uid)
        if eviction.target is not None:
            self._count(eviction.target, eviction.need, 1)
            self.spare_capacity[eviction.target] += (eviction.need.cpu_millicores, eviction.need.memory_bytes)
        self._count(eviction.source, eviction.own, -1)

    def _prefers_node(self, source: int, remaining: Int64Array, feasible: BoolArray) -> bool:
        """Return whether kube-scheduler prefers a node for a pod to all other feasible ones."""
        shares = (remaining / self._allocatable).mean(axis=1)
        return bool(feasible[source] and shares[source] >= shares[feasible].max())

    def _compute_remaining(self, need: Resources) -> Int64Array:
        """Return what a pod leaves of each node; evicted pods still count."""
        remaining = self.free - (need.cpu_millicores, need.memory_bytes)
        for eviction in self._evictions.values():
            remaining[eviction.source] -= (eviction.own.cpu_millicores, eviction.own.memory_bytes)
        return remaining

    def _find_target(self, need: Resources, source: int) -> int | None:
        """Return the other node with the most free capacity that a pod fits on; None if it fits on none."""
        free = np.minimum(self.free, self.spare_capacity) - (need.cpu_millicores, need.memory_bytes)
        free[source] = -1
        feasible = np.flatnonzero((free >= 0).all(axis=1) & self.exists & (self.placements > 0))
        if not feasible.size:
            return None
        return int(feasible[(free[feasible] / self._allocatable).min(axis=1).argmax()])

    @property
    def _allocatable(self) -> Int64Array:
        return np.maximum((self.node.cpu_millicores, self.node.memory_bytes), 1)

    def _count(self, node: int, amount: Resources, step: int) -> None:
        self.free[node] += (step * amount.cpu_millicores, step * amount.memory_bytes)
        self.placements[node] += step


@dataclass(frozen=True, slots=True)
class _ReplayedNodeEvictions:
    destinations: ReplayedDestinations
    pods: Sequence[Pod]

    def evict(self, index: int) -> bool:
        return self.destinations.evict(self.pods[index])

    def undo_eviction(self, index: int) -> None:
        self.destinations.undo_eviction(self.pods[index])


class ReplayEvictionBudgets:
    """The eviction budgets of a replay, counted as on a live cluster."""

    def __init__(self, pods: ReplayedPods, policy: Policy) -> None:
        self._pods = pods
        self._policy = policy
        self._spent: deque[Outcome] = deque()

    def spend(self, action: EvictPod, view: ReplayClusterView) -> ReasonCode | None:
        """Count an eviction and return None, or return the reason why a budget does not allow it."""
        now = convert_to_datetime(view.time)
        while self._spent and self._spent[0].at < now - BUDGET_WINDOW:
            self._spent.popleft()
        # Budgets depend only on the pods of the same node or workload; there may be thousands of others.
        containers = self._pods.get_pods_around(action.namespace, action.workload, action.node, view)
        budgets = EvictionBudgets(self._pods.build_snapshot(view, containers), self._policy, now)
        reason = budgets.find_exceeded_budget(action, list(self._spent))
        if reason is None:
            self._spent.append(Outcome(now, action, ActionResult.DONE, action.reason))
        return reason


class ReplayedOomReactor:
    """Reacts to kills as the OOM reactor does, and remembers the cooldown of each pod."""

    def __init__(
        self,
        containers: int,
        pods: ReplayedPods,
        statistics: ReplayedStatistics,
        lookup: ReplayedStatisticsLookup,
        budgets: ReplayEvictionBudgets,
        policy: Policy,
    ) -> None:
        self._pods = pods
        self._statistics = statistics
        self._lookup = lookup
        self._budgets = budgets
        self._policy = policy
        self._cooldown_pods = np.zeros(containers, dtype=np.int64)
        self._cooldown_until = np.zeros(containers, dtype=np.int64)
        self._reacted_at: dict[int, tuple[int, datetime]] = {}

    def is_in_cooldown(self, view: ReplayClusterView) -> BoolArray:
        """Return a mask of the pods that a node pass must skip after a reaction to a kill."""
        is_same_pod = self._cooldown_pods == view.creation_count
        return np.asarray((self._cooldown_until > view.time) & is_same_pod, dtype=np.bool_)

    def react(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Record a kill and return the reaction."""
        time, container, creation_count = (
            convert_to_datetime(kill.time),
            kill.container,
            int(view.creation_count[kill.container]),
        )
        pod = self._pods.get_pod(container, view)
        table = self._lookup.get_between_passes(container, view)
        statistic = table.get_row(0) if table.keys else None
        record = build_oom_record(_oom_kill(pod, kill, time), statistic)
        self._statistics.apply_oom_kill(container, record, kill.time)
        if statistic is not None:
            oom_memory_bytes = max(statistic.oom_memory_bytes, record.oom_memory_bytes)
            table = StatisticsTable.from_rows([replace(statistic, oom_memory_bytes=oom_memory_bytes)])
        node = int(view.node[container])
        on_node = np.flatnonzero(view.node == node)
        counted = Resources(int(view.sizes.cpu_millicores[on_node].sum()), int(view.sizes.memory_bytes[on_node].sum()))
        reacted_pod, reacted_at = self._reacted_at.get(container, (-1, time))
        context = OomContext(
            node=self._pods.build_nodes(view)[node],
            free_capacity=view.allocatable - counted,
            statistics={} if statistic is None else {pod.containers[0].name: table.get_row(0)},
            last_reaction_at=reacted_at if reacted_pod == creation_count else None,
        )
        eligibility = self._pods.build_eligibility(view, table, self._policy)
        decision = decide_oom_reaction(record, pod, context, eligibility, self._policy, time)
        if not isinstance(decision, ResizePod | EvictPod):
            return ReplayedOomReaction()
        if isinstance(decision, EvictPod):
            self._statistics.raise_workload_oom_memory(container, record.oom_memory_bytes)
        if isinstance(decision, EvictPod) and self._budgets.spend(decision, view) is not None:
            return ReplayedOomReaction()
        self._reacted_at[container] = (creation_count, time)
        self._cooldown_pods[container] = creation_count
        self._cooldown_until[container] = kill.time + int(self._policy.oom_cooldown.total_seconds())
        if isinstance(decision, EvictPod):
            self._statistics.share_last_oom_kill(container)
            return ReplayedOomReaction(evict=True)
        return ReplayedOomReaction(sizes=get_container_sizes([replace_spec_resources(pod, decision.containers)]))


def _oom_kill(pod: Pod, kill: ReplayedOomKill, time: datetime) -> OomKill:
    [container] = pod.containers
    return OomKill(
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        container=container.name,
        workload=pod.workload,
        identity=pod.identity,
        node=pod.node,
        finished_at=time,
        memory_limit_bytes=container.limits.memory_bytes,
        memory_request_bytes=container.requests.memory_bytes,
        last_working_set_bytes=kill.used_bytes,
    )
