import csv
import io
import json
import re
from dataclasses import replace
from datetime import timedelta

import pytest
import yaml
from hypothesis import given

from cruise.decisions.scan.findings import find_scan_findings
from cruise.domain.cluster import OomKill
from cruise.domain.policy import Policy
from cruise.domain.prices import ResourcePrices
from cruise.domain.resources import MEBIBYTE
from cruise.domain.scheduling import Taint, TaintEffect
from cruise.interfaces.scan.html import render_scan_html, render_scan_mail
from cruise.interfaces.scan.report import ScanReport, build_scan_document, render_scan_csv
from cruise.interfaces.scan.table import render_scan_table
from cruise.interfaces.text import render_json, render_yaml
from tests.builders import (
    NOW,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_statistic_for,
    make_table,
)
from tests.shown import render_to_text
from tests.strategies import clusters
from tests.tiers import examples

PRICES = ResourcePrices(0.0145, 0.00724)


def report(with_trouble: bool = True) -> ScanReport:
    """A cluster with one of everything, or one without any finding."""
    calm = make_pod("calm-1", workload="Deployment/calm", containers=[make_container(cpu=1000, memory_mib=2048)])
    pods, rows, kills = [calm], [make_statistic_for(calm)], []
    if with_trouble:
        dying = make_pod("dying-1", workload="Deployment/dying", containers=[make_container(restart_count=3)])
        tight = make_pod("tight-1", workload="Deployment/tight", containers=[make_container(memory_limit_mib=105)])
        slow = make_pod("slow-1", workload="Deployment/slow", containers=[make_container(cpu=500, cpu_limit=600)])
        bare = make_pod("bare-1", workload=None, containers=[make_container(cpu=None, memory_mib=10)])
        huge = make_pod("huge-1", node=None, containers=[make_container(cpu=2800, memory_mib=64)])
        pods += [dying, tight, slow, bare, huge]
        rows += [make_statistic_for(dying), make_statistic_for(tight), make_statistic_for(slow, cpu_peak=900)]
        rows.append(make_statistic("", workload="Deployment/slow", cpu_peak=900, cpu_start=2500))
        kills = [
            OomKill(
                "shop", "dying-1", "u", "app", dying.workload, "", "n1", NOW - timedelta(hours=2), 256 * MEBIBYTE, None
            )
        ]
    nodes = [make_node(), make_node("n2", taints=(Taint("own", "", TaintEffect.NO_SCHEDULE),))]
    snapshot = replace(make_snapshot(pods, nodes=nodes), oom_kills=tuple(kills))
    return ScanReport(
        find_scan_findings(snapshot, make_table(*rows), Policy(), PRICES, NOW), "the statistics in usage.json"
    )


def table(width=80, with_trouble=True) -> str:
    return render_to_text(lambda console: render_scan_table(report(with_trouble), console), width)


def test_the_document_leads_with_what_is_at_risk():
    document = json.loads(render_json(build_scan_document(report())))
    assert [(one["kind"], one["container"]) for one in document["atRisk"]] == [
        ("oom-killed", "app"),
        ("memory-near-limit", "app"),
        ("cpu-throttled", "app"),
        ("no-requests", "app"),
    ]
    killed, near, throttled, bare = document["atRisk"]
    assert killed["message"] == "OOM killed at 256Mi 2h ago, 3 restarts"
    assert (killed["limitBytes"], killed["killedAt"]) == (256 * MEBIBYTE, "2026-01-01T10:00:00Z")
    assert near["message"] == "peak 100Mi, 95% of limit 105Mi"
    assert (near["observedBytes"], near["allowedBytes"]) == (100 * MEBIBYTE, 105 * MEBIBYTE)
    assert (throttled["observedMillicores"], throttled["allowedMillicores"]) == (900, 600)
    assert bare["missing"] == ["cpu"]
    assert list(document) == [
        "at",
        "statisticsSource",
        "basis",
        "coverage",
        "atRisk",
        "waste",
        "pending",
        "overcommittedNodes",
        "leftAlone",
        "implausible",
        "slowStarts",
    ]


