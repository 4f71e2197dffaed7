"""Random statistics of a cluster's pods, as a UsageStatistics file lists them."""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta

from benchmarks.compare_decisions.random_pods import (
    MEBIBYTE,
    NOW,
    Json,
    lasting_containers,
    read_cpu,
    read_memory,
    stamp,
)


def draw_usage(
    source: random.Random, pods: Sequence[Json], workload_of_app: Mapping[str, str], gaps: bool
) -> list[Json]:
    """Draw usage of every container, or with `gaps` of some pods, of some workloads, old or young.

    `workload_of_app` has Kind/name by the pods' label `app`; what it lacks has no workload.
    """
    found: dict[tuple[str, str, str], Json] = {}
    for number, pod in enumerate(pods):
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        workload = workload_of_app.get(pod["metadata"]["labels"]["app"])
        # The first pod always has statistics: a file without any has no time.
        speaks_for = source.choice(["own"] * 3 + ["none", "workload", "both"]) if gaps and number else "own"
        for container in lasting_containers(pod):
            usage = {"namespace": namespace, "container": container["name"], **_statistics(source, container, gaps)}
            if speaks_for in ("own", "both"):
                own = {"pod": name} | ({"workload": workload} if workload else {})
                found[(namespace, name, container["name"])] = usage | own
            if speaks_for in ("workload", "both") and workload:
                found[(namespace, workload, container["name"])] = usage | {"workload": workload}
    return list(found.values())


def _statistics(source: random.Random, container: Json, gaps: bool) -> Json:
    requests = container["resources"]["requests"]
    cpu = (read_cpu(requests.get("cpu", "200m")) + 1) * source.uniform(0.05, 1.1)
    memory = (read_memory(requests.get("memory", "128Mi")) + MEBIBYTE) * source.uniform(0.2, 1.1)
    cpu_peak, memory_peak = cpu * source.uniform(1, 4), memory * source.uniform(1, 1.6)
    if source.random() < 0.05:
        cpu, cpu_peak, memory, memory_peak = cpu_peak, cpu, memory_peak, memory
    age_seconds = source.choice([0] * 8 + [60, 600, 899, 900, 901, 3600]) if gaps else 0
    since = NOW - timedelta(hours=source.choice([200] * 9 + [24, 2, 0]))
    statistics: Json = {
        "updatedAt": stamp(NOW - timedelta(seconds=age_seconds)),
        "cpu": {"baseMillicores": round(cpu, 2), "peakMillicores": round(cpu_peak, 2)},
        "memory": {
            "baseBytes": round(memory),
            "peakBytes": round(memory_peak),
            "max7dBytes": round(max(memory, memory_peak) * source.uniform(1, 1.3)),
            "oomBytes": source.choice([0] * 9 + [200 * MEBIBYTE]),
        },
    }
    return statistics | ({"historySince": stamp(since)} if source.random() < 0.8 else {})
