"""Write policies from VerticalPodAutoscalers (`cruise export --policies`)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from cruise.cli.inputs.live_cluster import PrometheusRequirement, read_cluster
from cruise.cli.inputs.sources import load_snapshot_with_node_autoscaler
from cruise.cli.options import save_report
from cruise.cli.terminal import print_error, write_document
from cruise.decisions.vpa_export import PolicyExport, export_policies
from cruise.domain.cluster import ClusterSnapshot
from cruise.errors import BadInputError
from cruise.interfaces.export_files import render_policy_files
from cruise.settings import Settings


def save_policies(settings: Settings, snapshot: str | None, namespaces: Sequence[str], directory: Path | None) -> None:
    """Write a policy for each workload of the namespaces, by default of all: files, or one text."""
    export = _select(export_policies(_read_cluster(settings, snapshot)), namespaces)
    for problem in export.problems:
        print_error(f"not written: {problem}")
    files = list(render_policy_files(export))
    if not files:
        print_error("no VerticalPodAutoscaler; nothing was written")
    elif directory is None:
        write_document(["---\n".join(text for _, text in files).encode()])
    else:
        write_files(files, directory)


def write_files(files: Iterable[tuple[str, str]], directory: Path) -> None:
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


def _read_cluster(settings: Settings, snapshot: str | None) -> ClusterSnapshot:
    if snapshot is not None:
        return load_snapshot_with_node_autoscaler(snapshot, settings.node_autoscaler)
    return read_cluster(settings, PrometheusRequirement.NOT_USED, None).snapshot


def _select(export: PolicyExport, namespaces: Sequence[str]) -> PolicyExport:
    if not namespaces:
        return export
    return replace(export, policies=tuple(one for one in export.policies if one.namespace in namespaces))
