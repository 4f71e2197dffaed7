"""How a running process is doing, as frozen values: what `/metrics` and the status of the API are made from."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, ResizeCause, ResizePod, TaintNode
from cruise.domain.packing_plan import PackingPlan, PlanPhase
from cruise.domain.policy import Mode
from cruise.domain.preflight import CrossCheckCounts
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import SampleRejection, StatisticsTable
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult
from cruise.runtime.packing.packing_pass import PackingPassResult

OutcomeKey = tuple[str, ActionResult, ReasonCode]


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A job since the process began; `seconds` is the sum over its runs, `error` why the latest run was dropped."""

    name: str
    runs: int = 0
    failures: int = 0
    failures_in_a_row: int = 0
    seconds: float = 0.0
    last_seconds: float = 0.0
    last_ended_at: datetime | None = None
    last_success_at: datetime | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class NodePassFigures:
    """What the last node pass saw: nodes, sums, and the pods left alone by reason.

    Nothing makes the `oversubscribed` nodes fit; the `crowded` ones are short of something for now. `seconds` is how
    long each of its steps took, `kept_risks` how stated risks were kept lately.
    """

    at: datetime
    nodes: int
    overcommitted: int
    under_pressure: int
    requested: Resources
    allocatable: Resources
    skipped: Mapping[ReasonCode, int]
    seconds: Mapping[str, float]
    observed_risks: Mapping[ResourceName, ObservedRisk] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterTotalsAtPass:
    """The cluster in one node pass: `used` is the sum of its containers' bases, None where half of them are old."""

    at: datetime
    allocatable: Resources
    requested: Resources
    used: Resources | None


@dataclass(frozen=True, slots=True)
class PackingPassFigures:
    """The packing passes since the process began.

    `plans` counts those that ended by phase and proof, `placed` pods that plans brought onto nodes. Of the last pass:
    how many pods `waiting` were the reason for it, what `seconds` solving took, how many pods its plan places, and how
    many no plan surpasses.
    """

    passes: int = 0
    plans: Mapping[tuple[str, str], int] = field(default_factory=dict)
    placed: int = 0
    pending: int = 0
    seconds: float | None = None
    planned: int | None = None
    bound: int | None = None

    def add_pass(self, done: PackingPassResult) -> "PackingPassFigures":
        """Count a pass."""
        figures = replace(self, passes=self.passes + 1, pending=done.waiting)
        if done.plan is None:
            return replace(figures, seconds=None, planned=None, bound=None)
        proposal = done.plan.proposal
        placed = sum(line.placed for line in proposal.by_priority)
        most = sum(line.maximum for line in proposal.by_priority)
        more = most - placed + len(proposal.placed)
        return replace(figures, seconds=done.plan.seconds, planned=len(proposal.placed), bound=more)

    def add_plan(self, plan: PackingPlan) -> "PackingPassFigures":
        """Count a plan that ended, or was shown."""
        kind = (plan.phase.value, plan.proposal.status.value)
        plans = {**self.plans, kind: self.plans.get(kind, 0) + 1}
        finished = plan.phase is PlanPhase.FINISHED
        return replace(self, plans=plans, placed=self.placed + (len(plan.proposal.placed) if finished else 0))