def test_coverage_says_what_is_sized_and_what_unlocks_the_rest():
    document = json.loads(render_json(build_scan_document(report())))["coverage"]
    [skipped] = document["skipped"]
    assert document["sized"]["pods"] == 4
    assert (skipped["reason"], skipped["pods"]) == ("no-controller", 1)
    assert skipped["reclaimable"] == {"cpuMillicores": 0, "memoryBytes": None}
    assert skipped["unknown"] == {"cpuMillicores": 0, "memoryBytes": 10 * MEBIBYTE}
    assert skipped["unlock"]["kind"] == "object"
    total = document["requested"]["memoryBytes"]
    assert total == document["sized"]["requested"]["memoryBytes"] + skipped["requested"]["memoryBytes"]


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_opens_with_coverage_and_what_unlocks_each_reason(width):
    text = table(width)
    assert text.index("Coverage") < text.index("At risk")
    assert "label cruise.io/workload, or a controller that creates it" in text
    assert "unknown" in text


def test_the_page_opens_with_coverage():
    page = render_scan_html(report()).decode()
    assert 0 < page.index('id="coverage"') < page.index('class="cards"') < page.index('id="at-risk"')
    assert "of the requested CPU and" in page
    assert "label cruise.io/workload" in page


def test_money_is_labelled_an_estimate_and_follows_from_the_prices():
    waste = json.loads(render_json(build_scan_document(report(with_trouble=False))))["waste"]
    assert "estimate" in waste["prices"]["note"]
    freed = waste["totals"]["reclaimable"]
    assert freed == {"cpuMillicores": 800, "memoryBytes": 1948 * MEBIBYTE}
    assert waste["totals"]["reclaimableMonthlyCost"] == pytest.approx(
        730 * (0.8 * 0.0145 + 1948 / 1024 * 0.00724), abs=0.01
    )


def test_a_pending_pod_shows_why_it_is_pending_and_where_capacity_could_be_freed():
    [pending] = json.loads(render_json(build_scan_document(report())))["pending"]
    assert pending["message"] == "of 2 nodes: 1 with taints that it does not tolerate, 1 with insufficient CPU"
    assert (pending["schedulableNow"], pending["fitsAfterSizing"], pending["bestNode"]) == (0, 1, "n1")


@pytest.mark.parametrize("width", [80, 160])
def test_slow_starts_say_what_new_pods_would_start_with_and_how(width):
    shown = " ".join(table(width).split())
    assert "2,500m (2.8x)" in shown
    assert "cruise.io/startup-cpu: learn" in shown
    [start] = json.loads(render_json(build_scan_document(report())))["slowStarts"]
    assert (start["workload"], start["container"], start["pods"]) == ("Deployment/slow", "app", 1)
    assert (start["cpuMillicores"], start["startCpuMillicores"]) == (900, 2500)
    assert b"2,500m" in render_scan_html(report())
    assert "slow-start" in render_scan_csv(report()).decode()
    assert "Slow starts" not in table(width, with_trouble=False)


def test_yaml_says_what_json_says():
    assert yaml.safe_load(render_yaml(build_scan_document(report()))) == json.loads(
        render_json(build_scan_document(report()))
    )


def test_csv_has_one_row_a_finding():
    rows = list(csv.DictReader(io.StringIO(render_scan_csv(report()).decode())))
    sections = ["coverage"] * 2 + ["at-risk"] * 4 + ["waste"] * 5 + ["slow-start", "pending"]
    assert [row["section"] for row in rows] == sections
    assert rows[2]["message"] == "OOM killed at 256Mi 2h ago, 3 restarts"
    calm = next(row for row in rows if row["workload"] == "Deployment/calm")
    assert (calm["kind"], calm["cpu_requested_millicores"]) == ("over-requested", "1000")
    assert rows[-1]["kind"] == "fits-after-sizing"


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_keeps_within_the_terminal(width):
    assert max(map(len, table(width).splitlines())) <= width


