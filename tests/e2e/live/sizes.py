"""Sizes in objects as the API server gives them, in millicores and MiB."""

from typing import NamedTuple

from cruise.domain.resources import parse_cpu_millicores, parse_memory_bytes
from tests.controlplane.api import Json, by_name, conditions

MIB = 2**20


class ObservedSize(NamedTuple):
    """The requests or limits of a container; 0 if unset."""

    cpu: int
    memory: int


def containers_of(pod: Json) -> dict[str, Json]:
    """Return a pod's containers and native sidecars by name."""
    sidecars = [one for one in pod["spec"].get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return by_name([*pod["spec"]["containers"], *sidecars])


def requests(pod: Json, container: str = "app") -> ObservedSize:
    """Return the requests of a pod's container."""
    return size_of(containers_of(pod)[container]["resources"].get("requests"))


def limits(pod: Json, container: str = "app") -> ObservedSize:
    """Return the limits of a pod's container."""
    return size_of(containers_of(pod)[container]["resources"].get("limits"))


def size_of(amounts: Json | None) -> ObservedSize:
    """Read a map of quantities."""
    stated = amounts or {}
    return ObservedSize(
        parse_cpu_millicores(stated.get("cpu", "0")), parse_memory_bytes(stated.get("memory", "0")) // MIB
    )


def statuses_of(pod: Json) -> dict[str, Json]:
    """A pod's container statuses by name, those of sidecars as well."""
    status = pod["status"]
    return by_name([*status.get("containerStatuses", ()), *status.get("initContainerStatuses", ())])


def in_force(pod: Json) -> bool:
    """Return whether a pod's actual resources equal its spec."""
    if {"PodResizePending", "PodResizeInProgress"} & set(conditions(pod)):
        return False
    told = statuses_of(pod)
    seen = pod["status"].get("observedGeneration", 0) >= pod["metadata"]["generation"]
    wanted = {name: size_of(one["resources"].get("requests")) for name, one in containers_of(pod).items()}
    return seen and all(size_of(told[name].get("allocatedResources")) == size for name, size in wanted.items())


def counted(pods: list[Json], node: str) -> ObservedSize:
    """Return the sum of the requests of a node's pods."""
    sizes = [
        size_of(one["resources"].get("requests"))
        for pod in pods
        if pod["spec"].get("nodeName") == node and pod["status"]["phase"] in ("Pending", "Running")
        for one in containers_of(pod).values()
    ]
    return ObservedSize(sum(size.cpu for size in sizes), sum(size.memory for size in sizes))
