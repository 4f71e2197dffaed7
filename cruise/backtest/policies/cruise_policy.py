"""Cruise under replay: its statistics, admission, node pass and OOM reaction, in columns.

The functions of the live controller decide here too. Those that decide pod by pod (eligibility, eviction ranking,
admission, OOM reactions, budgets) receive pods that are built from the columns.
"""

from collections import deque
from dataclasses import replace
from functools import cache

import numpy as np

from cruise.backtest.policies.evictions import ReplayedDestinations, ReplayedOomReactor, ReplayEvictionBudgets
from cruise.backtest.policies.replayed_pods import (
    ReplayedPods,
    ResizableReplayedPods,
    get_container_sizes,
)
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.statistics_lookup import NO_STATISTIC, ReplayedHeadroomModel, ReplayedStatisticsLookup
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
from cruise.decisions.eviction.destinations import ReplacementPrediction
from cruise.decisions.eviction.ranking import NO_EARLIER_PASSES, EarlierPassResults
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.demand import compute_demand
from cruise.decisions.sizing.fitting import (
    ContentionContext,
    NodeFit,
    decide_node_fit,
    find_contended_nodes,
    find_shortages,
)
from cruise.decisions.sizing.headroom import HeadroomModel
from cruise.decisions.sizing.headroom_level import RequestsInEffect
from cruise.decisions.sizing.headroom_shares import compute_average_headroom_share, summarize_node_headroom
from cruise.decisions.sizing.node_columns import NodePodColumns
from cruise.decisions.sizing.node_sizes import SizingResult, size_nodes
from cruise.decisions.sizing.write_tolerances import (
    WriteDamping,
    get_over_request_tolerances,
    get_under_request_tolerances,
    is_within_write_budget,
)
from cruise.domain.arrays import BoolArray, Float32Array, Int64Array
from cruise.domain.overrides import NO_PAUSED_WORKLOADS
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.usage import StatisticsTable
from cruise.runtime.admission import PodAdmitter
from cruise.simulation.cluster.state import convert_to_datetime

_NEVER = -(1 << 60)
_NOT_YET = 1 << 60
_DAY_SECONDS = 86400


class ReplayedDamping:
    """The write damping of a replay, in columns.

    It has the times since when nodes are over-requested and containers under-requested, and the last day's resizes.
    """

    def __init__(self, containers: int, policy: Policy) -> None:
        self._policy = policy
        self._over_requested_since: dict[ResourceName, Int64Array] = {}
        self._under_requested_since = {one: np.full(containers, _NOT_YET, dtype=np.int64) for one in ResourceName}
        self._resized_at = {one: np.full(containers, _NEVER, dtype=np.int64) for one in ResourceName}
        self._cooldown = int(policy.effective_shrink_cooldown.total_seconds())
        # Per pass of the last day: its time, the resized containers, and which of their pods these were.
        self._writes: deque[tuple[int, Int64Array, Int64Array]] = deque()
        self._replacements = np.zeros(containers, dtype=np.int64)
        self._total_writes = 0
        self._daily_writes = np.zeros(containers, dtype=np.int64)
        self._is_resized = np.zeros(containers, dtype=np.bool_)

    def reset_replaced(self, containers: Int64Array) -> None:
        """Reset containers whose pods were replaced."""
        for resource in ResourceName:
            self._resized_at[resource][containers] = _NEVER
            self._under_requested_since[resource][containers] = _NOT_YET
        self._daily_writes[containers] = 0
        self._is_resized[containers] = False
        self._replacements[containers] += 1

    def get_for_pass(
        self, view: ReplayClusterView, chosen: Int64Array, headroom: HeadroomModel, is_sized_at_creation: BoolArray
    ) -> WriteDamping | None:
        """Return the write damping of a pass over the chosen containers; None if the rules have none."""
        if not self._policy.rules.write_damping:
            return None
        over_seconds, under_seconds = (
            int(one.total_seconds())
            for one in (self._policy.over_requested_stabilization, self._policy.under_requested_stabilization)
        )
        nodes = len(view.node_exists)
        over_requested = {one: _resize_times(self._over_requested_since.get(one), nodes) for one in ResourceName}
        return WriteDamping(
            get_over_request_tolerances(self._policy),
            get_under_request_tolerances(headroom),
            {one: view.time - since >= over_seconds for one, since in over_requested.items()},
            {one: view.time - since[chosen] >= under_seconds for one, since in self._under_requested_since.items()},
            self._find_past_cooldown(view.time, chosen),
            lambda indices: ~(self._is_resized | is_sized_at_creation)[chosen[indices]],
        )

    def _find_past_cooldown(self, time: int, chosen: Int64Array) -> dict[ResourceName, BoolArray]:
        while self._writes and self._writes[0][0] <= time - _DAY_SECONDS:
            _, written, replacements = self._writes.popleft()
            self._daily_writes[written[self._replacements[written] == replacements]] -= 1
            self._total_writes -= len(written)
        within_budget = is_within_write_budget(self._daily_writes[chosen], self._total_writes, self._policy)
        return {one: within_budget & (time - self._resized_at[one][chosen] >= self._cooldown) for one in ResourceName}

    def record(self, time: int, chosen: Int64Array, sized: SizingResult, resized: Int64Array) -> None:
        """Record a pass over the chosen containers, of which those at the places `resized` were resized."""
        if sized.damped_sizes is None:
            return
        for one in ResourceName:
            over_requested, under_requested = (
                sized.damped_sizes.over_requested[one],
                np.zeros(len(self._daily_writes), dtype=np.bool_),
            )
            under_requested[chosen] = sized.damped_sizes.under_requested[one]
            self._over_requested_since[one] = _update_since(
                over_requested, _resize_times(self._over_requested_since.get(one), len(over_requested)), time
            )
            self._under_requested_since[one] = _update_since(under_requested, self._under_requested_since[one], time)
        containers, table = chosen[resized], sized.columns.table
        for one in ResourceName:
            changed = sized.sizes_to_write.get_requests(one)[resized] != table.get_resource(one).current[resized]
            self._resized_at[one][containers[changed]] = time
        self._writes.append((time, containers, self._replacements[containers]))
        self._total_writes += len(containers)
        self._daily_writes[containers] += 1
        self._is_resized[containers] = True


