"""The requests that kube-scheduler will count once a node plan is carried out."""

from collections.abc import Collection, Mapping, Sequence

from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.decisions.sizing.node_plans import NodePlan
from cruise.domain.cluster import POD_LEVEL, ContainerRole, Pod
from cruise.domain.pod_resources import compute_init_container_minimum, count_container_requests, count_pod_requests
from cruise.domain.resources import Resources, StatedResources


def count_node_requests_after_plan(plan: NodePlan, pods: Mapping[tuple[str, str], Pod]) -> Resources:
    """Return what counts on the node after the plan's evictions and resizes; `pods` by (namespace, name)."""
    cpu, memory = plan.counted.cpu_millicores, plan.counted.memory_bytes
    for eviction in plan.evict:
        evicted = count_pod_requests(pods[(eviction.namespace, eviction.pod)])
        cpu -= evicted.cpu_millicores
        memory -= evicted.memory_bytes
    growth = _compute_growth(get_planned_sizes(plan), pods)
    return Resources(cpu + growth.cpu_millicores, memory + growth.memory_bytes)


def count_node_requests_at_targets(
    plan: NodePlan, pods: Mapping[tuple[str, str], Pod], excluded: Collection[tuple[str, str]] = ()
) -> Resources:
    """Return what would count on the node if every pod but the excluded ones had its target and none were evicted."""
    sizes = {name: sizes_of_pod for name, sizes_of_pod in get_target_sizes(plan).items() if name not in excluded}
    return plan.counted + _compute_growth(sizes, pods)


def get_planned_sizes(plan: NodePlan) -> Mapping[tuple[str, str], Mapping[str, Resources]]:
    """Return the requests that the plan writes, by (namespace, pod) and container."""
    return {
        (resize.namespace, resize.pod): {one.container: one.requests.resources for one in resize.containers}
        for resize in plan.resize
    }


def get_target_sizes(plan: NodePlan) -> Mapping[tuple[str, str], Mapping[str, Resources]]:
    """Return the targets, by (namespace, pod) and container."""
    by_pod: dict[tuple[str, str], dict[str, Resources]] = {}
    for target in plan.targets:
        sizes_of_pod = by_pod.setdefault((target.namespace, target.pod), {})
        sizes_of_pod[target.container] = Resources(target.cpu_millicores, target.memory_bytes)
    return by_pod


def count_requests_of_containers(resizable: ResizablePod, cpu: Sequence[int], memory: Sequence[int]) -> Resources:
    """Return what counts for a pod at these requests of its sized containers, in millicores and bytes."""
    pod = resizable.pod
    if pod.pod_level is None and len(cpu) == len(pod.containers):
        # Without containers that count otherwise: init containers, and those that are not sized.
        return Resources(sum(cpu) + pod.overhead.cpu_millicores, sum(memory) + pod.overhead.memory_bytes)
    sizes = zip(resizable.sized, cpu, memory, strict=True)
    return count_requests_when_resized(pod, {one.name: Resources(*own) for one, *own in sizes})


def _compute_growth(
    sizes: Mapping[tuple[str, str], Mapping[str, Resources]], pods: Mapping[tuple[str, str], Pod]
) -> Resources:
    """Return by how much more these sizes count than the present ones; may be negative."""
    cpu = memory = 0
    for name, own in sizes.items():
        before, after = count_pod_requests(pods[name]), count_requests_when_resized(pods[name], own)
        cpu += after.cpu_millicores - before.cpu_millicores
        memory += after.memory_bytes - before.memory_bytes
    return Resources(cpu, memory)


def count_requests_when_resized(pod: Pod, sizes: Mapping[str, Resources]) -> Resources:
    """Return what counts for a pod once these requests, by container, are allocated and actual."""
    if pod.pod_level is not None:
        return _count_with_pod_level(pod, pod.pod_level.requests, sizes.get(POD_LEVEL))
    cpu = memory = 0
    has_init = False
    for container in pod.containers:
        if container.role is ContainerRole.INIT:
            has_init = True
            continue
        size = sizes.get(container.name)
        if size is None:
            size = count_container_requests(container)
        cpu += size.cpu_millicores
        memory += size.memory_bytes
    total = Resources(cpu, memory)
    return (total.max_with(compute_init_container_minimum(pod, sizes)) if has_init else total) + pod.overhead


def _count_with_pod_level(pod: Pod, stated: StatedResources, whole: Resources | None) -> Resources:
    """Return the same for a pod with pod-level resources; those that it does not state count unchanged."""
    counted = count_pod_requests(pod)
    if whole is None:
        return counted
    cpu, memory = whole.cpu_millicores + pod.overhead.cpu_millicores, whole.memory_bytes + pod.overhead.memory_bytes
    return Resources(
        counted.cpu_millicores if stated.cpu_millicores is None else cpu,
        counted.memory_bytes if stated.memory_bytes is None else memory,
    )
