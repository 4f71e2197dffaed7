"""The page of metrics, from what both programs show of themselves when everything has happened once."""

from collections.abc import Iterator
from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from cruise.decisions.sizing.risk_level import ObservedRisk
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
    PackingPassFigures,
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
    _NOW, 1, 0, 0, NO_RESOURCES, NO_RESOURCES, {ReasonCode.NO_CHANGE_NEEDED: 1}, {"decide": 1.0}, _RISKS
)
_ADVISED = PackingProposal(
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
    packing=PackingPassFigures(1, {("shown", "optimal"): 1}, 1, 1, 1.0, 1, 1),
    consolidation=ConsolidationPassResult(_NOW, _ADVISED, seconds=1.0),
    load_pass=NodeLoadPassResult(_NOW, 1),
    cross_check=CrossCheckCounts(nodes=1),
    success_ages={"node pass": 1.0},
)
_WEBHOOK = WebhookFigures({("mutated", "peak"): 1}, ((0.001, 1),), 0.1, _NOW, _NOW, 1.0)
_LISTENER = ListenerFigures(1, 0, {"connections": 1})
_INTRODUCTION = """`/metrics` of both programs, in Prometheus' text format. What changes only when something
happened appears once it has. Values of labels are in [reasons.md](reasons.md); rules that
alert on them are in `deploy/chart/files/rules.yaml`, with a [runbook](../runbooks.md) for
each. `serve` asks for a token before it shows them unless `metrics_allow_anonymous` is set."""
_HEADINGS = ("series", "type", "labels", "meaning")


def metrics_page() -> str:
    """Return the page."""
    serve = _families(render_metrics("1", _NOW, controller=_CONTROLLER))
    webhook = _families(render_metrics("1", _NOW, webhook=_WEBHOOK))
    both = _families(render_metrics("1", _NOW, listener=_LISTENER))
    shared = {name: row for name, row in both.items() if not name.startswith("process_")}
    return page(
        "Metrics",
        _INTRODUCTION,
        section("Of serve", table(_HEADINGS, (row for name, row in serve.items() if name not in both))),
        section("Of the webhook", table(_HEADINGS, (row for name, row in webhook.items() if name not in both))),
        section(
            "Of both",
            table(_HEADINGS, shared.values()),
            "And `process_…`, as every client of Prometheus shows: memory, CPU time, open files, start time.",
        ),
    )


def _families(text: bytes) -> dict[str, tuple[str, ...]]:
    return dict(_rows(text))


def _rows(text: bytes) -> Iterator[tuple[str, tuple[str, ...]]]:
    for family in text_string_to_metric_families(text.decode()):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        yield family.name, (code(name), family.type, ", ".join(map(code, labels)), family.documentation)