@dataclass(frozen=True, slots=True)
class ControllerFigures:
    """The controller now.

    `outcomes` counts since the process began, by `kind_of_outcome`, `refused` samples by why, and `causes` resizes that
    were done by what made them worth a write.

    `statistics_at` is when the statistics were last brought up to date, `watch_lag_seconds` how old the view of the
    cluster may be at most (None where nothing is watched, infinity before the first list). `history` has the passes
    of this process, oldest first. `success_ages` has the seconds since each periodic job last went through, by the
    monotonic clock; `leads_given_up` counts how often this process gave up the lead because a pass was stuck.
    `database_epoch` is the latest epoch of the database that this process has seen, `open_intents` counts writes whose
    outcome is not stored yet.
    """

    mode: Mode
    leader: bool
    jobs: Sequence[JobFigures] = ()
    outcomes: Mapping[OutcomeKey, int] = field(default_factory=dict)
    last_pass: NodePassFigures | None = None
    statistics_at: datetime | None = None
    watch_lag_seconds: float | None = None
    paused: bool | None = None
    packing: PackingPassFigures = PackingPassFigures()
    refused: Mapping[SampleRejection, int] = field(default_factory=dict)
    notices: Mapping[str, int] = field(default_factory=dict)
    causes: Mapping[ResizeCause, int] = field(default_factory=dict)
    published: int = 0
    load_pass: NodeLoadPassResult | None = None
    consolidation: ConsolidationPassResult | None = None
    history: Sequence[ClusterTotalsAtPass] = ()
    cross_check: CrossCheckCounts = CrossCheckCounts()
    success_ages: Mapping[str, float] = field(default_factory=dict)
    leads_given_up: int = 0
    database_epoch: int = 0
    history_incomplete: bool = False
    open_intents: int = 0


@dataclass(frozen=True, slots=True)
class WebhookFigures:
    """The webhook since the process began.

    `answers` counts by (answer, reason): `left` with the decision's reason, `mutated` with what the size is by
    (`peak`, `planned`, `stated`, or `steered` by a packing plan),
    `failed` with a short word for what failed. `duration_buckets` has the upper bounds in seconds with how many
    answers took so long at most, ascending and cumulative, without the last one for all.
    """

    answers: Mapping[tuple[str, str], int]
    duration_buckets: Sequence[tuple[float, int]] = ()
    duration_seconds: float = 0.0
    statistics_at: datetime | None = None
    certificate_expires_at: datetime | None = None
    watch_lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ListenerFigures:
    """A listener now, and whom it turned away since the process began, by why."""

    connections: int
    body_bytes: int
    rejected: Mapping[str, int]


def get_outcome_key(outcome: Outcome) -> OutcomeKey:
    """Return what an outcome is counted under."""
    return (get_action_name(outcome), outcome.result, outcome.reason)


def get_action_name(outcome: Outcome) -> str:
    """Return the action of an outcome in one word."""
    match outcome.action:
        case ResizePod():
            return "resize"
        case EvictPod():
            return "evict"
        case TaintNode():
            return "taint"
        case _:
            return "untaint"


def summarize_node_pass(done: NodePassResult) -> NodePassFigures:
    """Sum up a node pass."""
    requested, allocatable = NO_RESOURCES, NO_RESOURCES
    for plan in done.plans:
        requested += plan.counted
        allocatable += plan.allocatable
    return NodePassFigures(
        at=done.at,
        nodes=len(done.plans),
        overcommitted=sum(plan.reason is ReasonCode.OVERCOMMITTED for plan in done.plans),
        under_pressure=sum(plan.reason is ReasonCode.UNDER_PRESSURE for plan in done.plans),
        requested=requested,
        allocatable=allocatable,
        skipped=Counter(hold.reason for plan in done.plans for hold in (*plan.skipped, *plan.suspected_leaks)),
        seconds=done.seconds,
        observed_risks=done.observed_risks,
    )


def compute_cluster_totals(
    figures: NodePassFigures, statistics: StatisticsTable, max_age: timedelta
) -> ClusterTotalsAtPass:
    """Sum up what containers used at a pass, by statistics that were no older than `max_age` then."""
    of_pods = np.fromiter((bool(key.pod) for key in statistics.keys), np.bool_, len(statistics.keys))
    fresh = of_pods & (statistics.updated_at >= int((figures.at - max_age).timestamp()))
    cpu, memory = statistics.cpu_base_millicores[fresh], statistics.memory_base_bytes[fresh]
    used = Resources(int(cpu.sum()), int(memory.sum())) if 2 * fresh.sum() > of_pods.sum() else None
    return ClusterTotalsAtPass(figures.at, figures.allocatable, figures.requested, used)


def list_resize_causes(outcomes: Iterable[Outcome]) -> Iterator[ResizeCause]:
    """Yield what made each resize that was done worth a write."""
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, ResizePod) and action.cause is not None and outcome.result is ActionResult.DONE:
            yield action.cause
