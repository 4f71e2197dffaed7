"""The state of a running process as frozen values, from which `/metrics` and the API's status are rendered."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import numpy as np

from cruise.decisions.scan.coverage import Coverage, sum_coverage
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.actions import ActionResult, EvictPod, Outcome, ReasonCode, ResizeCause, ResizePod, TaintNode
from cruise.domain.packing_plan import PackingPlan, PlanPhase
from cruise.domain.policy import Mode
from cruise.domain.preflight import CrossCheckCounts
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import SampleRejectionReason, StatisticsTable
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult
from cruise.runtime.packing.packing_pass import PackingPassResult

OutcomeKey = tuple[str, ActionResult, ReasonCode]


@dataclass(frozen=True, slots=True)
class JobFigures:
    """A job since the process started; `seconds` is the sum over its runs, `error` that of the latest run."""

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
    """The last node pass: nodes, sums, skipped pods by reason, and the duration of each step in `seconds`."""

    at: datetime
    nodes: int
    overcommitted: int
    under_pressure: int
    requested: Resources
    allocatable: Resources
    skipped: Mapping[ReasonCode, int]
    seconds: Mapping[str, float]
    observed_risks: Mapping[ResourceName, ObservedRisk] = field(default_factory=dict)
    coverage: Coverage | None = None


@dataclass(frozen=True, slots=True)
class ClusterTotalsAtPass:
    """The cluster in one node pass: `used` is the sum of the bases, None if half of the statistics are old."""

    at: datetime
    allocatable: Resources
    requested: Resources
    used: Resources | None


@dataclass(frozen=True, slots=True)
class PackingActivityFigures:
    """The packing passes since the process started.

    `plans` counts ended plans by phase and proof, `placed` the pods that plans placed. The other values are of the last
    pass: its `pending` pods, the `seconds` of solving, the pods that its plan places, and an upper bound of that.
    """

    passes: int = 0
    plans: Mapping[tuple[str, str], int] = field(default_factory=dict)
    placed: int = 0
    pending: int = 0
    seconds: float | None = None
    planned: int | None = None
    bound: int | None = None

    def add_pass(self, packing_pass: PackingPassResult) -> "PackingActivityFigures":
        """Count a pass."""
        figures = replace(self, passes=self.passes + 1, pending=packing_pass.waiting)
        if packing_pass.plan is None:
            return replace(figures, seconds=None, planned=None, bound=None)
        proposal = packing_pass.plan.proposal
        placed = sum(line.placed for line in proposal.by_priority)
        maximum = sum(line.maximum for line in proposal.by_priority)
        bound = maximum - placed + len(proposal.placed)
        return replace(figures, seconds=packing_pass.plan.seconds, planned=len(proposal.placed), bound=bound)

    def add_plan(self, plan: PackingPlan) -> "PackingActivityFigures":
        """Count a plan that ended, or that is advisory."""
        key = (plan.phase.value, plan.proposal.status.value)
        plans = {**self.plans, key: self.plans.get(key, 0) + 1}
        finished = plan.phase is PlanPhase.FINISHED
        return replace(self, plans=plans, placed=self.placed + (len(plan.proposal.placed) if finished else 0))


@dataclass(frozen=True, slots=True)
class ControllerFigures:
    """The controller now; counts are since the process started.

    `outcomes` are counted by `get_outcome_key`, `refused` are rejected samples, `causes` are those of the resizes done.
    `watch_lag_seconds` is the maximum age of the watched cluster: None without a watch, infinity before the first list.
    `history` has the node passes of this process, oldest first. `success_ages` has the seconds since the last success
    of each periodic job, by the monotonic clock. `leads_given_up` counts releases of the lease because a pass was
    stuck. `open_intents` counts writes whose outcome is not stored yet.
    """

    mode: Mode
    leader: bool
    jobs: Sequence[JobFigures] = ()
    outcomes: Mapping[OutcomeKey, int] = field(default_factory=dict)
    last_pass: NodePassFigures | None = None
    statistics_at: datetime | None = None
    watch_lag_seconds: float | None = None
    paused: bool | None = None
    packing: PackingActivityFigures = PackingActivityFigures()
    refused: Mapping[SampleRejectionReason, int] = field(default_factory=dict)
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
    usage_gap_seconds: int = 0
    open_intents: int = 0


@dataclass(frozen=True, slots=True)
class WebhookFigures:
    """The webhook since the process started.

    `answers` counts by (answer, reason). `duration_buckets` has (upper bound in seconds, cumulative count), ascending,
    without the infinite bucket.
    """

    answers: Mapping[tuple[str, str], int]
    duration_buckets: Sequence[tuple[float, int]] = ()
    duration_seconds: float = 0.0
    statistics_at: datetime | None = None
    certificate_expires_at: datetime | None = None
    watch_lag_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ListenerFigures:
    """A listener now, and its rejected connections since the process started, by reason."""

    connections: int
    body_bytes: int
    rejected: Mapping[str, int]


def get_outcome_key(outcome: Outcome) -> OutcomeKey:
    """Return the key that an outcome is counted by."""
    return (get_action_name(outcome), outcome.result, outcome.reason)


def get_action_name(outcome: Outcome) -> str:
    """Return the name of an outcome's action: `resize`, `evict`, `taint` or `untaint`."""
    match outcome.action:
        case ResizePod():
            return "resize"
        case EvictPod():
            return "evict"
        case TaintNode():
            return "taint"
        case _:
            return "untaint"


def summarize_node_pass(node_pass: NodePassResult) -> NodePassFigures:
    """Sum up a node pass."""
    requested, allocatable = NO_RESOURCES, NO_RESOURCES
    for plan in node_pass.plans:
        requested += plan.counted
        allocatable += plan.allocatable
    return NodePassFigures(
        at=node_pass.at,
        nodes=len(node_pass.plans),
        overcommitted=sum(plan.reason is ReasonCode.OVERCOMMITTED for plan in node_pass.plans),
        under_pressure=sum(plan.reason is ReasonCode.UNDER_PRESSURE for plan in node_pass.plans),
        requested=requested,
        allocatable=allocatable,
        skipped=Counter(one.reason for plan in node_pass.plans for one in (*plan.skipped, *plan.suspected_leaks)),
        seconds=node_pass.seconds,
        observed_risks=node_pass.observed_risks,
        coverage=None if node_pass.coverage is None else sum_coverage(node_pass.coverage.values()),
    )


def compute_cluster_totals(
    figures: NodePassFigures, statistics: StatisticsTable, max_age: timedelta
) -> ClusterTotalsAtPass:
    """Sum up the bases at a pass, of statistics that were at most `max_age` old."""
    has_pod = np.fromiter((bool(key.pod) for key in statistics.keys), np.bool_, len(statistics.keys))
    fresh = has_pod & (statistics.updated_at >= int((figures.at - max_age).timestamp()))
    cpu, memory = statistics.cpu_base_millicores[fresh], statistics.memory_base_bytes[fresh]
    used = Resources(int(cpu.sum()), int(memory.sum())) if 2 * fresh.sum() > has_pod.sum() else None
    return ClusterTotalsAtPass(figures.at, figures.allocatable, figures.requested, used)


def list_resize_causes(outcomes: Iterable[Outcome]) -> Iterator[ResizeCause]:
    """Yield the cause of each resize that was done."""
    for outcome in outcomes:
        action = outcome.action
        if isinstance(action, ResizePod) and action.cause is not None and outcome.result is ActionResult.DONE:
            yield action.cause
