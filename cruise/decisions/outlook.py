"""What a node plan leads to once it is done: the requests that kube-scheduler will count."""

from collections.abc import Mapping
from dataclasses import replace

from cruise.decisions.rightsizing import NodePlan
from cruise.domain.actions import ResizePod
from cruise.domain.cluster import NO_RESIZE, Pod
from cruise.domain.requests import counted_requests
from cruise.domain.resources import Resources
from cruise.domain.sizes import with_sizes


def estimate_counted_after(plan: NodePlan, pods: Mapping[tuple[str, str], Pod]) -> Resources:
    """Return what counts on the node with the evicted gone and the resizes actual; `pods` by (namespace, name)."""
    cpu, memory = plan.counted.cpu_millicores, plan.counted.memory_bytes
    for eviction in plan.evict:
        gone = counted_requests(pods[(eviction.namespace, eviction.pod)])
        cpu -= gone.cpu_millicores
        memory -= gone.memory_bytes
    for resize in plan.resize:
        pod = pods[(resize.namespace, resize.pod)]
        before, after = counted_requests(pod), counted_requests(resized(pod, resize))
        cpu += after.cpu_millicores - before.cpu_millicores
        memory += after.memory_bytes - before.memory_bytes
    return Resources(cpu, memory)


def resized(pod: Pod, resize: ResizePod) -> Pod:
    """Return the pod with a resize actual: allocated and in force as asked."""
    asked = with_sizes(pod, resize.containers)
    named = {target.container for target in resize.containers}
    containers = tuple(
        replace(container, allocated=None, actual=None, actual_limits=None) if container.name in named else container
        for container in asked.containers
    )
    return replace(asked, containers=containers, resize=NO_RESIZE)
