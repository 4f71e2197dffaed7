"""Pods at their admission sizes: unschedulable pods are shrunk to them, and replacements of evicted pods predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from datetime import datetime, timedelta

from cruise.decisions.admission.admission import (
    LeaveUnchanged,
    MutatePod,
    build_startup_cpu_constraints,
    decide_admission,
    explain_startup,
)
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.startup import StartupBoostStep
from cruise.decisions.eviction.destinations import PodPredictor
from cruise.decisions.pod_policy.container_bounds import compute_container_bounds
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import forbids_resize, violates_limit_range
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.scheduling.filters import get_replacement_constraints
from cruise.decisions.sizing.resizes import build_resize, keep_qos_class, matches_refused_resize, would_change_qos_class
from cruise.decisions.sizing.update_threshold import get_update_threshold
from cruise.domain.actions import ContainerTarget, ReasonCode, RefusedResize, ResizePod, SkippedPod
from cruise.domain.annotations import STARTUP_BOOST, EffectivePolicy
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import ClusterSnapshot, Container, ContainerRole, Pod
from cruise.domain.overrides import NO_PAUSED_WORKLOADS, PausedWorkloads
from cruise.domain.pod_resources import (
    compute_effective_container_requests,
    replace_spec_resources,
    reset_kubelet_status,
)
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, StatedResources
from cruise.domain.usage import StatisticsTable

# A node autoscaler adds a node within this time; after that, recent nodes are assumed to be unavailable to the pod.
_NODE_ADDED_WITHIN = timedelta(minutes=10)


def decide_unschedulable_pods(
    snapshot: ClusterSnapshot,
    statistics: StatisticsTable,
    policy: Policy,
    now: datetime,
    *,
    paused_workloads: PausedWorkloads = NO_PAUSED_WORKLOADS,
    refused: Mapping[str, RefusedResize] | None = None,
) -> tuple[list[ResizePod], list[SkippedPod]]:
    """Return the resizes of unschedulable pods and the skipped pods, both in the pods' order (ADR 0017).

    Requests only fall, to the workload's peak; limits stay unless a LimitRange requires lower ones. kube-scheduler
    tries a pod again once it has shrunk.
    """
    unschedulable = [pod for pod in snapshot.pods if _is_unschedulable(pod)]
    if not unschedulable:
        return [], []
    eligibility = Eligibility(snapshot, statistics, paused_workloads, policy, now)
    # A recently removed kind of node may be added again, but not for a pod that has waited longer than that takes.
    present, recent = NodeIndex(snapshot.nodes), NodeIndex(snapshot.known_nodes)
    nodes_by_pod = [present if _has_waited_for_nodes(pod, now) else recent for pod in unschedulable]
    decided = [
        _decide(pod, eligibility, statistics, snapshot, nodes, policy, refused or {})
        for pod, nodes in zip(unschedulable, nodes_by_pod, strict=True)
    ]
    return (
        [one for one in decided if isinstance(one, ResizePod)],
        [one for one in decided if isinstance(one, SkippedPod)],
    )


def shrink_pending_pod(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    snapshot: ClusterSnapshot,
    nodes: NodeIndex,
    policy: Policy,
) -> Pod:
    """Return the pod as it is after it has shrunk because no node can hold it, if it may."""
    decided = _decide(pod, eligibility, statistics, snapshot, nodes, policy, {}) if _is_unschedulable(pod) else None
    return replace_spec_resources(pod, decided.containers) if isinstance(decided, ResizePod) else pod


def _is_unschedulable(pod: Pod) -> bool:
    is_finished = pod.is_finished or pod.terminating
    return pod.node is None and pod.unschedulable_since is not None and not pod.scheduling_gated and not is_finished


def _has_waited_for_nodes(pod: Pod, now: datetime) -> bool:
    return pod.unschedulable_since is not None and now - pod.unschedulable_since > _NODE_ADDED_WITHIN


def _decide(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    snapshot: ClusterSnapshot,
    nodes: NodeIndex,
    policy: Policy,
    refused: Mapping[str, RefusedResize],
) -> ResizePod | SkippedPod:
    ranges = snapshot.limit_ranges.get(pod.namespace, ())
    # A pod that no node can hold does not wait for the CPU of its start.
    decision = decide_admission(pod, eligibility, statistics, nodes, ranges, policy, boosts_startup=False)
    if isinstance(decision, LeaveUnchanged):
        return SkippedPod(pod.namespace, pod.name, decision.reason, decision.detail)
    effective_policy = eligibility.get_effective_policy(pod)
    if isinstance(effective_policy, EffectivePolicy) and effective_policy.mode < Mode.RESIZE:
        return SkippedPod(pod.namespace, pod.name, ReasonCode.MODE_INITIAL)
    parts = {part.name: part for part in pod.resizable_parts}
    pairs = [(parts[target.container], target) for target in decision.containers]
    containers = [part for part, _ in pairs]
    targets = tuple(_shrink_container(container, target, container.limits.memory_bytes) for container, target in pairs)
    if ranges and forbids_resize(pod, targets, ranges):
        # With a smaller request a LimitRange may require the limit that the pod would be created with.
        targets = tuple(_shrink_container(container, target, target.limits.memory_bytes) for container, target in pairs)
    targets = keep_qos_class(pod, targets)
    reason = _explain_no_resize(pod, containers, targets, policy)
    if reason is None and ranges and forbids_resize(pod, targets, ranges):
        reason = ReasonCode.LIMIT_RANGE
    earlier = refused.get(pod.uid)
    if (
        reason is None
        and earlier is not None
        and matches_refused_resize(targets, earlier, get_update_threshold(policy))
    ):
        reason = ReasonCode.RESIZE_REFUSED
    if reason is not None:
        return SkippedPod(pod.namespace, pod.name, reason)
    return build_resize(pod, targets, NO_RESOURCES, ReasonCode.RIGHTSIZED)


def _explain_no_resize(
    pod: Pod, containers: Sequence[Container], targets: Sequence[ContainerTarget], policy: Policy
) -> ReasonCode | None:
    if not get_update_threshold(policy).is_exceeded_by(zip(containers, targets, strict=True)):
        return ReasonCode.NO_CHANGE_NEEDED
    return ReasonCode.QOS_CHANGE if would_change_qos_class(pod, targets) else None


def _shrink_container(container: Container, target: ContainerTarget, memory_limit: int | None) -> ContainerTarget:
    limits = container.limits.cap_at(StatedResources(memory_bytes=memory_limit))
    return replace(target, requests=container.requests.cap_at(target.requests), limits=limits)


def predict_replacement_pods(
    snapshot: ClusterSnapshot, eligibility: Eligibility, statistics: StatisticsTable, policy: Policy
) -> PodPredictor | None:
    """Return the prediction of replacements at admission size, None if evictions do not need it.

    An eviction frees its quota, before or after the replacement is created, so the replacement must fit both as
    admitted within present quotas and without quotas. It must also fit with its base, if it was cut to the largest
    node.
    """
    if not policy.rules.eviction_safeguards:
        return None

    nodes = NodeIndex(snapshot.known_nodes)

    def predict_replacement(pod: Pod) -> Pod | None:
        created = recreate_from_template(pod, snapshot)
        ranges = snapshot.limit_ranges.get(pod.namespace, ())
        quotas = snapshot.quotas.get(pod.namespace, ())

        def admitted(quotas: Sequence[ResourceQuota]) -> Pod:
            decision = decide_admission(created, eligibility, statistics, nodes, ranges, policy, quotas)
            return replace_spec_resources(created, decision.containers) if isinstance(decision, MutatePod) else created

        replacement = admitted(quotas)
        if pod.owner_kind == "DaemonSet":
            # DaemonSet pods are not evicted, but new nodes get new ones without statistics.
            return _request_larger(replacement, created)
        if (ranges and violates_limit_range(replacement, (), ranges)) or (
            quotas and not allows_one_more_pod(replacement, quotas)
        ):
            return None
        replacement = _request_larger(replacement, admitted(())) if quotas else replacement
        return _request_larger(replacement, _request_bases(created, eligibility, statistics, ranges, policy))

    def shrink(pod: Pod) -> Pod:
        return shrink_pending_pod(pod, eligibility, statistics, snapshot, nodes, policy)

    return PodPredictor(predict_replacement, shrink)


def _request_bases(
    pod: Pod,
    eligibility: Eligibility,
    statistics: StatisticsTable,
    ranges: Sequence[LimitRangeItem],
    policy: Policy,
) -> Pod:
    """Return the pod with its bases as requests of managed resources, and no other requests."""
    effective_policy = eligibility.get_effective_policy(pod)
    found = eligibility.find_managed_at_admission(pod)
    managed = {one.name: own for one, own in zip(found.sized, found.resources, strict=True)}
    at_base = []
    for one in pod.containers:
        row = statistics.find_row(pod.namespace, "", pod.workload, one.name, pod.identity)
        base, resources = NO_RESOURCES, managed.get(one.name, ())
        if row is not None and one.role is not ContainerRole.INIT and isinstance(effective_policy, EffectivePolicy):
            known, bounds = (
                statistics.get_row(row),
                compute_container_bounds(effective_policy, one.name, ranges, policy).whole_unit_bounds,
            )
            base = Resources(
                min(known.cpu_base_millicores, known.cpu_peak_millicores, bounds[1]) * (ResourceName.CPU in resources),
                min(known.memory_base_bytes, known.memory_peak_bytes, bounds[3]) * (ResourceName.MEMORY in resources),
            )
        at_base.append(replace(one, requests=StatedResources(*astuple(base))))
    whole = pod.pod_level
    if whole is not None:
        # The sum, for the resources that the pod states.
        summed = compute_effective_container_requests(at_base)
        cpu = None if whole.requests.cpu_millicores is None else summed.cpu_millicores
        memory = None if whole.requests.memory_bytes is None else summed.memory_bytes
        whole = replace(whole, requests=StatedResources(cpu, memory))
    return replace(pod, containers=tuple(at_base), pod_level=whole)


def recreate_from_template(pod: Pod, snapshot: ClusterSnapshot) -> Pod:
    """Return the pod as its template states it if that is known, otherwise as it is."""
    workload = None if pod.workload is None else snapshot.workloads.get((pod.namespace, pod.workload))
    stated = {} if workload is None or workload.requests is None else workload.requests
    limits = {} if workload is None or workload.memory_limits is None else workload.memory_limits
    created, annotations = reset_kubelet_status(pod), pod.annotations
    if STARTUP_BOOST in annotations:
        # The CPU of this pod's start is no part of the template.
        annotations = {name: value for name, value in annotations.items() if name != STARTUP_BOOST}

    def restore(one: Container) -> Container:
        if one.name not in stated:
            return one
        limit = StatedResources(one.limits.cpu_millicores, limits.get(one.name))
        return replace(one, requests=stated[one.name].with_defaults(one.requests), limits=limit)

    return replace(
        created,
        node=None,
        phase="Pending",
        ready=False,
        ready_since=None,
        started_at=None,
        annotations=annotations,
        containers=tuple(map(restore, created.containers)),
        pod_level=None if created.pod_level is None else restore(created.pod_level),
        constraints=get_replacement_constraints(pod.constraints),
    )


def explain_startup_cpu_of_new_pod(
    pod: Pod, snapshot: ClusterSnapshot, eligibility: Eligibility, nodes: NodeIndex, policy: Policy
) -> list[StartupBoostStep]:
    """Explain the CPU of the start of a pod that its controller would create now."""
    new_pod = recreate_from_template(pod, snapshot) if pod.node is not None else pod
    ranges, quotas = snapshot.limit_ranges.get(pod.namespace, ()), snapshot.quotas.get(pod.namespace, ())
    settled = decide_admission(
        new_pod, eligibility, eligibility.statistics, nodes, ranges, policy, quotas, boosts_startup=False
    )
    terms = build_startup_cpu_constraints(new_pod, eligibility, nodes, ranges, policy)
    return explain_startup(new_pod, settled, terms, quotas)


def _request_larger(pod: Pod, other: Pod) -> Pod:
    """Return the pod with the larger of two requests of each container."""
    containers = [_merge_requests(*pair) for pair in zip(pod.containers, other.containers, strict=True)]
    whole = pod.pod_level
    if whole is not None and other.pod_level is not None:
        whole = _merge_requests(whole, other.pod_level)
    return replace(pod, containers=tuple(containers), pod_level=whole)


def _merge_requests(one: Container, other: Container) -> Container:
    return replace(one, requests=StatedResources(*astuple(one.requests.resources.max_with(other.requests.resources))))
