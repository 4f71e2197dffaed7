"""The chart's alerts and dashboards use existing metrics, and Prometheus accepts them."""

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from cruise.domain.preflight import CrossCheckCounts
from cruise.interfaces.http.figures import ListenerFigures, PackingActivityFigures, WebhookFigures
from cruise.interfaces.http.metrics import render_metrics
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.packing.packing_pass import PackingPassResult
from tests.builders import NOW
from tests.deploy.installing import CHART
from tests.interfaces.http.test_metrics import FIGURES
from tests.interfaces.packing.packing_plans import PLAN
from tests.prometheus_server import binary

RULES = CHART / "files" / "rules.yaml"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
# What a scrape adds.
OF_TARGETS = {"job", "namespace", "pod", "instance"}


def labels_by_metric() -> dict[str, set[str]]:
    """Every sample that a process of cruise can show, with its labels."""
    packing = PackingActivityFigures().add_pass(PackingPassResult(NOW, 3, PLAN)).add_plan(PLAN)
    compared = CrossCheckCounts(nodes=2, agreeing=7, disagreeing=1)
    controller = replace(FIGURES, packing=packing, load_pass=NodeLoadPassResult(NOW, 3), cross_check=compared)
    webhook = WebhookFigures({("mutated", "peak"): 3}, ((0.001, 2),), 0.1, NOW, NOW, 1.0)
    text = render_metrics("1", NOW, controller, webhook, ListenerFigures(1, 0, {"full": 2}))
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def unknown_names(expression: str, known: dict[str, set[str]]) -> set[str]:
    """What an expression selects or groups by that no process of cruise shows."""
    missing = set()
    for name, matchers in re.findall(r"\b((?:cruise|process)_\w+)(?:\{([^}]*)\})?", expression):
        labels = {re.split(r"[=!]", one)[0].strip() for one in matchers.split(",") if one}
        missing |= {name} if name not in known else labels - known[name] - OF_TARGETS
    # As it arrives: a target has a label of that name already.
    every = {"exported_job", *OF_TARGETS}.union(*known.values())
    for grouped in re.findall(r"\bby ?\(([^)]*)\)", expression):
        missing |= {one.strip() for one in grouped.split(",")} - every
    return missing


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_uses_metrics_that_cruise_has(alert: dict[str, Any]):
    assert "cruise_" in alert["expr"]
    assert unknown_names(alert["expr"], labels_by_metric()) == set()
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks.md#{alert['alert'].lower()}"
    assert alert["labels"]["severity"] in ("critical", "warning", "info")


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_shows_metrics_that_cruise_has(file: Path):
    dashboard = json.loads(file.read_text())
    shown = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(shown) >= len(dashboard["panels"]) > 0
    assert {name for one in shown for name in unknown_names(one, labels_by_metric())} == set()
    # Nothing overlaps, and each panel fits into Grafana's 24 columns.
    cells = [
        (column, row)
        for at in (panel["gridPos"] for panel in dashboard["panels"])
        for column in range(at["x"], at["x"] + at["w"])
        for row in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24


def test_every_own_metric_of_cruise_is_on_a_dashboard_or_in_an_alert():
    watched = " ".join([*(file.read_text() for file in DASHBOARDS), RULES.read_text()])
    families = {re.sub("_(total|bucket|sum|count)$", "", name) for name in labels_by_metric() if name[:6] == "cruise"}
    # The number of connections is needed once clients were rejected.
    gauges = {"cruise_http_connections", "cruise_http_body_bytes", "cruise_packing_solve_seconds", "cruise_job_runs"}
    # The present value is not enough: the alert is about the past lag.
    gauges.add("cruise_database_epoch")
    assert {name for name in families if name not in watched} - gauges == set()


def test_what_no_process_shows_is_found_missing():
    known = labels_by_metric()
    assert unknown_names("sum by (node) (cruise_nodez) > 0", known) == {"cruise_nodez", "node"}
    assert unknown_names('cruise_mode{reason="full"}', known) == {"reason"}


def test_prometheus_takes_the_rules():
    done = subprocess.run([binary("promtool"), "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


SCENES = {
    "CruiseStatisticsStale": ["cruise_statistics_age_seconds 600+60x60"],
    "CruiseAbsent": ["up 1x60"],
    "CruiseSeveralLeaders": [
        'cruise_leader{pod="a"} 1x60',
        'cruise_leader{pod="b"} 1x60',
        'cruise_mode{mode="full",pod="a"} 1x60',
    ],
    "CruiseJobFailing": ['cruise_job_failures_total{exported_job="node pass",job="cruise"} 0+1x60'],
    "CruiseWritesFailing": [
        'cruise_actions_total{action="resize",result="done",reason="rightsized"} 0+1x60',
        'cruise_actions_total{action="resize",result="refused",reason="disruption-budget"} 0+2x60',
    ],
    "CruiseKubeletsDisagree": ['cruise_cross_checked_containers_total{result="disagree"} 0+1x60'],
    "CruiseHeadroomRiskExceeded": [
        'cruise_headroom_risk_observed{resource="memory"} 0.02x90',
        'cruise_headroom_risk_stated{resource="memory"} 0.01x90',
        'cruise_headroom_risk_intervals{resource="memory"} 2000x90',
    ],
    "CruiseWebhookCertificateExpiring": ["cruise_webhook_certificate_expiry_timestamp_seconds 86400x120"],
}


@pytest.mark.parametrize("name", SCENES)
def test_an_alert_fires_in_its_scene_and_not_before(name: str, tmp_path: Path):
    series = [line.rpartition(" ") for line in SCENES[name]]
    # `1x60` repeats a value for an hour.
    written = [
        {"series": one, "values": values if "+" in values else values.replace("x", "+0x")} for one, _, values in series
    ]
    scene = {
        "rule_files": [str(RULES)],
        "tests": [
            {
                "interval": "1m",
                "input_series": written,
                "promql_expr_test": [
                    {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}}) or vector(0)', "eval_time": time}
                    | {"exp_samples": [{"labels": "{}", "value": value}]}
                    for time, value in (("2m", 0), ("62m", 1))
                ],
            }
        ],
    }
    place = tmp_path / "scene.yaml"
    place.write_text(yaml.safe_dump(scene))
    done = subprocess.run([binary("promtool"), "test", "rules", place], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
