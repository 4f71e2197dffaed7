"""Cruise under replay: its own statistics, admission, node pass and OOM reaction, in columns.

What a pass decides pod by pod on a live cluster (which pods may be touched, eviction rankings, admission, reactions,
budgets) the same functions decide here, with pods made for the purpose; whether a pod may be touched is decided again
only once something has changed that the answer depends on.
"""

from collections import deque
from dataclasses import replace

import numpy as np

from cruise.backtest.policies.evictions import ReplayedDestinations, ReplayedOomReactor, ReplayEvictionBudgets
from cruise.backtest.policies.replayed_pods import (
    NO_OVERRIDES,
    ReplayedPods,
    ResizableReplayedPods,
    get_container_sizes,
)
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.statistics_lookup import NO_STATISTIC, ReplayedHeadroom, ReplayedStatisticsLookup
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.cluster import limit_growth_to_capacity
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayedOomKill,
    ReplayedOomReaction,
)
from cruise.decisions.admission.replacement_pods import predict_replacement_pods
from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES, EarlierPasses
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.damping import WriteDamping, get_tolerances, is_within_write_budget
from cruise.decisions.sizing.fitting import (
    ContentionContext,
    NodeFit,
    decide_node_fit,
    find_contended_nodes,
    find_shortages,
)
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.node_sizes import SizingResult, size_nodes
from cruise.decisions.sizing.recommendation import compute_demand
from cruise.decisions.sizing.risk_level import RequestsInForce
from cruise.decisions.sizing.sharing import compute_average_sharing, summarize_node_headroom
from cruise.domain.overrides import StoredOverrides
from cruise.domain.policy import Mode, Policy
from cruise.domain.records import HeadroomSharing
from cruise.domain.resources import BoolArray, Float32Array, Int64Array, ResourceName
from cruise.runtime.admission import PodAdmitter
from cruise.simulation.cluster.state import convert_to_datetime

# What has gone on for long in a replay, in columns: what the node pass of a live cluster knows by names.

_NEVER = -(1 << 60)
_NOT = 1 << 60
_DAY = 86400
_GONE = -1


class ReplayedDamping:
    """Since when nodes are above their bands and containers below their bases, and what was written in the last day."""

    def __init__(self, containers: int, policy: Policy) -> None:
        self._policy = policy
        self._above: dict[ResourceName, Int64Array] = {}
        self._below = {one: np.full(containers, _NOT, dtype=np.int64) for one in ResourceName}
        self._resized = {one: np.full(containers, _NEVER, dtype=np.int64) for one in ResourceName}
        self._cooldown = int(policy.effective_shrink_cooldown.total_seconds())
        self._writes: deque[tuple[int, Int64Array]] = deque()
        self._written = np.zeros(containers, dtype=np.int64)

    def reset_replaced(self, containers: Int64Array) -> None:
        """Take note that containers have another pod from now on."""
        for resource in ResourceName:
            self._resized[resource][containers] = _NEVER
            self._below[resource][containers] = _NOT
        self._written[containers] = 0
        for _, written in self._writes:
            written[np.isin(written, containers)] = _GONE

    def get_for_pass(self, view: ReplayClusterView, chosen: Int64Array) -> WriteDamping | None:
        """Return what has gone on for long enough by now, None where every change is written."""
        if not self._policy.rules.write_damping:
            return None
        patience, short = (
            int(one.total_seconds())
            for one in (self._policy.over_requested_stabilization, self._policy.under_requested_stabilization)
        )
        nodes = len(view.node_exists)
        above = {one: _extended(self._above.get(one), nodes) for one in ResourceName}
        return WriteDamping(
            get_tolerances(self._policy),
            {one: view.time - since >= patience for one, since in above.items()},
            {one: view.time - since[chosen] >= short for one, since in self._below.items()},
            self._rested(view.time, chosen),
        )

    def _rested(self, time: int, chosen: Int64Array) -> dict[ResourceName, BoolArray]:
        while self._writes and self._writes[0][0] <= time - _DAY:
            _, written = self._writes.popleft()
            self._written[written[written != _GONE]] -= 1
        writes = sum(len(containers) for _, containers in self._writes)
        within = is_within_write_budget(self._written[chosen], writes, self._policy)
        return {one: within & (time - self._resized[one][chosen] >= self._cooldown) for one in ResourceName}

    def record(self, time: int, chosen: Int64Array, sized: SizingResult, resized: Int64Array) -> None:
        """Remember what a pass saw, and which containers of it were `resized`."""
        if sized.damped_sizes is None:
            return
        for one in ResourceName:
            above, below = sized.damped_sizes.over_requested[one], np.zeros(len(self._written), dtype=np.bool_)
            below[chosen] = sized.damped_sizes.under_requested[one]
            self._above[one] = _since(above, _extended(self._above.get(one), len(above)), time)
            self._below[one] = _since(below, self._below[one], time)
        containers, table = chosen[resized], sized.columns.table
        for one in ResourceName:
            changed = sized.sizes_to_write.get_requests(one)[resized] != table.get_resource(one).current[resized]
            self._resized[one][containers[changed]] = time
        self._writes.append((time, containers))
        self._written[containers] += 1


