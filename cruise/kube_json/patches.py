"""Build patches: JSON Patches of admission reviews, resize patches, and VerticalPodAutoscalers.

kube-apiserver rejects a pod if its JSON Patch does not apply, whatever the webhook's failure policy. So a patch is
applied and verified before it is sent. Source: RFC 6902, RFC 6901.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.annotations import MANAGED_BY
from cruise.domain.cluster import Container, ContainerRole, Pod, QosClass
from cruise.domain.original_resources import convert_amounts_to_json
from cruise.domain.records import WorkloadRecommendation
from cruise.domain.resources import Resources, StatedResources, format_cpu_millicores, format_memory_bytes
from cruise.domain.scheduling import Toleration
from cruise.errors import BadInputError

# A pod without requests may get them at its creation.
_CLASS_CHANGES = frozenset({(QosClass.BEST_EFFORT, QosClass.BURSTABLE)})

JsonObject = dict[str, Any]
Operation = JsonObject


def build_pod_patch(submitted: JsonObject, before: Pod, after: Pod) -> list[Operation]:
    """Return the operations that set the resources, annotations and added tolerations of `after` on a submitted pod.

    `before` is the decoded `submitted`. Parents that are absent or null are added.
    """
    operations = [*_annotation_operations(submitted, before, after), *_toleration_operations(submitted, before, after)]
    if before.pod_level is not None and after.pod_level is not None:
        operations += _resource_operations(
            "/spec/resources", submitted["spec"].get("resources"), before.pod_level, after.pod_level
        )
    places = _list_containers(submitted)
    for place, old, new in zip(places, before.containers, after.containers, strict=True):
        if (old.requests, old.limits) != (new.requests, new.limits):
            path, container = place
            operations += _resource_operations(f"{path}/resources", container.get("resources"), old, new)
    return operations


def apply_patch_in_place(submitted: JsonObject, operations: Sequence[Operation]) -> None:
    """Apply `add` operations on members of objects in place; BadInputError for the first that does not apply."""
    for operation in operations:
        path: str = operation["path"]
        _, *parents, key = map(_unescape, path.split("/")) if "~" in path else path.split("/")
        target: Any = submitted
        for parent in parents:
            # The common case; _get_item has the rest.
            target = (
                target[parent] if isinstance(target, dict) and parent in target else _get_item(target, parent, path)
            )
        if not isinstance(target, dict):
            raise BadInputError(f"{path}: {key} has no parent")
        target[key] = operation["value"]


def build_verified_patch(
    submitted: JsonObject,
    before: Pod,
    after: Pod,
    read: Callable[[JsonObject], Pod],
    other_operations: Sequence[Operation] = (),
) -> bytes:
    """Return the patch as bytes after applying it to `submitted` gave exactly `after`; empty for no change.

    `read` decodes a pod as `before` was decoded; `other_operations` change fields that it does not read. BadInputError
    for a patch that must not be sent.
    """
    operations = [*build_pod_patch(submitted, before, after), *other_operations]
    if not operations:
        return b""
    patch = msgspec.json.encode(operations)
    apply_patch_in_place(submitted, operations)
    patched = read(submitted)
    if patched != after:
        raise BadInputError("the patched pod differs from the decision")
    if (before.qos, patched.qos) not in _CLASS_CHANGES and patched.qos is not before.qos:
        raise BadInputError(f"the patch would change the pod's QoS class from {before.qos} to {patched.qos}")
    for old, container in zip(before.resizable_parts, patched.resizable_parts, strict=True):
        if container != old and _exceeds(container.requests, container.limits):
            raise BadInputError(f"container {container.name} would request more than its limit")
    return patch


def _annotation_operations(submitted: JsonObject, before: Pod, after: Pod) -> Iterator[Operation]:
    added = {key: text for key, text in after.annotations.items() if before.annotations.get(key) != text}
    if not added:
        return
    if submitted["metadata"].get("annotations") is None:
        yield _create_add("/metadata/annotations", added)
        return
    for key, text in added.items():
        yield _create_add(f"/metadata/annotations/{_escape(key)}", text)


def _toleration_operations(submitted: JsonObject, before: Pod, after: Pod) -> Iterator[Operation]:
    added = after.placement.tolerations[len(before.placement.tolerations) :]
    if added:
        written = [_toleration_json(toleration) for toleration in added]
        yield _create_add("/spec/tolerations", [*(submitted["spec"].get("tolerations") or ()), *written])


def _toleration_json(toleration: Toleration) -> JsonObject:
    stated = {
        "key": toleration.key,
        "operator": "Exists" if toleration.exists else "Equal",
        "value": toleration.value,
        "effect": toleration.effect.value if toleration.effect else "",
    }
    return {key: text for key, text in stated.items() if text}


def _list_containers(submitted: JsonObject) -> list[tuple[str, JsonObject]]:
    """Return path and JSON of every container, in the order of `Pod.containers`."""
    spec = submitted["spec"]
    return [
        (f"/spec/{field}/{index}", container)
        for field in ("initContainers", "containers")
        for index, container in enumerate(spec.get(field) or ())
    ]


def _resource_operations(path: str, stated: JsonObject | None, old: Container, new: Container) -> list[Operation]:
    """Return operations that write requests and limits whole, with the other resources."""
    existing = stated or {}
    requests, limits = existing.get("requests") or {}, existing.get("limits") or {}
    merged = {
        "requests": _merge_resources(requests, old.requests, new.requests),
        "limits": _merge_resources(limits, old.limits, new.limits),
    }
    if stated is None:
        return [_create_add(path, {name: amounts for name, amounts in merged.items() if amounts})]
    before = {"requests": requests, "limits": limits}
    return [_create_add(f"{path}/{name}", amounts) for name, amounts in merged.items() if amounts != before[name]]


def _merge_resources(existing: JsonObject, old: StatedResources, new: StatedResources) -> JsonObject:
    """Return a resource list with new amounts; unchanged ones keep their notation.

    A request that defaults to its limit is absent, and would follow the limit.
    """
    merged = dict(existing)
    _set_amount(merged, "cpu", old.cpu_millicores, new.cpu_millicores, format_cpu_millicores)
    _set_amount(merged, "memory", old.memory_bytes, new.memory_bytes, format_memory_bytes)
    return merged


def _set_amount(
    merged: JsonObject, resource: str, old: int | None, new: int | None, format_amount: Callable[[int], str]
) -> None:
    if new is None:
        if old is not None:
            merged.pop(resource, None)
    elif new != old or merged.get(resource) is None:
        merged[resource] = format_amount(new)


def _create_add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _escape(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _get_item(node: object, key: str, path: str) -> object:
    """Return the item at an index of an array; BadInputError."""
    if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
        return node[int(key)]
    raise BadInputError(f"{path}: there is no {key}")


def _exceeds(requests: StatedResources, limits: StatedResources) -> bool:
    return _is_above(requests.cpu_millicores, limits.cpu_millicores) or _is_above(
        requests.memory_bytes, limits.memory_bytes
    )


def _is_above(request: int | None, limit: int | None) -> bool:
    return request is not None and limit is not None and request > limit


# Strategic merge patches on `pods/resize`.


def build_resize_patch(resize: ResizePod) -> JsonObject:
    """Return one patch for all containers, with uid and version as preconditions if known.

    Sidecars are under `initContainers`, as in the pod's spec, pod-level resources under `resources`.
    """
    spec: JsonObject = {"containers": _build_containers(resize.containers, ContainerRole.MAIN)}
    sidecars = _build_containers(resize.containers, ContainerRole.SIDECAR)
    if sidecars:
        spec["initContainers"] = sidecars
    for target in resize.containers:
        if target.role is ContainerRole.POD:
            spec["resources"] = _build_resources(target)
    preconditions = {"uid": resize.uid, "resourceVersion": resize.resource_version}
    metadata = {name: value for name, value in preconditions.items() if value}
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _build_containers(targets: Sequence[ContainerTarget], role: ContainerRole) -> list[JsonObject]:
    containers: list[JsonObject] = []
    for target in targets:
        if target.role is role:
            containers.append({"name": target.container, "resources": _build_resources(target)})
    return containers


def _build_resources(target: ContainerTarget) -> JsonObject:
    resources: JsonObject = {"requests": convert_amounts_to_json(target.requests)}
    limits = convert_amounts_to_json(target.limits)
    if limits:
        resources["limits"] = limits
    return resources


# Preferred node affinity for placement hints.

_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_WEIGHT = 100
_PATH = ("affinity", "nodeAffinity", _PREFERRED)


def build_preferred_affinity(submitted: Mapping[str, Any], node: str) -> list[dict[str, Any]]:
    """Return the operations that add a preferred node to a pod's preferences.

    Parents that are absent or null are added.
    """
    value: Any = [*(_get_preferred(submitted) or ()), _create_preferred_term(node)]
    present, parent = 0, submitted["spec"]
    while present < len(_PATH) - 1 and isinstance(parent.get(_PATH[present]), dict):
        parent = parent[_PATH[present]]
        present += 1
    for name in reversed(_PATH[present + 1 :]):
        value = {name: value}
    return [{"op": "add", "path": "/".join(("", "spec", *_PATH[: present + 1])), "value": value}]


def check_preferred_affinity(before: Sequence[Any], patched: Mapping[str, Any], node: str) -> None:
    """Raise BadInputError unless a patched pod prefers what it did `before`, and the node."""
    if _get_preferred(patched) != [*before, _create_preferred_term(node)]:
        raise BadInputError("the patched pod's preferred node affinity differs from the decision")


def get_preferred_terms(submitted: Mapping[str, Any]) -> list[Any]:
    """Return the preferred node affinity of a submitted pod."""
    return list(_get_preferred(submitted) or ())


def _get_preferred(document: Mapping[str, Any]) -> Any:  # noqa: ANN401 - unvalidated JSON
    node: Any = document["spec"]
    for name in _PATH:
        node = node.get(name) if isinstance(node, dict) else None
    return node


def _create_preferred_term(node: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {"weight": _WEIGHT, "preference": {"matchFields": [field]}}


# VerticalPodAutoscalers and their status, for server-side apply.

VPA_API_VERSION = "autoscaling.k8s.io/v1"
VPA_KIND = "VerticalPodAutoscaler"
VPA_OWNER = "cruise"


def build_vpa(recommendation: WorkloadRecommendation, update_mode: str) -> JsonObject:
    """Return the object; its workload owns it, so that both are deleted together."""
    kind, name = recommendation.workload.kind, recommendation.workload.name
    target = {"apiVersion": recommendation.api_version, "kind": kind, "name": name}
    return {
        **_build_metadata(
            recommendation,
            {"labels": {MANAGED_BY: VPA_OWNER}, "ownerReferences": [{**target, "uid": recommendation.uid}]},
        ),
        "spec": {
            "targetRef": target,
            "updatePolicy": {"updateMode": update_mode},
            "recommenders": [{"name": VPA_OWNER}],
        },
    }


def build_vpa_status(recommendation: WorkloadRecommendation, since: datetime) -> JsonObject:
    """Return the object with its status only; `since` is the transition time of the conditions."""
    conditions = [_build_condition("RecommendationProvided", since)]
    if not recommendation.is_confident:
        conditions.append(_build_condition("LowConfidence", since, "less than a day of usage"))
    recommended = [
        {
            "containerName": one.name,
            "lowerBound": _format_amounts(one.lower),
            "target": _format_amounts(one.target),
            "upperBound": _format_amounts(one.upper),
            "uncappedTarget": _format_amounts(one.uncapped),
        }
        for one in recommendation.containers
    ]
    status = {"recommendation": {"containerRecommendations": recommended}, "conditions": conditions}
    return {**_build_metadata(recommendation, {}), "status": status}


def _build_metadata(recommendation: WorkloadRecommendation, extra: Mapping[str, object]) -> JsonObject:
    metadata = {"namespace": recommendation.namespace, "name": recommendation.name, **extra}
    return {"apiVersion": VPA_API_VERSION, "kind": VPA_KIND, "metadata": metadata}


def _build_condition(kind: str, since: datetime, message: str = "") -> JsonObject:
    at = since.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": kind, "status": "True", "lastTransitionTime": at} | ({"message": message} if message else {})


def _format_amounts(amounts: Resources) -> dict[str, str]:
    return {"cpu": format_cpu_millicores(amounts.cpu_millicores), "memory": format_memory_bytes(amounts.memory_bytes)}
