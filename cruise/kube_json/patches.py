"""From a pod as it was submitted to the pod as it shall be created: a JSON Patch, tried out before it is sent.

kube-apiserver refuses the pod if a patch does not apply, whatever the webhook's failure policy; so what is not certain
to apply, and to give what was decided, is not sent. Source: RFC 6902, RFC 6901.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.annotations import PUBLISHED_VPA
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.original_resources import amounts_to_json
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.resources import Resources, StatedResources, format_cpu_millicores, format_memory_bytes
from cruise.domain.scheduling import Toleration
from cruise.errors import BadInputError

JsonObject = dict[str, Any]
Operation = JsonObject


def build_pod_patch(submitted: JsonObject, before: Pod, after: Pod) -> list[Operation]:
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


def apply_patch(submitted: JsonObject, operations: Sequence[Operation]) -> None:
    """Do `add` operations on members of objects in place.

    Raises BadInputError where one does not apply; those before it are done then.
    """
    for operation in operations:
        path: str = operation["path"]
        _, *parents, key = map(_unescaped, path.split("/")) if "~" in path else path.split("/")
        target: Any = submitted
        for parent in parents:
            # Mostly an object that has it; the rest of the rule is there.
            target = target[parent] if isinstance(target, dict) and parent in target else _member(target, parent, path)
        if not isinstance(target, dict):
            raise BadInputError(f"{path}: {key} has no parent")
        target[key] = operation["value"]


def build_verified_patch(
    submitted: JsonObject, before: Pod, after: Pod, read: Callable[[JsonObject], Pod], beside: Sequence[Operation] = ()
) -> bytes:
    """Return the patch's bytes once it was applied to `submitted` and gave exactly `after`; empty for no change.

    `read` reads a pod's JSON as `before` was read; `beside` are operations on what it does not read. Raises BadInputError
    for a patch that is better not sent.
    """
    operations = [*build_pod_patch(submitted, before, after), *beside]
    if not operations:
        return b""
    patch = msgspec.json.encode(operations)
    apply_patch(submitted, operations)
    outcome = read(submitted)
    if outcome != after:
        raise BadInputError("the patched pod is not what was decided")
    if outcome.qos is not before.qos:
        raise BadInputError(f"the patch would turn the pod from {before.qos} into {outcome.qos}")
    for old, container in zip(before.containers, outcome.containers, strict=True):
        if container != old and _exceeds(container.requests, container.limits):
            raise BadInputError(f"container {container.name} would request more than its limit")
    return patch


def _annotation_operations(submitted: JsonObject, before: Pod, after: Pod) -> Iterator[Operation]:
    added = {key: text for key, text in after.annotations.items() if before.annotations.get(key) != text}
    if not added:
        return
    if submitted["metadata"].get("annotations") is None:
        yield _add("/metadata/annotations", added)
        return
    for key, text in added.items():
        yield _add(f"/metadata/annotations/{_escaped(key)}", text)


def _toleration_operations(submitted: JsonObject, before: Pod, after: Pod) -> Iterator[Operation]:
    added = after.placement.tolerations[len(before.placement.tolerations) :]
    if added:
        written = [_toleration_json(toleration) for toleration in added]
        yield _add("/spec/tolerations", [*(submitted["spec"].get("tolerations") or ()), *written])


def _toleration_json(toleration: Toleration) -> JsonObject:
    stated = {
        "key": toleration.key,
        "operator": "Exists" if toleration.exists else "Equal",
        "value": toleration.value,
        "effect": toleration.effect.value if toleration.effect else "",
    }
    return {key: text for key, text in stated.items() if text}


def _places(submitted: JsonObject) -> list[tuple[str, JsonObject]]:
    """Return path and JSON of every container, in the order of `Pod.containers`."""
    spec = submitted["spec"]
    return [
        (f"/spec/{field}/{index}", container)
        for field in ("initContainers", "containers")
        for index, container in enumerate(spec.get(field) or ())
    ]


def _resource_operations(path: str, stated: JsonObject | None, old: Container, new: Container) -> list[Operation]:
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


def _merged(existing: JsonObject, old: StatedResources, new: StatedResources) -> JsonObject:
    """Return a resource list with new amounts; one that stays keeps its own notation.

    A request that was read from its limit is not there, and would follow the limit.
    """
    merged = dict(existing)
    _put(merged, "cpu", old.cpu_millicores, new.cpu_millicores, format_cpu_millicores)
    _put(merged, "memory", old.memory_bytes, new.memory_bytes, format_memory_bytes)
    return merged


def _put(merged: JsonObject, resource: str, old: int | None, new: int | None, written: Callable[[int], str]) -> None:
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
    """Return what stands at an index of an array. Raises BadInputError."""
    if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
        return node[int(key)]
    raise BadInputError(f"{path}: there is no {key}")


def _exceeds(requests: StatedResources, limits: StatedResources) -> bool:
    return _above(requests.cpu_millicores, limits.cpu_millicores) or _above(requests.memory_bytes, limits.memory_bytes)


def _above(request: int | None, limit: int | None) -> bool:
    return request is not None and limit is not None and request > limit


# The strategic-merge patch on `pods/resize` that gives a pod its sizes.


def build_resize_patch(resize: ResizePod) -> JsonObject:
    """Return one patch for all containers and both resources, fenced on the pod's uid and version where known.

    Sidecars stand under `initContainers`, as in the pod's spec.
    """
    spec: JsonObject = {"containers": _patched(resize.containers, ContainerRole.MAIN)}
    sidecars = _patched(resize.containers, ContainerRole.SIDECAR)
    if sidecars:
        spec["initContainers"] = sidecars
    fence = {"uid": resize.uid, "resourceVersion": resize.version}
    metadata = {name: value for name, value in fence.items() if value}
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _patched(targets: Sequence[ContainerTarget], role: ContainerRole) -> list[JsonObject]:
    patched: list[JsonObject] = []
    for target in targets:
        if target.role is role:
            resources: JsonObject = {"requests": amounts_to_json(target.requests)}
            limits = amounts_to_json(target.limits)
            if limits:
                resources["limits"] = limits
            patched.append({"name": target.container, "resources": resources})
    return patched


# The preferred node affinity of a steered pod, as operations of a JSON Patch on the pod as it was submitted.

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100
_PLACES = ("affinity", "nodeAffinity", _PREFERRED)


def build_preferred_affinity(submitted: Mapping[str, Any], node: str) -> list[dict[str, Any]]:
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


def check_preferred_affinity(before: Sequence[Any], patched: Mapping[str, Any], node: str) -> None:
    """See that a patched pod prefers exactly what it did `before`, and the node. Raises BadInputError."""
    if _preferred(patched) != [*before, _term(node)]:
        raise BadInputError("the patched pod does not prefer what was decided")


def get_preferred_terms(submitted: Mapping[str, Any]) -> list[Any]:
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


# A VerticalPodAutoscaler of cruise's own: the object, and its status; each is applied whole by the server.

VPA_API_VERSION = "autoscaling.k8s.io/v1"
VPA_KIND = "VerticalPodAutoscaler"
VPA_OWNER = "cruise"


def build_vpa(wanted: WorkloadRecommendation, update_mode: str) -> JsonObject:
    """Return the object: its workload owns it, so that both go together."""
    kind, name = wanted.workload.kind, wanted.workload.name
    target = {"apiVersion": wanted.api_version, "kind": kind, "name": name}
    return {
        **_head(wanted, {"labels": {PUBLISHED_VPA: VPA_OWNER}, "ownerReferences": [{**target, "uid": wanted.uid}]}),
        "spec": {
            "targetRef": target,
            "updatePolicy": {"updateMode": update_mode},
            "recommenders": [{"name": VPA_OWNER}],
        },
    }


def build_vpa_status(wanted: WorkloadRecommendation, since: datetime) -> JsonObject:
    """Return the object with its status alone; `since` is when the conditions became what they are."""
    conditions = [_condition("RecommendationProvided", since)]
    if not wanted.is_confident:
        conditions.append(_condition("LowConfidence", since, "less than a day of use was seen"))
    recommended = [
        {
            "containerName": one.name,
            "lowerBound": _amounts(one.lower),
            "target": _amounts(one.target),
            "upperBound": _amounts(one.upper),
            "uncappedTarget": _amounts(one.uncapped),
        }
        for one in wanted.containers
    ]
    status = {"recommendation": {"containerRecommendations": recommended}, "conditions": conditions}
    return {**_head(wanted, {}), "status": status}


def _head(wanted: WorkloadRecommendation, more: Mapping[str, object]) -> JsonObject:
    metadata = {"namespace": wanted.namespace, "name": wanted.name, **more}
    return {"apiVersion": VPA_API_VERSION, "kind": VPA_KIND, "metadata": metadata}


def _condition(kind: str, since: datetime, message: str = "") -> JsonObject:
    at = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": "True", "lastTransitionTime": at} | ({"message": message} if message else {})


def _amounts(amounts: Resources) -> dict[str, str]:
    return {"cpu": format_cpu_millicores(amounts.cpu_millicores), "memory": format_memory_bytes(amounts.memory_bytes)}
