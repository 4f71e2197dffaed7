"""What cruise does about kills under replay: the OOM reactor's decision, and its cool-down."""

from dataclasses import replace
from datetime import datetime

import numpy as np

from cruise.backtest.policies.disruptions import Disruptions
from cruise.backtest.policies.known_statistics import KnownStatistics
from cruise.backtest.policies.replayed_pods import ReplayedPods, sizes_of
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.replay.policy import ClusterView, Kill, KillReaction
from cruise.decisions.oom import Scene, decide_oom_reaction, learn_from
from cruise.domain.actions import EvictPod, ResizePod
from cruise.domain.arrays import BoolArray
from cruise.domain.cluster import OomKill, Pod
from cruise.domain.policy import Policy
from cruise.domain.resources import Resources
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import StatisticsTable
from cruise.simulation.cluster.timeline import utc


class KillReactions:
    """Reacts to kills, and remembers which pods are left alone after one."""

    def __init__(
        self,
        containers: int,
        pods: ReplayedPods,
        statistics: ReplayedStatistics,
        known: KnownStatistics,
        disruptions: Disruptions,
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

    def rests(self, view: ClusterView) -> BoolArray:
        """Tell which pods a node pass leaves alone, since a kill was just answered."""
        return np.asarray((self._rests_until > view.at) & (self._resting == view.born), dtype=np.bool_)

    def react(self, kill: Kill, view: ClusterView) -> KillReaction:
        """Learn from a kill, and return what is done about it."""
        at, container, born = utc(kill.at), kill.container, int(view.born[kill.container])
        pod = self._pods.pod(container, view)
        table = self._known.between_passes(container, view)
        statistic = table.row(0) if table.keys else None
        record = learn_from(_oom_kill(pod, kill, at), statistic)
        self._statistics.learn(container, record, kill.at)
        if statistic is not None:
            lesson = max(statistic.oom_memory_bytes, record.oom_memory_bytes)
            table = StatisticsTable.of_rows([replace(statistic, oom_memory_bytes=lesson)])
        node = int(view.node[container])
        there = np.flatnonzero(view.node == node)
        counted = Resources(int(view.sizes.cpu_millicores[there].sum()), int(view.sizes.memory_bytes[there].sum()))
        reacted_to, reacted_at = self._reacted_at.get(container, (-1, at))
        scene = Scene(
            node=self._pods.nodes(view)[node],
            room=view.allocatable - counted,
            statistics={} if statistic is None else {pod.containers[0].name: table.row(0)},
            last_reaction_at=reacted_at if reacted_to == born else None,
        )
        eligibility = self._pods.eligibility(view, table, self._policy)
        decision = decide_oom_reaction(record, pod, scene, eligibility, self._policy, at)
        if not isinstance(decision, ResizePod | EvictPod):
            return KillReaction()
        if isinstance(decision, EvictPod):
            self._statistics.teach_workload(container, record.oom_memory_bytes)
        if isinstance(decision, EvictPod) and self._disruptions.spend(decision, view) is not None:
            return KillReaction()
        self._reacted_at[container] = (born, at)
        self._resting[container] = born
        self._rests_until[container] = kill.at + int(self._policy.oom_cooldown.total_seconds())
        if isinstance(decision, EvictPod):
            self._statistics.share(container)
            return KillReaction(evict=True)
        return KillReaction(sizes=sizes_of([with_sizes(pod, decision.containers)]))


def _oom_kill(pod: Pod, kill: Kill, at: datetime) -> OomKill:
    [container] = pod.containers
    return OomKill(
        namespace=pod.namespace,
        pod=pod.name,
        pod_uid=pod.uid,
        container=container.name,
        workload=pod.workload,
        identity=pod.identity,
        node=pod.node,
        finished_at=at,
        memory_limit_bytes=container.limits.memory_bytes,
        memory_request_bytes=container.requests.memory_bytes,
        last_working_set_bytes=kill.used_bytes,
    )
