"""Random statistics of a cluster's pods, as a UsageStatistics file lists them."""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta

from benchmarks.compare_decisions.random_pods import (
    MEBIBYTE,
    NOW,
    Json,
    PodDrawing,
    lasting_containers,
    read_cpu,
    read_memory,
    stamp,
)

# At and near the maximum age of statistics, and the history required to decrease memory limits.
_AGES_SECONDS = (*[0] * 8, 60, 600, 899, 900, 901, 3600)
_HISTORIES_HOURS = (*[800] * 9, 673, 672, 671, 24, 0)
_STEADY_SHARE = 0.4


def draw_usage(drawing: PodDrawing, pods: Sequence[Json], workload_of_app: Mapping[str, str]) -> list[Json]:
    """Draw usage of every container; with gaps, of some pods or workloads, also old or recent.

    `workload_of_app` has Kind/name by the pods' label `app`; what it lacks has no workload.
    """
    source, gaps = drawing.source, drawing.has("gaps in usage")
    steady = source.random() < _STEADY_SHARE
    found: dict[tuple[str, str, str], Json] = {}
    for number, pod in enumerate(pods):
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        workload = workload_of_app.get(pod["metadata"]["labels"]["app"])
        # The first pod always has statistics, because an empty file has no time.
        speaks_for = source.choice(["own"] * 3 + ["none", "workload", "both"]) if gaps and number else "own"
        for container in lasting_containers(pod):
            amounts = _steady(source, container) if steady else _varying(source, container)
            usage = {"namespace": namespace, "container": container["name"], **amounts, **_times(source, gaps)}
            if speaks_for in ("own", "both"):
                own = {"pod": name} | ({"workload": workload} if workload else {})
                found[(namespace, name, container["name"])] = usage | own
            if speaks_for in ("workload", "both") and workload:
                found[(namespace, workload, container["name"])] = usage | {"workload": workload}
    return list(found.values())


def _varying(source: random.Random, container: Json) -> Json:
    """Draw usage with peaks, mostly below the requests."""
    cpu, memory = _requests(container)
    cpu_base, memory_base = (cpu + 1) * source.uniform(0.05, 1.1), (memory + MEBIBYTE) * source.uniform(0.2, 1.1)
    cpu_peak, memory_peak = cpu_base * source.uniform(1, 4), memory_base * source.uniform(1, 1.6)
    if source.random() < 0.05:
        cpu_base, cpu_peak, memory_base, memory_peak = cpu_peak, cpu_base, memory_peak, memory_base
    memory_most = max(memory_base, memory_peak) * source.uniform(1, 1.3)
    found = _amounts(round(cpu_base, 2), round(cpu_peak, 2), round(memory_base), round(memory_peak), round(memory_most))
    if source.random() < 0.05:
        found["memory"]["oomBytes"] = 200 * MEBIBYTE
    return found


def _steady(source: random.Random, container: Json) -> Json:
    """Draw usage without peaks, of one resource at or near the update threshold around its request."""
    cpu, memory = _requests(container)
    sign, resource = source.choice([1, -1]), source.choice(["cpu", "memory", "neither"])
    if resource == "cpu":
        cpu = max(0, cpu + sign * source.choice([9, 10, 10, 11, cpu // 20]))
    elif resource == "memory":
        mebibytes = source.choice([15, 16, 16, 17, memory // MEBIBYTE // 20])
        memory = max(0, memory + sign * mebibytes * MEBIBYTE)
    return _amounts(cpu, cpu, memory, memory, memory)


def _requests(container: Json) -> tuple[int, int]:
    requests = container["resources"]["requests"]
    return read_cpu(requests.get("cpu", "200m")), read_memory(requests.get("memory", "128Mi"))


def _amounts(cpu_base: float, cpu_peak: float, memory_base: int, memory_peak: int, memory_most: int) -> Json:
    memory = {"baseBytes": memory_base, "peakBytes": memory_peak, "max7dBytes": memory_most, "oomBytes": 0}
    return {"cpu": {"baseMillicores": cpu_base, "peakMillicores": cpu_peak}, "memory": memory}


def _times(source: random.Random, gaps: bool) -> Json:
    age = timedelta(seconds=source.choice(_AGES_SECONDS) if gaps else 0)
    history = {"historySince": stamp(NOW - timedelta(hours=source.choice(_HISTORIES_HOURS)))}
    return {"updatedAt": stamp(NOW - age)} | (history if source.random() < 0.8 else {})
