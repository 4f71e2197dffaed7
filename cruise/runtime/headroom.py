"""The headroom model of the node passes: prepared from usage, and adjusted by the observed risk."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.container_sizes import PlannedContainerSizes
from cruise.decisions.sizing.headroom import (
    HEADROOM_MODELS,
    SHARED_MAX_HEADROOM,
    HeadroomModel,
    PastDemand,
)
from cruise.decisions.sizing.headroom_level import (
    ObservedRisk,
    RequestsInEffect,
    compute_initial_level,
    compute_next_level,
    get_least_level,
    summarize_observed_risk,
)
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.peaks import get_peak_hours
from cruise.decisions.usage.usage_columns import get_container_key
from cruise.domain.actions import ActionResult, Outcome, ResizePod
from cruise.domain.arrays import Int64Array
from cruise.domain.policy import Policy
from cruise.domain.records import RiskDay
from cruise.domain.resources import ResourceName
from cruise.domain.usage import ContainerKey, PeakKey, StatisticsTable
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.sample_windows import WINDOW_SECONDS, PeakColumns, PeaksByHour, UsageWindows
from cruise.runtime.usage.usage_state import UsageState

DAY_SECONDS = 86400
RETENTION_DAYS = 28
_STEP_SECONDS = 60


class RiskHistory:
    """Counts by day the intervals in which nodes were short, and adjusts the levels of headroom.

    It starts from the `stored` days, and is kept as long as a process leads.
    """

    def __init__(self, stored: Sequence[RiskDay] = ()) -> None:
        self._days: dict[ResourceName, dict[int, RiskDay]] = {resource: {} for resource in ResourceName}
        for one in stored:
            self._days[one.resource][one.day] = one
        self._changed: set[tuple[ResourceName, int]] = set()

    def count_interval(
        self,
        in_effect: RequestsInEffect,
        at: int,
        samples: Mapping[ResourceName, NDArray[np.floating]],
        policy: Policy,
    ) -> None:
        """Count the nodes that were short of their requests in the interval up to `at`; see `RequestsInEffect`."""
        day = at // DAY_SECONDS
        for resource, usage in samples.items():
            short = in_effect.flag_short_nodes(resource, usage)
            if not len(short):
                continue
            stated_risk, least = policy.get_risk(resource), get_least_level(resource, policy)
            level = compute_next_level(self.get_level(resource, stated_risk), short, stated_risk, least)
            days = self._days[resource]
            earlier = days.get(day, RiskDay(resource, day, 0, 0, level))
            days[day] = replace(
                earlier,
                intervals=earlier.intervals + len(short),
                short=earlier.short + int(np.count_nonzero(short)),
                level=level,
            )
            self._changed.add((resource, day))
            for old in [one for one in days if one < day - RETENTION_DAYS]:
                del days[old]

    def get_level(self, resource: ResourceName, stated_risk: float) -> float:
        """Return the present level of headroom for a stated risk."""
        days = self._days[resource]
        return days[max(days)].level if days else compute_initial_level(stated_risk)

    def get_observed(self, at: int, get_risk: Callable[[ResourceName], float]) -> dict[ResourceName, ObservedRisk]:
        """Return the observed risks of the last days."""
        found = {}
        for resource, days in self._days.items():
            stated_risk = get_risk(resource)
            found[resource] = summarize_observed_risk(
                days, at // DAY_SECONDS, self.get_level(resource, stated_risk), stated_risk
            )
        return found

    def take_unsaved(self) -> list[RiskDay]:
        """Return the days that changed since the last call, to be stored."""
        changed, self._changed = sorted(self._changed), set()
        return [self._days[one][day] for one, day in changed if day in self._days[one]]


class HeadroomState:
    """The state of headroom between the node passes of one process; `usage` is the state of its usage passes.

    `observed_risks` is empty under a model without a risk level.
    """

    def __init__(self, usage: UsageState) -> None:
        self._usage = usage
        self._hours = PeaksByHour()
        self._risks: RiskHistory | None = None
        self._in_effect: RequestsInEffect | None = None
        self._containers: list[ContainerKey] = []
        self.observed_risks: Mapping[ResourceName, ObservedRisk] = {}

    async def prepare(self, store: StorePort, statistics: StatisticsTable, policy: Policy) -> HeadroomModel:
        """Return the model for a pass that decides from `statistics`; first count the interval since the last pass."""
        model = HEADROOM_MODELS[policy.headroom]
        risks: Mapping[ResourceName, ObservedRisk] = {}
        past = PastDemand.create_empty(len(statistics.keys))
        if model.reads_usage:
            await self._hours.load(store, self._usage.peaks.hours)
            past = await asyncio.to_thread(self._collect_past_demand, statistics)
        if model.learns_level:
            risks = self.observed_risks = await self._update_risks(store, policy)
        return model.prepare(past, risks)

    async def _update_risks(self, store: StorePort, policy: Policy) -> Mapping[ResourceName, ObservedRisk]:
        risks = self._risks = self._risks or RiskHistory(await store.read_risk_days())
        await asyncio.to_thread(self._count_last_interval, risks, policy)
        unsaved = risks.take_unsaved()
        if unsaved:
            await store.record_risk_days(unsaved)
        return risks.get_observed(self._usage.windows.head, policy.get_risk)

    def record_requests(self, plans: Sequence[NodePlan], outcomes: Sequence[Outcome], policy: Policy) -> None:
        """Keep the requests in effect after a pass, to compare them with usage in the next pass."""
        if not HEADROOM_MODELS[policy.headroom].learns_level or not plans:
            return
        containers: list[ContainerKey] = []
        requests: dict[ResourceName, list[Int64Array]] = {resource: [] for resource in ResourceName}
        counts = []
        for plan in plans:
            assert isinstance(plan.targets, PlannedContainerSizes)
            before = len(containers)
            containers += plan.targets.get_containers()
            counts.append(len(containers) - before)
            for resource, plan_requests in plan.targets.get_requests().items():
                requests[resource].append(plan_requests)
        in_effect = {resource: np.concatenate(parts) for resource, parts in requests.items()}
        written = [
            one.action for one in outcomes if one.result is ActionResult.DONE and isinstance(one.action, ResizePod)
        ]
        index_of = {key: index for index, key in enumerate(containers)} if written else {}
        for action in written:
            for target in action.containers:
                index = index_of.get(ContainerKey(action.namespace, action.pod, target.container))
                for resource in ResourceName:
                    amount = target.requests.get(resource)
                    if index is not None and amount is not None:
                        in_effect[resource][index] = amount
        nodes = np.repeat(np.arange(len(plans), dtype=np.int64), counts)
        # Containers without samples have no row yet.
        unknown = np.full(len(containers), -1, dtype=np.int64)
        self._in_effect = RequestsInEffect(self._usage.windows.head, unknown, nodes, len(plans), in_effect)
        self._containers = containers

    def _count_last_interval(self, risks: RiskHistory, policy: Policy) -> None:
        in_effect, containers, windows = self._in_effect, self._containers, self._usage.windows
        self._in_effect, self._containers = None, []
        if in_effect is None:
            return
        step, interval = windows.step_seconds, int(policy.pass_interval.total_seconds())
        steps_read, steps_wanted = (windows.head - in_effect.at) // step, max(1, interval // step)
        # Less than half an interval does not count, nor one that began before the sample windows.
        if 2 * steps_read < steps_wanted or windows.head - in_effect.at > WINDOW_SECONDS:
            return
        usage = windows.get_recent()
        columns = usage.columns[len(usage.columns) - steps_read :][:steps_wanted]
        samples: dict[ResourceName, NDArray[np.floating]] = {
            ResourceName.CPU: usage.cpu_demand_millicores[:, columns],
            ResourceName.MEMORY: usage.memory_bytes[:, columns],
        }
        risks.count_interval(replace(in_effect, rows=windows.find_rows(containers)), windows.head, samples, policy)

    def _collect_past_demand(self, statistics: StatisticsTable) -> PastDemand:
        keys, windows = statistics.keys, self._usage.windows
        rows = windows.find_rows([get_container_key(key) for key in keys])
        numbers = self._hours.find_columns(
            [PeakKey(key.namespace, key.workload, key.container, key.identity) for key in keys]
        )
        return PastDemand.create(windows.get_recent(), rows, numbers, self._hours.maxima)


async def prepare_stored_headroom(store: StorePort, statistics: StatisticsTable, policy: Policy) -> HeadroomModel:
    """Prepare the policy's model for `statistics` from stored samples and risk levels, for `explain`."""
    if not HEADROOM_MODELS[policy.headroom].reads_usage or not statistics.keys:
        return SHARED_MAX_HEADROOM
    at = int(statistics.updated_at.max())
    blocks = [block for block in await store.read_recent_blocks(at - WINDOW_SECONDS) if len(block.times)]
    times = np.unique(np.concatenate([block.times for block in blocks])) if blocks else np.empty(0, dtype=np.int64)
    usage = UsageState(windows=UsageWindows(int(np.diff(times).min()) if len(times) > 1 else _STEP_SECONDS))
    for block in blocks:
        # The numbers of their peaks are not used here.
        usage.windows.append(block, np.zeros(len(block.keys), dtype=np.int64))
    usage.windows.advance(at)
    usage.peaks = PeakColumns(get_peak_hours(at, int(policy.look_ahead.total_seconds())))
    return await HeadroomState(usage).prepare(store, statistics, policy)
