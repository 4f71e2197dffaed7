"""Metrics as a Prometheus server would read them."""

import math
import subprocess
from dataclasses import replace
from datetime import timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cruise.decisions.scan.coverage import Coverage, CoverageGroup
from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.actions import ActionResult, ReasonCode
from cruise.domain.packing_plan import PlanPhase
from cruise.domain.policy import Mode
from cruise.domain.resources import ResourceName, Resources
from cruise.domain.usage import SampleRejectionReason
from cruise.interfaces.http.figures import (
    ControllerFigures,
    JobFigures,
    NodePassFigures,
    PackingActivityFigures,
    WebhookFigures,
)
from cruise.interfaces.http.metrics import render_metrics
from cruise.runtime.packing.packing_pass import PackingPassResult
from tests.builders import NOW
from tests.interfaces.packing.packing_plans import PLAN
from tests.prometheus_server import binary

JOBS = (
    JobFigures("node pass", runs=7, failures=2, seconds=3.5, last_success_at=NOW - timedelta(minutes=3)),
    JobFigures("prune"),
)
FIGURES = ControllerFigures(
    mode=Mode.RESIZE,
    leader=True,
    jobs=JOBS,
    success_ages={"node pass": 42.0, "statistics": 17.0},
    leads_given_up=1,
    outcomes={
        ("resize", ActionResult.DONE, ReasonCode.RIGHTSIZED): 4,
        ("resize", ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY): 1,
        ("evict", ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET): 2,
    },
    last_pass=NodePassFigures(
        NOW,
        3,
        1,
        2,
        Resources(2500, 1 << 30),
        Resources(12_000, 1 << 34),
        {ReasonCode.GUARANTEED: 5},
        {"snapshot": 0.25},
        {ResourceName.CPU: ObservedRisk(0.07, 0.4, 1000, 50), ResourceName.MEMORY: ObservedRisk(0.01, 1.5, 1000, 40)},
        Coverage(
            CoverageGroup(2, Resources(1500, 1 << 29), Resources(500, 0)),
            {
                ReasonCode.GUARANTEED: CoverageGroup(
                    5, Resources(1000, 1 << 29), Resources(250, 0), Resources(0, 1 << 29)
                )
            },
        ),
    ),
    statistics_at=NOW - timedelta(seconds=90),
    watch_lag_seconds=1.5,
    paused=False,
    refused={SampleRejectionReason.SERIES_DISAGREE: 7},
)


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """Return every sample by its name and the values of its labels, by label."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_packing_reports_the_results_of_plans_and_what_was_proved():
    shown = replace(PLAN, phase=PlanPhase.ADVISORY)
    figures = (
        PackingActivityFigures()
        .add_pass(PackingPassResult(NOW, 2, PLAN))
        .add_plan(replace(PLAN, phase=PlanPhase.FINISHED))
    )
    figures = figures.add_pass(PackingPassResult(NOW, 3, shown)).add_plan(shown)
    read = samples(render_metrics("1", NOW, replace(FIGURES, packing=figures)))
    expected = {
        ("cruise_packing_plans_total", "finished", "feasible"): 1,
        ("cruise_packing_plans_total", "advisory", "feasible"): 1,
        ("cruise_packing_placed_pods_total",): 1,
        ("cruise_packing_pending_pods",): 3,
        ("cruise_packing_solve_seconds",): 0.25,
        ("cruise_packing_planned_pods",): 1,
        ("cruise_packing_bound_pods",): 2,
    }
    assert {key: read.get(key) for key in expected} == expected
    assert not [key for key in samples(render_metrics("1", NOW, FIGURES)) if "packing" in key[0]]


def test_a_controller_exports_all_metrics_that_an_operator_watches():
    read = samples(render_metrics("1.2.3", NOW, FIGURES))
    expected = {
        ("cruise_build_info", "1.2.3"): 1,
        ("cruise_leader",): 1,
        ("cruise_coverage_requested_resources", "sized", "cpu", "core"): 1.5,
        ("cruise_coverage_reclaimable_resources", "guaranteed", "cpu", "core"): 0.25,
        ("cruise_coverage_unknown_resources", "guaranteed", "memory", "byte"): 1 << 29,
        ("cruise_mode", "resize"): 1,
        ("cruise_mode", "full"): 0,
        ("cruise_paused",): 0,
        ("cruise_samples_rejected_total", "series-disagree"): 7,
        ("cruise_samples_rejected_total", "above-limit"): 0,
        ("cruise_headroom_risk_stated", "memory"): 0.01,
        ("cruise_headroom_risk_observed", "memory"): 0.04,
        ("cruise_headroom_risk_intervals", "memory"): 1000,
        ("cruise_headroom_level", "cpu"): 0.4,
        ("cruise_job_runs_total", "node pass"): 7,
        ("cruise_job_failures_total", "node pass"): 2,
        ("cruise_job_failures_total", "prune"): 0,
        ("cruise_job_duration_seconds_sum", "node pass"): 3.5,
        ("cruise_job_duration_seconds_count", "node pass"): 7,
        ("cruise_job_last_success_timestamp_seconds", "node pass"): NOW.timestamp() - 180,
        ("cruise_last_success_age_seconds", "node pass"): 42.0,
        ("cruise_actions_total", "resize", "rightsized", "done"): 4,
        ("cruise_actions_total", "evict", "pod-disruption-budget", "refused"): 2,
        ("cruise_pods_skipped", "guaranteed"): 5,
        ("cruise_nodes",): 3,
        ("cruise_node_pass_step_seconds", "snapshot"): 0.25,
        ("cruise_nodes_overcommitted",): 1,
        ("cruise_nodes_under_pressure",): 2,
        ("cruise_requested_resources", "cpu", "core"): 2.5,
        ("cruise_requested_resources", "memory", "byte"): 1 << 30,
        ("cruise_allocatable_resources", "cpu", "core"): 12,
        ("cruise_statistics_age_seconds",): 90,
        ("cruise_watch_lag_seconds",): 1.5,
    }
    assert {key: read.get(key) for key in expected} == expected
    assert ("cruise_job_last_success_timestamp_seconds", "prune") not in read
    assert read[("process_resident_memory_bytes",)] > 1 << 20


def test_what_is_not_known_is_left_out_rather_than_zero():
    read = samples(render_metrics("1", NOW, ControllerFigures(Mode.OBSERVE, leader=False, watch_lag_seconds=math.inf)))
    names = {key[0] for key in read}
    assert not names & {"cruise_paused", "cruise_nodes", "cruise_requested_resources", "cruise_statistics_age_seconds"}
    assert read[("cruise_watch_lag_seconds",)] == math.inf
    assert read[("cruise_leader",)] == 0


def test_a_webhook_exports_answers_durations_and_its_certificate():
    figures = WebhookFigures(
        answers={("mutated", "peak"): 90, ("left", "guaranteed"): 9, ("failed", "unreadable"): 1},
        duration_buckets=((0.001, 60), (0.01, 99)),
        duration_seconds=0.2,
        statistics_at=NOW - timedelta(seconds=30),
        certificate_expires_at=NOW + timedelta(days=1),
    )
    read = samples(render_metrics("1", NOW, webhook=figures))
    assert read[("cruise_webhook_reviews_total", "left", "guaranteed")] == 9
    assert read[("cruise_webhook_duration_seconds_bucket", "0.001")] == 60
    assert read[("cruise_webhook_duration_seconds_bucket", "+Inf")] == 100
    assert read[("cruise_webhook_duration_seconds_count",)] == 100
    assert read[("cruise_webhook_certificate_expiry_timestamp_seconds",)] == NOW.timestamp() + 86400
    assert read[("cruise_webhook_statistics_age_seconds",)] == 30
    assert not [key for key in read if key[0] == "cruise_leader"]


def test_prometheus_own_judge_has_no_complaint():
    webhook = WebhookFigures({("mutated", "peak"): 3}, ((0.001, 2),), 0.1, NOW, NOW, 1.0)
    text = render_metrics("1", NOW, FIGURES, webhook)
    done = subprocess.run([binary("promtool"), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


@pytest.mark.parametrize("hostile", ['a"b', "line\nbreak", "back\\slash", "ü"])
def test_labels_are_escaped(hostile):
    figures = ControllerFigures(Mode.FULL, leader=True, jobs=(JobFigures(hostile, runs=1),))
    assert samples(render_metrics("1", NOW, figures))[("cruise_job_runs_total", hostile)] == 1
