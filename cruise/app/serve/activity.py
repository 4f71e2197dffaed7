"""What a process and its passes did, for the demo, the API, metrics and readiness."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import structlog

from cruise.decisions.scan.waste import sum_realized_savings
from cruise.domain.actions import Outcome, ResizeCause, ResizePod, SkippedPod
from cruise.domain.cluster import PodsByName
from cruise.domain.packing_plan import PackingPlan
from cruise.domain.policy import Mode
from cruise.domain.records import HourlyClusterTotals, get_clock_hour
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import SampleRejectionReason, StatisticsTable
from cruise.interfaces.http.figures import (
    ClusterTotalsAtPass,
    ControllerFigures,
    JobFigures,
    NodePassFigures,
    OutcomeKey,
    PackingActivityFigures,
    compute_cluster_totals,
    get_outcome_key,
    list_resize_causes,
    summarize_node_pass,
)
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.oom import OomReactionResult
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult
from cruise.runtime.packing.packing_pass import PackingPassResult
from cruise.runtime.ports import StorePort
from cruise.runtime.revert import get_original_sizes_by_uid, read_stored_original_sizes
from cruise.runtime.usage.usage_reader import UsageReadingProgress
from cruise.runtime.usage.usage_state import FailedUsageRead

_KEPT = 500
# A week at the default interval.
_KEPT_MOMENTS = 2016
log = structlog.get_logger()
_BETWEEN_LINES_SECONDS = 10.0
AnnounceFunction = Callable[[Sequence[Outcome], Sequence[SkippedPod], PodsByName], Awaitable[None]]


@dataclass(slots=True)
class ServeActivity:
    """What happened since the process started, over all its terms of leadership.

    `is_filled`: this term has statistics; until then `fill_progress` indicates how much is read. `refreshed_at` is when
    they were last updated, `unreadable` what could not be read then. `paused`: the last pass found writes paused.
    `requested_before` has the requests of pods before their last resizes, by uid and time. `notices` counts
    notifications that were sent and dropped, `published` the writes of VerticalPodAutoscalers.
    """

    node_pass: NodePassResult | None = None
    pass_figures: NodePassFigures | None = None
    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=_KEPT))
    reactions: deque[OomReactionResult] = field(default_factory=lambda: deque(maxlen=_KEPT))
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    counts: Counter[OutcomeKey] = field(default_factory=Counter)
    refused: Counter[SampleRejectionReason] = field(default_factory=Counter)
    notices: Counter[str] = field(default_factory=Counter)
    causes: Counter[ResizeCause] = field(default_factory=Counter)
    requested_before: dict[tuple[str, datetime], Resources] = field(default_factory=dict)
    published: int = 0
    is_filled: bool = False
    fill_progress: UsageReadingProgress | None = None
    refreshed_at: datetime | None = None
    unreadable: Sequence[FailedUsageRead] = ()
    statistics: StatisticsTable | None = None
    paused: bool | None = None
    load_pass: NodeLoadPassResult | None = None
    packing: PackingPassResult | None = None
    packing_figures: PackingActivityFigures = PackingActivityFigures()
    consolidation: ConsolidationPassResult | None = None
    history: deque[ClusterTotalsAtPass] = field(default_factory=lambda: deque(maxlen=_KEPT_MOMENTS))

    def add_packing(self, result: PackingPassResult) -> None:
        """Add a packing pass."""
        self.packing = result
        self.packing_figures = self.packing_figures.add_pass(result)

    def add_plan(self, plan: PackingPlan) -> None:
        """Add the end of a packing plan."""
        if self.packing is not None:
            self.packing = replace(self.packing, plan=plan)
        self.packing_figures = self.packing_figures.add_plan(plan)

    def add_pass(self, result: NodePassResult, max_age: timedelta) -> None:
        """Add a node pass; it is summarized once, not for each reader."""
        self.node_pass, self.pass_figures = result, summarize_node_pass(result)
        if self.statistics is not None:
            self.history.append(compute_cluster_totals(self.pass_figures, self.statistics, max_age))
        self.add(result.outcomes)
        self._keep_original_requests(result)

    def _keep_original_requests(self, result: NodePassResult) -> None:
        """Keep the requests of pods before they were resized."""
        resized = {one.action.uid for one in result.outcomes if isinstance(one.action, ResizePod)}
        for pod in result.snapshot.pods if resized else ():
            if pod.uid in resized:
                requests = (container.requests.resources for container in pod.containers)
                self.requested_before[pod.uid, result.at] = sum(requests, start=NO_RESOURCES)
        for key in list(self.requested_before)[:-_KEPT]:
            del self.requested_before[key]

    def add_load_pass(self, result: NodeLoadPassResult) -> None:
        """Add a node load pass."""
        self.load_pass = result
        self.add(result.outcomes)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of actions."""
        self.outcomes.extend(outcomes)
        self.counts.update(get_outcome_key(outcome) for outcome in outcomes)
        self.causes.update(list_resize_causes(outcomes))

    def reset_for_new_term(self) -> None:
        """Drop what applies to one term of leadership only; outcomes stay."""
        self.is_filled, self.fill_progress, self.unreadable = False, None, ()
        self.refreshed_at = self.statistics = self.node_pass = self.pass_figures = self.paused = self.packing = None
        self.load_pass = self.consolidation = None
        self.jobs.clear()

    def build_figures(self, mode: Mode, leader: bool, lag_seconds: float | None) -> ControllerFigures:
        """Return the figures for `/metrics`."""
        return ControllerFigures(
            mode=mode,
            leader=leader,
            jobs=[self.jobs[name] for name in sorted(self.jobs)],
            outcomes=self.counts,
            last_pass=self.pass_figures,
            statistics_at=self.refreshed_at,
            watch_lag_seconds=lag_seconds,
            paused=self.paused,
            packing=self.packing_figures,
            refused=self.refused,
            notices=self.notices,
            causes=self.causes,
            published=self.published,
            load_pass=self.load_pass,
            consolidation=self.consolidation,
            history=tuple(self.history),
        )


