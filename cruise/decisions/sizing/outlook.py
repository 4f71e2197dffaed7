"""What a node plan leads to once it is done: the requests that kube-scheduler will count."""

from collections.abc import Mapping

from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.requests import counted_container, counted_requests, init_floor
from cruise.domain.resources import Resources


def estimate_counted_after(plan: NodePlan, pods: Mapping[tuple[str, str], Pod]) -> Resources:
    """Return what counts on the node with the evicted gone and the resizes actual; `pods` by (namespace, name)."""
    cpu, memory = plan.counted.cpu_millicores, plan.counted.memory_bytes
    for eviction in plan.evict:
        gone = counted_requests(pods[(eviction.namespace, eviction.pod)])
        cpu -= gone.cpu_millicores
        memory -= gone.memory_bytes
    for resize in plan.resize:
        pod = pods[(resize.namespace, resize.pod)]
        sizes = {target.container: target.requests.resources for target in resize.containers}
        before, after = counted_requests(pod), counted_when_sized(pod, sizes)
        cpu += after.cpu_millicores - before.cpu_millicores
        memory += after.memory_bytes - before.memory_bytes
    return Resources(cpu, memory)


def counted_when_sized(pod: Pod, sizes: Mapping[str, Resources]) -> Resources:
    """Return what will count for a pod once these requests, by container, are allocated and actual.

    For pods without pod-level resources, since only these are sized.
    """
    cpu = memory = 0
    has_init = False
    for container in pod.containers:
        if container.role is ContainerRole.INIT:
            has_init = True
            continue
        size = sizes.get(container.name)
        if size is None:
            size = counted_container(container)
        cpu += size.cpu_millicores
        memory += size.memory_bytes
    total = Resources(cpu, memory)
    return (total.at_least(init_floor(pod, sizes)) if has_init else total) + pod.overhead
