"""The strategic-merge patch on `pods/resize` that gives a pod its sizes."""

from collections.abc import Sequence

from cruise.domain.actions import ContainerTarget, ResizePod
from cruise.domain.cluster import ContainerRole
from cruise.domain.original_resources import amounts_json

JsonObject = dict[str, object]


def resize_patch(resize: ResizePod) -> JsonObject:
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
            resources: JsonObject = {"requests": amounts_json(target.requests)}
            limits = amounts_json(target.limits)
            if limits:
                resources["limits"] = limits
            patched.append({"name": target.container, "resources": resources})
    return patched