def _update_since(flags: BoolArray, since: Int64Array, time: int) -> Int64Array:
    return np.where(flags, np.minimum(since, time), _NOT_YET)


def _resize_times(since: Int64Array | None, nodes: int) -> Int64Array:
    since = np.zeros(0, dtype=np.int64) if since is None else since
    return np.concatenate((since[:nodes], np.full(max(nodes - len(since), 0), _NOT_YET, dtype=np.int64)))


class CruisePolicy:
    """Cruise in mode full under one policy."""

    def __init__(
        self,
        recording: UsageRecording,
        policy: Policy,
        name: str = "cruise",
        policy_objects: tuple[RightsizingPolicy, ...] = (),
    ) -> None:
        count = len(recording.containers)
        self._name = name
        self._policy = replace(policy, mode=Mode.FULL)
        self._statistics = ReplayedStatistics(recording, self._policy)
        self._lookup = ReplayedStatisticsLookup(recording, self._statistics)
        self._headroom = ReplayedHeadroomModel(self._policy, self._statistics)
        self._pods = ReplayedPods(recording, policy_objects)
        self._resizable_pods = ResizableReplayedPods(recording, self._pods, self._policy)
        self._budgets = ReplayEvictionBudgets(self._pods, self._policy)
        self._oom_reactor = ReplayedOomReactor(
            count, self._pods, self._statistics, self._lookup, self._budgets, self._policy
        )
        self._creation_counts = np.zeros(count, dtype=np.int64)
        self._admitter: tuple[int, PodAdmitter] | None = None
        self._last_sized: SizingResult | None = None
        self._earlier_passes = NO_EARLIER_PASSES
        self._damping = ReplayedDamping(count, self._policy)

    @property
    def name(self) -> str:
        """The policy's name in tables."""
        return self._name

    def observe(self, time: int, cpu: Float32Array, memory: Float32Array) -> None:
        """Add samples."""
        self._statistics.observe(time, cpu, memory)
        self._headroom.observe(time, cpu, memory)
        self._admitter = None

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        """Size new pods as the webhook does."""
        now = convert_to_datetime(view.time)
        if self._admitter is None or self._admitter[0] != view.time:
            empty_cluster = self._pods.build_snapshot(view, NO_CONTAINERS)
            statistics = self._get_workload_statistics()
            self._admitter = (view.time, PodAdmitter(empty_cluster, statistics, NO_PAUSED_WORKLOADS, self._policy, now))
        # Running pods may be admitted too, as a prediction; they were not replaced.
        replaced = containers[view.creation_count[containers] > np.maximum(self._creation_counts[containers], 1)]
        self._statistics.reset_replaced(replaced)
        self._headroom.reset_replaced(replaced)
        self._damping.reset_replaced(replaced)
        self._creation_counts[containers] = view.creation_count[containers]
        admitted = []
        for container in containers.tolist():
            self._pods.record_admission(container, False)
            created = self._pods.get_created(container, now)
            pod, _ = self._admitter[1].admit(created)
            self._pods.record_admission(container, pod is not created)
            admitted.append(pod)
        return get_container_sizes(admitted)

    def decide(self, view: ReplayClusterView) -> ReplayDecision:
        """Run a node pass."""
        self._lookup.refresh(view)
        candidates, chosen = self._resizable_pods.get_candidates(view, self._lookup)
        row_of_container, statistics = self._lookup.row_of_container, self._lookup.columns
        sizes = view.sizes.select(chosen)
        stated = np.column_stack(
            (sizes.cpu_millicores, sizes.memory_bytes, np.zeros(len(chosen), np.int64), sizes.memory_limit_bytes)
        )
        columns = NodePodColumns(
            nodes=self._pods.build_nodes(view),
            available=_compute_available(view, chosen),
            node_of_pod=view.node[chosen],
            counted={ResourceName.CPU: sizes.cpu_millicores, ResourceName.MEMORY: sizes.memory_bytes},
            table=compute_demand(candidates, stated, statistics, row_of_container[chosen], self._policy),
        )
        headroom = self._headroom.get_for_pass(row_of_container, len(statistics.updated_at), self._lookup.pod_rows)
        damping = self._damping.get_for_pass(view, chosen, headroom, self._pods.is_sized_at_creation)
        sized = size_nodes(columns, self._fit(view, columns), headroom, damping=damping)
        self._last_sized = sized
        remaining = sized.fit.remains[columns.candidates.pod_of_container]
        in_cooldown = self._oom_reactor.is_in_cooldown(view)[chosen]
        planned = ContainerSizes(
            sized.sizes_to_write.cpu_millicores.copy(),
            sized.sizes_to_write.memory_bytes.copy(),
            sized.sizes_to_write.memory_limit_bytes.copy(),
        )
        free, cpu, memory = (
            _compute_available(view, NO_CONTAINERS),
            sized.node_needs[ResourceName.CPU],
            sized.node_needs[ResourceName.MEMORY],
        )
        is_resized = limit_growth_to_capacity(
            sized.rightsized & ~in_cooldown,
            planned,
            sizes,
            view.node[chosen],
            (free[ResourceName.CPU], free[ResourceName.MEMORY]),
            candidates.update_threshold,
        )
        resized = np.flatnonzero(is_resized)
        self._damping.record(view.time, chosen, sized, resized)
        in_force = {
            ResourceName.CPU: np.where(is_resized, planned.cpu_millicores, sizes.cpu_millicores)[remaining],
            ResourceName.MEMORY: np.where(is_resized, planned.memory_bytes, sizes.memory_bytes)[remaining],
        }
        nodes = columns.node_of_container[remaining]
        self._headroom.record_requests(
            RequestsInEffect(view.time, chosen[remaining], nodes, len(columns.nodes), in_force)
        )
        return ReplayDecision(
            resize=chosen[resized],
            sizes=planned.select(resized),
            evict=self._select_evictions(view, sized.fit, chosen, in_cooldown),
            base=(cpu.base, memory.base),
            headroom=(cpu.headroom, memory.headroom),
        )

    def react_to_oom_kill(self, kill: ReplayedOomKill, view: ReplayClusterView) -> ReplayedOomReaction:
        """React to a kill as the OOM reactor does."""
        self._admitter = None
        return self._oom_reactor.react(kill, view)

    def _fit(self, view: ReplayClusterView, columns: NodePodColumns) -> NodeFit:
        """Decide which pods fit on their nodes and which are evicted."""
        short = find_shortages(columns)
        names = [node.name for node in columns.nodes]
        earlier_passes, self._earlier_passes = self._earlier_passes, NO_EARLIER_PASSES
        if not short:
            return decide_node_fit(columns, {}, short)
        # Skipped pods demand CPU as well.
        running = np.flatnonzero((view.node >= 0) & (self._lookup.row_of_container >= 0))
        bases = self._lookup.columns.cpu_base_millicores[self._lookup.row_of_container[running]]
        demand = np.bincount(view.node[running], weights=bases, minlength=len(names)).astype(np.int64)
        eligibility = self._pods.build_eligibility(view, NO_STATISTIC, self._policy)
        destinations = self._build_destinations(view, columns)
        context = ContentionContext(
            demand, earlier_passes, destinations=None if destinations is None else destinations.get_for_node
        )
        fit = decide_node_fit(
            columns, find_contended_nodes(columns, eligibility, self._policy.rules, context, short), short
        )
        self._earlier_passes = EarlierPassResults(
            frozenset((names[index], one) for index in fit.eviction_pressure for one in fit.eviction_pressure[index])
        )
        return (
            replace(fit, reserved_for_replacements=destinations.get_reserved_capacity())
            if destinations is not None and fit.evicted
            else fit
        )

    def _build_destinations(self, view: ReplayClusterView, columns: NodePodColumns) -> ReplayedDestinations | None:
        """Return the destinations of evicted pods; None if the policy does not predict replacement pods."""
        if not self._policy.rules.eviction_safeguards:
            return None
        free, available = _compute_available(view, NO_CONTAINERS), columns.available
        base, headroom = columns.base_by_node, columns.largest_headroom_by_node
        cpu = available[ResourceName.CPU] - base[ResourceName.CPU]
        memory = available[ResourceName.MEMORY] - base[ResourceName.MEMORY] - headroom[ResourceName.MEMORY]
        pods = np.bincount(view.node[view.node >= 0], minlength=len(view.node_exists))
        allocatable_pods = np.array([node.allocatable_pods for node in columns.nodes], dtype=np.int64)

        @cache
        def index_pods() -> dict[str, int]:
            return {one.pod.uid: index for index, one in enumerate(columns.candidates.pods)}

        return ReplayedDestinations(
            self._create_replacement_prediction(view),
            lambda uid: index_pods()[uid],
            columns.counted,
            view.allocatable,
            view.node_exists,
            free=np.column_stack((free[ResourceName.CPU], free[ResourceName.MEMORY])),
            spare_capacity=np.column_stack((cpu, memory)),
            placements=allocatable_pods - pods,
        )

    def _create_replacement_prediction(self, view: ReplayClusterView) -> ReplacementPrediction:
        """Return the prediction of replacements, which is prepared for the first pod: few nodes need any."""

        @cache
        def prepare() -> ReplacementPrediction:
            cluster, statistics = self._pods.build_snapshot(view, NO_CONTAINERS), self._get_workload_statistics()
            eligibility = Eligibility(
                cluster, statistics, NO_PAUSED_WORKLOADS, self._policy, convert_to_datetime(view.time)
            )
            prediction = predict_replacement_pods(cluster, eligibility, statistics, self._policy)
            assert prediction is not None
            return prediction.replacement

        return lambda pod: prepare()(pod)

    def _get_workload_statistics(self) -> StatisticsTable:
        """Return the statistics for admission, with the average headroom share of the last pass."""
        sized, statistics = self._last_sized, self._statistics.get_for_workloads()
        if sized is None:
            return statistics
        average_share = compute_average_headroom_share(summarize_node_headroom(sized.node_needs, sized.headroom_shares))
        return replace(statistics, average_headroom_share=average_share)

    def _select_evictions(
        self, view: ReplayClusterView, fit: NodeFit, chosen: Int64Array, in_cooldown: BoolArray
    ) -> Int64Array:
        """Return the containers to evict: of those marked, the ones within the budgets and not in OOM cooldown."""
        evicted = []
        for node in sorted(fit.evicted):
            for eviction in fit.evicted[node]:
                if in_cooldown[eviction.index]:
                    continue
                container = int(chosen[eviction.index])
                if self._budgets.spend(eviction.to_action(self._pods.get_pod(container, view)), view) is None:
                    evicted.append(container)
        return np.array(evicted, dtype=np.int64)


def _compute_available(view: ReplayClusterView, chosen: Int64Array) -> dict[ResourceName, Int64Array]:
    """Return each node's allocatable without the requests of pods other than the chosen."""
    others = view.node >= 0
    others[chosen] = False
    nodes = view.node[others]
    available = {}
    for resource, requests in (
        (ResourceName.CPU, view.sizes.cpu_millicores),
        (ResourceName.MEMORY, view.sizes.memory_bytes),
    ):
        available[resource] = np.full(len(view.node_exists), view.allocatable.get(resource), dtype=np.int64)
        np.subtract.at(available[resource], nodes, requests[others])
    return available
