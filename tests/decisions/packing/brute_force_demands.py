"""The requests of a tiny cluster's pods after sizing, computed from their samples."""

import random
from collections.abc import Collection
from dataclasses import replace

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.packing.plan_replay import BaseAndHeadroom
from cruise.decisions.packing.verification import FULL_MODE_POLICY
from cruise.decisions.scheduling.placements import get_pod_key
from cruise.domain.cluster import ClusterSnapshot, Container, ContainerRole, Pod, QosClass
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import Mode
from cruise.domain.resources import MEBIBYTE, Resources, StatedResources
from cruise.domain.usage import Statistic, StatisticsTable
from tests.builders import NOW_SECONDS, make_statistic
from tests.decisions.packing.brute_force_cluster import Demands

Measured = dict[tuple[str, str, str], Statistic]


def measure(snapshot: ClusterSnapshot, seed: int) -> Measured:
    """What was measured of most containers of most workloads, by namespace, workload and container."""
    source = random.Random(seed)
    found: Measured = {}
    for pod in snapshot.pods:
        for container in pod.containers:
            key = (pod.namespace, str(pod.workload), container.name)
            if pod.workload is not None and container.role is not ContainerRole.INIT and key not in found:
                found[key] = _statistic(source, key, container)
    return {key: statistic for key, statistic in found.items() if source.random() < 0.9}


def table_of(measured: Measured) -> StatisticsTable:
    """The measurements as the packer reads them."""
    return StatisticsTable.from_rows(list(measured.values()))


def demands_of(snapshot: ClusterSnapshot, measured: Measured, unsizable: Collection[str] = ()) -> Demands:
    """What pods need that may be sized; `unsizable` are uids of those that keep their sizes."""
    leaving = EvictionRules(snapshot, FULL_MODE_POLICY, {})
    unready = {node.name for node in snapshot.nodes if not node.ready}
    return {
        get_pod_key(pod): _demand(pod, measured)
        for pod in snapshot.pods
        if _may_be_sized(pod, leaving, measured) and pod.node not in unready and pod.uid not in unsizable
    }


def _statistic(source: random.Random, key: tuple[str, str, str], container: Container) -> Statistic:
    cpu = container.requests.cpu_millicores or 200
    memory = (container.requests.memory_bytes or 200 * MEBIBYTE) // MEBIBYTE
    cpu_base, memory_base = (max(20, int(whole * source.uniform(0.2, 1.05))) for whole in (cpu, memory))
    return make_statistic(
        pod="",
        namespace=key[0],
        workload=key[1],
        container=key[2],
        cpu_base=cpu_base,
        cpu_peak=int(cpu_base * source.uniform(0.9, 2.5)),
        memory_base_mib=memory_base,
        memory_peak_mib=int(memory_base * source.uniform(0.9, 1.6)),
        updated_at=NOW_SECONDS - (3600 if source.random() < 0.05 else 60),
    )


def _may_be_sized(pod: Pod, leaving: EvictionRules, measured: Measured) -> bool:
    if pod.is_finished or pod.terminating or pod.is_mirror_pod or pod.qos is not QosClass.BURSTABLE:
        return False
    if pod.workload is None or leaving.get_mode(pod) < Mode.RESIZE:
        return False
    known = [measured.get((pod.namespace, str(pod.workload), name)) for name in _sized(pod)]
    return all(one is not None and NOW_SECONDS - one.updated_at <= 900 for one in known)


def _demand(pod: Pod, measured: Measured) -> BaseAndHeadroom:
    of = {name: measured[(pod.namespace, str(pod.workload), name)] for name in _sized(pod)}
    containers = tuple(_at_base(container, of.get(container.name)) for container in pod.containers)
    cpu = max(max(0, one.cpu_peak_millicores - one.cpu_base_millicores) for one in of.values())
    memory = max(max(0, one.memory_peak_bytes - one.memory_base_bytes) for one in of.values())
    return BaseAndHeadroom(count_pod_requests(replace(pod, containers=containers)), Resources(cpu, memory))


def _at_base(container: Container, statistic: Statistic | None) -> Container:
    if statistic is None:
        return container
    base = StatedResources(statistic.cpu_base_millicores, statistic.memory_base_bytes)
    return replace(container, requests=base, allocated=None, actual=None)


def _sized(pod: Pod) -> list[str]:
    return [container.name for container in pod.containers if container.role is not ContainerRole.INIT]
