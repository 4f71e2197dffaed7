"""The metrics of a process in the Prometheus text format, rendered from its figures at each scrape."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from cruise.decisions.scan.coverage import Coverage
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.actions import ResizeCause
from cruise.domain.policy import Mode
from cruise.domain.preflight import CrossCheckCounts
from cruise.domain.resources import ResourceName
from cruise.domain.usage import SampleRejectionReason
from cruise.interfaces.coverage import list_coverage_rows
from cruise.interfaces.http.figures import (
    ControllerFigures,
    JobFigures,
    ListenerFigures,
    NodePassFigures,
    PackingActivityFigures,
    WebhookFigures,
)
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult


def render_metrics(
    version: str,
    now: datetime,
    controller: ControllerFigures | None = None,
    webhook: WebhookFigures | None = None,
    listener: ListenerFigures | None = None,
) -> bytes:
    """Return the metrics of one process in the Prometheus text format, with those of the operating system process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_MetricsCollector(version, now, controller, webhook, listener))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


class _MetricsCollector(Collector):
    def __init__(
        self,
        version: str,
        now: datetime,
        controller: ControllerFigures | None,
        webhook: WebhookFigures | None,
        listener: ListenerFigures | None,
    ) -> None:
        self._version = version
        self._now = now
        self._controller = controller
        self._webhook = webhook
        self._listener = listener

    def collect(self) -> Iterator[Metric]:
        """Yield every metric family."""
        build = GaugeMetricFamily("cruise_build_info", "The running version; always 1.", labels=["version"])
        build.add_metric([self._version], 1)
        yield build
        if self._controller is not None:
            yield from _controller(self._controller, self._now)
        if self._webhook is not None:
            yield from _webhook(self._webhook, self._now)
        if self._listener is not None:
            yield from _listener(self._listener)


def _controller(figures: ControllerFigures, now: datetime) -> Iterator[Metric]:
    yield GaugeMetricFamily("cruise_leader", "1 if this process is the leader, which writes.", int(figures.leader))
    mode = GaugeMetricFamily("cruise_mode", "The cluster's mode: 1 for the current one.", labels=["mode"])
    for one in Mode:
        if one is not Mode.OFF:
            mode.add_metric([one.label], int(one is figures.mode))
    yield mode
    if figures.paused is not None:
        yield GaugeMetricFamily("cruise_paused", "1 if cruise is paused.", int(figures.paused))
    yield from _jobs(figures.jobs)
    yield from _progress(figures)
    outcomes = CounterMetricFamily(
        "cruise_actions", "Actions by result and reason.", labels=["action", "result", "reason"]
    )
    for (action, result, reason), count in sorted(figures.outcomes.items()):
        outcomes.add_metric([action, result.value, reason.value], count)
    yield outcomes
    yield _resizes(figures.causes)
    rejected = CounterMetricFamily("cruise_samples_rejected", "Usage samples that cannot be true.", labels=["reason"])
    for rejection in SampleRejectionReason:
        rejected.add_metric([rejection.value], figures.refused.get(rejection, 0))
    yield rejected
    yield from _publications(figures)
    if figures.last_pass is not None:
        yield from _pass(figures.last_pass)
        yield from _risks(figures.last_pass.observed_risks)
    if figures.load_pass is not None:
        yield from _loads(figures.load_pass)
    if figures.cross_check.nodes:
        yield from _cross_check(figures.cross_check)
    if figures.packing.passes:
        yield from _packing(figures.packing)
    yield from _consolidation(figures.consolidation)
    yield from _freshness("cruise", figures.statistics_at, figures.watch_lag_seconds, now)


def _publications(figures: ControllerFigures) -> Iterator[Metric]:
    events = CounterMetricFamily(
        "cruise_notification_events", "Events sent as notifications, or not.", labels=["result"]
    )
    for result in ("sent", "dropped"):
        events.add_metric([result], figures.notices.get(result, 0))
    yield events
    yield CounterMetricFamily(
        "cruise_vpas_published", "VerticalPodAutoscaler objects written to show targets.", figures.published
    )


