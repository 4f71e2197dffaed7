"""Cruise under replay: its own statistics, admission, node pass and OOM reaction, asked in columns.

What a pass does pod by pod on a live cluster (who may be touched, eviction rankings, admission, reactions, budgets) is
asked of the same functions with pods made for the purpose; whether a pod may be touched is asked again only once
something has changed that the answer depends on.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from cruise.backtest.disruptions import Disruptions
from cruise.backtest.growing import held_to_room
from cruise.backtest.recording import Recording
from cruise.backtest.replayed_headroom import ReplayedHeadroom
from cruise.backtest.replayed_pods import ReplayedPods, sizes_of
from cruise.backtest.sizing import NOBODY, Decision, Fleet, Kill, KillReaction, Sizes
from cruise.backtest.statistics import ReplayedStatistics
from cruise.decisions.fitting import Fitted, cut_growth, fit_nodes, pod_sizes
from cruise.decisions.oom import Scene, decide_oom_reaction, learn_from
from cruise.decisions.recommendation import demand_table
from cruise.decisions.resize import PodSizes, leave_dead_band
from cruise.decisions.rightsizing import judged
from cruise.decisions.roster import Roster, call_roster
from cruise.decisions.scope import Scope, Touchable
from cruise.decisions.sharing import NodeColumns
from cruise.domain.actions import EvictPod, Reason, ResizePod
from cruise.domain.cluster import OomKill
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import BoolArray, Float32Array, Int64Array, StatisticColumns, StatisticKey, StatisticsTable
from cruise.runtime.admission import Admitter

_UNJUDGED = -1


class CruisePasses:
    """Cruise in mode full under one policy."""

    def __init__(self, recording: Recording, policy: Policy, name: str = "cruise") -> None:
        count = len(recording.containers)
        self._name = name
        self._policy = replace(policy, mode=Mode.FULL)
        self._containers = recording.containers
        self._statistics = ReplayedStatistics(recording, self._policy)
        self._headroom = ReplayedHeadroom(self._policy, self._statistics)
        self._pods = ReplayedPods(recording)
        self._disruptions = Disruptions(self._pods, self._policy)
        names = [(one.namespace, one.pod) for one in recording.containers]
        self._by_name = np.array(sorted(range(count), key=names.__getitem__), dtype=np.int64)
        # What each verdict was given on: whether there are statistics, their age and the workload's, and which pod.
        self._judged_on = np.full((count, 2), _UNJUDGED, dtype=np.int64)
        self._verdicts: list[Touchable | None] = [None] * count
        self._touched = np.zeros(count, dtype=np.bool_)
        self._roster: Roster | None = None
        self._born = np.zeros(count, dtype=np.int64)
        self._row_of = np.full(count, -1, dtype=np.int64)
        self._known: StatisticColumns | None = None
        self._own_rows = 0
        self._known_of = np.zeros(count, dtype=np.int64)
        self._resting = np.zeros(count, dtype=np.int64)
        self._rests_until = np.zeros(count, dtype=np.int64)
        self._reacted_at: dict[int, tuple[int, datetime]] = {}
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

    def admit(self, containers: Int64Array, fleet: Fleet) -> Sizes:
        """Size new pods as the webhook does."""
        now = _time(fleet.at)
        if self._admitter is None or self._admitter[0] != fleet.at:
            nowhere = self._pods.snapshot(fleet, NOBODY)
            self._admitter = (fleet.at, Admitter(nowhere, self._statistics.of_workloads(), {}, self._policy, now))
        # It may also be asked what a pod would be created with that still runs.
        replaced = containers[fleet.born[containers] > np.maximum(self._born[containers], 1)]
        self._statistics.replaced(replaced)
        self._headroom.replaced(replaced)
        self._born[containers] = fleet.born[containers]
        admitted = []
        for container in containers.tolist():
            self._pods.note_admission(container, False)
            created = self._pods.created(container, now)
            pod, _ = self._admitter[1].admit(created)
            self._pods.note_admission(container, pod is not created)
            admitted.append(pod)
        return sizes_of(admitted)

    def decide(self, fleet: Fleet) -> Decision:
        """Run a node pass."""
        row_of, statistics = self._find_statistics(fleet)
        roster, chosen = self._roster_of(fleet, row_of, statistics)
        sizes = fleet.sizes.take(chosen)
        stated = np.column_stack(
            (sizes.cpu_millicores, sizes.memory_bytes, np.zeros(len(chosen), np.int64), sizes.memory_limit_bytes)
        )
        table = demand_table(roster, stated, statistics, row_of[chosen], self._policy)
        columns = NodeColumns(self._pods.nodes(fleet), self._available(fleet, chosen), fleet.node[chosen], table)
        scope = _once(lambda: self._scope(fleet, _EMPTY))
        headroom = self._headroom.of_pass(fleet.at, row_of, len(statistics.updated_at), self._own_rows)
        fitted = fit_nodes(columns, headroom, lambda pod: judged(roster.pods[pod], scope()))
        staying = fitted.stays[table.pod_of]
        self._headroom.expect(fleet.at, chosen[staying], columns.node_of[staying], fitted)
        counted = {ResourceName.CPU: sizes.cpu_millicores, ResourceName.MEMORY: sizes.memory_bytes}
        written = _Written(pod_sizes(columns, fitted.sizes, counted, fitted.stays), self._policy)
        cut_growth(columns, written.decided, counted, lambda: written.patched, written.again)
        rests = (self._rests_until > fleet.at)[chosen] & (self._resting == fleet.born)[chosen]
        free = self._available(fleet, NOBODY)
        patched = held_to_room(
            written.patched & ~rests,
            written.sizes,
            sizes,
            fleet.node[chosen],
            (free[ResourceName.CPU], free[ResourceName.MEMORY]),
            self._policy,
        )
        resized = np.flatnonzero(patched)
        return Decision(
            resize=chosen[resized],
            sizes=written.sizes.take(resized),
            evict=self._evictions(fleet, fitted, chosen, roster, rests),
            base=(fitted.base[ResourceName.CPU], fitted.base[ResourceName.MEMORY]),
            headroom=(fitted.headroom[ResourceName.CPU], fitted.headroom[ResourceName.MEMORY]),
        )

    def killed(self, kill: Kill, fleet: Fleet) -> KillReaction:
        """React to a kill as the OOM reactor does."""
        at, container = _time(kill.at), kill.container
        pod = self._pods.pod(container, fleet)
        [one] = pod.containers
        table = self._table_at_kill(container, fleet)
        statistic = table.row(0) if table.keys else None
        record = learn_from(
            OomKill(
                pod.namespace, pod.name, pod.uid, one.name, pod.workload, pod.identity, pod.node, at,
                one.limits.memory_bytes, one.requests.memory_bytes, kill.used_bytes,
            ),
            statistic,
        )  # fmt: skip
        self._statistics.learn(container, record.oom_memory_bytes, kill.at)
        self._admitter = None
        if statistic is not None:
            lesson = max(statistic.oom_memory_bytes, record.oom_memory_bytes)
            table = StatisticsTable.of_rows([replace(statistic, oom_memory_bytes=lesson)])
        node = int(fleet.node[container])
        there = np.flatnonzero(fleet.node == node)
        counted = Resources(int(fleet.sizes.cpu_millicores[there].sum()), int(fleet.sizes.memory_bytes[there].sum()))
        born, reacted = self._reacted_at.get(container, (-1, at))
        scene = Scene(
            node=self._pods.nodes(fleet)[node],
            room=fleet.allocatable - counted,
            statistics={} if statistic is None else {one.name: table.row(0)},
            last_reaction_at=reacted if born == int(fleet.born[container]) else None,
        )
        decision = decide_oom_reaction(record, pod, scene, self._scope(fleet, table), self._policy, at)
        if isinstance(decision, EvictPod) and self._disruptions.spend(decision, fleet) is not None:
            return KillReaction()
        if not isinstance(decision, ResizePod | EvictPod):
            return KillReaction()
        self._reacted_at[container] = (int(fleet.born[container]), at)
        self._resting[container] = fleet.born[container]
        self._rests_until[container] = kill.at + int(self._policy.oom_cooldown.total_seconds())
        if isinstance(decision, EvictPod):
            return KillReaction(evict=True)
        return KillReaction(sizes=sizes_of([with_sizes(pod, decision.containers)]))

    def _find_statistics(self, fleet: Fleet) -> tuple[Int64Array, StatisticColumns]:
        """Return the row that speaks for each container, its own or its workload's, -1 without any; and the rows."""
        placed = fleet.node >= 0
        usable, statistics = self._statistics.of_containers(placed)
        self._own_rows = len(usable)
        row_of = np.full(len(placed), -1, dtype=np.int64)
        row_of[usable] = np.arange(len(usable))
        lacking = np.flatnonzero(placed & (row_of < 0)).tolist()
        if lacking:
            of_workloads = self._statistics.of_workloads()
            ones = map(self._containers.__getitem__, lacking)
            rows = [of_workloads.find(one.namespace, one.pod, one.workload, one.container, "") for one in ones]
            found = [(container, row) for container, row in zip(lacking, rows, strict=True) if row is not None]
            row_of[[container for container, _ in found]] = len(usable) + np.arange(len(found))
            theirs = of_workloads.take(np.array([row for _, row in found], dtype=np.int64))
            statistics = statistics.followed_by(theirs)
        self._row_of, self._known, self._known_of = row_of, statistics, fleet.born.copy()
        return row_of, statistics

    def _roster_of(self, fleet: Fleet, row_of: Int64Array, statistics: StatisticColumns) -> tuple[Roster, Int64Array]:
        """Return the touchable pods, and their containers, sorted by name."""
        placed = fleet.node >= 0
        state = np.zeros(len(row_of), dtype=np.int64)
        known = np.flatnonzero(row_of >= 0)
        stale = statistics.updated_at[row_of[known]] < fleet.at - int(self._policy.max_age.total_seconds())
        young = statistics.history_since[row_of[known]] > fleet.at - int(self._policy.new_workload_age.total_seconds())
        state[known] = 1 + 2 * stale + 4 * young
        changed = placed & ((self._judged_on[:, 0] != state) | (self._judged_on[:, 1] != fleet.born))
        again = np.flatnonzero(changed)
        touched = self._touched
        if len(again):
            scope = self._scope(fleet, self._table_of(again))
            touched = touched.copy()
            for container in again.tolist():
                verdict = scope.of(self._pods.pod(container, fleet))
                self._verdicts[container] = verdict if isinstance(verdict, Touchable) else None
                touched[container] = isinstance(verdict, Touchable)
            self._judged_on[again, 0], self._judged_on[again, 1] = state[again], fleet.born[again]
        gone = touched & ~placed
        if gone.any():
            touched = touched & placed
            self._judged_on[gone] = _UNJUDGED
        chosen = self._by_name[touched[self._by_name]]
        if self._roster is None or len(again) or gone.any():
            pods = [verdict for verdict in map(self._verdicts.__getitem__, chosen.tolist()) if verdict is not None]
            self._roster = call_roster(pods, {}, self._policy)
        self._touched = touched
        return self._roster, chosen

    def _table_of(self, containers: Int64Array) -> StatisticsTable:
        """Return what the last pass knew of some containers."""
        known = [] if self._known is None else containers[self._row_of[containers] >= 0].tolist()
        if self._known is None or not known:
            return _EMPTY
        keys = [
            StatisticKey(one.namespace, one.pod, str(one.workload), one.container)
            for one in map(self._containers.__getitem__, known)
        ]
        return StatisticsTable.of_columns(self._known.take(self._row_of[known]), keys)

    def _table_at_kill(self, container: int, fleet: Fleet) -> StatisticsTable:
        """Return what speaks for a container's pod between two passes: what the last knew of it or its workload."""
        if self._known_of[container] == fleet.born[container]:
            return self._table_of(np.array([container]))
        one, table = self._containers[container], self._statistics.of_workloads()
        row = table.find(one.namespace, one.pod, one.workload, one.container, "")
        return _EMPTY if row is None else StatisticsTable.of_rows([table.row(row)])

    def _scope(self, fleet: Fleet, statistics: StatisticsTable) -> Scope:
        return Scope(self._pods.snapshot(fleet, NOBODY), statistics, {}, self._policy, _time(fleet.at))

    def _available(self, fleet: Fleet, chosen: Int64Array) -> dict[ResourceName, Int64Array]:
        """Return each node's allocatable without what the pods take that are left alone."""
        fixed = fleet.node >= 0
        fixed[chosen] = False
        nodes = fleet.node[fixed]
        room = {}
        for resource, whole, taken in (
            (ResourceName.CPU, fleet.allocatable.cpu_millicores, fleet.sizes.cpu_millicores),
            (ResourceName.MEMORY, fleet.allocatable.memory_bytes, fleet.sizes.memory_bytes),
        ):
            room[resource] = np.full(len(fleet.alive), whole, dtype=np.int64)
            np.subtract.at(room[resource], nodes, taken[fixed])
        return room

    def _evictions(
        self, fleet: Fleet, fitted: Fitted, chosen: Int64Array, roster: Roster, rests: BoolArray
    ) -> Int64Array:
        """Return who is evicted of those that were marked: within the budgets, and not while a kill is answered."""
        going = []
        for node in sorted(fitted.marked):
            for mark in fitted.marked[node]:
                if rests[mark.index]:
                    continue
                container = int(chosen[mark.index])
                pod, ranking = self._pods.pod(container, fleet), fitted.rankings[mark.index]
                action = EvictPod(
                    pod.namespace, pod.name, pod.uid, pod.node, pod.workload, ranking, mark.resource,
                    Reason.DOES_NOT_FIT,
                )  # fmt: skip
                if self._disruptions.spend(action, fleet) is None:
                    going.append(container)
        return np.array(going, dtype=np.int64)


_EMPTY = StatisticsTable.of_rows([])


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


def _time(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def _once(make: Callable[[], Scope]) -> Callable[[], Scope]:
    made: list[Scope] = []

    def get() -> Scope:
        if not made:
            made.append(make())
        return made[0]

    return get