def test_the_table_has_its_three_parts_in_order_and_totals():
    text = table(120)
    assert 0 < text.index("At risk") < text.index("Reclaimable") < text.index("Pending")
    assert "OOM-killed" in text
    assert "a month" in text
    assert "an estimate; what a provider bills differs" in text
    assert "yes, on 1 node: on n1 " in text
    assert 0 < text.index("Coverage") < text.index("no-controller") < text.index("At risk")


def test_a_cluster_without_findings_says_so():
    text = table(with_trouble=False)
    assert "At risk  no container" in text
    assert "Pending  no pod" in text


def test_the_page_is_whole_and_asks_nothing_of_the_network():
    page = render_scan_html(report()).decode()
    assert page.lstrip().startswith("<!doctype html>")
    assert not re.search(r"""(src|href)=["'](?!#)""", page)
    assert "@import" not in page
    assert "url(" not in page
    assert "prefers-color-scheme: dark" in page
    assert "Deployment/dying" in page
    assert "killed at 256Mi 2h ago, 3 restarts" in page


def test_the_page_says_that_a_cluster_has_no_findings():
    page = render_scan_html(report(with_trouble=False)).decode()
    assert "No container is at risk" in page
    assert "No pod is pending" in page


def test_names_are_escaped_in_the_page():
    found = report()
    [first, *others] = found.findings.risks
    evil = replace(first, workload="Deployment/<script>alert(1)</script>")
    page = render_scan_html(replace(found, findings=replace(found.findings, risks=(evil, *others)))).decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_a_mail_has_nothing_that_mail_programs_drop():
    mail = render_scan_mail(report()).decode()
    assert not re.search(r"<(script|style|link|img|svg|button|input|form|iframe)|class=|src=|href=|url\(|var\(", mail)
    assert "<title>Cluster report: 4 findings at risk, about $18 a month too much requested</title>" in mail
    assert "killed at 256Mi 2h ago, 3 restarts" in mail
    assert "No container was OOM killed" in render_scan_mail(report(with_trouble=False)).decode()


def test_a_mail_of_a_large_cluster_is_not_cut():
    found = report()
    findings = found.findings
    long = "x" * 60
    many = replace(
        findings,
        risks=tuple(replace(findings.risks[0], workload=f"Deployment/{long}{at}") for at in range(900)),
        workloads=tuple(replace(findings.workloads[0], workload=f"Deployment/{long}{at}") for at in range(900)),
        pending=tuple(replace(findings.pending[0], pod=f"{long}{at}") for at in range(900)),
    )
    mail = render_scan_mail(replace(found, findings=many))
    assert len(mail) < 100_000, "Gmail shows no more"
    assert mail.count(b"The first 25 of 900.") == 3


def test_names_are_escaped_in_a_mail():
    found = report()
    evil = replace(found.findings.risks[0], workload="Deployment/<img src=x>", container="a\r\nBcc: x")
    mail = render_scan_mail(
        replace(found, findings=replace(found.findings, risks=(evil,)), statistics_source="<b>")
    ).decode()
    assert "<img" not in mail
    assert "\nBcc" not in mail
    assert "Statistics: &lt;b&gt;." in mail


def test_a_cluster_that_requests_too_little_needs_more():
    short = make_pod(containers=[make_container(cpu=20, memory_mib=70)])
    findings = find_scan_findings(make_snapshot([short]), make_table(make_statistic_for(short)), Policy(), PRICES, NOW)
    text = render_to_text(lambda console: render_scan_table(ScanReport(findings, "a file"), console))
    assert " more a month" in text
    assert "1 workload should request more" in text
    assert "more a month" in render_scan_html(ScanReport(findings, "a file")).decode()


@examples(30)
@given(clusters())
def test_any_cluster_can_be_reported_in_every_form(cluster):
    found = ScanReport(find_scan_findings(cluster.snapshot, cluster.statistics, Policy(), PRICES, NOW), "a file")
    assert yaml.safe_load(render_yaml(build_scan_document(found))) == json.loads(
        render_json(build_scan_document(found))
    )
    assert max(map(len, render_to_text(lambda console: render_scan_table(found, console)).splitlines())) <= 80
    assert render_scan_html(found).endswith(b"</html>")
    assert render_scan_csv(found).count(b"\n") >= 1
