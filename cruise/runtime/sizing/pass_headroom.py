"""The headroom model of the node passes: prepared from the usage that was read, and judged by what came.

`stored_headroom` prepares it from the store, for `explain`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from cruise.decisions.sizing.container_sizes import ContainerSizes
from cruise.decisions.sizing.headroom.choosing import MODELS, Model
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk_level import InForce, KeptRisk
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.peaks import peak_hours
from cruise.decisions.usage.statistics_table import container_of
from cruise.domain.actions import Outcome, ResizePod, Verdict
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import ContainerKey, PeakKey, StatisticsTable
from cruise.runtime.ports import Store
from cruise.runtime.sizing.risk_history import RiskHistory
from cruise.runtime.usage.peaks import PeakNumbers
from cruise.runtime.usage.peaks_by_hour import PeaksByHour
from cruise.runtime.usage.state import UsageState
from cruise.runtime.usage.windows import WINDOW_SECONDS, UsageWindows

_STEP_SECONDS = 60


class PassHeadroom:
    """What the node passes of one process keep of headroom; `usage` is the process's own, as its usage pass left it.

    `kept_risks` tells how the risks were kept lately, empty under a model that learns nothing.
    """

    def __init__(self, usage: UsageState) -> None:
        self._usage = usage
        self._hours = PeaksByHour()
        self._risks: RiskHistory | None = None
        self._in_force: InForce | None = None
        self._containers: list[ContainerKey] = []
        self.kept_risks: Mapping[ResourceName, KeptRisk] = {}

    async def prepare(self, store: Store, statistics: StatisticsTable, policy: Policy) -> Headroom:
        """Return the model for a pass that decides from `statistics`, after judging what the last one left in force."""
        model = MODELS[policy.headroom]
        risks: Mapping[ResourceName, KeptRisk] = {}
        past = PastDemand.empty(len(statistics.keys))
        if model.reads_hours:
            await self._hours.load(store, self._usage.peaks.hours)
        if model.learns:
            risks = self.kept_risks = await self._learn(store, policy)
        if model.reads_usage:
            past = await asyncio.to_thread(self._past, statistics, model)
        return model.prepare(past, risks, policy)

    async def _learn(self, store: Store, policy: Policy) -> Mapping[ResourceName, KeptRisk]:
        risks = self._risks = self._risks or RiskHistory(await store.risk_days())
        await asyncio.to_thread(self._judge, risks, policy)
        unsaved = risks.unsaved()
        if unsaved:
            await store.record_risk_days(unsaved)
        return risks.kept(self._usage.windows.head, policy.risk_of)

    def note_requests(self, plans: Sequence[NodePlan], outcomes: Sequence[Outcome], policy: Policy) -> None:
        """Remember the requests that are in force after a pass, to judge them at the next."""
        if not MODELS[policy.headroom].learns or not plans:
            return
        containers: list[ContainerKey] = []
        requests: dict[ResourceName, list[Int64Array]] = {resource: [] for resource in ResourceName}
        counts = []
        for plan in plans:
            assert isinstance(plan.targets, ContainerSizes)
            before = len(containers)
            containers += plan.targets.containers()
            counts.append(len(containers) - before)
            for resource, of_plan in plan.targets.requests().items():
                requests[resource].append(of_plan)
        in_force = {resource: np.concatenate(of_plans) for resource, of_plans in requests.items()}
        written = [one.action for one in outcomes if one.verdict is Verdict.DONE and isinstance(one.action, ResizePod)]
        place_of = {key: place for place, key in enumerate(containers)} if written else {}
        for action in written:
            for target in action.containers:
                place = place_of.get(ContainerKey(action.namespace, action.pod, target.container))
                for resource in ResourceName:
                    amount = target.requests.of(resource)
                    if place is not None and amount is not None:
                        in_force[resource][place] = amount
        nodes = np.repeat(np.arange(len(plans), dtype=np.int64), counts)
        # A container that was never sampled has no row yet.
        unknown = np.full(len(containers), -1, dtype=np.int64)
        self._in_force = InForce(self._usage.windows.head, unknown, nodes, len(plans), in_force)
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
        usage = windows.recent()
        columns = usage.columns[len(usage.columns) - read :][:wanted]
        samples: dict[ResourceName, NDArray[np.floating]] = {
            ResourceName.CPU: usage.cpu_demand_millicores[:, columns],
            ResourceName.MEMORY: usage.memory_bytes[:, columns],
        }
        risks.judge(replace(in_force, rows=windows.rows_of(containers)), windows.head, samples, policy.risk_of)

    def _past(self, statistics: StatisticsTable, model: Model) -> PastDemand:
        keys, windows = statistics.keys, self._usage.windows
        rows = windows.rows_of([container_of(key) for key in keys])
        numbers: Int64Array = np.full(len(keys), -1, dtype=np.int64)
        hours: dict[ResourceName, Float32Array] = {}
        if model.reads_hours:
            numbers = self._hours.columns_of(
                [PeakKey(key.namespace, key.workload, key.container, key.identity) for key in keys]
            )
            hours = self._hours.matrices()
        return PastDemand.of(windows.recent(), rows, numbers, hours)


async def stored_headroom(store: Store, statistics: StatisticsTable, policy: Policy) -> Headroom:
    """Prepare the policy's model for `statistics` from stored samples and risk levels; writes nothing."""
    if not MODELS[policy.headroom].reads_usage or not statistics.keys:
        return SHARED_MAX
    at = int(statistics.updated_at.max())
    blocks = [block for block in await store.recent_blocks(at - WINDOW_SECONDS) if len(block.times)]
    times = np.unique(np.concatenate([block.times for block in blocks])) if blocks else np.empty(0, dtype=np.int64)
    usage = UsageState(windows=UsageWindows(int(np.diff(times).min()) if len(times) > 1 else _STEP_SECONDS))
    for block in blocks:
        # What their peaks belong to does not matter here.
        usage.windows.append(block, np.zeros(len(block.keys), dtype=np.int64))
    usage.windows.advance(at)
    usage.peaks = PeakNumbers(peak_hours(at, int(policy.look_ahead.total_seconds())))
    return await PassHeadroom(usage).prepare(store, statistics, policy)
