"""Scans of several contexts of a kubeconfig, and the summary that is posted to Slack."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from cruise.adapters.api_client import NotificationWebhook
from cruise.adapters.kube.client import find_kubeconfig
from cruise.adapters.kube.credentials import list_contexts
from cruise.app.process import get_current_time
from cruise.app.serve.notifier import get_notification_webhook
from cruise.cli.options import ReportFormat, save_report, suggest_similar
from cruise.cli.terminal import (
    create_table_console,
    print_progress,
    print_report,
    render_plain_report,
    write_document,
    write_json,
)
from cruise.errors import BadInputError, RefusedError, ThrottledError, UnavailableError
from cruise.interfaces.scan.clusters import (
    ClusterScans,
    render_clusters_json,
    render_clusters_table,
    render_clusters_yaml,
    render_findings_of_clusters_csv,
    render_slack_summary,
)
from cruise.interfaces.scan.html import render_clusters_html
from cruise.interfaces.scan.report import ScanReport
from cruise.settings import Settings

_RENDERERS: dict[ReportFormat, Callable[[ClusterScans], bytes]] = {
    ReportFormat.JSON: render_clusters_json,
    ReportFormat.YAML: render_clusters_yaml,
    ReportFormat.CSV: render_findings_of_clusters_csv,
    ReportFormat.HTML: render_clusters_html,
    ReportFormat.TABLE: lambda scans: render_plain_report(partial(render_clusters_table, scans)),
}


def choose_contexts(named: Sequence[str], every: bool, settings: Settings) -> list[str]:
    """Return the contexts to read; BadInputError for an unknown one."""
    if named and every:
        raise BadInputError("--context and --all-contexts are both given; remove one of them")
    known = list_contexts(find_kubeconfig(settings.kubeconfig))
    if not known:
        raise BadInputError("the kubeconfig has no contexts; without --context and --all-contexts kubectl's is read")
    for name in named:
        if name not in known:
            raise BadInputError(f"--context: the kubeconfig has no context {name}{suggest_similar(name, known)}")
    return list(dict.fromkeys(named)) or known


def scan_clusters(contexts: Sequence[str], settings: Settings, scan: Callable[[Settings], ScanReport]) -> ClusterScans:
    """Scan one cluster after the other; one that cannot be read does not keep the others from being reported."""
    reports: dict[str, ScanReport] = {}
    failures: dict[str, str] = {}
    for place, name in enumerate(contexts, start=1):
        print_progress(f"{name}: {place} of {len(contexts)} clusters")
        try:
            reports[name] = scan(replace(settings, kube_context=name))
        except (BadInputError, RefusedError, ThrottledError, UnavailableError) as error:
            failures[name] = str(error)
    return ClusterScans(reports, failures)


def write_clusters_report(scans: ClusterScans, chosen: ReportFormat, output: Path | None) -> None:
    """Write the report to a file or to standard output."""
    if chosen is ReportFormat.TABLE and output is None:
        console = create_table_console()
        print_report(render_clusters_table(scans, console), console)
        return
    text = _RENDERERS[chosen](scans)
    if output is not None:
        save_report(output, [text], "--output")
    else:
        write = write_json if chosen is ReportFormat.JSON else write_document
        write([text])


def find_slack_webhook(settings: Settings) -> NotificationWebhook:
    """Return the webhook of the settings; BadInputError without one."""
    webhook = get_notification_webhook(settings)
    if webhook is None:
        raise BadInputError("--slack needs the address of a Slack webhook; set notify_url_file or notify_url")
    return webhook


def post_slack_summary(webhook: NotificationWebhook, scans: ClusterScans) -> None:
    """Post the summary; RefusedError and UnavailableError, without the address."""
    at = int(get_current_time().timestamp())
    asyncio.run(webhook.post(render_slack_summary(scans), secrets.token_hex(8), at))
