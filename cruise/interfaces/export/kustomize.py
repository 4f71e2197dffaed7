"""Patches as Kustomize components, one for each namespace: `components: [PATH]` in a kustomization takes one up."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from cruise.decisions.exporting.templates import TemplateSizes
from cruise.interfaces.export.patches import file_name, patch_files, patch_of, yaml_text
from cruise.interfaces.shapes import Shape


def kustomize_files(changed: tuple[TemplateSizes, ...]) -> Iterator[tuple[str, str]]:
    """Yield path and text of every file."""
    for namespace, group in groupby(changed, lambda one: one.namespace):
        patches = [(one, {"path": file_name(one)}) for one in group]
        yield f"{namespace}/kustomization.yaml", _component(patches)
    yield from patch_files(changed)


def kustomize_text(of_one_namespace: Sequence[TemplateSizes]) -> str:
    """Return the component of one namespace in one file."""
    return _component([(one, {"patch": yaml_text(patch_of(one))}) for one in of_one_namespace])


def _component(patches: Sequence[tuple[TemplateSizes, dict[str, str]]]) -> str:
    # By kind and name alone: a base often leaves the namespace to the overlay that takes it up.
    listed: list[Shape] = [
        {**patch, "target": {"kind": one.workload.kind, "name": one.workload.name}} for one, patch in patches
    ]
    return yaml_text({"apiVersion": "kustomize.config.k8s.io/v1alpha1", "kind": "Component", "patches": listed})
