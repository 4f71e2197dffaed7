"""Prometheus' text of a process's figures: made anew at each scrape, so that nothing is counted in two places."""

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

from cruise.decisions.sizing.risk_level import ObservedRisk
from cruise.domain.actions import ResizeCause
from cruise.domain.policy import Mode
from cruise.domain.preflight import CrossCheckCounts
from cruise.domain.resources import ResourceName
from cruise.domain.usage import SampleRejection
from cruise.interfaces.http.figures import (
    ControllerFigures,
    JobFigures,
    ListenerFigures,
    NodePassFigures,
    PackingPassFigures,
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
    """Return the figures of one process as Prometheus reads them, with those of the process itself."""
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
        """Yield every family."""
        build = GaugeMetricFamily("cruise_build_info", "The version that runs; always 1.", labels=["version"])
        build.add_metric([self._version], 1)
        yield build
        if self._controller is not None:
            yield from _controller(self._controller, self._now)
        if self._webhook is not None:
            yield from _webhook(self._webhook, self._now)
        if self._listener is not None:
            yield from _listener(self._listener)


def _shown_to_others(figures: ControllerFigures) -> Iterator[Metric]:
    notices = CounterMetricFamily(
        "cruise_notification_events", "Notices of what happened, by what became of them.", labels=["end"]
    )
    for end in ("sent", "dropped"):
        notices.add_metric([end], figures.notices.get(end, 0))
    yield notices
    yield CounterMetricFamily(
        "cruise_vpas_published", "VerticalPodAutoscalers written to show sizes.", figures.published
    )


def _controller(figures: ControllerFigures, now: datetime) -> Iterator[Metric]:
    yield GaugeMetricFamily("cruise_leader", "1 where this process is the one that writes.", int(figures.leader))
    mode = GaugeMetricFamily("cruise_mode", "The cluster's mode: 1 for the one that holds.", labels=["mode"])
    for one in Mode:
        if one is not Mode.OFF:
            mode.add_metric([one.label], int(one is figures.mode))
    yield mode
    if figures.paused is not None:
        yield GaugeMetricFamily("cruise_paused", "1 where every write is stopped.", int(figures.paused))
    yield from _jobs(figures.jobs)
    yield from _going_on(figures)
    outcomes = CounterMetricFamily("cruise_actions", "Actions by their result.", labels=["action", "result", "reason"])
    for (action, verdict, reason), count in sorted(figures.outcomes.items()):
        outcomes.add_metric([action, verdict.value, reason.value], count)
    yield outcomes
    yield _resizes(figures.causes)
    refused = CounterMetricFamily("cruise_samples_rejected", "Samples of use that cannot be true.", labels=["reason"])
    for refusal in SampleRejection:
        refused.add_metric([refusal.value], figures.refused.get(refusal, 0))
    yield refused
    yield from _shown_to_others(figures)
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


def _resizes(causes: Mapping[ResizeCause, int]) -> Metric:
    resizes = CounterMetricFamily(
        "cruise_resizes", "Resizes of node passes that were done, by what made them worth a write.", labels=["cause"]
    )
    for cause in ResizeCause:
        resizes.add_metric([cause.value], causes.get(cause, 0))
    return resizes


def _jobs(jobs: Sequence[JobFigures]) -> Iterator[Metric]:
    runs = CounterMetricFamily("cruise_job_runs", "Runs of a job that came to an end.", labels=["job"])
    failures = CounterMetricFamily("cruise_job_failures", "Runs of a job that were dropped.", labels=["job"])
    success = GaugeMetricFamily(
        "cruise_job_last_success_timestamp_seconds", "When a job last went through.", labels=["job"]
    )
    duration = SummaryMetricFamily("cruise_job_duration_seconds", "How long a job's runs took.", labels=["job"])
    for job in jobs:
        runs.add_metric([job.name], job.runs)
        failures.add_metric([job.name], job.failures)
        duration.add_metric([job.name], count_value=job.runs, sum_value=job.seconds)
        if job.last_success_at is not None:
            success.add_metric([job.name], job.last_success_at.timestamp())
    yield from (runs, failures, success, duration)


def _going_on(figures: ControllerFigures) -> Iterator[Metric]:
    ages = GaugeMetricFamily(
        "cruise_last_success_age_seconds",
        "Age of the last pass of a kind that went through, by the monotonic clock; only where passes run.",
        labels=["pass"],
    )
    for name, seconds in sorted(figures.success_ages.items()):
        ages.add_metric([name], seconds)
    yield ages
    yield CounterMetricFamily(
        "cruise_leadership_released",
        "How often this process gave up the lead because a pass did not end or go through.",
        figures.leads_given_up,
    )
    yield GaugeMetricFamily(
        "cruise_database_epoch", "Latest epoch of the database that this process has seen.", figures.database_epoch
    )
    yield GaugeMetricFamily("cruise_open_intents", "Writes whose outcome is not stored yet.", figures.open_intents)
    if figures.leader:
        yield GaugeMetricFamily(
            "cruise_history_incomplete",
            "1 where the database lacks usage that it had: nothing is shrunk or evicted because of usage meanwhile.",
            int(figures.history_incomplete),
        )


def _pass(figures: NodePassFigures) -> Iterator[Metric]:
    held = GaugeMetricFamily("cruise_pods_skipped", "Pods that the last pass left alone.", labels=["reason"])
    for reason, count in sorted(figures.skipped.items()):
        held.add_metric([reason.value], count)
    yield held
    steps = GaugeMetricFamily(
        "cruise_node_pass_step_seconds", "How long each step of the last node pass took.", labels=["step"]
    )
    for step, seconds in figures.seconds.items():
        steps.add_metric([step], seconds)
    yield steps
    yield GaugeMetricFamily("cruise_nodes", "Nodes in the last pass.", figures.nodes)
    yield GaugeMetricFamily(
        "cruise_nodes_overcommitted", "Nodes that no eviction would make fit.", figures.overcommitted
    )
    yield GaugeMetricFamily(
        "cruise_nodes_under_pressure",
        "Nodes that are short of something for which nobody has to go yet.",
        figures.under_pressure,
    )
    sums = (
        ("cruise_requested_resources", "What kube-scheduler counts on all nodes.", figures.requested),
        ("cruise_allocatable_resources", "What all nodes can give to pods.", figures.allocatable),
    )
    for name, words, amounts in sums:
        family = GaugeMetricFamily(name, words, labels=["resource", "unit"])
        family.add_metric(["cpu", "core"], amounts.cpu_millicores / 1000)
        family.add_metric(["memory", "byte"], amounts.memory_bytes)
        yield family


def _risks(risks: Mapping[ResourceName, ObservedRisk]) -> Iterator[Metric]:
    families: tuple[tuple[str, str, Callable[[ObservedRisk], float]], ...] = (
        (
            "risk_stated",
            "The share of intervals in which a node's demand may pass requests.",
            lambda one: one.stated_risk,
        ),
        ("risk_observed", "The share of the last seven days' intervals in which it did.", lambda one: one.observed),
        (
            "risk_intervals",
            "The last seven days' intervals, one for each node and pass.",
            lambda one: one.intervals,
        ),
        ("level", "What nodes keep of how far demand may rise, as a multiple.", lambda one: one.level),
    )
    for name, words, value in families if risks else ():
        family = GaugeMetricFamily(f"cruise_headroom_{name}", words, labels=["resource"])
        for resource, risk in risks.items():
            family.add_metric([resource.value], value(risk))
        yield family


def _loads(done: NodeLoadPassResult) -> Iterator[Metric]:
    yield GaugeMetricFamily("cruise_nodes_tainted", "Nodes with cruise's own taint.", len(done.tainted))
    refused = GaugeMetricFamily(
        "cruise_node_loads_rejected", "Nodes whose load at the last look taints none.", labels=["reason"]
    )
    refused.add_metric(["implausible"], len(done.implausible))
    refused.add_metric(["too-many-at-once"], done.overloaded_at_once)
    yield refused


def _cross_check(found: CrossCheckCounts) -> Iterator[Metric]:
    containers = CounterMetricFamily(
        "cruise_cross_checked_containers",
        "Containers whose figures were compared with their kubelets'.",
        labels=["result"],
    )
    containers.add_metric(["agree"], found.agreeing)
    containers.add_metric(["disagree"], found.disagreeing)
    yield containers
    nodes = CounterMetricFamily("cruise_cross_checked_nodes", "Kubelets asked to compare.", labels=["result"])
    nodes.add_metric(["read"], found.nodes - found.unreadable)
    nodes.add_metric(["unread"], found.unreadable)
    yield nodes


def _packing(figures: PackingPassFigures) -> Iterator[Metric]:
    plans = CounterMetricFamily(
        "cruise_packing_plans", "Packing plans by how they ended, and what was proved.", labels=["outcome", "proof"]
    )
    for (outcome, proof), count in sorted(figures.plans.items()):
        plans.add_metric([outcome, proof], count)
    yield plans
    yield CounterMetricFamily(
        "cruise_packing_placed_pods", "Pods that finished packing plans brought onto nodes.", figures.placed
    )
    gauges = (
        ("cruise_packing_pending_pods", "Unschedulable pods that the last packing pass was made for.", figures.pending),
        ("cruise_packing_solve_seconds", "How long solving took in the last packing pass.", figures.seconds),
        ("cruise_packing_planned_pods", "Pods that the last packing plan places.", figures.planned),
        ("cruise_packing_bound_pods", "Pods that no packing plan could have surpassed in placing.", figures.bound),
    )
    for name, words, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(name, words, value)


def _consolidation(done: ConsolidationPassResult | None) -> Iterator[Metric]:
    if done is None:
        return
    yield GaugeMetricFamily(
        "cruise_consolidation_timestamp_seconds", "When fewer nodes were last looked for.", done.at.timestamp()
    )
    fleet = done.fleet
    if fleet is None or done.plan is None:
        return
    nodes = GaugeMetricFamily(
        "cruise_consolidation_nodes",
        "Nodes in use: now, after the plan that needs the fewest, and in any plan at least.",
        labels=["when"],
    )
    for when, count in (("now", fleet.nodes_before), ("after", fleet.nodes_after), ("bound", fleet.nodes_bound)):
        nodes.add_metric([when], count)
    yield nodes
    yield GaugeMetricFamily("cruise_consolidation_moves", "Pods that this plan moves.", len(done.plan.moves))
    yield GaugeMetricFamily("cruise_consolidation_solve_seconds", "How long solving took for it.", done.seconds)


def _webhook(figures: WebhookFigures, now: datetime) -> Iterator[Metric]:
    answers = CounterMetricFamily(
        "cruise_webhook_reviews", "Admission reviews by what was answered.", labels=["answer", "reason"]
    )
    for (answer, reason), count in sorted(figures.answers.items()):
        answers.add_metric([answer, reason], count)
    yield answers
    total = sum(figures.answers.values())
    buckets = [(f"{bound:g}", float(count)) for bound, count in figures.duration_buckets] + [("+Inf", float(total))]
    yield HistogramMetricFamily(
        "cruise_webhook_duration_seconds",
        "How long an admission review took.",
        buckets=buckets,
        sum_value=figures.duration_seconds,
    )
    if figures.certificate_expires_at is not None:
        yield GaugeMetricFamily(
            "cruise_webhook_certificate_expiry_timestamp_seconds",
            "When the certificate in use ends.",
            figures.certificate_expires_at.timestamp(),
        )
    yield from _freshness("cruise_webhook", figures.statistics_at, figures.watch_lag_seconds, now)


def _listener(figures: ListenerFigures) -> Iterator[Metric]:
    yield GaugeMetricFamily("cruise_http_connections", "Connections that are open.", figures.connections)
    yield GaugeMetricFamily("cruise_http_body_bytes", "Bytes of requests under way.", figures.body_bytes)
    turned_away = CounterMetricFamily(
        "cruise_http_connections_rejected", "Connections that were ended before an answer.", labels=["reason"]
    )
    for reason, count in figures.rejected.items():
        turned_away.add_metric([reason], count)
    yield turned_away


def _freshness(
    prefix: str, statistics_at: datetime | None, lag_seconds: float | None, now: datetime
) -> Iterator[Metric]:
    if statistics_at is not None:
        age = max(0.0, (now - statistics_at).total_seconds())
        yield GaugeMetricFamily(f"{prefix}_statistics_age_seconds", "How old the statistics are.", age)
    if lag_seconds is not None:
        lag = lag_seconds if not math.isnan(lag_seconds) else math.inf
        yield GaugeMetricFamily(f"{prefix}_watch_lag_seconds", "How old the view of the cluster may be.", lag)