def _resizes(causes: Mapping[ResizeCause, int]) -> Metric:
    resizes = CounterMetricFamily("cruise_resizes", "Resizes that node passes did, by cause.", labels=["cause"])
    for cause in ResizeCause:
        resizes.add_metric([cause.value], causes.get(cause, 0))
    return resizes


def _jobs(jobs: Sequence[JobFigures]) -> Iterator[Metric]:
    runs = CounterMetricFamily("cruise_job_runs", "Runs of a job that ended.", labels=["job"])
    failures = CounterMetricFamily("cruise_job_failures", "Runs of a job that failed.", labels=["job"])
    success = GaugeMetricFamily(
        "cruise_job_last_success_timestamp_seconds", "When a job last succeeded.", labels=["job"]
    )
    duration = SummaryMetricFamily("cruise_job_duration_seconds", "Duration of a job's runs.", labels=["job"])
    for job in jobs:
        runs.add_metric([job.name], job.runs)
        failures.add_metric([job.name], job.failures)
        duration.add_metric([job.name], count_value=job.runs, sum_value=job.seconds)
        if job.last_success_at is not None:
            success.add_metric([job.name], job.last_success_at.timestamp())
    yield from (runs, failures, success, duration)


def _progress(figures: ControllerFigures) -> Iterator[Metric]:
    ages = GaugeMetricFamily(
        "cruise_last_success_age_seconds",
        "Seconds since the last pass of a kind succeeded, by the monotonic clock; only in the process that runs "
        "passes.",
        labels=["pass"],
    )
    for name, seconds in sorted(figures.success_ages.items()):
        ages.add_metric([name], seconds)
    yield ages
    yield CounterMetricFamily(
        "cruise_leadership_released",
        "How often this process released the leader lease because a pass did not end or kept failing.",
        figures.leads_given_up,
    )
    yield GaugeMetricFamily(
        "cruise_database_epoch", "Latest epoch of the database that this process has seen.", figures.database_epoch
    )
    yield GaugeMetricFamily("cruise_open_intents", "Writes whose outcome is not stored yet.", figures.open_intents)
    if figures.leader:
        yield GaugeMetricFamily(
            "cruise_history_incomplete",
            "1 if the database has lost usage history: no pod is shrunk or evicted because of usage until it is "
            "read again.",
            int(figures.history_incomplete),
        )
        yield GaugeMetricFamily(
            "cruise_usage_gap_seconds",
            "Usage that failed to be read twice, in seconds, of the partition that lacks most; it is read again once "
            "an hour. Peaks of that time are unknown until then.",
            figures.usage_gap_seconds,
        )


def _pass(figures: NodePassFigures) -> Iterator[Metric]:
    skipped = GaugeMetricFamily("cruise_pods_skipped", "Pods that the last node pass skipped.", labels=["reason"])
    for reason, count in sorted(figures.skipped.items()):
        skipped.add_metric([reason.value], count)
    yield skipped
    steps = GaugeMetricFamily(
        "cruise_node_pass_step_seconds", "Duration of each step of the last node pass.", labels=["step"]
    )
    for step, seconds in figures.seconds.items():
        steps.add_metric([step], seconds)
    yield steps
    yield GaugeMetricFamily("cruise_nodes", "Nodes in the last node pass.", figures.nodes)
    yield GaugeMetricFamily(
        "cruise_nodes_overcommitted", "Nodes whose pods no eviction would make fit.", figures.overcommitted
    )
    yield GaugeMetricFamily(
        "cruise_nodes_under_pressure",
        "Nodes whose pods need more together than the node has, while no pod must be evicted.",
        figures.under_pressure,
    )
    sums = (
        ("cruise_requested_resources", "Requests on all nodes, as kube-scheduler counts them.", figures.requested),
        ("cruise_allocatable_resources", "Allocatable resources of all nodes.", figures.allocatable),
    )
    for name, help_text, amounts in sums:
        family = GaugeMetricFamily(name, help_text, labels=["resource", "unit"])
        family.add_metric(["cpu", "core"], amounts.cpu_millicores / 1000)
        family.add_metric(["memory", "byte"], amounts.memory_bytes)
        yield family
    if figures.coverage is not None:
        yield from _coverage(figures.coverage)


