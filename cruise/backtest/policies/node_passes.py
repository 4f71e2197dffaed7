"""Cruise under replay: its own statistics, admission, node pass and OOM reaction, asked in columns.

What a pass does pod by pod on a live cluster (who may be touched, eviction rankings, admission, reactions, budgets) is
asked of the same functions with pods made for the purpose; whether a pod may be touched is asked again only once
something has changed that the answer depends on.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from cruise.backtest.policies.disruptions import Disruptions
from cruise.backtest.policies.kill_reactions import KillReactions
from cruise.backtest.policies.known_statistics import UNKNOWN, KnownStatistics
from cruise.backtest.policies.replayed_headroom import ReplayedHeadroom
from cruise.backtest.policies.replayed_pods import ReplayedPods, sizes_of
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.touchable_pods import TouchablePods
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.policy import NO_CONTAINERS, ClusterView, Decision, Kill, KillReaction, Sizes
from cruise.backtest.replay.resize_room import held_to_room
from cruise.decisions.guidance.eligibility import Scope
from cruise.decisions.sizing.candidate_columns import Roster
from cruise.decisions.sizing.fitting import Fitted, cut_growth, fit_nodes, pod_sizes
from cruise.decisions.sizing.node_plans import judged
from cruise.decisions.sizing.recommendation import demand_table
from cruise.decisions.sizing.resize import PodSizes, leave_dead_band
from cruise.decisions.sizing.sharing import NodeColumns
from cruise.domain.actions import EvictPod, Reason
from cruise.domain.arrays import BoolArray, Float32Array, Int64Array
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.runtime.admission.admission import Admitter
from cruise.simulation.cluster.timeline import utc


class CruisePasses:
    """Cruise in mode full under one policy."""

    def __init__(self, recording: Recording, policy: Policy, name: str = "cruise") -> None:
        count = len(recording.containers)
        self._name = name
        self._policy = replace(policy, mode=Mode.FULL)
        self._statistics = ReplayedStatistics(recording, self._policy)
        self._known = KnownStatistics(recording, self._statistics)
        self._headroom = ReplayedHeadroom(self._policy, self._statistics)
        self._pods = ReplayedPods(recording)
        self._touchable = TouchablePods(recording, self._pods, self._policy)
        self._disruptions = Disruptions(self._pods, self._policy)
        self._kills = KillReactions(count, self._pods, self._statistics, self._known, self._disruptions, self._policy)
        self._born = np.zeros(count, dtype=np.int64)
        self._admitter: tuple[int, Admitter] | None = None

    @property
    def name(self) -> str:
        """The name in tables."""
        return self._name

    def observe(self, at: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in samples."""
        self._statistics.observe(at, cpu, memory)
        self._headroom.observe(at, cpu, memory)
        self._admitter = None

    def admit(self, containers: Int64Array, view: ClusterView) -> Sizes:
        """Size new pods as the webhook does."""
        now = utc(view.at)
        if self._admitter is None or self._admitter[0] != view.at:
            nowhere = self._pods.snapshot(view, NO_CONTAINERS)
            self._admitter = (view.at, Admitter(nowhere, self._statistics.of_workloads(), {}, self._policy, now))
        # It may also be asked what a pod would be created with that still runs.
        replaced = containers[view.born[containers] > np.maximum(self._born[containers], 1)]
        self._statistics.replaced(replaced)
        self._headroom.replaced(replaced)
        self._born[containers] = view.born[containers]
        admitted = []
        for container in containers.tolist():
            self._pods.note_admission(container, False)
            created = self._pods.created(container, now)
            pod, _ = self._admitter[1].admit(created)
            self._pods.note_admission(container, pod is not created)
            admitted.append(pod)
        return sizes_of(admitted)

    def decide(self, view: ClusterView) -> Decision:
        """Run a node pass."""
        self._known.refresh(view)
        roster, chosen = self._touchable.roster(view, self._known)
        row_of, statistics = self._known.row_of, self._known.columns
        sizes = view.sizes.take(chosen)
        stated = np.column_stack(
            (sizes.cpu_millicores, sizes.memory_bytes, np.zeros(len(chosen), np.int64), sizes.memory_limit_bytes)
        )
        table = demand_table(roster, stated, statistics, row_of[chosen], self._policy)
        columns = NodeColumns(self._pods.nodes(view), self._available(view, chosen), view.node[chosen], table)
        scope = _once(lambda: self._pods.scope(view, UNKNOWN, self._policy))
        headroom = self._headroom.of_pass(view.at, row_of, len(statistics.updated_at), self._known.own_rows)
        fitted = fit_nodes(columns, headroom, lambda pod: judged(roster.pods[pod], scope()))
        staying = fitted.stays[table.pod_of]
        self._headroom.expect(view.at, chosen[staying], columns.node_of[staying], fitted)
        counted = {ResourceName.CPU: sizes.cpu_millicores, ResourceName.MEMORY: sizes.memory_bytes}
        written = _Written(pod_sizes(columns, fitted.sizes, counted, fitted.stays), self._policy)
        cut_growth(columns, written.decided, counted, lambda: written.patched, written.again)
        rests = self._kills.rests(view)[chosen]
        free = self._available(view, NO_CONTAINERS)
        patched = held_to_room(
            written.patched & ~rests,
            written.sizes,
            sizes,
            view.node[chosen],
            (free[ResourceName.CPU], free[ResourceName.MEMORY]),
            self._policy,
        )
        resized = np.flatnonzero(patched)
        return Decision(
            resize=chosen[resized],
            sizes=written.sizes.take(resized),
            evict=self._evictions(view, fitted, chosen, roster, rests),
            base=(fitted.base[ResourceName.CPU], fitted.base[ResourceName.MEMORY]),
            headroom=(fitted.headroom[ResourceName.CPU], fitted.headroom[ResourceName.MEMORY]),
        )

    def killed(self, kill: Kill, view: ClusterView) -> KillReaction:
        """React to a kill as the OOM reactor does."""
        self._admitter = None
        return self._kills.react(kill, view)

    def _available(self, view: ClusterView, chosen: Int64Array) -> dict[ResourceName, Int64Array]:
        """Return each node's allocatable without what the pods take that are left alone."""
        fixed = view.node >= 0
        fixed[chosen] = False
        nodes = view.node[fixed]
        room = {}
        for resource, whole, taken in (
            (ResourceName.CPU, view.allocatable.cpu_millicores, view.sizes.cpu_millicores),
            (ResourceName.MEMORY, view.allocatable.memory_bytes, view.sizes.memory_bytes),
        ):
            room[resource] = np.full(len(view.alive), whole, dtype=np.int64)
            np.subtract.at(room[resource], nodes, taken[fixed])
        return room

    def _evictions(
        self, view: ClusterView, fitted: Fitted, chosen: Int64Array, roster: Roster, rests: BoolArray
    ) -> Int64Array:
        """Return who is evicted of those that were marked: within the budgets, and not while a kill is answered."""
        going = []
        for node in sorted(fitted.marked):
            for mark in fitted.marked[node]:
                if rests[mark.index]:
                    continue
                container = int(chosen[mark.index])
                pod, ranking = self._pods.pod(container, view), fitted.rankings[mark.index]
                action = EvictPod(
                    pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, mark.resource,
                    Reason.DOES_NOT_FIT,
                )  # fmt: skip
                if self._disruptions.spend(action, view) is None:
                    going.append(container)
        return np.array(going, dtype=np.int64)


class _Written:
    """The sizes that a pass writes, and whose, while growth is cut to the room there is."""

    def __init__(self, decided: PodSizes, policy: Policy) -> None:
        self.decided = decided
        self.sizes = Sizes(
            decided.cpu_millicores.copy(), decided.memory_bytes.copy(), decided.memory_limit_bytes.copy()
        )
        self.patched = leave_dead_band(decided, policy) & decided.stays
        self._policy = policy

    def again(self, smaller: PodSizes, cut: list[int]) -> None:
        """Take over the smaller sizes of those that were cut."""
        places = np.array(cut, dtype=np.int64)
        moved = leave_dead_band(smaller, self._policy) & smaller.stays
        self.patched[places] = moved[places]
        found = Sizes(smaller.cpu_millicores, smaller.memory_bytes, smaller.memory_limit_bytes)
        self.sizes.put(places, found.take(places))


def _once(make: Callable[[], Scope]) -> Callable[[], Scope]:
    made: list[Scope] = []

    def get() -> Scope:
        if not made:
            made.append(make())
        return made[0]

    return get
