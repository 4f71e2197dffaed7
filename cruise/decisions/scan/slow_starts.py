"""Workloads that would start faster with the CPU of their earlier starts, by the decision that admission makes."""

from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np

from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.startup_steps import explain_new_pod_startup
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import Policy, StartupPolicy
from cruise.domain.usage import StatisticsTable

# A start that needs less more than its size does not wait for CPU noticeably.
LEAST_RATIO = 1.5
LEAST_MILLICORES = 100


@dataclass(frozen=True, slots=True)
class SlowStart:
    """A container that needs more CPU while it starts than afterwards; `pods` are those of its workload.

    A new pod would request `boosted` during its start and `settled` after it with `startup: learn`, in millicores.
    """

    namespace: str
    workload: str  # Kind/name
    container: str
    pods: int
    boosted: int
    settled: int


def find_slow_starts(
    snapshot: ClusterSnapshot, statistics: StatisticsTable, policy: Policy, now: datetime
) -> tuple[SlowStart, ...]:
    """Return the containers whose known starts need far more CPU than their size, largest difference first.

    Workloads that state the CPU of their start are left out, and those whose starts may get no more.
    """
    workloads = _find_candidates(statistics)
    if not workloads:
        return ()
    policy = replace(policy, startup=StartupPolicy.LEARN)
    eligibility = Eligibility(snapshot, statistics, {}, policy, now)
    nodes = NodeIndex(snapshot.known_nodes)
    pods: dict[tuple[str, str], list[Pod]] = {}
    for pod in snapshot.pods:
        key = (pod.namespace, str(pod.workload))
        if pod.workload is not None and key in workloads and not pod.is_finished:
            pods.setdefault(key, []).append(pod)
    found = [
        SlowStart(namespace, workload, step.container, len(group), step.boost.boosted_request, step.boost.request)
        for (namespace, workload), group in pods.items()
        for step in explain_new_pod_startup(group[0], snapshot, eligibility, nodes, policy)
        if step.boost is not None and step.stated.is_learned
    ]
    slow = [
        one
        for one in found
        if one.boosted >= LEAST_RATIO * one.settled and one.boosted - one.settled >= LEAST_MILLICORES
    ]
    return tuple(sorted(slow, key=lambda one: (one.settled - one.boosted, one.namespace, one.workload, one.container)))


def _find_candidates(statistics: StatisticsTable) -> set[tuple[str, str]]:
    """Return the namespaces and workloads of which a container's starts may need that much more than its base."""
    base, start = statistics.cpu_base_millicores, statistics.cpu_start_millicores
    rows = np.flatnonzero((start >= LEAST_RATIO * base) & (start - base >= LEAST_MILLICORES))
    keys = [statistics.keys[row] for row in rows.tolist()]
    return {(key.namespace, key.workload) for key in keys if not key.pod}
