"""Several clusters in one report: every format has each cluster, the totals, and failed scans."""

import csv
import io
import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import yaml
from rich.console import Console

from cruise.adapters import files
from cruise.decisions.scan.findings import find_scan_findings
from cruise.domain.policy import Policy
from cruise.domain.prices import ResourcePrices
from cruise.interfaces.scan.clusters import (
    TOTAL,
    ClusterScans,
    build_clusters_document,
    render_clusters_table,
    render_findings_of_clusters_csv,
    render_slack_summary,
    summarize_clusters,
)
from cruise.interfaces.scan.html import render_clusters_html
from cruise.interfaces.scan.report import ScanReport, build_scan_document
from cruise.interfaces.text import render_json, render_yaml

PRICES = ResourcePrices(0.0145, 0.00724)
NAMES = ("prod-eu", "prod-<us>")
FAILURE = "the API server cannot be reached: <refused> & gone"


@pytest.fixture(scope="module")
def scans() -> ClusterScans:
    """The example twice, the second time with half of its pods."""
    snapshot = files.load_snapshot("docs/example/cluster.json")
    statistics, at = files.load_usage("docs/example/usage.json", snapshot, None)
    half = replace(snapshot, pods=snapshot.pods[::2])
    reports = {
        name: ScanReport(find_scan_findings(one, statistics, Policy(), PRICES, at), "a file")
        for name, one in zip(NAMES, (snapshot, half), strict=True)
    }
    return ClusterScans(reports, {"staging": FAILURE})


def test_the_summary_adds_up_and_begins_with_the_largest_saving(scans: ClusterScans):
    *rows, total = summarize_clusters(scans)
    assert total.name == TOTAL
    assert [row.monthly_cost for row in rows] == sorted((row.monthly_cost for row in rows), reverse=True)
    for name in ("nodes", "pods", "at_risk", "pending"):
        assert getattr(total, name) == sum(getattr(row, name) for row in rows)
    for name in ("requested", "sized", "reclaimable"):
        assert getattr(total, name).cpu_millicores == sum(getattr(row, name).cpu_millicores for row in rows)
    assert len(summarize_clusters(ClusterScans({"one": scans.reports["prod-eu"]}, {}))) == 1


def test_documents_have_each_cluster_as_its_own_scan(scans: ClusterScans):
    document = json.loads(render_json(build_clusters_document(scans)))
    assert yaml.safe_load(render_yaml(build_clusters_document(scans))) == document
    for one in document["clusters"]:
        alone = json.loads(render_json(build_scan_document(scans.reports[one["context"]])))
        assert {key: value for key, value in one.items() if key != "context"} == alone
    assert document["failed"] == [{"context": "staging", "message": FAILURE}]
    assert [row["context"] for row in document["summary"]][-1] is None
    rows = list(csv.DictReader(io.StringIO(render_findings_of_clusters_csv(scans).decode())))
    assert {row["cluster"] for row in rows} == set(NAMES)
    assert {row["section"] for row in rows} >= {"coverage", "waste"}


@pytest.mark.parametrize("width", [80, 160])
def test_a_terminal_shows_every_cluster_within_its_width(scans: ClusterScans, width: int):
    text = io.StringIO()
    console = Console(file=text, width=width, markup=False, highlight=False)
    for part in render_clusters_table(scans, console):
        console.print(part)
    shown = text.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    for name in (*NAMES, TOTAL, "staging could not be read"):
        assert name in shown
    assert shown.count("Coverage") == len(NAMES)


class _Page(HTMLParser):
    """Collects ids, links within the page, and what is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.inputs: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [named["id"] or ""] if "id" in named else []
        self.links += [(named["href"] or "")[1:]] if tag == "a" and "href" in named else []
        self.inputs += [named["data-for"] or ""] if "data-for" in named else []
        self.loaded += [one for name in ("src", "srcset") if (one := named.get(name))]


def test_the_page_has_one_part_per_cluster_and_every_link_leads_somewhere(scans: ClusterScans):
    text = render_clusters_html(scans).decode()
    page = _Page()
    page.feed(text)
    assert len(page.ids) == len(set(page.ids))
    assert set(page.links) <= set(page.ids)
    assert set(page.inputs) <= set(page.ids)
    assert {"cluster-1", "cluster-2"} <= set(page.links)
    assert page.loaded == []
    assert "prod-&lt;us&gt;" in text
    assert "prod-<us>" not in text
    assert "&lt;refused&gt; &amp; gone" in text


def test_a_message_for_slack_names_each_cluster_and_makes_no_links(scans: ClusterScans):
    message = json.loads(render_slack_summary(scans))
    assert message["text"].startswith("cruise scan of 2 clusters: about $")
    lines = [block["text"]["text"] for block in message["blocks"]]
    assert len(lines) == 1 + 2 + 1
    assert "*prod-&lt;us&gt;*" in "".join(lines)
    assert not any(mark in "".join(lines) for mark in ("<us>", "<refused>"))


def test_a_message_for_slack_is_within_its_limits(scans: ClusterScans):
    report = scans.reports["prod-eu"]
    many = ClusterScans({f"cluster-{number}": report for number in range(70)}, {"gone": "x" * 5000})
    blocks = json.loads(render_slack_summary(many))["blocks"]
    assert len(blocks) <= 50
    assert all(len(block["text"]["text"]) <= 3000 for block in blocks)
    assert blocks[-1]["text"]["text"] == "and 23 more clusters"
    assert json.loads(render_slack_summary(ClusterScans({}, {"gone": "x"})))["text"].endswith(
        "no cluster could be read"
    )
