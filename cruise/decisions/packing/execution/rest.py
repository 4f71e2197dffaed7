"""What is left of a plan, and what its pods ask for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cruise.domain.actions import ContainerTarget
from cruise.domain.cluster import Pod, Snapshot, WorkloadRef
from cruise.domain.packing import Arrival, PackingPlan, Stage
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources
from cruise.domain.sizes import with_sizes

PodsByUid = Mapping[str, Pod]


def pods_of(snapshot: Snapshot) -> PodsByUid:
    """Return all pods by uid."""
    return {pod.uid: pod for pod in snapshot.pods}


def present_stage(plan: PackingPlan) -> Stage | None:
    """Return the stage that is being carried out, None where all are done."""
    stages = plan.proposal.stages
    return stages[plan.stage] if plan.stage < len(stages) else None


@dataclass(frozen=True, slots=True)
class Subjects:
    """What is left of a plan counts on: nodes, pods by uid, workloads that it evicts from, and so many evictions."""

    nodes: frozenset[str] = frozenset()
    uids: frozenset[str] = frozenset()
    workloads: frozenset[tuple[str, WorkloadRef]] = frozenset()
    evictions: int = 0


def subjects_of(plan: PackingPlan, snapshot: Snapshot) -> Subjects:
    """Return what the stages that are left of a plan count on."""
    nodes: set[str | None] = set()
    uids: set[str] = set()
    for stage in plan.proposal.stages[plan.stage :]:
        nodes |= {one.node for one in stage.resizes} | {one.source for one in stage.leaves}
        nodes |= {one.target for one in stage.arrivals}
        uids |= {one.uid for one in (*stage.resizes, *stage.leaves, *stage.arrivals)}
    departed = {one.uid for one in plan.departed}
    leaving = {one.uid for stage in plan.proposal.stages[plan.stage :] for one in stage.leaves} - departed
    refs = {(pod.namespace, pod.workload) for pod in snapshot.pods if pod.uid in leaving and pod.workload is not None}
    return Subjects(
        frozenset(node for node in nodes if node is not None), frozenset(uids), frozenset(refs), len(leaving)
    )


def sizes_of(stage: Stage, arrival: Arrival) -> tuple[ContainerTarget, ...]:
    """Return what a pod is to ask for where it arrives: its own sizes, or those of its resize before; none as it is."""
    return arrival.containers or next((one.containers for one in stage.resizes if one.uid == arrival.uid), ())


def asks_for(pod: Pod, containers: Sequence[ContainerTarget]) -> bool:
    """Tell whether a pod's spec has these sizes."""
    spec = {one.name: (one.requests, one.limits) for one in pod.containers}
    wanted = {one.container: (one.requests, one.limits) for one in containers}
    # None wants nothing.
    return wanted.keys() <= spec.keys() and all(
        amounts.filled_from(stated) == stated
        for name in wanted
        for amounts, stated in zip(wanted[name], spec[name], strict=True)
    )


def need_of(pod: Pod, containers: Sequence[ContainerTarget] = ()) -> Resources:
    """Return what a pod counts where it arrives, with these sizes: nothing of it runs there yet."""
    return counted_requests(with_sizes(replace(anew(pod), phase="Pending"), containers))


def anew(pod: Pod) -> Pod:
    """Return the pod as a new one of its kind: no kubelet has given it anything."""
    return replace(
        pod, containers=tuple(replace(container, allocated=None, actual=None) for container in pod.containers)
    )