class HourlyTotalsRecorder:
    """Stores the cluster's totals once an hour: those of the hour's first pass that has statistics."""

    def __init__(self) -> None:
        self._kept = -1

    async def record(self, store: StorePort, activity: ServeActivity) -> None:
        """Store the last pass's totals, unless its hour has some. Raises UnavailableError."""
        result, moment = activity.node_pass, activity.history[-1] if activity.history else None
        if result is None or moment is None or moment.used is None or moment.at != result.at:
            return
        hour = get_clock_hour(result.at)
        if hour == self._kept:
            return
        stored, keys = await read_stored_original_sizes(store, result.snapshot)
        # In a thread: this takes a second for a large cluster.
        savings = await asyncio.to_thread(
            lambda: sum_realized_savings(result.snapshot, get_original_sizes_by_uid(result.snapshot, stored, keys))
        )
        await store.store_hourly_totals(
            HourlyClusterTotals(
                hour,
                moment.allocatable,
                moment.requested,
                moment.used,
                sum((one.saved for one in savings.values()), NO_RESOURCES),
            )
        )
        self._kept = hour


class UsageReadingLog:
    """Logs the progress of the first usage pass, at most every ten seconds; a pass that ends before is not logged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: UsageReadingProgress | None = None
        self._began = self._logged = 0.0

    def __call__(self, read: UsageReadingProgress) -> None:
        """Log progress."""
        now = self._clock()
        first = self._first
        if first is None or first.total_container_hours != read.total_container_hours:
            self._first, self._began, self._logged = read, now, now
        elif now - self._logged >= _BETWEEN_LINES_SECONDS:
            self._logged = now
            remaining = estimate_time_left(first, read, now - self._began)
            log.info(
                "reading usage",
                percent=compute_read_percent(read),
                left="unknown" if remaining is None else str(remaining),
            )


def compute_read_percent(read: UsageReadingProgress) -> int:
    """Return the share that is read, in whole percent; 100 only if all is read."""
    if read.done_container_hours >= read.total_container_hours:
        return 100
    return min(99, int(100 * read.done_container_hours / read.total_container_hours))


def estimate_time_left(first: UsageReadingProgress, read: UsageReadingProgress, seconds: float) -> timedelta | None:
    """Return the remaining time at the rate of the `seconds` since `first`, None if nothing was read."""
    result = read.done_container_hours - first.done_container_hours
    if result <= 0:
        return None
    return timedelta(seconds=round((read.total_container_hours - read.done_container_hours) * seconds / result))


async def announce_nothing(outcomes: Sequence[Outcome], skipped: Sequence[SkippedPod], pods: PodsByName) -> None:
    """Announce nothing."""


async def _ignore_statistics(statistics: StatisticsTable) -> None:
    """Ignore the statistics."""


@dataclass(frozen=True, slots=True)
class ControllerHooks:
    """Functions that a controller calls in addition to the audit; none of them may raise.

    `announce` gets outcomes, skipped pods and the pods that they concern, by (namespace, name); `on_oom_reaction` gets
    each reaction to a kill; `on_idle` runs concurrently with the passes; `on_statistics` gets the statistics after each
    refresh and each kill; `on_progress` gets the progress of reading usage. After each node pass, `forget_gone_pods`
    gets the uids of all pods, and the time from which there may be more.
    """

    announce: AnnounceFunction = announce_nothing
    on_oom_reaction: Callable[[OomReactionResult], None] = lambda reaction: None
    on_idle: Callable[[], Awaitable[None]] | None = None
    on_statistics: Callable[[StatisticsTable], Awaitable[None]] = _ignore_statistics
    on_progress: Callable[[UsageReadingProgress], None] = lambda read: None
    forget_gone_pods: Callable[[Set[str], datetime], None] = lambda pods, before: None


NO_HOOKS = ControllerHooks()
