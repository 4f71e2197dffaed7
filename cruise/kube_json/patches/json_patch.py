"""From a pod as it was submitted to the pod as it shall be created: a JSON Patch, tried out before it is sent.

kube-apiserver refuses the pod if a patch does not apply, whatever the webhook's failure policy; so what is not certain
to apply, and to give what was decided, is not sent. Source: RFC 6902, RFC 6901.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cruise.domain.cluster import Container, Pod
from cruise.domain.quantity import format_cpu_millicores, format_memory_bytes
from cruise.domain.resources import Amounts
from cruise.domain.scheduling import Toleration
from cruise.errors import BadInput

Json = dict[str, Any]
Operation = dict[str, Any]


def pod_patch(submitted: Json, before: Pod, after: Pod) -> list[Operation]:
    """Return the operations that give a submitted pod the resources, annotations and added tolerations of `after`.

    `before` is `submitted`, read. Parents that the submitted object lacks, or has as null, are added.
    """
    operations = [*_annotation_operations(submitted, before, after), *_toleration_operations(submitted, before, after)]
    places = _places(submitted)
    for place, old, new in zip(places, before.containers, after.containers, strict=True):
        if (old.requests, old.limits) != (new.requests, new.limits):
            path, container = place
            operations += _resource_operations(f"{path}/resources", container.get("resources"), old, new)
    return operations


def apply_patch(submitted: Json, operations: Sequence[Operation]) -> None:
    """Do `add` operations on members of objects in place.

    Raises BadInput where one does not apply; those before it are done then.
    """
    for operation in operations:
        path: str = operation["path"]
        _, *parents, key = map(_unescaped, path.split("/")) if "~" in path else path.split("/")
        target: Any = submitted
        for parent in parents:
            # Mostly an object that has it; the rest of the rule is there.
            target = target[parent] if isinstance(target, dict) and parent in target else _member(target, parent, path)
        if not isinstance(target, dict):
            raise BadInput(f"{path}: {key} has no parent")
        target[key] = operation["value"]


def tried_patch(
    submitted: Json, before: Pod, after: Pod, read: Callable[[Json], Pod], beside: Sequence[Operation] = ()
) -> bytes:
    """Return the patch's bytes once it was applied to `submitted` and gave exactly `after`; empty for no change.

    `read` reads a pod's JSON as `before` was read; `beside` are operations on what it does not read. Raises BadInput
    for a patch that is better not sent.
    """
    operations = [*pod_patch(submitted, before, after), *beside]
    if not operations:
        return b""
    patch = msgspec.json.encode(operations)
    apply_patch(submitted, operations)
    outcome = read(submitted)
    if outcome != after:
        raise BadInput("the patched pod is not what was decided")
    if outcome.qos is not before.qos:
        raise BadInput(f"the patch would turn the pod from {before.qos} into {outcome.qos}")
    for old, container in zip(before.containers, outcome.containers, strict=True):
        if container != old and _exceeds(container.requests, container.limits):
            raise BadInput(f"container {container.name} would request more than its limit")
    return patch


def _annotation_operations(submitted: Json, before: Pod, after: Pod) -> Iterator[Operation]:
    added = {key: text for key, text in after.annotations.items() if before.annotations.get(key) != text}
    if not added:
        return
    if submitted["metadata"].get("annotations") is None:
        yield _add("/metadata/annotations", added)
        return
    for key, text in added.items():
        yield _add(f"/metadata/annotations/{_escaped(key)}", text)


def _toleration_operations(submitted: Json, before: Pod, after: Pod) -> Iterator[Operation]:
    added = after.placement.tolerations[len(before.placement.tolerations) :]
    if added:
        written = [_toleration_json(toleration) for toleration in added]
        yield _add("/spec/tolerations", [*(submitted["spec"].get("tolerations") or ()), *written])


def _toleration_json(toleration: Toleration) -> Json:
    stated = {
        "key": toleration.key,
        "operator": "Exists" if toleration.exists else "Equal",
        "value": toleration.value,
        "effect": toleration.effect.value if toleration.effect else "",
    }
    return {key: text for key, text in stated.items() if text}


def _places(submitted: Json) -> list[tuple[str, Json]]:
    """Return path and JSON of every container, in the order of `Pod.containers`."""
    spec = submitted["spec"]
    return [
        (f"/spec/{field}/{index}", container)
        for field in ("initContainers", "containers")
        for index, container in enumerate(spec.get(field) or ())
    ]


def _resource_operations(path: str, stated: Json | None, old: Container, new: Container) -> list[Operation]:
    """Write requests and limits whole, each with what stands there besides."""
    existing = stated or {}
    requests, limits = existing.get("requests") or {}, existing.get("limits") or {}
    merged = {
        "requests": _merged(requests, old.requests, new.requests),
        "limits": _merged(limits, old.limits, new.limits),
    }
    if stated is None:
        return [_add(path, {name: amounts for name, amounts in merged.items() if amounts})]
    before = {"requests": requests, "limits": limits}
    return [_add(f"{path}/{name}", amounts) for name, amounts in merged.items() if amounts != before[name]]


def _merged(existing: Json, old: Amounts, new: Amounts) -> Json:
    """Return a resource list with new amounts; one that stays keeps its own notation.

    A request that was read from its limit is not there, and would follow the limit.
    """
    merged = dict(existing)
    _put(merged, "cpu", old.cpu_millicores, new.cpu_millicores, format_cpu_millicores)
    _put(merged, "memory", old.memory_bytes, new.memory_bytes, format_memory_bytes)
    return merged


def _put(merged: Json, resource: str, old: int | None, new: int | None, written: Callable[[int], str]) -> None:
    if new is None:
        if old is not None:
            merged.pop(resource, None)
    elif new != old or merged.get(resource) is None:
        merged[resource] = written(new)


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _member(node: object, key: str, path: str) -> object:
    """Return what stands at an index of an array. Raises BadInput."""
    if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
        return node[int(key)]
    raise BadInput(f"{path}: there is no {key}")


def _exceeds(requests: Amounts, limits: Amounts) -> bool:
    return _above(requests.cpu_millicores, limits.cpu_millicores) or _above(requests.memory_bytes, limits.memory_bytes)


def _above(request: int | None, limit: int | None) -> bool:
    return request is not None and limit is not None and request > limit
