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
from cruise.cli.options import ReportFormat, write_report
from cruise.cli.terminal import print_progress
from cruise.errors import BadInputError, RefusedError, ThrottledError, UnavailableError
from cruise.interfaces.scan.clusters import (
    ClusterScans,
    build_clusters_document,
    render_clusters_table,
    render_findings_of_clusters_csv,
    render_slack_summary,
)
from cruise.interfaces.scan.html import render_clusters_html
from cruise.interfaces.scan.report import ScanReport
from cruise.interfaces.text import suggest_similar
from cruise.settings import Settings


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
    write_report(
        chosen,
        output,
        partial(render_clusters_table, scans),
        partial(build_clusters_document, scans),
        {
            ReportFormat.CSV: partial(render_findings_of_clusters_csv, scans),
            ReportFormat.HTML: partial(render_clusters_html, scans),
        },
    )


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
