"""What cruise does about kills under replay: the OOM reactor's decision, and its cool-down."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

import numpy as np

from cruise.backtest.policies.replayed_pods import ReplayedPods, get_container_sizes, parse_node_index
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.statistics_lookup import ReplayedStatisticsLookup
from cruise.backtest.replay.policy import ReplayClusterView, ReplayedOomKill, ReplayedOomReaction
from cruise.decisions.eviction.destinations import ReplacementPrediction
from cruise.decisions.eviction.ranking import EvictionDestinations
from cruise.decisions.oom import OomContext, build_oom_record, decide_oom_reaction
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, ResizePod
from cruise.domain.cluster import OomKill, Pod
from cruise.domain.pod_resources import count_pod_requests, replace_spec_resources
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, BoolArray, Int64Array, Resources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets
from cruise.simulation.cluster.state import convert_to_datetime

# Where the pods that a replay evicts go: `decisions.eviction.destinations` for nodes that are alike, in columns.


class _ReplayedEviction(NamedTuple):
    source: int
    own: Resources
    target: int | None
    need: Resources


@dataclass(slots=True)
class ReplayedDestinations:
    """The places that the evictions of one pass take; a node is added for what finds none and fits an empty one.

    `free` is what kube-scheduler counts as free on each node, `spare` what the node's pods leave of what they need, a
    row a node with CPU and memory; `places` how many more pods it may hold. All three are changed.
    """

    replacement: ReplacementPrediction
    node: Resources
    alive: BoolArray
    free: Int64Array
    spare_capacity: Int64Array
    placements: Int64Array
    _gone: dict[str, _ReplayedEviction] = field(default_factory=dict)

    def for_node(self, pods: Sequence[Pod]) -> EvictionDestinations:
        """Return the exits of one node's pods."""
        return _ReplayedNodeEvictions(self, pods)

    def get_reserved_capacity(self) -> dict[int, Resources]:
        """Return the room that was given to replacements, by node."""
        found: dict[int, Resources] = {}
        for gone in self._gone.values():
            if gone.target is not None:
                found[gone.target] = found.get(gone.target, NO_RESOURCES) + gone.need
        return found

    def evict(self, pod: Pod) -> bool:
        """Take a pod off its node and give its replacement a place; False, and nothing is done, where there is none."""
        fresh = self.replacement(pod)
        if fresh is None or pod.node is None:
            return False
        gone = _ReplayedEviction(parse_node_index(pod.node), count_pod_requests(pod), None, count_pod_requests(fresh))
        self._count(gone.source, gone.own, 1)
        target = self._room_for(gone.need, gone.source)
        if target is None and not gone.need.fits_in(self.node):
            self._count(gone.source, gone.own, -1)
            return False
        if target is not None:
            self._count(target, gone.need, -1)
            self.spare_capacity[target] -= (gone.need.cpu_millicores, gone.need.memory_bytes)
        self._gone[pod.uid] = gone._replace(target=target)
        return True

    def undo_eviction(self, pod: Pod) -> None:
        """Put a pod back onto its node."""
        gone = self._gone.pop(pod.uid)
        if gone.target is not None:
            self._count(gone.target, gone.need, 1)
            self.spare_capacity[gone.target] += (gone.need.cpu_millicores, gone.need.memory_bytes)
        self._count(gone.source, gone.own, -1)

    def _room_for(self, need: Resources, source: int) -> int | None:
        """Return the node with the most room that holds a pod, its own apart; None where none does."""
        room = np.minimum(self.free, self.spare_capacity) - (need.cpu_millicores, need.memory_bytes)
        room[source] = -1
        holding = np.flatnonzero((room >= 0).all(axis=1) & self.alive & (self.placements > 0))
        if not holding.size:
            return None
        whole = np.maximum((self.node.cpu_millicores, self.node.memory_bytes), 1)
        return int(holding[(room[holding] / whole).min(axis=1).argmax()])

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


