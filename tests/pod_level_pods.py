"""Random pods with pod-level resources that the API server accepts, and statistics of their containers."""

from collections.abc import Iterator
from random import Random
from typing import Any

from cruise.domain.cluster import Pod
from cruise.domain.usage import Statistic
from tests.builders import NOW_SECONDS, make_statistic

Json = dict[str, Any]
DAY = 86_400


def draw_pod_spec(random: Random) -> Json:
    """Draw the spec of a Burstable pod: some containers state resources within the pod's, others none."""
    names = ["app", "proxy", "logs"][: random.randint(1, 3)]
    containers = [_draw_container(random, name) for name in names]
    init = []
    if random.random() < 0.3:
        init.append({**_draw_container(random, "mesh"), "restartPolicy": "Always"})
    if random.random() < 0.3:
        init.append(_draw_container(random, "setup"))
    requests, limits = {}, {}
    for resource, unit, step in (("cpu", "m", 50), ("memory", "Mi", 64)):
        stated = [_get(one, "requests", resource) for one in (*containers, *init)]
        largest = max(_get(one, "limits", resource) for one in (*containers, *init))
        least = sum(stated) + step * random.randint(0, 40)
        if random.random() < 0.9 or least == 0:
            requests[resource] = f"{max(step, least)}{unit}"
        if random.random() < 0.5:
            limits[resource] = f"{max(step, least, largest) + step * random.randint(1, 20)}{unit}"
    requests = requests or {"cpu": "1500m"}
    spec: Json = {"containers": containers, "resources": {"requests": requests}}
    if limits:
        spec["resources"]["limits"] = limits
    if init:
        spec["initContainers"] = init
    return spec


def _draw_container(random: Random, name: str) -> Json:
    requests, limits = {}, {}
    for resource, unit, step in (("cpu", "m", 10), ("memory", "Mi", 16)):
        amount = step * random.randint(1, 30)
        if random.random() < 0.5:
            requests[resource] = f"{amount}{unit}"
        if random.random() < 0.3:
            limits[resource] = f"{amount + step * random.randint(0, 30)}{unit}"
            requests.setdefault(resource, f"{amount}{unit}")
    return {"name": name, "image": "example.com/app:1", "resources": {"requests": requests, "limits": limits}}


def _get(container: Json, field: str, resource: str) -> int:
    return int(container["resources"][field].get(resource, "0").rstrip("mMi") or 0)


def draw_statistics(random: Random, pod: Pod) -> Iterator[Statistic]:
    """Draw the usage of each of a pod's containers, of the pod and of its workload; an OOM kill now and then."""
    since = NOW_SECONDS - random.choice([2, 40]) * DAY
    for container in pod.sized_containers:
        cpu, memory = random.randint(0, 900), random.randint(1, 900)
        figures: dict[str, Any] = {
            "cpu_base": cpu,
            "cpu_peak": cpu + random.randint(0, 800),
            "memory_base_mib": memory,
            "memory_peak_mib": memory + random.randint(0, 500),
            "memory_7d_max_mib": memory + random.randint(500, 900),
            "oom_memory_mib": random.choice([0, 0, 0, memory + 300]),
            "history_since": since,
        }
        for name in (pod.name, ""):
            yield make_statistic(name, pod.namespace, str(pod.workload), container.name, **figures)