def _coverage(coverage: Coverage) -> Iterator[Metric]:
    families = [
        GaugeMetricFamily(f"cruise_coverage_{name}", help_text, labels=["reason", "resource", "unit"])
        for name, help_text in (
            ("requested_resources", "Requests that are sized, or skipped for a reason."),
            ("reclaimable_resources", "What is reclaimable of them, or would be without the reason, as far as known."),
            ("unknown_resources", "The part of them whose reclaimable amount is unknown."),
        )
    ]
    for row in list_coverage_rows(coverage):
        amounts = (row.group.requested, row.group.reclaimable, row.group.unknown)
        for family, amount in zip(families, amounts, strict=True):
            family.add_metric([row.label, "cpu", "core"], amount.cpu_millicores / 1000)
            family.add_metric([row.label, "memory", "byte"], amount.memory_bytes)
    yield from families


def _risks(risks: Mapping[ResourceName, ObservedRisk]) -> Iterator[Metric]:
    families: tuple[tuple[str, str, Callable[[ObservedRisk], float]], ...] = (
        (
            "risk_stated",
            "Stated risk: the share of intervals in which a node's demand may exceed requests.",
            lambda one: one.stated_risk,
        ),
        (
            "risk_observed",
            "Observed risk: the share of the last seven days' intervals in which it did.",
            lambda one: one.observed,
        ),
        (
            "risk_intervals",
            "The last seven days' intervals, one for each node and pass.",
            lambda one: one.intervals,
        ),
        (
            "level",
            "Multiple of the expected rise that nodes keep; below 0 they may lack CPU before pods grow.",
            lambda one: one.level,
        ),
    )
    for name, help_text, value in families if risks else ():
        family = GaugeMetricFamily(f"cruise_headroom_{name}", help_text, labels=["resource"])
        for resource, risk in risks.items():
            family.add_metric([resource.value], value(risk))
        yield family


def _loads(load_pass: NodeLoadPassResult) -> Iterator[Metric]:
    yield GaugeMetricFamily("cruise_nodes_tainted", "Nodes with cruise's taint.", len(load_pass.tainted))
    rejected = GaugeMetricFamily(
        "cruise_node_loads_rejected", "Nodes whose load was not used in the last check.", labels=["reason"]
    )
    rejected.add_metric(["implausible"], len(load_pass.implausible))
    rejected.add_metric(["too-many-at-once"], load_pass.overloaded_at_once)
    yield rejected


def _cross_check(counts: CrossCheckCounts) -> Iterator[Metric]:
    containers = CounterMetricFamily(
        "cruise_cross_checked_containers",
        "Containers whose usage was compared with the kubelet's.",
        labels=["result"],
    )
    containers.add_metric(["agree"], counts.agreeing)
    containers.add_metric(["disagree"], counts.disagreeing)
    yield containers
    nodes = CounterMetricFamily("cruise_cross_checked_nodes", "Kubelets queried for the comparison.", labels=["result"])
    nodes.add_metric(["read"], counts.nodes - counts.unreadable)
    nodes.add_metric(["unread"], counts.unreadable)
    yield nodes