def _since(flags: BoolArray, since: Int64Array, time: int) -> Int64Array:
    return np.where(flags, np.minimum(since, time), _NOT)


def _extended(since: Int64Array | None, nodes: int) -> Int64Array:
    since = np.zeros(0, dtype=np.int64) if since is None else since
    return np.concatenate((since[:nodes], np.full(max(nodes - len(since), 0), _NOT, dtype=np.int64)))


class CruisePolicy:
    """Cruise in mode full under one policy."""

    def __init__(
        self, recording: UsageRecording, policy: Policy, name: str = "cruise", stored: StoredOverrides = NO_OVERRIDES
    ) -> None:
        count = len(recording.containers)
        self._name = name
        self._policy = replace(policy, mode=Mode.FULL)
        self._statistics = ReplayedStatistics(recording, self._policy)
        self._known = ReplayedStatisticsLookup(recording, self._statistics)
        self._headroom = ReplayedHeadroom(self._policy, self._statistics)
        self._stored = stored
        self._pods = ReplayedPods(recording, stored)
        self._touchable = ResizableReplayedPods(recording, self._pods, self._policy)
        self._disruptions = ReplayEvictionBudgets(self._pods, self._policy)
        self._kills = ReplayedOomReactor(
            count, self._pods, self._statistics, self._known, self._disruptions, self._policy
        )
        self._creation_counts = np.zeros(count, dtype=np.int64)
        self._admitter: tuple[int, PodAdmitter] | None = None
        self._sharing: HeadroomSharing | None = None
        self._earlier = NO_EARLIER_PASSES
        self._calm = ReplayedDamping(count, self._policy)

    @property
    def name(self) -> str:
        """The name in tables."""
        return self._name

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Take in samples."""
        self._statistics.observe(time, cpu, memory)
        self._headroom.observe(time, cpu, memory)
        self._admitter = None

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Size new pods as the webhook does."""
        now = convert_to_datetime(view.time)
        if self._admitter is None or self._admitter[0] != view.time:
            nowhere = self._pods.snapshot(view, NO_CONTAINERS)
            known = replace(self._statistics.get_for_workloads(), sharing=self._sharing)
            self._admitter = (view.time, PodAdmitter(nowhere, known, self._stored, self._policy, now))
        # What a pod that still runs would be created with may be wanted as well.
        replaced = containers[view.creation_count[containers] > np.maximum(self._creation_counts[containers], 1)]
        self._statistics.reset_replaced(replaced)
        self._headroom.reset_replaced(replaced)
        self._calm.reset_replaced(replaced)
        self._creation_counts[containers] = view.creation_count[containers]
        admitted = []
        for container in containers.tolist():
            self._pods.note_admission(container, False)
            created = self._pods.get_created(container, now)
            pod, _ = self._admitter[1].admit(created)
            self._pods.note_admission(container, pod is not created)
            admitted.append(pod)
        return get_container_sizes(admitted)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Run a node pass."""
        self._known.refresh(view)
        candidates, chosen = self._touchable.get_candidates(view, self._known)
        row_of_container, statistics = self._known.row_of_container, self._known.columns
        sizes = view.sizes.select(chosen)
        stated = np.column_stack(
            (sizes.cpu_millicores, sizes.memory_bytes, np.zeros(len(chosen), np.int64), sizes.memory_limit_bytes)
        )
        columns = NodePodColumns(
            nodes=self._pods.nodes(view),
            available=_room(view, chosen),
            node_of_pod=view.node[chosen],
            counted={ResourceName.CPU: sizes.cpu_millicores, ResourceName.MEMORY: sizes.memory_bytes},
            table=compute_demand(candidates, stated, statistics, row_of_container[chosen], self._policy),
        )
        headroom = self._headroom.get_for_pass(row_of_container, len(statistics.updated_at), self._known.pod_rows)
        calm = self._calm.get_for_pass(view, chosen)
        sized = size_nodes(columns, self._fit(view, columns), headroom, damping=calm)
        self._sharing = compute_average_sharing(summarize_node_headroom(sized.node_needs, sized.headroom_shares))
        staying = sized.fit.remains[columns.candidates.pod_of_container]
        rests = self._kills.is_in_cooldown(view)[chosen]
        wanted = ContainerSizes(
            sized.sizes_to_write.cpu_millicores.copy(),
            sized.sizes_to_write.memory_bytes.copy(),
            sized.sizes_to_write.memory_limit_bytes.copy(),
        )
        free, cpu, memory = (
            _room(view, NO_CONTAINERS),
            sized.node_needs[ResourceName.CPU],
            sized.node_needs[ResourceName.MEMORY],
        )
        patched = limit_growth_to_capacity(
            sized.rightsized & ~rests,
            wanted,
            sizes,
            view.node[chosen],
            (free[ResourceName.CPU], free[ResourceName.MEMORY]),
            candidates.update_threshold,
        )
        resized = np.flatnonzero(patched)
        self._calm.record(view.time, chosen, sized, resized)
        in_force = {
            ResourceName.CPU: np.where(patched, wanted.cpu_millicores, sizes.cpu_millicores)[staying],
            ResourceName.MEMORY: np.where(patched, wanted.memory_bytes, sizes.memory_bytes)[staying],
        }
        nodes = columns.node_of_container[staying]
        self._headroom.note_requests(RequestsInForce(view.time, chosen[staying], nodes, len(columns.nodes), in_force))
        return ReplayDecision(
            resize=chosen[resized],
            sizes=wanted.select(resized),
            evict=self._evictions(view, sized.fit, chosen, rests),
            base=(cpu.base, memory.base),
            headroom=(cpu.headroom, memory.headroom),
        )

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """React to a kill as the OOM reactor does."""
        self._admitter = None
        return self._kills.react(kill, view)

    def _fit(self, view: ReplayClusterView, columns: NodePodColumns) -> NodeFit:
        """Decide the fit; nodes are added for what is pending, but none larger than they all are."""
        short = find_shortages(columns)
        names = [node.name for node in columns.nodes]
        earlier, self._earlier = self._earlier, NO_EARLIER_PASSES
        if not short:
            return decide_node_fit(columns, {}, short)
        # What is left alone demands CPU as well.
        running = np.flatnonzero((view.node >= 0) & (self._known.row_of_container >= 0))
        bases = self._known.columns.cpu_base_millicores[self._known.row_of_container[running]]
        demand = np.bincount(view.node[running], weights=bases, minlength=len(names)).astype(np.int64)
        eligibility = self._pods.eligibility(view, NO_STATISTIC, self._policy)
        places = self._destinations(view, columns)
        around = ContentionContext(demand, earlier, destinations=None if places is None else places.for_node)
        fit = decide_node_fit(
            columns, find_contended_nodes(columns, eligibility, self._policy.rules, around, short), short
        )
        self._earlier = EarlierPasses(
            frozenset((names[index], one) for index in fit.eviction_pressure for one in fit.eviction_pressure[index])
        )
        return (
            replace(fit, reserved_for_replacements=places.get_reserved_capacity())
            if places is not None and fit.evicted
            else fit
        )

    def _destinations(self, view: ReplayClusterView, columns: NodePodColumns) -> ReplayedDestinations | None:
        """Return where evicted pods go; None where evictions need not know it."""
        nowhere, known = self._pods.snapshot(view, NO_CONTAINERS), self._statistics.get_for_workloads()
        known = replace(known, sharing=self._sharing)
        eligibility = Eligibility(nowhere, known, self._stored, self._policy, convert_to_datetime(view.time))
        prospects = predict_replacement_pods(nowhere, eligibility, known, self._policy)
        if prospects is None:
            return None
        free, available = _room(view, NO_CONTAINERS), columns.available
        base, spike = columns.base_by_node, columns.largest_headroom_by_node
        cpu = available[ResourceName.CPU] - base[ResourceName.CPU]
        memory = available[ResourceName.MEMORY] - base[ResourceName.MEMORY] - spike[ResourceName.MEMORY]
        there = np.bincount(view.node[view.node >= 0], minlength=len(view.node_exists))
        most = np.array([node.allocatable_pods for node in columns.nodes], dtype=np.int64)
        return ReplayedDestinations(
            prospects.replacement,
            view.allocatable,
            view.node_exists,
            free=np.column_stack((free[ResourceName.CPU], free[ResourceName.MEMORY])),
            spare_capacity=np.column_stack((cpu, memory)),
            placements=most - there,
        )

    def _evictions(self, view: ReplayClusterView, fit: NodeFit, chosen: Int64Array, rests: BoolArray) -> Int64Array:
        """Return the containers to evict of those marked: within the budgets, and not while a kill is answered."""
        going = []
        for node in sorted(fit.evicted):
            for eviction in fit.evicted[node]:
                if rests[eviction.index]:
                    continue
                container = int(chosen[eviction.index])
                if self._disruptions.spend(eviction.to_action(self._pods.pod(container, view)), view) is None:
                    going.append(container)
        return np.array(going, dtype=np.int64)


def _room(view: ReplayClusterView, chosen: Int64Array) -> dict[ResourceName, Int64Array]:
    """Return each node's allocatable without what the other pods than the chosen take."""
    others = view.node >= 0
    others[chosen] = False
    nodes = view.node[others]
    room = {}
    for resource, taken in (
        (ResourceName.CPU, view.sizes.cpu_millicores),
        (ResourceName.MEMORY, view.sizes.memory_bytes),
    ):
        room[resource] = np.full(len(view.node_exists), view.allocatable.get(resource), dtype=np.int64)
        np.subtract.at(room[resource], nodes, taken[others])
    return room
