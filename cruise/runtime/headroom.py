"""The headroom model of the node passes: prepared from the usage that was read, and judged by what came.

`stored_headroom` prepares it from the store, for `explain`.
"""

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
    HeadroomModelEntry,
    PastDemand,
)
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.sizing.risk_level import (
    ObservedRisk,
    RequestsInForce,
    compute_initial_level,
    compute_next_level,
    summarize_observed_risk,
)
from cruise.decisions.usage.peaks import get_peak_hours
from cruise.decisions.usage.usage_columns import get_container_key
from cruise.domain.actions import ActionResult, Outcome, ResizePod
from cruise.domain.policy import Policy
from cruise.domain.records import RiskDay
from cruise.domain.resources import Float32Array, Int64Array, ResourceName
from cruise.domain.usage import ContainerKey, PeakKey, StatisticsTable
from cruise.runtime.ports import StorePort
from cruise.runtime.usage.peak_columns import PeakColumns, PeaksByHour
from cruise.runtime.usage.sample_windows import WINDOW_SECONDS, UsageWindows
from cruise.runtime.usage.usage_state import UsageState

# How stated risks were kept, by day, and the levels of headroom that follow, for as long as a process leads.

DAY_SECONDS = 86400
RETENTION_DAYS = 28


class RiskHistory:
    """Counts the intervals in which nodes ran short, and moves the levels by them; goes on from what is `stored`."""

    def __init__(self, stored: Sequence[RiskDay] = ()) -> None:
        self._days: dict[ResourceName, dict[int, RiskDay]] = {resource: {} for resource in ResourceName}
        for one in stored:
            self._days[one.resource][one.day] = one
        self._changed: set[tuple[ResourceName, int]] = set()

    def count_interval(
        self,
        in_force: RequestsInForce,
        at: int,
        samples: Mapping[ResourceName, NDArray[np.floating]],
        risk_of: Callable[[ResourceName], float],
    ) -> None:
        """Take in what became of the requests in force in the interval up to `at`; see `RequestsInForce.short`."""
        day = at // DAY_SECONDS
        for resource, of_rows in samples.items():
            short = in_force.flag_short_nodes(resource, of_rows)
            if not len(short):
                continue
            asked = risk_of(resource)
            level = compute_next_level(self.level(resource, asked), short, asked)
            days = self._days[resource]
            seen = days.get(day, RiskDay(resource, day, 0, 0, level))
            days[day] = replace(
                seen,
                intervals=seen.intervals + len(short),
                short=seen.short + int(np.count_nonzero(short)),
                level=level,
            )
            self._changed.add((resource, day))
            for old in [one for one in days if one < day - RETENTION_DAYS]:
                del days[old]

    def level(self, resource: ResourceName, asked: float) -> float:
        """Return the level of headroom that holds now, for the share `asked`."""
        days = self._days[resource]
        return days[max(days)].level if days else compute_initial_level(asked)

    def get_observed(self, at: int, risk_of: Callable[[ResourceName], float]) -> dict[ResourceName, ObservedRisk]:
        """Return how the risks were kept lately."""
        found = {}
        for resource, days in self._days.items():
            asked = risk_of(resource)
            found[resource] = summarize_observed_risk(days, at // DAY_SECONDS, self.level(resource, asked), asked)
        return found

    def unsaved(self) -> list[RiskDay]:
        """Return the days that changed since the last call, to be stored."""
        changed, self._changed = sorted(self._changed), set()
        return [self._days[one][day] for one, day in changed if day in self._days[one]]


_STEP_SECONDS = 60


class HeadroomState:
    """What the node passes of one process keep of headroom; `usage` is the process's own, as its usage pass left it.

    `kept_risks` tells how the risks were kept lately, empty under a model that learns nothing.
    """

    def __init__(self, usage: UsageState) -> None:
        self._usage = usage
        self._hours = PeaksByHour()
        self._risks: RiskHistory | None = None
        self._in_force: RequestsInForce | None = None
        self._containers: list[ContainerKey] = []
        self.observed_risks: Mapping[ResourceName, ObservedRisk] = {}

    async def prepare(self, store: StorePort, statistics: StatisticsTable, policy: Policy) -> HeadroomModel:
        """Return the model for a pass that decides from `statistics`, after judging what the last one left in force."""
        model = HEADROOM_MODELS[policy.headroom]
        risks: Mapping[ResourceName, ObservedRisk] = {}
        past = PastDemand.create_empty(len(statistics.keys))
        if model.reads_hours:
            await self._hours.load(store, self._usage.peaks.hours)
        if model.learns_risk_level:
            risks = self.observed_risks = await self._learn(store, policy)
        if model.reads_usage:
            past = await asyncio.to_thread(self._past, statistics, model)
        return model.prepare(past, risks)

    async def _learn(self, store: StorePort, policy: Policy) -> Mapping[ResourceName, ObservedRisk]:
        risks = self._risks = self._risks or RiskHistory(await store.risk_days())
        await asyncio.to_thread(self._judge, risks, policy)
        unsaved = risks.unsaved()
        if unsaved:
            await store.record_risk_days(unsaved)
        return risks.get_observed(self._usage.windows.head, policy.get_risk)

    def note_requests(self, plans: Sequence[NodePlan], outcomes: Sequence[Outcome], policy: Policy) -> None:
        """Remember the requests that are in force after a pass, to judge them at the next."""
        if not HEADROOM_MODELS[policy.headroom].learns_risk_level or not plans:
            return
        containers: list[ContainerKey] = []
        requests: dict[ResourceName, list[Int64Array]] = {resource: [] for resource in ResourceName}
        counts = []
        for plan in plans:
            assert isinstance(plan.targets, PlannedContainerSizes)
            before = len(containers)
            containers += plan.targets.get_containers()
            counts.append(len(containers) - before)
            for resource, of_plan in plan.targets.get_requests().items():
                requests[resource].append(of_plan)
        in_force = {resource: np.concatenate(of_plans) for resource, of_plans in requests.items()}
        written = [
            one.action for one in outcomes if one.result is ActionResult.DONE and isinstance(one.action, ResizePod)
        ]
        place_of = {key: place for place, key in enumerate(containers)} if written else {}
        for action in written:
            for target in action.containers:
                place = place_of.get(ContainerKey(action.namespace, action.pod, target.container))
                for resource in ResourceName:
                    amount = target.requests.get(resource)
                    if place is not None and amount is not None:
                        in_force[resource][place] = amount
        nodes = np.repeat(np.arange(len(plans), dtype=np.int64), counts)
        # A container that was never sampled has no row yet.
        unknown = np.full(len(containers), -1, dtype=np.int64)
        self._in_force = RequestsInForce(self._usage.windows.head, unknown, nodes, len(plans), in_force)
        self._containers = containers

    def _judge(self, risks: RiskHistory, policy: Policy) -> None:
        in_force, containers, windows = self._in_force, self._containers, self._usage.windows
        self._in_force, self._containers = None, []
        if in_force is None:
            return
        step, interval = windows.step_seconds, int(policy.pass_interval.total_seconds())
        read, wanted = (windows.head - in_force.at) // step, max(1, interval // step)
        # Half an interval is not judged as one, and of one that is longer ago than the windows reach nothing is known.
        if 2 * read < wanted or windows.head - in_force.at > WINDOW_SECONDS:
            return
        usage = windows.get_recent()
        columns = usage.columns[len(usage.columns) - read :][:wanted]
        samples: dict[ResourceName, NDArray[np.floating]] = {
            ResourceName.CPU: usage.cpu_demand_millicores[:, columns],
            ResourceName.MEMORY: usage.memory_bytes[:, columns],
        }
        risks.count_interval(
            replace(in_force, rows=windows.find_rows(containers)), windows.head, samples, policy.get_risk
        )

    def _past(self, statistics: StatisticsTable, model: HeadroomModelEntry) -> PastDemand:
        keys, windows = statistics.keys, self._usage.windows
        rows = windows.find_rows([get_container_key(key) for key in keys])
        numbers: Int64Array = np.full(len(keys), -1, dtype=np.int64)
        hours: dict[ResourceName, Float32Array] = {}
        if model.reads_hours:
            numbers = self._hours.columns_of(
                [PeakKey(key.namespace, key.workload, key.container, key.identity) for key in keys]
            )
            hours = self._hours.matrices()
        return PastDemand.create(windows.get_recent(), rows, numbers, hours)


async def prepare_stored_headroom(store: StorePort, statistics: StatisticsTable, policy: Policy) -> HeadroomModel:
    """Prepare the policy's model for `statistics` from stored samples and risk levels; writes nothing."""
    if not HEADROOM_MODELS[policy.headroom].reads_usage or not statistics.keys:
        return SHARED_MAX_HEADROOM
    at = int(statistics.updated_at.max())
    blocks = [block for block in await store.recent_blocks(at - WINDOW_SECONDS) if len(block.times)]
    times = np.unique(np.concatenate([block.times for block in blocks])) if blocks else np.empty(0, dtype=np.int64)
    usage = UsageState(windows=UsageWindows(int(np.diff(times).min()) if len(times) > 1 else _STEP_SECONDS))
    for block in blocks:
        # What their peaks belong to does not matter here.
        usage.windows.append(block, np.zeros(len(block.keys), dtype=np.int64))
    usage.windows.advance(at)
    usage.peaks = PeakColumns(get_peak_hours(at, int(policy.look_ahead.total_seconds())))
    return await HeadroomState(usage).prepare(store, statistics, policy)
