"""What every pod takes of CPU and memory: what it asks for, or its base with the headroom it shares."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cruise.decisions.guidance.eligibility import Eligibility, Touchable
from cruise.decisions.packing.building.built import Usage
from cruise.decisions.sizing.recommendation import DemandTable, recommend
from cruise.domain.arrays import Int64Array
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.policy import Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import ResourceName, Resources

# Pods whose verdicts are held at once: they are larger than what is kept of them.
_AT_ONCE = 16_384
# What a row of needs has: what sums up on the pod's node, overhead included, and headroom, of which the largest counts.
CPU, MEMORY, CPU_HEADROOM, MEMORY_HEADROOM = range(4)


def counted_needs(pods: Sequence[Pod]) -> Int64Array:
    """Return a row for each pod, which takes what kube-scheduler counts."""
    rows: list[tuple[int, ...]] = []
    known: dict[tuple[object, ...], Resources] = {}
    for pod in pods:
        # Decoding shares equal containers, and most replicas count alike.
        key = (*map(id, pod.containers), id(pod.overhead), id(pod.pod_requests), pod.resize.pending)
        counted = known.get(key)
        if counted is None:
            counted = known[key] = counted_requests(pod)
        rows.append((counted.cpu_millicores, counted.memory_bytes, 0, 0))
    return np.array(rows, dtype=np.int64).reshape(len(pods), 4)


def rightsized_needs(
    pods: Sequence[Pod], snapshot: Snapshot, eligibility: Eligibility, usage: Usage, policy: Policy
) -> Int64Array:
    """Return the same with pods that may be sized by their statistics, and the others as kube-scheduler counts them.

    A pending pod counts with its workload's statistics, as it will once it runs.
    """
    needs = counted_needs(pods)
    for first in range(0, len(pods), _AT_ONCE):
        sized: list[int] = []
        touchable: list[Touchable] = []
        for index, pod in enumerate(pods[first : first + _AT_ONCE], first):
            if keeps_its_size(pod, usage):
                continue
            verdict = eligibility.of(pod if pod.node is not None else replace(pod, phase="Running"))
            if isinstance(verdict, Touchable):
                sized.append(index)
                touchable.append(verdict)
        _take_sized(needs, sized, touchable, recommend(touchable, usage.statistics, snapshot.limit_ranges, policy))
    return needs


def _take_sized(needs: Int64Array, pods: Sequence[int], touchable: Sequence[Touchable], table: DemandTable) -> None:
    candidates = table.candidates
    # A plan writes sizes, which the server checks.
    bases = {
        one: np.where(table.of(one).managed, np.maximum(table.of(one).base, table.of(one).lower), 0)
        for one in ResourceName
    }
    cpu, memory = (candidates.pod_sum(one, bases[one]).tolist() for one in ResourceName)
    cpu_headroom, memory_headroom = (candidates.pod_maximum(table.of(one).headroom).tolist() for one in ResourceName)
    for at, (index, verdict) in enumerate(zip(pods, touchable, strict=True)):
        if verdict.manages_cpu:
            needs[index, CPU] = cpu[at] + verdict.pod.overhead.cpu_millicores
            needs[index, CPU_HEADROOM] = cpu_headroom[at]
        if verdict.manages_memory:
            needs[index, MEMORY] = memory[at] + verdict.pod.overhead.memory_bytes
            needs[index, MEMORY_HEADROOM] = memory_headroom[at]


def keeps_its_size(pod: Pod, usage: Usage) -> bool:
    """Tell whether a pod may get no other size now, whatever its statistics say."""
    return pod.resize.pending is not None or pod.uid in usage.refused or pod.uid in usage.unsizable