# The eviction budgets of a replay, kept by the rule that keeps them on a live cluster.


class ReplayEvictionBudgets:
    """What the evictions of the last hour leave of the budgets."""

    def __init__(self, pods: ReplayedPods, policy: Policy) -> None:
        self._pods = pods
        self._policy = policy
        self._spent: deque[Outcome] = deque()

    def spend(self, action: EvictPod, view: ReplayClusterView) -> ReasonCode | None:
        """Spend an eviction, which is done then; return the reason where a budget has none left."""
        now = convert_to_datetime(view.time)
        while self._spent and self._spent[0].at < now - BUDGET_WINDOW:
            self._spent.popleft()
        # Only pods of the same node or workload matter to it, and there may be thousands of others.
        around = self._pods.snapshot(
            view, self._pods.get_pods_around(action.namespace, action.workload, action.node, view)
        )
        reason = EvictionBudgets(around, self._policy, now).find_exceeded_budget(action, list(self._spent))
        if reason is None:
            self._spent.append(Outcome(now, action, ActionResult.DONE, action.reason))
        return reason


class ReplayedOomReactor:
    """Reacts to kills, and remembers which pods are left alone after one."""

    def __init__(
        self,
        containers: int,
        pods: ReplayedPods,
        statistics: ReplayedStatistics,
        known: ReplayedStatisticsLookup,
        disruptions: ReplayEvictionBudgets,
        policy: Policy,
    ) -> None:
        self._pods = pods
        self._statistics = statistics
        self._known = known
        self._disruptions = disruptions
        self._policy = policy
        self._resting = np.zeros(containers, dtype=np.int64)
        self._rests_until = np.zeros(containers, dtype=np.int64)
        self._reacted_at: dict[int, tuple[int, datetime]] = {}

    def is_in_cooldown(self, view: ReplayClusterView) -> BoolArray:
        """Tell which pods a node pass leaves alone, since a kill was just answered."""
        return np.asarray((self._rests_until > view.time) & (self._resting == view.creation_count), dtype=np.bool_)

    def react(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """Learn from a kill, and return what is done about it."""
        time, container, creation_count = (
            convert_to_datetime(kill.time),
            kill.container,
            int(view.creation_count[kill.container]),
        )
        pod = self._pods.pod(container, view)
        table = self._known.get_between_passes(container, view)
        statistic = table.row(0) if table.keys else None
        record = build_oom_record(_oom_kill(pod, kill, time), statistic)
        self._statistics.apply_oom_kill(container, record, kill.time)
        if statistic is not None:
            lesson = max(statistic.oom_memory_bytes, record.oom_memory_bytes)
            table = StatisticsTable.from_rows([replace(statistic, oom_memory_bytes=lesson)])
        node = int(view.node[container])
        there = np.flatnonzero(view.node == node)
        counted = Resources(int(view.sizes.cpu_millicores[there].sum()), int(view.sizes.memory_bytes[there].sum()))
        reacted_to, reacted_at = self._reacted_at.get(container, (-1, time))
        scene = OomContext(
            node=self._pods.nodes(view)[node],
            free_capacity=view.allocatable - counted,
            statistics={} if statistic is None else {pod.containers[0].name: table.row(0)},
            last_reaction_at=reacted_at if reacted_to == creation_count else None,
        )
        eligibility = self._pods.eligibility(view, table, self._policy)
        decision = decide_oom_reaction(record, pod, scene, eligibility, self._policy, time)
        if not isinstance(decision, ResizePod | EvictPod):
            return ReplayedOomReaction()
        if isinstance(decision, EvictPod):
            self._statistics.raise_workload_oom_memory(container, record.oom_memory_bytes)
        if isinstance(decision, EvictPod) and self._disruptions.spend(decision, view) is not None:
            return ReplayedOomReaction()
        self._reacted_at[container] = (creation_count, time)
        self._resting[container] = creation_count
        self._rests_until[container] = kill.time + int(self._policy.oom_cooldown.total_seconds())
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
