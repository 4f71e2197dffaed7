"""Exported policies as YAML documents, each with the source of its settings."""

from collections.abc import Iterator

from cruise.decisions.policy_export import ExportedPolicy, PolicyExport
from cruise.interfaces.export_patches import render_manifest
from cruise.interfaces.text import escape_text
from cruise.kube_json.policy_documents import build_workload_policy


def render_policy_files(export: PolicyExport) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each policy, in a folder for each namespace."""
    for one in export.policies:
        document = build_workload_policy(one.namespace, one.workload, one.overrides)
        yield f"{one.namespace}/{document['metadata']['name']}.yaml", _format_origins(one) + render_manifest(document)


def _format_origins(one: ExportedPolicy) -> str:
    return f"# From {escape_text(' and '.join(one.origins))}.\n"
