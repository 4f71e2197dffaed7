"""Invariants of every pass over every cluster; each yields a description of a violation."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from cruise.decisions.sizing.update_threshold import UpdateThreshold, get_update_threshold
from cruise.domain.actions import ContainerTarget, EvictPod, ReasonCode, ResizeCause, ResizePod
from cruise.domain.cluster import ClusterSnapshot, Pod, QosClass
from cruise.domain.pod_resources import count_pod_requests, get_qos_class
from cruise.domain.policy import Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, round_up_to_mebibytes
from cruise.errors import RefusedError
from cruise.runtime.node_pass import NodePassResult
from cruise.runtime.writing.api_answers import QUOTA_EXCEEDED
from tests.laws.observed_passes import ObservedPass
from tests.laws.random_clusters import LONG_AGO, START, DrawnCluster

_NO_THRESHOLD = UpdateThreshold(0.0, Resources(1, 1))
Law = Callable[[DrawnCluster, ObservedPass], Iterator[str]]


def check_replacements_scheduled(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """Every evicted pod has a bound replacement after kube-scheduler has run."""
    evicted = {one.uid for one in seen.evicted()}
    running = {pod.uid for pod in seen.before.pods if not pod.is_finished}
    # A pod that has finished in the meantime is not missing.
    before, after = _count_bound(seen.before), _count_bound(seen.after, running - evicted)
    for one in seen.evicted():
        key = (one.namespace, str(one.workload))
        if after[key] < before[key]:
            yield f"{key} had {before[key]} pods bound and has {after[key]} after {one.pod} was evicted from {one.node}"


def check_only_evictable_evicted(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No protected pod is evicted: by kind, annotations, budgets, or while another replica is not ready."""
    pods = {pod.uid: pod for pod in seen.before.pods}
    unready = {(pod.namespace, pod.workload) for pod in seen.before.pods if pod.workload and not pod.ready}
    for one in seen.evicted():
        pod = pods[one.uid]
        ranking = pod.annotations.get("cruise.io/eviction-ranking")
        budgets = [b for b in seen.before.budgets if b.namespace == pod.namespace and b.selector.matches(pod.labels)]
        reasons = {
            "no controller": pod.owner_kind is None,
            "DaemonSet": pod.owner_kind == "DaemonSet",
            "Job": pod.owner_kind == "Job" and ranking != "low",
            "work to finish": pod.restart_policy != "Always" and ranking != "low",
            "never": ranking == "never",
            "unsafe": pod.annotations.get("cluster-autoscaler.kubernetes.io/safe-to-evict") == "false",
            "not to be disrupted": pod.annotations.get("karpenter.sh/do-not-disrupt") == "true",
            "budgets": len(budgets) > 1 or any(budget.disruptions_allowed < 1 for budget in budgets),
            "an unready replica": (pod.namespace, pod.workload) in unready,
        }
        for reason, holds in reasons.items():
            if holds and pod.node is not None:
                yield f"{pod.name} was evicted in spite of: {reason}"


