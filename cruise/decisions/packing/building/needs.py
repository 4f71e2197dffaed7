"""What every pod takes of CPU and memory: what it asks for, or its base with the headroom it shares."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from cruise.decisions.guidance.eligibility import Eligibility, Touchable
from cruise.decisions.packing.building.built import Usage
from cruise.decisions.sizing.recommendation import DemandTable, recommend
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.policy import Policy
from cruise.domain.requests import counted_requests
from cruise.domain.resources import ResourceName, Resources

# Pods whose verdicts are held at once: they are larger than what is kept of them.
_AT_ONCE = 16_384


@dataclass(frozen=True, slots=True)
class Needs:
    """One entry a pod: what sums up on its node, overhead included, and the headroom of which the largest counts."""

    cpu: list[int]
    memory: list[int]
    cpu_headroom: list[int]
    memory_headroom: list[int]

    def without(self, pods: Iterable[int]) -> "Needs":
        """Return the same where some pods take nothing, since room is kept for them."""
        columns = [list(column) for column in (self.cpu, self.memory, self.cpu_headroom, self.memory_headroom)]
        for pod in pods:
            for column in columns:
                column[pod] = 0
        return Needs(*columns)


def counted_needs(pods: Sequence[Pod]) -> Needs:
    """Take pods as kube-scheduler counts them."""
    cpu: list[int] = []
    memory: list[int] = []
    known: dict[tuple[object, ...], Resources] = {}
    for pod in pods:
        # Decoding shares equal containers, and most replicas count alike.
        key = (*map(id, pod.containers), id(pod.overhead), id(pod.pod_requests), pod.resize.pending)
        counted = known.get(key)
        if counted is None:
            counted = known[key] = counted_requests(pod)
        cpu.append(counted.cpu_millicores)
        memory.append(counted.memory_bytes)
    return Needs(cpu, memory, [0] * len(pods), [0] * len(pods))


def rightsized_needs(
    pods: Sequence[Pod], snapshot: Snapshot, eligibility: Eligibility, usage: Usage, policy: Policy
) -> Needs:
    """Take pods that may be sized by their statistics, and the others as kube-scheduler counts them.

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


def _take_sized(needs: Needs, pods: Sequence[int], touchable: Sequence[Touchable], table: DemandTable) -> None:
    candidates = table.candidates
    cpu, memory = (candidates.pod_sum(one, table.of(one).base).tolist() for one in ResourceName)
    cpu_headroom, memory_headroom = (candidates.pod_maximum(table.of(one).headroom).tolist() for one in ResourceName)
    for at, (index, verdict) in enumerate(zip(pods, touchable, strict=True)):
        if verdict.manages_cpu:
            needs.cpu[index] = cpu[at] + verdict.pod.overhead.cpu_millicores
            needs.cpu_headroom[index] = cpu_headroom[at]
        if verdict.manages_memory:
            needs.memory[index] = memory[at] + verdict.pod.overhead.memory_bytes
            needs.memory_headroom[index] = memory_headroom[at]


def keeps_its_size(pod: Pod, usage: Usage) -> bool:
    """Tell whether a pod may get no other size now, whatever its statistics say."""
    return pod.resize.pending is not None or pod.uid in usage.refused or pod.uid in usage.unsizable
