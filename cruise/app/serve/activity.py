"""What a process did and how its passes do, as demo, API, metrics and readiness show it."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cruise.domain.actions import Outcome, ResizePod, WriteCause
from cruise.domain.packing import PackingPlan
from cruise.domain.policy import Mode
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.usage import Refusal, StatisticsTable
from cruise.interfaces.http.figures import (
    ClusterMoment,
    ControllerFigures,
    JobFigures,
    OutcomeKind,
    PackingFigures,
    PassFigures,
    causes_of,
    cluster_moment,
    kind_of_outcome,
    pass_figures,
)
from cruise.runtime.node_load import NodeLoadPass
from cruise.runtime.oom import Reaction
from cruise.runtime.packing.consolidation_pass import ConsolidationPass
from cruise.runtime.packing.packing_pass import PackingPass
from cruise.runtime.sizing.node_pass import NodePass
from cruise.runtime.usage.reading import ReadingProgress
from cruise.runtime.usage.state import FailedRead

_KEPT = 500
# A week at the usual interval.
_KEPT_MOMENTS = 2016


@dataclass(slots=True)
class Activity:
    """Since the process began, over all its terms of leadership.

    `filled`: this term has statistics, and until then `filling` is how far they are; `refreshed_at` is when they were
    last brought up to date, `unread` what could not be read the last time; `paused`: the last pass found writes paused.
    `requested_before` has what the pods of the last resizes requested before them, by uid and time. `notices` counts
    those that were sent and dropped, `published` writes of VerticalPodAutoscalers.
    """

    node_pass: NodePass | None = None
    pass_figures: PassFigures | None = None
    outcomes: deque[Outcome] = field(default_factory=lambda: deque(maxlen=_KEPT))
    reactions: deque[Reaction] = field(default_factory=lambda: deque(maxlen=_KEPT))
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    counts: Counter[OutcomeKind] = field(default_factory=Counter)
    refused: Counter[Refusal] = field(default_factory=Counter)
    notices: Counter[str] = field(default_factory=Counter)
    causes: Counter[WriteCause] = field(default_factory=Counter)
    requested_before: dict[tuple[str, datetime], Resources] = field(default_factory=dict)
    published: int = 0
    filled: bool = False
    filling: ReadingProgress | None = None
    refreshed_at: datetime | None = None
    unread: Sequence[FailedRead] = ()
    statistics: StatisticsTable | None = None
    paused: bool | None = None
    load_pass: NodeLoadPass | None = None
    packing: PackingPass | None = None
    packing_figures: PackingFigures = PackingFigures()
    consolidation: ConsolidationPass | None = None
    history: deque[ClusterMoment] = field(default_factory=lambda: deque(maxlen=_KEPT_MOMENTS))

    def add_packing(self, done: PackingPass) -> None:
        """Take over a packing pass."""
        self.packing = done
        self.packing_figures = self.packing_figures.with_pass(done)

    def add_plan(self, plan: PackingPlan) -> None:
        """Take over how a packing plan ended."""
        if self.packing is not None:
            self.packing = replace(self.packing, plan=plan)
        self.packing_figures = self.packing_figures.with_plan(plan)

    def add_pass(self, done: NodePass, max_age: timedelta) -> None:
        """Take over a node pass; it is summed up once, and not for each reader."""
        self.node_pass, self.pass_figures = done, pass_figures(done)
        if self.statistics is not None:
            self.history.append(cluster_moment(self.pass_figures, self.statistics, max_age))
        self.add(done.outcomes)
        self._note_sizes(done)

    def _note_sizes(self, done: NodePass) -> None:
        """Remember what pods requested before they were resized."""
        resized = {one.action.uid for one in done.outcomes if isinstance(one.action, ResizePod)}
        for pod in done.snapshot.pods if resized else ():
            if pod.uid in resized:
                requests = (container.requests.resources for container in pod.containers)
                self.requested_before[pod.uid, done.at] = sum(requests, start=NO_RESOURCES)
        for key in list(self.requested_before)[:-_KEPT]:
            del self.requested_before[key]

    def add_load_pass(self, done: NodeLoadPass) -> None:
        """Take over a look at the nodes' loads."""
        self.load_pass = done
        self.add(done.outcomes)

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Take over how actions ended."""
        self.outcomes.extend(outcomes)
        self.counts.update(kind_of_outcome(outcome) for outcome in outcomes)
        self.causes.update(causes_of(outcomes))

    def forget_term(self) -> None:
        """Forget what holds for a term of leadership alone; what was done stays."""
        self.filled, self.filling, self.unread = False, None, ()
        self.refreshed_at = self.statistics = self.node_pass = self.pass_figures = self.paused = self.packing = None
        self.load_pass = self.consolidation = None
        self.jobs.clear()

    def figures(self, mode: Mode, leader: bool, lag_seconds: float | None) -> ControllerFigures:
        """Return all this as `/metrics` shows it."""
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