def check_memory_limit_ceilings(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No request or limit is raised above the node, nor a memory limit above its ceiling."""
    nodes = {node.name: node.allocatable for node in seen.before.nodes}
    pods = {pod.uid: pod for pod in seen.before.pods}
    # With a node autoscaler the present nodes do not bound the size of a new pod.
    largest = NO_RESOURCES if drawn.node_autoscaling is None else Resources(1 << 60, 1 << 60)
    for node in (*seen.before.nodes, *seen.after.nodes):
        largest = largest.max_with(node.allocatable)
    ceilings = _ceilings(drawn)
    for one in seen.resized():
        pod = pods[one.uid]
        room = nodes[pod.node] if pod.node is not None else largest
        yield from _find_excess(pod, one.containers, room, ceilings)
    for creation in seen.creations:
        if creation.created != creation.admitted:
            targets = [
                ContainerTarget(c.name, c.role, c.requests, c.limits) for c in creation.admitted.sized_containers
            ]
            yield from _find_excess(creation.created, targets, largest, ceilings)


def _find_excess(
    pod: Pod, targets: Sequence[ContainerTarget], room: Resources, ceilings: Mapping[tuple[str, str], int]
) -> Iterator[str]:
    old = {one.name: one for one in pod.containers}
    for target in targets:
        before = old[target.container]
        most = ceilings.get((pod.labels["app"], target.container))
        rows = [
            ("request", target.requests, before.requests, room),
            ("limit", target.limits, before.limits, room),
        ]
        if most:
            rows.append(("limit", target.limits, before.limits, Resources(room.cpu_millicores, most)))
        for what, new, was, ceiling in rows:
            for resource in ResourceName:
                value, earlier = new.get(resource) or 0, was.get(resource) or 0
                floor = (target.requests.get(resource) or 0) if what == "limit" else 0
                if value > max(ceiling.get(resource), earlier, floor):
                    yield (
                        f"{pod.name}/{target.container} has its {resource} {what} raised from {earlier} to {value}, "
                        f"above {ceiling.get(resource)}"
                    )


def check_nodes_fit(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No resize makes a node's pods request more than its allocatable."""
    resized = {one.uid for one in seen.resized()}
    for node in seen.after.nodes:
        pods = [pod for pod in seen.after.pods if pod.node == node.name]
        counted = sum((count_pod_requests(pod) for pod in pods), NO_RESOURCES)
        if not counted.fits_in(node.allocatable) and any(pod.uid in resized for pod in pods):
            yield f"{node.name} of {node.allocatable} counts {counted}"


def check_reserved_capacity(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No pod is evicted while one of lower priority stays and requests the missing resource."""
    pods = {pod.uid: pod for pod in seen.before.pods}
    for plan in seen.result.plans:
        going = {one.uid for one in plan.evict}
        for one in plan.evict:
            for other in seen.before.pods:
                stays = other.node == plan.node and other.uid not in going and not other.is_finished
                takes = count_pod_requests(other).get(one.resource) > 0
                if stays and takes and other.priority < pods[one.uid].priority:
                    yield (
                        f"{one.pod} of priority {pods[one.uid].priority} is evicted from {plan.node} for "
                        f"{one.resource} "
                        f"while {other.name} of {other.priority} stays"
                    )


def check_no_shrink_below_base(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No request is decreased below its base, except by the pod's own upper bounds."""
    bounded = {
        one.workload.template.name
        for one in drawn.workloads
        if one.workload.namespace in drawn.limit_ranges
        or _has_own_settings(one.workload.template.annotations)
        or _has_own_settings(one.workload.annotations)
    }
    pods = {pod.uid: pod for pod in seen.before.pods}
    for one in seen.resized():
        pod = pods[one.uid]
        old = {container.name: container.requests for container in pod.containers}
        for target in one.containers:
            row = seen.table.find_row(pod.namespace, pod.name, pod.workload, target.container, pod.identity)
            if row is None or pod.labels["app"] in bounded:
                continue
            base = Resources(int(seen.table.cpu_base_millicores[row]), int(seen.table.memory_base_bytes[row]))
            for resource in ResourceName:
                new, before = target.requests.get(resource), old[target.container].get(resource) or 0
                if new is not None and new < min(before, base.get(resource)):
                    yield f"{pod.name}: {resource} goes from {before} to {new}, below its base of {base.get(resource)}"


def _has_own_settings(annotations: Mapping[str, str]) -> bool:
    """Return whether a pod's own annotations set bounds or user minimums."""
    return any(
        key != "cruise.io/eviction-ranking" or value in ("never", "high")
        for key, value in annotations.items()
        if key.startswith("cruise.io/") and key not in ("cruise.io/mode", "cruise.io/original-resources")
    )


def check_quotas(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No write is rejected by a ResourceQuota."""
    for one in seen.writes:
        if isinstance(one.refusal, RefusedError) and one.refusal.cause == QUOTA_EXCEEDED:
            yield str(one.refusal)


def check_hpa_pods_unchanged(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """A resource on whose utilisation a HorizontalPodAutoscaler acts is not resized."""
    scaled = {(one.namespace, one.target): one.utilisation_resources for one in drawn.autoscalers}
    pods = {pod.uid: pod for pod in seen.before.pods}
    for one in seen.resized():
        pod = pods[one.uid]
        if pod.workload is None:
            continue
        resources = scaled.get((pod.namespace, pod.workload), frozenset())
        old = {container.name: container for container in pod.containers}
        for target in one.containers:
            for resource in resources:
                new = target.requests.get(resource)
                if new is not None and new != old[target.container].requests.get(resource):
                    yield f"{pod.name}: {resource}, by which it is scaled, becomes {new}"


def check_vpa_pods_unchanged(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """A pod that a VerticalPodAutoscaler sizes is neither resized, nor evicted, nor sized at creation."""
    sized = {(one.namespace, one.target): one.name for one in drawn.vertical_autoscalers if one.changes_pods}
    written: list[EvictPod | ResizePod] = [*seen.resized(), *seen.evicted()]
    for one in written:
        if (one.namespace, one.workload) in sized:
            yield f"{one.pod} is written, although a VPA sizes it"
    for creation in seen.creations:
        if (
            creation.created.namespace,
            creation.created.workload,
        ) in sized and creation.created.containers != creation.admitted.containers:
            yield f"{creation.created.name} is sized at its creation, although a VPA sizes it"


def check_admission_stable(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """Admission of an admitted pod changes nothing."""
    for one in seen.creations:
        if one.admitted_again != one.admitted:
            yield f"{one.created.name} is admitted otherwise when it is admitted again"


def check_qos_classes(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """QoS classes never change, and a Guaranteed pod's requests equal its limits at every step of its kubelet."""
    before = {pod.uid: pod.qos for pod in seen.before.pods}
    for pod in (pod for snapshot in (*seen.meanwhile, seen.after) for pod in snapshot.pods):
        if get_qos_class(pod) is not pod.qos or before.get(pod.uid, pod.qos) is not pod.qos:
            yield f"{pod.name} is {get_qos_class(pod)}, created as {pod.qos}"
        for one in pod.containers if pod.qos is QosClass.GUARANTEED else ():
            if one.requests != one.limits or (one.actual is not None and one.actual != one.actual_limits):
                yield f"{pod.name}: {one.name} requests {one.requests} and is limited to {one.limits}"


def check_guaranteed_sizes(drawn: DrawnCluster, seen: ObservedPass) -> Iterator[str]:
    """No size of a Guaranteed pod falls below the largest known use, and none falls on a short history."""
    before = {pod.uid: pod for pod in seen.before.pods if pod.qos is QosClass.GUARANTEED}
    is_short = drawn.policy.memory_limit_history > START - LONG_AGO
    for write in seen.writes:
        action = write.action
        pod = before.get(action.uid) if isinstance(action, ResizePod) else None
        if pod is None or not isinstance(action, ResizePod):
            continue
        if isinstance(write.refusal, RefusedError):
            yield f"{pod.name}: {write.refusal}"
        now = {one.name: one.requests.resources for one in pod.containers}
        for target in action.containers:
            if target.requests != target.limits:
                yield f"{pod.name}: {target.container} would request {target.requests} of {target.limits}"
            least = now[target.container]
            row = seen.table.find_row(pod.namespace, pod.name, pod.workload, target.container, pod.identity)
            if row is not None and not is_short:
                use = seen.table.get_row(row)
                least = least.min_with(
                    Resources(max(use.cpu_peak_millicores, use.cpu_7d_max_millicores), use.memory_7d_max_bytes)
                )
            if not least.fits_in(target.requests.resources):
                yield f"{pod.name}: {target.container} falls to {target.requests}, below {least}"


LAWS: tuple[Law, ...] = (
    check_replacements_scheduled,
    check_only_evictable_evicted,
    check_memory_limit_ceilings,
    check_nodes_fit,
    check_reserved_capacity,
    check_no_shrink_below_base,
    check_quotas,
    check_hpa_pods_unchanged,
    check_vpa_pods_unchanged,
    check_admission_stable,
    check_qos_classes,
    check_guaranteed_sizes,
)


def check_repeated_decisions(last: ObservedPass, again: NodePassResult) -> Iterator[str]:
    """Yield new decisions on nodes where everything was carried out and nothing has changed since."""
    done = {one.uid: one.containers for one in last.resized()}
    before = {pod.uid: pod for pod in last.before.pods}
    shrunk = {one.namespace for one in last.resized() if _decreases(one, before[one.uid])}
    widened = shrunk & again.snapshot.quotas.keys()
    pods = {pod.uid: pod for pod in again.snapshot.pods}
    evicting = {one.node for plan in last.result.plans for one in plan.evict}
    for plan, now in ((a, b) for a in last.result.plans for b in again.plans if a.node == b.node):
        whole = all(done.get(one.uid) == one.containers for one in plan.resize)
        if plan.node in evicting or not whole or not _unchanged(plan.node, last.before, again.snapshot):
            continue
        if now.evict and plan.reason is ReasonCode.OVERCOMMITTED and (last.resized() or last.evicted()):
            # No other node had capacity, or kube-scheduler preferred this one; writes change what nodes have free, and
            # which nodes there are.
            continue
        actions: list[EvictPod | ResizePod] = [*now.evict, *now.resize]
        wanted = any(
            (last.evicted() or pods[one.uid].namespace in widened) and not _decreases(one, pods[one.uid])
            for one in now.resize
        )
        for action in actions:
            pod = pods[action.uid]
            # User minimums are granted from free capacity, which changes with other pods. Capacity that was reserved
            # for a replacement is free once it runs elsewhere, and quota that a decrease frees counts from the next
            # pass on: then pods may grow, need capacity of others, or need more than their node has.
            if isinstance(action, EvictPod):
                freed = not widened.isdisjoint(one.namespace for one in pods.values() if one.node == plan.node)
            else:
                more = bool(last.evicted()) or pod.namespace in widened
                freed = more and not _decreases(action, pod, get_update_threshold(Policy()))
                freed |= wanted and action.cause is ResizeCause.CAPACITY_NEEDED_BY_OTHERS
            if not _has_own_settings(pod.annotations) and not freed:
                yield f"{plan.node}: {_describe(action)} although nothing has changed"


def _decreases(resize: ResizePod, pod: Pod, threshold: UpdateThreshold = _NO_THRESHOLD) -> bool:
    """Return whether a request decreases by the threshold."""
    was = {container.name: container.requests.resources for container in pod.containers}
    pairs = [(was[one.container], one.requests.resources) for one in resize.containers if one.container in was]
    return any(
        new < old and threshold.is_exceeded(one, old, new)
        for before, after in pairs
        for one in ResourceName
        for old, new in [(before.get(one), after.get(one))]
    )


def _describe(action: EvictPod | ResizePod) -> str:
    if isinstance(action, EvictPod):
        return f"{action.pod} is evicted for {action.resource}"
    return f"{action.pod} is resized to {[(one.requests, one.limits) for one in action.containers]}"


def _unchanged(node: str, before: ClusterSnapshot, now: ClusterSnapshot) -> bool:
    """Return whether a node has the same pods, none is being resized, and their replicas are as ready as before."""
    here = [pod for pod in now.pods if pod.node == node]
    settled = all(not pod.terminating and pod.resize.pending is None and not pod.resize.in_progress for pod in here)
    workloads = {(pod.namespace, pod.workload) for pod in here}

    def around(snapshot: ClusterSnapshot) -> tuple[set[str], set[tuple[str, bool]]]:
        siblings = [pod for pod in snapshot.pods if (pod.namespace, pod.workload) in workloads]
        return {pod.uid for pod in snapshot.pods if pod.node == node}, {(pod.uid, pod.ready) for pod in siblings}

    return settled and around(before) == around(now)


def _count_bound(snapshot: ClusterSnapshot, finished: Set[str] = frozenset()) -> Counter[tuple[str, str]]:
    """Count bound pods by workload; finished ones only if their uid is in `finished`."""
    return Counter(
        (pod.namespace, str(pod.workload))
        for pod in snapshot.pods
        if pod.node is not None and not pod.terminating and (not pod.is_finished or pod.uid in finished)
    )


def _ceilings(drawn: DrawnCluster) -> dict[tuple[str, str], int]:
    """Return the ceilings of memory limits by workload and container."""
    factor = drawn.policy.memory_limit_ceiling
    return {
        (one.workload.template.name, container.name): round_up_to_mebibytes(math.ceil(limit * factor))
        for one in drawn.workloads
        for container in one.workload.template.containers
        if (limit := container.limits.memory_bytes) is not None
    }
