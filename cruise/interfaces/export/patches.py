"""The strategic-merge patch of one workload, as `kubectl patch` and Kustomize take it."""

from collections.abc import Iterator

import yaml

from cruise.decisions.exporting.templates import ContainerSizes, TemplateSizes
from cruise.domain.cluster import ContainerRole
from cruise.domain.original_resources import amounts_json
from cruise.domain.resources import Amounts
from cruise.interfaces.shapes import Shape

Object = dict[str, Shape]


def patch_of(sizes: TemplateSizes) -> Object:
    """Return the patch: nothing but the resources that change; null takes a limit out."""
    spec: Object = {}
    for field, role in (("initContainers", ContainerRole.SIDECAR), ("containers", ContainerRole.MAIN)):
        changed: list[Shape] = [
            {"name": one.name, "resources": resources_of(one)}
            for one in sizes.containers
            if one.role is role and one.changes
        ]
        if changed:
            spec[field] = changed
    template: Object = {"template": {"spec": spec}}
    kind, name = sizes.workload.kind, sizes.workload.name
    return {
        "apiVersion": sizes.api_version,
        "kind": kind,
        "metadata": {"name": name, "namespace": sizes.namespace},
        "spec": {"jobTemplate": {"spec": template}} if kind == "CronJob" else template,
    }


def resources_of(sizes: ContainerSizes) -> Object:
    """Return what changes of a container's resources."""
    changes = {
        "requests": _changes(sizes.requests, sizes.new_requests),
        "limits": _changes(sizes.limits, sizes.new_limits),
    }
    return {name: change for name, change in changes.items() if change}


def _changes(before: Amounts, after: Amounts) -> Object:
    old, new = amounts_json(before), amounts_json(after)
    changes: Object = {name: text for name, text in new.items() if old.get(name) != text}
    return changes | dict.fromkeys(old.keys() - new.keys())


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as lines."""


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def yaml_text(document: Shape) -> str:
    """Write one YAML document in the order of its keys."""
    return str(yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=160))


def file_name(sizes: TemplateSizes) -> str:
    """Return what a workload's patch is called in its namespace's folder: `deployment-web.yaml`."""
    return f"{sizes.workload.kind.lower()}-{sizes.workload.name}.yaml"


def patch_files(changed: tuple[TemplateSizes, ...]) -> Iterator[tuple[str, str]]:
    """Yield path and text of each workload's patch, in a folder for each namespace."""
    for one in changed:
        yield f"{one.namespace}/{file_name(one)}", yaml_text(patch_of(one))
