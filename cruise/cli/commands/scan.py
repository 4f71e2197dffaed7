"""`cruise scan`: a read-only report of containers at risk, reclaimable requests and pending pods."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.inputs.sources import (
    ClusterOption,
    CorePriceOption,
    DayOption,
    GibPriceOption,
    HistoryLength,
    PriceOptions,
    PrometheusUrlOption,
    ReportSources,
    UsageFileOption,
    read_cluster_and_usage,
    read_price_options,
)
from cruise.cli.options import (
    ConfigOption,
    NowOption,
    ReportFormat,
    create_option_without_default,
    load_process_settings,
    parse_time,
    write_report,
)
from cruise.cli.terminal import show_spinner
from cruise.errors import BadInputError, UnavailableError

if TYPE_CHECKING:
    from cruise.interfaces.scan.report import ScanReport
    from cruise.settings import Settings

_MANY_PODS = 2000
_FORMATS_BY_SUFFIX = {".json": "json", ".yaml": "yaml", ".yml": "yaml", ".csv": "csv", ".html": "html", ".htm": "html"}


def scan(
    snapshot: ClusterOption = None,
    usage: UsageFileOption = None,
    prometheus_url: PrometheusUrlOption = None,
    history: DayOption = None,
    now: NowOption = None,
    format: Annotated[
        ReportFormat | None,
        create_option_without_default("--format", None, "By the file name of --output, else table.", "-f"),
    ] = None,
    output: Annotated[
        Path | None, create_option_without_default("--output", "FILE", "Write to a file instead.", "-o")
    ] = None,
    email_ready: Annotated[
        bool, typer.Option("--email-ready", help="Write HTML for mail programs: no script, no style sheet.")
    ] = False,
    price_cpu_core_hour: CorePriceOption = None,
    price_gib_hour: GibPriceOption = None,
    config: ConfigOption = None,
    context: Annotated[
        list[str] | None,
        create_option_without_default(
            "--context", "NAME", "Read this context of the kubeconfig; several: one report of all."
        ),
    ] = None,
    all_contexts: Annotated[
        bool, typer.Option("--all-contexts", help="Read every context of the kubeconfig, one after the other.")
    ] = False,
    slack: Annotated[
        bool, typer.Option("--slack", help="Also post a summary to Slack, at the address of the setting notify_url.")
    ] = False,
) -> None:
    """Report containers at risk, reclaimable requests and pending pods; nothing is changed.

    The cluster is kubectl's (or that of the setting kubeconfig), and only
    lists are read; its Prometheus is found by the labels of its Service.
    Without Prometheus the kubelets are read twice, a minute apart, which
    gives a short sample. With files nothing is contacted.

    Examples:
      cruise scan

      cruise scan --prometheus-url http://localhost:9090 --history 7d

      cruise scan --snapshot cluster.json --usage usage.json

      cruise scan --snapshot cluster.json --usage usage.json -o report.html

      cruise scan --snapshot cluster.json --prometheus-url http://localhost:9090

      cruise scan --email-ready -o mail.html

      cruise scan --context prod-eu --context prod-us -o clusters.html

      cruise scan --all-contexts --slack
    """
    from cruise.cli.work import cluster_scans
    from cruise.interfaces.scan.clusters import ClusterScans

    prices, chosen = (
        read_price_options(price_cpu_core_hour, price_gib_hour),
        _choose_format(format, output, email_ready),
    )
    settings = load_process_settings(config)
    sources = ReportSources(snapshot, usage, prometheus_url, history, parse_time(now), HistoryLength.DAY)
    contexts: list[str] = []
    if context or all_contexts:
        _check_live(sources)
        contexts = cluster_scans.choose_contexts(context or [], all_contexts, settings)
        _check_several(sources, email_ready, len(contexts))
    webhook = cluster_scans.find_slack_webhook(settings) if slack else None
    if len(contexts) > 1:
        scans = cluster_scans.scan_clusters(contexts, settings, lambda one: _scan(sources, one, prices))
        cluster_scans.write_clusters_report(scans, chosen or ReportFormat.TABLE, output)
    else:
        settings = replace(settings, kube_context=contexts[0]) if contexts else settings
        report = _scan(sources, settings, prices)
        _write(report, chosen, output)
        scans = ClusterScans({snapshot or settings.kube_context or "the cluster": report}, {})
    if webhook is not None:
        cluster_scans.post_slack_summary(webhook, scans)
    if scans.failures:
        names = ", ".join(scans.failures)
        raise UnavailableError(f"{len(scans.failures)} of {len(contexts)} clusters could not be read: {names}")


def _check_live(sources: ReportSources) -> None:
    """Raise BadInputError for files, which contradict contexts."""
    for option, value in {"--snapshot": sources.snapshot, "--usage": sources.usage}.items():
        if value is not None:
            raise BadInputError(f"{option} is a file, and --context reads a live cluster; remove one of them")


def _check_several(sources: ReportSources, email_ready: bool, clusters: int) -> None:
    """Raise BadInputError for options of one cluster where several are read."""
    of_one_cluster = {"--prometheus-url": sources.prometheus_url is not None, "--email-ready": email_ready}
    for option, is_given in of_one_cluster.items() if clusters > 1 else ():
        if is_given:
            raise BadInputError(f"{option} is for one cluster, and several are read; remove it")


def _scan(sources: ReportSources, settings: "Settings", prices: PriceOptions) -> "ScanReport":
    from cruise.decisions.scan.findings import find_scan_findings
    from cruise.errors import pause_garbage_collection
    from cruise.interfaces.scan.report import ScanReport

    with pause_garbage_collection():
        cluster, statistics, at, source = read_cluster_and_usage(sources, settings)
        with show_spinner(f"evaluating {len(cluster.pods):,} pods", len(cluster.pods) > _MANY_PODS):
            findings = find_scan_findings(
                cluster, statistics, settings.to_policy(), prices.get_prices(settings, cluster), at
            )
            return ScanReport(findings, source)


def _choose_format(chosen: ReportFormat | None, output: Path | None, email_ready: bool) -> ReportFormat | None:
    """Return the format, None for a mail; BadInputError for --email-ready with another format."""
    if email_ready:
        if chosen not in (None, ReportFormat.HTML):
            raise BadInputError(f"--email-ready is html, and --format is {chosen.value}; remove one of them")
        return None
    if chosen is not None:
        return chosen
    return (
        ReportFormat(_FORMATS_BY_SUFFIX.get(output.suffix.lower(), "table"))
        if output is not None
        else ReportFormat.TABLE
    )


def _write(report: "ScanReport", chosen: ReportFormat | None, output: Path | None) -> None:
    from cruise.interfaces.scan.html import render_scan_html, render_scan_mail
    from cruise.interfaces.scan.report import build_scan_document, render_scan_csv
    from cruise.interfaces.scan.table import render_scan_table

    write_report(
        chosen or ReportFormat.HTML,
        output,
        partial(render_scan_table, report),
        partial(build_scan_document, report),
        {
            ReportFormat.CSV: partial(render_scan_csv, report),
            ReportFormat.HTML: partial(render_scan_mail if chosen is None else render_scan_html, report),
        },
    )
