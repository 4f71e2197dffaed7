"""The preferred node affinity of a steered pod, as operations of a JSON Patch on the pod as it was submitted."""

from collections.abc import Mapping, Sequence
from typing import Any

from cruise.errors import BadInput

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100
_PLACES = ("affinity", "nodeAffinity", _PREFERRED)


def affinity_operations(submitted: Mapping[str, Any], node: str) -> list[dict[str, Any]]:
    """Return the operations that make a pod prefer a node, beside whatever it prefers already.

    Parents that the submitted object lacks, or has as null, are added.
    """
    value: Any = [*(_preferred(submitted) or ()), _term(node)]
    present, parent = 0, submitted["spec"]
    while present < len(_PLACES) - 1 and isinstance(parent.get(_PLACES[present]), dict):
        parent = parent[_PLACES[present]]
        present += 1
    for name in reversed(_PLACES[present + 1 :]):
        value = {name: value}
    return [{"op": "add", "path": "/".join(("", "spec", *_PLACES[: present + 1])), "value": value}]


def check_affinity(before: Sequence[Any], patched: Mapping[str, Any], node: str) -> None:
    """See that a patched pod prefers exactly what it did `before`, and the node. Raises BadInput."""
    if _preferred(patched) != [*before, _term(node)]:
        raise BadInput("the patched pod does not prefer what was decided")


def preferred_terms(submitted: Mapping[str, Any]) -> list[Any]:
    """Return the preferred node affinity of a pod as it was submitted."""
    return list(_preferred(submitted) or ())


def _preferred(document: Mapping[str, Any]) -> Any:  # noqa: ANN401 - whatever stands there
    node: Any = document["spec"]
    for name in _PLACES:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _term(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": _WEIGHT, "preference": {"matchFields": [field]}}
