"""The headroom model of the node passes: prepared from the usage that was read, and judged by what came.

`stored_headroom` prepares it from the store, for `explain`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cruise.decisions.sizing.container_sizes import ContainerSizes
from cruise.decisions.sizing.headroom.choosing import MODELS, Model
from cruise.decisions.sizing.headroom.margins import Margin
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.outcome import Expectation
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.promise import Promise
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.decisions.usage.peaks import peak_hours
from cruise.decisions.usage.statistics_table import container_of
from cruise.domain.arrays import Float32Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import ContainerKey, PeakKey, StatisticsTable
from cruise.runtime.ports import Store
from cruise.runtime.sizing.score_history import ScoreHistory
from cruise.runtime.sizing.shipped_scores import shipped_priors
from cruise.runtime.usage.peaks import PeakNumbers
from cruise.runtime.usage.peaks_by_hour import PeaksByHour
from cruise.runtime.usage.state import UsageState
from cruise.runtime.usage.windows import WINDOW_SECONDS, UsageWindows

_STEP_SECONDS = 60


class PassHeadroom:
    """What the node passes of one process keep of headroom; `usage` is the process's own, as its usage pass left it.

    `promises` tells how the risks were kept to lately, empty under a model that learns nothing.
    """

    def __init__(self, usage: UsageState) -> None:
        self._usage = usage
        self._hours = PeaksByHour()
        self._scores: ScoreHistory | None = None
        self._expected: Expectation | None = None
        self._containers: list[ContainerKey] = []
        self.promises: Mapping[ResourceName, Promise] = {}

    async def prepare(self, store: Store, statistics: StatisticsTable, policy: Policy) -> Headroom:
        """Return the model for a pass that decides from `statistics`, after judging what the last one expected."""
        model = MODELS[policy.headroom]
        margins: Mapping[ResourceName, Margin] = {}
        past = PastDemand.empty(len(statistics.keys))
        if model.reads_hours:
            await self._hours.load(store, self._usage.peaks.hours)
        if model.learns:
            margins = await self._learn(store, policy)
        if model.reads_usage:
            past = await asyncio.to_thread(self._past, statistics, model)
        return model.prepare(past, margins, policy)

    async def _learn(self, store: Store, policy: Policy) -> Mapping[ResourceName, Margin]:
        scores = self._scores = self._scores or ScoreHistory(await store.headroom_scores(), shipped_priors(policy))
        await asyncio.to_thread(self._judge, scores, int(policy.pass_interval.total_seconds()))
        unsaved = scores.unsaved()
        if unsaved:
            await store.record_headroom_scores(unsaved)
        promised = scores.promised(self._usage.windows.head, policy.risk_of)
        self.promises = {resource: promise for resource, (_, promise) in promised.items()}
        return {resource: margin for resource, (margin, _) in promised.items()}

    def expect(self, plans: Sequence[NodePlan], policy: Policy) -> None:
        """Remember what a pass was decided on, to judge it at the next."""
        if not MODELS[policy.headroom].learns or not plans:
            return
        containers: list[ContainerKey] = []
        counts = []
        for plan in plans:
            assert isinstance(plan.targets, ContainerSizes)
            before = len(containers)
            containers += plan.targets.containers()
            counts.append(len(containers) - before)
        bases = {
            ResourceName.CPU: np.array([plan.base.cpu_millicores for plan in plans], dtype=np.int64),
            ResourceName.MEMORY: np.array([plan.base.memory_bytes for plan in plans], dtype=np.int64),
        }
        extras = {
            resource: np.array([plan.extras[place] for plan in plans], dtype=np.float64)
            for place, resource in enumerate((ResourceName.CPU, ResourceName.MEMORY))
        }
        nodes = np.repeat(np.arange(len(plans), dtype=np.int64), counts)
        # A container that was never sampled has no row yet.
        unknown = np.full(len(containers), -1, dtype=np.int64)
        self._expected = Expectation.of(self._usage.windows.head, unknown, nodes, bases, extras)
        self._containers = containers

    def _judge(self, scores: ScoreHistory, interval: int) -> None:
        expected, containers, windows = self._expected, self._containers, self._usage.windows
        self._expected, self._containers = None, []
        if expected is None:
            return
        step = windows.step_seconds
        read, wanted = (windows.head - expected.at) // step, max(1, interval // step)
        # Half an interval is not judged as one, and of one that is longer ago than the windows reach nothing is known.
        if 2 * read < wanted or windows.head - expected.at > WINDOW_SECONDS:
            return
        usage = windows.recent()
        columns = usage.columns[len(usage.columns) - read :][:wanted]
        scores.judge(
            replace(expected, rows=windows.rows_of(containers)),
            windows.head,
            {
                ResourceName.CPU: usage.cpu_demand_millicores[:, columns],
                ResourceName.MEMORY: usage.memory_bytes[:, columns],
            },
        )

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
    """Prepare the policy's model for `statistics`, from the samples and scores that are stored; writes nothing."""
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
