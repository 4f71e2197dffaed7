"""`cruise scan`: a read-only report of a cluster: what is at risk, what is wasted, what is pending."""

import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.options import ConfigOption, NowOption, ReportFormat, optional, parse_time, settings_of
from cruise.cli.saving import save
from cruise.cli.terminal import busy, file_console, print_parts, table_console, write_document, write_json
from cruise.errors import BadInput

if TYPE_CHECKING:
    from datetime import datetime

    from cruise.adapters.prometheus.settings import PrometheusSettings
    from cruise.domain.cluster import Snapshot
    from cruise.domain.usage import StatisticsTable
    from cruise.interfaces.scan.report import ScanReport
    from cruise.settings import Settings

CPU_CORE_HOUR = 0.0145
MEMORY_GIB_HOUR = 0.00724
_MANY_PODS = 2000


class History(StrEnum):
    """How much of the past is read from Prometheus."""

    HOUR = "1h"
    DAY = "1d"
    WEEK = "7d"


_BY_SUFFIX = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".csv": "csv", ".html": "html", ".htm": "html"}


def scan(
    snapshot: Annotated[str | None, optional("--snapshot", "FILE", "A recorded cluster, as for `cruise plan`.")] = None,
    usage: Annotated[str | None, optional("--usage", "FILE", "A UsageStatistics file.")] = None,
    prometheus_url: Annotated[
        str | None, optional("--prometheus-url", "URL", "Read the usage from this server.")
    ] = None,
    history: Annotated[History, typer.Option("--history", help="How much of the past to read from it.")] = History.DAY,
    now: NowOption = None,
    format: Annotated[
        ReportFormat | None, optional("--format", None, "table unless the name of --output says otherwise.", "-f")
    ] = None,
    output: Annotated[Path | None, optional("--output", "FILE", "Write to a file instead.", "-o")] = None,
    price_cpu_core_hour: Annotated[float, typer.Option(min=0, metavar="$", help="For the estimate.")] = CPU_CORE_HOUR,
    price_gib_hour: Annotated[float, typer.Option(min=0, metavar="$", help="For the estimate.")] = MEMORY_GIB_HOUR,
    config: ConfigOption = None,
) -> None:
    """Report what is at risk, what is wasted and what is pending; nothing is changed.

    The cluster is the one that kubectl speaks to (or kubeconfig names), read
    by lists alone; its Prometheus is found by the labels of its Service. From
    files nothing is contacted.

    Examples:
      cruise scan

      cruise scan --prometheus-url http://localhost:9090 --history 7d

      cruise scan --snapshot cluster.json --usage usage.json

      cruise scan --snapshot cluster.json --usage usage.json -o report.html

      cruise scan --snapshot cluster.json --prometheus-url http://localhost:9090
    """
    from cruise.cli.inputs.files import collector_off
    from cruise.decisions.scan.findings import scan as look_at
    from cruise.decisions.scan.waste import Prices
    from cruise.interfaces.scan.report import ScanReport

    if not math.isfinite(price_cpu_core_hour + price_gib_hour):
        raise BadInput("a price is a number, such as 0.0145")
    settings, at = settings_of(config), parse_time(now)
    chosen = _format(format, output)
    if usage is not None and prometheus_url is not None:
        raise BadInput("--usage and --prometheus-url are both given; choose one source")
    if now is not None and snapshot is None:
        raise BadInput("--now needs --snapshot: a cluster that is read now is judged now")
    with collector_off():
        cluster, prometheus = _cluster(snapshot, usage, prometheus_url, settings)
        statistics, at, rests_on = _statistics(cluster, usage, prometheus, history, at, settings)
        with busy(f"looking at {len(cluster.pods):,} pods", len(cluster.pods) > _MANY_PODS):
            prices = Prices(price_cpu_core_hour, price_gib_hour)
            report = ScanReport(look_at(cluster, statistics, settings.policy(), prices, at), rests_on)
        _write(report, chosen, output)


def _cluster(
    snapshot: str | None, usage: str | None, prometheus_url: str | None, settings: "Settings"
) -> "tuple[Snapshot, PrometheusSettings | None]":
    """Return the cluster, and how its Prometheus is queried where the usage comes from there."""
    if snapshot is None:
        from cruise.cli.inputs.live_cluster import Prometheus, read_cluster

        live = read_cluster(settings, Prometheus.NEEDED if usage is None else Prometheus.NOT, prometheus_url)
        return live.snapshot, live.prometheus
    from cruise.cli.inputs.files import load_snapshot

    cluster = load_snapshot(snapshot)
    if usage is not None:
        return cluster, None
    if prometheus_url is None and settings.prometheus_url is None:
        raise BadInput("no usage: give --usage FILE, or --prometheus-url URL to read it from a Prometheus server")
    return cluster, settings.prometheus(prometheus_url)


def _format(chosen: ReportFormat | None, output: Path | None) -> ReportFormat:
    if chosen is not None:
        return chosen
    return ReportFormat(_BY_SUFFIX.get(output.suffix.lower(), "table")) if output is not None else ReportFormat.TABLE


def _statistics(
    snapshot: "Snapshot",
    usage: str | None,
    prometheus: "PrometheusSettings | None",
    history: History,
    now: "datetime | None",
    settings: "Settings",
) -> "tuple[StatisticsTable, datetime, str]":
    """Return the statistics, the time they are judged at, and where they come from in words."""
    if usage is not None:
        from cruise.cli.inputs.files import load_usage

        statistics, at = load_usage(usage, snapshot, now)
        return statistics, at, f"the statistics in {usage if usage != '-' else 'standard input'}"
    from cruise.cli.inputs.prometheus_usage import read_usage_of

    assert prometheus is not None
    return read_usage_of(snapshot, prometheus, history.value, now, settings.policy())


def _write(report: "ScanReport", chosen: ReportFormat, output: Path | None) -> None:
    if output is not None:
        save(output, [_document(report, chosen)], "--output")
    elif chosen is ReportFormat.TABLE:
        from cruise.interfaces.scan.table import scan_table

        console = table_console()
        print_parts(scan_table(report, console), console)
    else:
        write = write_json if chosen is ReportFormat.JSON else write_document
        write([_document(report, chosen)])


def _document(report: "ScanReport", chosen: ReportFormat) -> bytes:
    from cruise.interfaces.scan.html import scan_html
    from cruise.interfaces.scan.report import scan_csv, scan_json, scan_yaml

    match chosen:
        case ReportFormat.TABLE:
            return _plain_table(report)
        case ReportFormat.JSON:
            return scan_json(report)
        case ReportFormat.YAML:
            return scan_yaml(report)
        case ReportFormat.CSV:
            return scan_csv(report)
        case ReportFormat.HTML:
            return scan_html(report)


def _plain_table(report: "ScanReport") -> bytes:
    import io

    from cruise.interfaces.scan.table import scan_table

    text = io.StringIO()
    console = file_console(text, 160)
    print_parts(scan_table(report, console), console)
    return text.getvalue().encode()
