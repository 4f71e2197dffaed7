"""The reference page of metrics, from the output of both programs after every event has happened once."""

from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.actions import ActionResult, ReasonCode
from cruise.domain.packing_plan import NodeCountChange, PackingProposal, PackingSizes
from cruise.domain.policy import Mode
from cruise.domain.preflight import CrossCheckCounts
from cruise.domain.resources import NO_RESOURCES, ResourceName
from cruise.interfaces.http.figures import (
    ControllerFigures,
    JobFigures,
    ListenerFigures,
    NodePassFigures,
    PackingActivityFigures,
    WebhookFigures,
)
from cruise.interfaces.http.metrics import render_metrics
from cruise.packer.answer import PackingStatus
from cruise.runtime.node_load import NodeLoadPassResult
from cruise.runtime.packing.consolidation_pass import ConsolidationPassResult
from scripts.reference.markdown import code, page, section, table

_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_RISKS = {ResourceName.CPU: ObservedRisk(0.07, 0.4, 1, 0)}
_PASS = NodePassFigures(
    at=_NOW,
    nodes=1,
    overcommitted=0,
    under_pressure=0,
    requested=NO_RESOURCES,
    allocatable=NO_RESOURCES,
    skipped={ReasonCode.NO_CHANGE_NEEDED: 1},
    seconds={"decide": 1.0},
    observed_risks=_RISKS,
)
_CONSOLIDATION_PLAN = PackingProposal(
    PackingStatus.OPTIMAL,
    PackingSizes.RIGHTSIZED,
    (),
    (),
    (),
    node_count_change=NodeCountChange(3, 2, 2, drained=("n1",)),
)
_CONTROLLER = ControllerFigures(
    Mode.FULL,
    leader=True,
    jobs=[JobFigures("node pass", last_success_at=_NOW)],
    outcomes={("resize", ActionResult.DONE, ReasonCode.RIGHTSIZED): 1},
    last_pass=_PASS,
    statistics_at=_NOW,
    watch_lag_seconds=1.0,
    paused=False,
    packing=PackingActivityFigures(1, {("shown", "optimal"): 1}, 1, 1, 1.0, 1, 1),
    consolidation=ConsolidationPassResult(_NOW, _CONSOLIDATION_PLAN, seconds=1.0),
    load_pass=NodeLoadPassResult(_NOW, 1),
    cross_check=CrossCheckCounts(nodes=1),
    success_ages={"node pass": 1.0},
)
_WEBHOOK = WebhookFigures({("mutated", "peak"): 1}, ((0.001, 1),), 0.1, _NOW, _NOW, 1.0)
_LISTENER = ListenerFigures(1, 0, {"connections": 1})
_INTRODUCTION = """Look up the series of `/metrics` of both programs, in Prometheus' text format. Counters of events
appear after the first event. Values of labels are in [reasons.md](reasons.md);
`deploy/chart/files/rules.yaml` has alerting rules, with a [runbook](../runbooks.md) for each.
`serve` requires a token for them unless `metrics_allow_anonymous` is set."""
_HEADINGS = ("series", "type", "labels", "meaning")


def metrics_page() -> str:
    """Return the page."""
    serve = _list_families(render_metrics("1", _NOW, controller=_CONTROLLER))
    webhook = _list_families(render_metrics("1", _NOW, webhook=_WEBHOOK))
    both = _list_families(render_metrics("1", _NOW, listener=_LISTENER))
    shared = {name: row for name, row in both.items() if not name.startswith("process_")}
    return page(
        "Metrics",
        _INTRODUCTION,
        section("serve", table(_HEADINGS, (row for name, row in serve.items() if name not in both))),
        section("webhook", table(_HEADINGS, (row for name, row in webhook.items() if name not in both))),
        section(
            "Both programs",
            table(_HEADINGS, shared.values()),
            "And `process_…` of the Prometheus client library: memory, CPU time, open files, start time.",
        ),
    )


def _list_families(text: bytes) -> dict[str, tuple[str, ...]]:
    return dict(_rows(text))


def _rows(text: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    for family in text_string_to_metric_families(text.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        yield family.name, (code(name), family.type, ", ".join(map(code, labels)), family.documentation)