def _packing(figures: PackingActivityFigures) -> Iterator[Metric]:
    plans = CounterMetricFamily(
        "cruise_packing_plans", "Packing plans by outcome and proof.", labels=["outcome", "proof"]
    )
    for (outcome, proof), count in sorted(figures.plans.items()):
        plans.add_metric([outcome, proof], count)
    yield plans
    yield CounterMetricFamily("cruise_packing_placed_pods", "Pods that finished packing plans placed.", figures.placed)
    gauges = (
        ("cruise_packing_pending_pods", "Pending pods that caused the last packing pass.", figures.pending),
        ("cruise_packing_solve_seconds", "Duration of solving in the last packing pass.", figures.seconds),
        ("cruise_packing_planned_pods", "Pods that the last packing plan places.", figures.planned),
        ("cruise_packing_bound_pods", "Upper bound of the pods that any packing plan could place.", figures.bound),
    )
    for name, help_text, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(name, help_text, value)


def _consolidation(consolidation: ConsolidationPassResult | None) -> Iterator[Metric]:
    if consolidation is None:
        return
    yield GaugeMetricFamily(
        "cruise_consolidation_timestamp_seconds",
        "When consolidation was last computed.",
        consolidation.at.timestamp(),
    )
    node_change = consolidation.node_count_change
    if node_change is None or consolidation.plan is None:
        return
    nodes = GaugeMetricFamily(
        "cruise_consolidation_nodes",
        "Nodes in use: now, after the plan, and the least that any plan needs.",
        labels=["when"],
    )
    counts = (
        ("now", node_change.nodes_before),
        ("after", node_change.nodes_after),
        ("bound", node_change.nodes_bound),
    )
    for when, count in counts:
        nodes.add_metric([when], count)
    yield nodes
    moves = len(consolidation.plan.moves)
    yield GaugeMetricFamily("cruise_consolidation_moves", "Pods that the consolidation plan moves.", moves)
    yield GaugeMetricFamily(
        "cruise_consolidation_solve_seconds", "Duration of solving for consolidation.", consolidation.seconds
    )


def _webhook(figures: WebhookFigures, now: datetime) -> Iterator[Metric]:
    answers = CounterMetricFamily(
        "cruise_webhook_reviews", "Admission reviews by answer and reason.", labels=["answer", "reason"]
    )
    for (answer, reason), count in sorted(figures.answers.items()):
        answers.add_metric([answer, reason], count)
    yield answers
    total = sum(figures.answers.values())
    buckets = [(f"{bound:g}", float(count)) for bound, count in figures.duration_buckets] + [("+Inf", float(total))]
    yield HistogramMetricFamily(
        "cruise_webhook_duration_seconds",
        "Duration of an admission review.",
        buckets=buckets,
        sum_value=figures.duration_seconds,
    )
    if figures.certificate_expires_at is not None:
        yield GaugeMetricFamily(
            "cruise_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate in use expires.",
            figures.certificate_expires_at.timestamp(),
        )
    yield from _freshness("cruise_webhook", figures.statistics_at, figures.watch_lag_seconds, now)


def _listener(figures: ListenerFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("cruise_http_connections", "Open connections.", figures.connections)
    yield GaugeMetricFamily(
        "cruise_http_body_bytes", "Bytes of the bodies of requests in progress.", figures.body_bytes
    )
    rejected = CounterMetricFamily(
        "cruise_http_connections_rejected", "Connections that were closed without a response.", labels=["reason"]
    )
    for reason, count in figures.rejected.items():
        rejected.add_metric([reason], count)
    yield rejected


def _freshness(
    prefix: str, statistics_at: datetime | None, lag_seconds: float | None, now: datetime
) -> Iterator[Metric]:
    if statistics_at is not None:
        age = max(0.0, (now - statistics_at).total_seconds())
        yield GaugeMetricFamily(f"{prefix}_statistics_age_seconds", "Age of the statistics.", age)
    if lag_seconds is not None:
        lag = lag_seconds if not math.isnan(lag_seconds) else math.inf
        yield GaugeMetricFamily(f"{prefix}_watch_lag_seconds", "Maximum age of the watched cluster objects.", lag)
