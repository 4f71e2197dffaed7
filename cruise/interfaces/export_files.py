"""Exported files: new sizes as strategic merge patches, Helm values and Kustomize components, and policies as YAML."""

from collections.abc import Iterator, Sequence
from itertools import groupby

import yaml

from cruise.decisions.template_sizes import TemplateContainerSizes, TemplateSizes
from cruise.decisions.vpa_export import ExportedPolicy, PolicyExport
from cruise.domain.cluster import ContainerRole
from cruise.domain.original_resources import convert_amounts_to_json
from cruise.domain.resources import StatedResources
from cruise.domain.written_policies import PolicyScope
from cruise.interfaces.text import JsonValue, escape_text
from cruise.kube_json.objects.rightsizing_policies import build_written_policy

JsonObject = dict[str, JsonValue]


def build_patch(sizes: TemplateSizes) -> JsonObject:
    """Return a strategic merge patch of the resources that change; null removes a limit."""
    spec: JsonObject = {}
    for field, role in (("initContainers", ContainerRole.SIDECAR), ("containers", ContainerRole.MAIN)):
        changed: list[JsonValue] = [
            {"name": one.name, "resources": build_resources(one)}
            for one in sizes.containers
            if one.role is role and one.changes
        ]
        if changed:
            spec[field] = changed
    for one in sizes.containers:
        if one.role is ContainerRole.POD and one.changes:
            spec["resources"] = build_resources(one)
    template: JsonObject = {"template": {"spec": spec}}
    kind, name = sizes.workload.kind, sizes.workload.name
    return {
        "apiVersion": sizes.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": sizes.namespace},
        "spec": {"jobTemplate": {"spec": template}} if kind == "CronJob" else template,
    }


def build_resources(sizes: TemplateContainerSizes) -> JsonObject:
    """Return the changed resources of a container."""
    changes = {
        "requests": _changes(sizes.requests, sizes.new_requests),
        "limits": _changes(sizes.limits, sizes.new_limits),
    }
    return {name: change for name, change in changes.items() if change}


def _changes(before: StatedResources, after: StatedResources) -> JsonObject:
    old, new = convert_amounts_to_json(before), convert_amounts_to_json(after)
    changes: JsonObject = {name: text for name, text in new.items() if old.get(name) != text}
    return changes | dict.fromkeys(old.keys() - new.keys())


class _BlockTextDumper(yaml.SafeDumper):
    """Writes strings of several lines as block scalars."""


def _represent_text(dumper: _BlockTextDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_BlockTextDumper.add_representer(str, _represent_text)


def render_manifest(document: JsonValue) -> str:
    """Return a YAML document in the order of its keys, with block scalars."""
    return str(yaml.dump(document, Dumper=_BlockTextDumper, sort_keys=False, width=160))


def get_patch_file_name(sizes: TemplateSizes) -> str:
    """Return the name of a workload's patch file in the folder of its namespace: `deployment-web.yaml`."""
    return f"{sizes.workload.kind.lower()}-{sizes.workload.name}.yaml"


def render_patch_files(changed: tuple[TemplateSizes, ...]) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each workload's patch, in a folder for each namespace."""
    for one in changed:
        yield f"{one.namespace}/{get_patch_file_name(one)}", render_manifest(build_patch(one))


# Helm values. The path of the resources within the values depends on the chart.


def render_values_files(changed: tuple[TemplateSizes, ...]) -> Iterator[tuple[str, str]]:
    """Yield the path and text of the values of each namespace."""
    for namespace, group in groupby(changed, lambda one: one.namespace):
        yield f"{namespace}/values.yaml", "---\n".join(_render_values(one) for one in group)


def render_helm_values_text(changed: tuple[TemplateSizes, ...]) -> str:
    """Return all values, a YAML document for each workload."""
    return "---\n".join(_render_values(one) for one in changed)


def _render_values(sizes: TemplateSizes) -> str:
    release = f", release {escape_text(sizes.release)}" if sizes.release else ""
    lines = [f"# {sizes.namespace}/{sizes.workload}{release}: add this to the values of this workload's resources\n"]
    changed = [one for one in sizes.containers if one.changes]
    if len(sizes.containers) == 1 and not sizes.others:
        lines.append(render_manifest({"resources": _build_all_resources(changed[0])}))
    else:
        lines += [
            f"# container {one.name}\n{render_manifest({one.name: {'resources': _build_all_resources(one)}})}"
            for one in changed
        ]
    return "".join(lines)


def _build_all_resources(sizes: TemplateContainerSizes) -> dict[str, JsonValue]:
    """Return all resources, because a chart's defaults fill missing ones; null removes a default limit."""
    limits: dict[str, JsonValue] = {**convert_amounts_to_json(sizes.new_limits)}
    limits |= dict.fromkeys(convert_amounts_to_json(sizes.limits).keys() - limits.keys())
    resources: dict[str, JsonValue] = {"requests": {**convert_amounts_to_json(sizes.new_requests)}, "limits": limits}
    return {name: amounts for name, amounts in resources.items() if amounts}


# Kustomize components, one for each namespace, which a kustomization includes with `components: [PATH]`.


def render_kustomize_files(changed: tuple[TemplateSizes, ...]) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every file."""
    for namespace, group in groupby(changed, lambda one: one.namespace):
        patches = [(one, {"path": get_patch_file_name(one)}) for one in group]
        yield f"{namespace}/kustomization.yaml", _render_component(patches)
    yield from render_patch_files(changed)


def render_kustomize_text(changed: Sequence[TemplateSizes]) -> str:
    """Return the component of one namespace as one file; all changes are of that namespace."""
    return _render_component([(one, {"patch": render_manifest(build_patch(one))}) for one in changed])


def _render_component(patches: Sequence[tuple[TemplateSizes, dict[str, str]]]) -> str:
    # A base often leaves the namespace to the overlay, so targets have only the kind and name.
    listed: list[JsonValue] = [
        {**patch, "target": {"kind": one.workload.kind, "name": one.workload.name}} for one, patch in patches
    ]
    return render_manifest({"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": listed})


def render_policy_files(export: PolicyExport) -> Iterator[tuple[str, str]]:
    """Yield the path and text of each policy, in a folder for each namespace."""
    for one in export.policies:
        document = build_written_policy(PolicyScope(one.namespace, one.workload), one.overrides)
        yield f"{one.namespace}/{document['metadata']['name']}.yaml", _format_origins(one) + render_manifest(document)


def _format_origins(one: ExportedPolicy) -> str:
    return f"# From {escape_text(' and '.join(one.origins))}.\n"
