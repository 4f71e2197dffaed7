"""`cruise export`: the sizes of workloads, and policies from VerticalPodAutoscalers, for manifests in Git."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cruise.cli.inputs.sources import (
    ClusterOption,
    CorePriceOption,
    GibPriceOption,
    HistoryLength,
    PrometheusUrlOption,
    ReportSources,
    UsageFileOption,
    WeekOption,
    load_snapshot_with_node_autoscaler,
    read_cluster_and_usage,
    read_price_options,
)
from cruise.cli.options import (
    ConfigOption,
    NowOption,
    create_option_without_default,
    load_process_settings,
    parse_time,
    save_report,
)
from cruise.cli.terminal import create_table_console, print_error, print_report, write_document, write_json
from cruise.errors import BadInputError
from cruise.interfaces.text import suggest_similar

if TYPE_CHECKING:
    from cruise.domain.cluster import ClusterSnapshot, Pod
    from cruise.interfaces.export_report import ExportReport
    from cruise.settings import Settings


class ExportFormat(StrEnum):
    """The format of exported sizes."""

    TABLE = "table"
    JSON = "json"
    PATCHES = "patches"
    KUSTOMIZE = "kustomize"
    HELM = "helm"
    PULL_REQUEST = "pull-request"


_PULL_REQUEST = "PULL_REQUEST.md"
_WITHOUT_PRICES = (ExportFormat.PATCHES, ExportFormat.KUSTOMIZE, ExportFormat.HELM)


def export(
    workloads: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAMESPACE/NAME", help="Only these workloads.", show_default=False),
    ] = None,
    namespace: Annotated[
        list[str] | None,
        create_option_without_default("--namespace", "NAME", "Only workloads of this namespace; repeatable.", "-n"),
    ] = None,
    snapshot: ClusterOption = None,
    usage: UsageFileOption = None,
    prometheus_url: PrometheusUrlOption = None,
    history: WeekOption = None,
    now: NowOption = None,
    format: Annotated[
        ExportFormat | None,
        create_option_without_default("--format", None, "table by default; with -o DIR all files for Git.", "-f"),
    ] = None,
    policies: Annotated[
        bool,
        typer.Option("--policies", help="Write RightsizingPolicies from VerticalPodAutoscalers instead."),
    ] = False,
    output: Annotated[
        Path | None,
        create_option_without_default("--output", "DIR", "Write files to this directory; - for standard output.", "-o"),
    ] = None,
    price_cpu_core_hour: CorePriceOption = None,
    price_gib_hour: GibPriceOption = None,
    config: ConfigOption = None,
) -> None:
    """Write the sizes of workloads for Git: patches, Kustomize, Helm values, the text of a pull request.

    The sizes are those that cruise's webhook gives new pods. Nothing is
    changed in the cluster; once the manifests state them, the webhook changes
    nothing. Sources are as for `cruise scan`.

    With only -o DIR, DIR gets a folder for each namespace, with a patch for
    each workload, a Kustomize component (kustomization.yaml) of these patches
    and Helm values; and PULL_REQUEST.md, which has the evidence.

    With --policies, VerticalPodAutoscalers become RightsizingPolicies, so that
    they can be removed.

    Examples:
      cruise export

      cruise export -n shop -o rightsizing/

      cruise export shop/web --format patches > web-resources.yaml

      cruise export -n shop -f kustomize > sizes/kustomization.yaml

      cruise export -f pull-request | gh pr create --body-file -

      cruise export --policies -n shop -o policies/

      cruise export --snapshot cluster.json --usage usage.json
    """
    from cruise.decisions.template_sizes import size_templates
    from cruise.errors import pause_garbage_collection
    from cruise.interfaces.export_report import ExportReport

    prices = read_price_options(price_cpu_core_hour, price_gib_hour)
    if (price_cpu_core_hour, price_gib_hour) != (None, None) and format in _WITHOUT_PRICES:
        raise BadInputError(f"prices are for the estimate, and --format {format.value} has none; remove them")
    names = [_read_name(name) for name in workloads or ()]
    directory = None if output is None or str(output) == "-" else output
    if directory is not None and format in (ExportFormat.TABLE, ExportFormat.JSON):
        raise BadInputError(f"--format {format.value} is not for files: remove --output, or redirect standard output")
    settings = load_process_settings(config)
    if policies:
        given = {"--format": format, "--usage": usage, "--prometheus-url": prometheus_url, "--history": history}
        unused = [option for option, value in {**given, "--now": now, "WORKLOADS": names or None}.items() if value]
        if unused:
            raise BadInputError(f"--policies reads no usage and has one format; remove {' and '.join(unused)}")
        _save_policies(settings, snapshot, namespace or [], directory)
        return
    sources = ReportSources(snapshot, usage, prometheus_url, history, parse_time(now), HistoryLength.WEEK)
    with pause_garbage_collection():
        cluster, statistics, at, source = read_cluster_and_usage(sources, settings)
        pods = _select_pods(cluster, names, namespace or [])
        changes = size_templates(cluster, statistics, settings.to_policy(), at, pods)
        report = ExportReport(changes, source, prices.get_prices(settings, cluster))
        if directory is not None:
            _save(report, format, directory)
        else:
            _print(report, format or ExportFormat.TABLE)


def _read_name(text: str) -> tuple[str, str]:
    namespace, slash, name = text.partition("/")
    if not slash or not namespace or not name or "/" in name:
        raise BadInputError(f'"{text}" is not NAMESPACE/NAME; write e.g. shop/web')
    return namespace, name


def _select_pods(cluster: "ClusterSnapshot", workloads: list[tuple[str, str]], namespaces: list[str]) -> "list[Pod]":
    """Return the pods of the named workloads and namespaces, by default all; BadInputError for unknown ones."""
    known = {pod.namespace for pod in cluster.pods}
    for name in (*namespaces, *(namespace for namespace, _ in workloads)):
        if name not in known:
            raise BadInputError(f"there are no pods in namespace {name}{suggest_similar(name, sorted(known))}")
    names = {(pod.namespace, pod.workload.name) for pod in cluster.pods if pod.workload is not None}
    for one in workloads:
        if one not in names:
            like = suggest_similar(one[1], sorted(name for namespace, name in names if namespace == one[0]))
            raise BadInputError(f"there is no workload {one[0]}/{one[1]} with pods{like}")
    return [
        pod
        for pod in cluster.pods
        if (not namespaces or pod.namespace in namespaces)
        and (not workloads or (pod.workload is not None and (pod.namespace, pod.workload.name) in workloads))
    ]


def _print(report: "ExportReport", format: ExportFormat) -> None:
    if format is ExportFormat.TABLE:
        from cruise.interfaces.export_report import render_export_table

        console = create_table_console()
        print_report(render_export_table(report, console), console)
    elif format is ExportFormat.JSON:
        from cruise.interfaces.export_report import render_export_json

        write_json([render_export_json(report)])
    else:
        if not report.changes.changed:
            print_error("no pod template needs a change")
        write_document([_render_text(report, format).encode()])


def _render_text(report: "ExportReport", format: ExportFormat) -> str:
    """Return a format as one text; BadInputError if it needs several files."""
    from cruise.interfaces.export_files import render_helm_values_text, render_kustomize_text, render_patch_files
    from cruise.interfaces.export_report import render_pull_request

    changed = report.changes.changed
    if format is ExportFormat.PULL_REQUEST:
        return render_pull_request(report)
    if format is ExportFormat.HELM:
        return render_helm_values_text(changed)
    if format is ExportFormat.KUSTOMIZE:
        namespaces = sorted({one.namespace for one in changed})
        if len(namespaces) > 1:
            raise BadInputError(
                f"a kustomization is for one namespace, and {len(namespaces)} have changes: "
                f"add --namespace, e.g. {namespaces[0]}, or --output DIR"
            )
        return render_kustomize_text(changed) if changed else ""
    return "---\n".join(text for _, text in render_patch_files(changed))


def _render_files(report: "ExportReport", format: ExportFormat | None) -> Iterator[tuple[str, str]]:
    from cruise.interfaces.export_files import render_kustomize_files, render_patch_files, render_values_files
    from cruise.interfaces.export_report import render_pull_request

    changed = report.changes.changed
    if format is ExportFormat.PATCHES:
        yield from render_patch_files(changed)
    if format in (None, ExportFormat.KUSTOMIZE):
        yield from render_kustomize_files(changed)
    if format in (None, ExportFormat.HELM):
        yield from render_values_files(changed)
    if format in (None, ExportFormat.PULL_REQUEST):
        yield _PULL_REQUEST, render_pull_request(report)


def _save(report: "ExportReport", format: ExportFormat | None, directory: Path) -> None:
    if not report.changes.changed:
        print_error("no pod template needs a change; nothing was written")
        return
    _write_files(_render_files(report, format), directory)


def _save_policies(settings: "Settings", snapshot: str | None, namespaces: list[str], directory: Path | None) -> None:
    """Write a policy for each VerticalPodAutoscaler of the namespaces, by default of all: files, or one text."""
    from cruise.cli.inputs.live_cluster import PrometheusRequirement, read_cluster
    from cruise.decisions.vpa_export import export_policies
    from cruise.interfaces.export_files import render_policy_files

    if snapshot is not None:
        cluster = load_snapshot_with_node_autoscaler(snapshot, settings.node_autoscaler)
    else:
        cluster = read_cluster(settings, PrometheusRequirement.NOT_USED, None).snapshot
    written = export_policies(cluster)
    if namespaces:
        written = replace(written, policies=tuple(one for one in written.policies if one.namespace in namespaces))
    for problem in written.problems:
        print_error(f"not written: {problem}")
    files = list(render_policy_files(written))
    if not files:
        print_error("no VerticalPodAutoscaler; nothing was written")
    elif directory is None:
        write_document(["---\n".join(text for _, text in files).encode()])
    else:
        _write_files(files, directory)


def _write_files(files: Iterable[tuple[str, str]], directory: Path) -> None:
    """Write files, given by path and text, under a directory, and say how many."""
    count = 0
    for name, text in files:
        path = directory / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadInputError(f"--output: {path.parent} cannot be created: {error.strerror}") from error
        save_report(path, [text.encode()], "--output")
        count += 1
    print_error(f"wrote {count:,} file{'s' if count > 1 else ''} under {directory}")
