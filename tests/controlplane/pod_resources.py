"""The requests of a pod and its containers, and their sums."""

from collections.abc import Mapping
from typing import Any

from cruise.domain.resources import parse_cpu_millicores, parse_memory_bytes

Json = dict[str, Any]
# The kernel keeps CPU quotas in steps of 10 ms in 1 s, so that a limit in force may be above the one stated.
CPU_LIMIT_STEP = 10
WHOLE_POD = ""
"""Stands for the pod's own resources among those of its containers."""


def get_stated(pod: Json) -> dict[str, Json]:
    """The requests of a pod's spec, by container; those of the pod itself under WHOLE_POD."""
    spec = pod["spec"]
    found = {one["name"]: one.get("resources") or {} for one in _containers(spec)}
    return {**found, WHOLE_POD: spec.get("resources") or {}}


def get_actual(resources: Json) -> Json:
    """What the kubelet reads back from the kernel after it has set these resources."""
    limit = resources.get("limits", {}).get("cpu")
    if limit is None:
        return resources
    millicores = -(-parse_cpu_millicores(limit) // CPU_LIMIT_STEP) * CPU_LIMIT_STEP
    return {**resources, "limits": {**resources["limits"], "cpu": f"{millicores}m"}}


def count_requests(spec: Json, resources: Mapping[str, Json]) -> tuple[int, int]:
    """The millicores and bytes that a pod takes of its node with these resources."""
    whole = resources[WHOLE_POD].get("requests", {})
    running, most = [0, 0], [0, 0]
    for one in _containers(spec):
        amounts = _amounts(resources[one["name"]].get("requests", {}))
        init = one in (spec.get("initContainers") or ())
        for index in (0, 1):
            if init and one.get("restartPolicy") != "Always":
                most[index] = max(most[index], running[index] + amounts[index])
            else:
                running[index] += amounts[index]
    overhead = _amounts(spec.get("overhead") or {})
    cpu, memory = (max(most[index], running[index]) for index in (0, 1))
    if whole:
        stated_cpu, stated_memory = _amounts(whole)
        cpu, memory = stated_cpu or cpu, stated_memory or memory
    return cpu + overhead[0], memory + overhead[1]


def _containers(spec: Json) -> list[Json]:
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _amounts(resources: Mapping[str, str]) -> tuple[int, int]:
    return parse_cpu_millicores(resources.get("cpu", "0")), parse_memory_bytes(resources.get("memory", "0"))
