"""Which pods are resizable: for each its effective policy, or the reason to skip it (ADR 0004)."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property

from cruise.decisions.pod_policy.container_bounds import read_recorded_memory_limits
from cruise.decisions.pod_policy.evictability import Evictability, estimate_daemonset_requests
from cruise.decisions.pod_policy.hpa_bounds import HpaBounds, counts_requests_of
from cruise.decisions.pod_policy.other_autoscalers import (
    AutoscalerClaims,
    describe_pending_lookup,
    find_workloads_with_same_name,
)
from cruise.decisions.pod_policy.policy_objects import PolicyIndex
from cruise.decisions.pod_policy.quotas import get_template_requests_within_quotas
from cruise.decisions.pod_policy.resizable_pod import (
    NO_MANAGED_CONTAINERS,
    ManagedContainers,
    ResizablePod,
    build_managed_containers,
    exclude_cpu,
    explain_no_managed_containers,
    find_managed_containers,
    find_pod_level_resources,
    find_shared_resources,
    find_unresizable_resources,
    flatten_requests_and_limits,
    has_working_kubelet,
    node_refuses_resizes,
    resizes_no_pods,
    select_containers_with_resources,
    select_kept_containers,
    supports_pod_level_resize,
)
from cruise.decisions.pod_policy.startup_boosts import has_boost_in_force
from cruise.decisions.pod_policy.usable_statistics import StatisticsUsabilityCheck
from cruise.decisions.pod_policy.workload_policies import WorkloadPolicies, WorkloadPolicy, explain_skipped_namespace
from cruise.decisions.usage.estimation import add_pod_level_rows
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import EffectivePolicy, UnreadableAnnotations
from cruise.domain.cluster import (
    POD_LEVEL,
    ClusterSnapshot,
    Container,
    HorizontalPodAutoscaler,
    Node,
    Pod,
    QosClass,
    WorkloadRef,
)
from cruise.domain.overrides import PausedWorkloads, StatedSetting
from cruise.domain.pod_resources import requests_devices, selects_virtual_node
from cruise.domain.policy import AdmissionSize, Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources
from cruise.domain.usage import StatisticsTable

# Reasons that may be due to statistics of another revision.


class Eligibility:
    """The rules on which pods are resizable, for one snapshot.

    Overrides and autoscalers are resolved once per workload. `policy_index` is an earlier one, used if it is current.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        paused_workloads: PausedWorkloads,
        policy: Policy,
        now: datetime,
        policy_index: PolicyIndex | None = None,
    ) -> None:
        self._snapshot = snapshot
        self.statistics = self._statistics = statistics = add_pod_level_rows(statistics, snapshot.pods)
        self._policy = policy
        self.now = now
        self._sizes_device_pods = policy.allow_extended_resources and policy.rules.sizes_more_pods
        self._usable = StatisticsUsabilityCheck(snapshot, statistics, policy, now)
        self._workloads = WorkloadPolicies(snapshot, statistics, paused_workloads, policy, self._usable, policy_index)
        self.evictability = Evictability(snapshot, policy.rules)
        self.nodes_autoscale = snapshot.node_autoscaler is not None
        # With node autoscaling, pods admitted at their peaks would get new nodes, be consolidated, and so on forever.
        admits_node_pass_sizes = policy.rules.template_is_minimum and self.nodes_autoscale
        self.admission_size = policy.admission_size or (
            AdmissionSize.NODE_PASS if admits_node_pass_sizes else AdmissionSize.PEAK
        )
        self._pod_level_nodes = frozenset(node.name for node in snapshot.nodes if supports_pod_level_resize(node))
        self._refusing_nodes = {node.name: node for node in snapshot.nodes if node_refuses_resizes(node)}
        self._virtual_nodes = frozenset(node.name for node in snapshot.nodes if node.is_virtual)
        self._nodes: dict[str | None, Node] = {node.name: node for node in snapshot.nodes}
        self._nodes_without_resize = {one.name for one in snapshot.nodes if one.is_virtual or resizes_no_pods(one)}

    def check(self, pod: Pod, *, killed: bool = False) -> ResizablePod | SkippedPod:
        """Return a bound pod as resizable with its effective policy, or why it is skipped.

        A pod that was `killed` for lack of memory need not wait for more samples.
        """
        group = self._workloads.find_for_pod(pod)
        reason = _explain_finished(pod) if pod.phase != "Running" or pod.terminating else None
        reason = reason or group.skip_reason or self._explain_unsupported(pod, group)
        effective_policy = group.effective_policy
        if reason is not None or isinstance(effective_policy, UnreadableAnnotations):
            detail = effective_policy.detail if isinstance(effective_policy, UnreadableAnnotations) else ""
            return _skip(pod, reason or ReasonCode.UNREADABLE_ANNOTATION, detail)
        if not has_working_kubelet(self._nodes.get(pod.node)):
            # No kubelet would resize the pod, and an evicted pod would not terminate.
            return _skip(pod, ReasonCode.NODE_NOT_READY)
        skipped = self._skip_for_kubelet(pod) or self._skip_for_other_autoscalers(pod, group)
        if skipped is not None:
            return skipped
        allowed = find_managed_containers(pod, effective_policy, group.claims, Mode.RESIZE, group.shared_resources)
        managed = exclude_cpu(allowed) if has_boost_in_force(pod, self.now) else allowed
        if not managed.sized:
            none_managed = explain_no_managed_containers(pod, effective_policy, group.claims, Mode.RESIZE)
            return _skip(pod, *((ReasonCode.STARTING, "") if allowed.sized else none_managed))
        return self._check_statistics(pod, effective_policy, group, managed, killed=killed)

    def _skip_for_kubelet(self, pod: Pod) -> SkippedPod | None:
        """Skip a pod whose kubelet cannot resize it."""
        if pod.pod_level is None and pod.node not in self._nodes_without_resize:
            return None
        if pod.node in self._virtual_nodes:
            return _skip(pod, ReasonCode.VIRTUAL_NODE)
        node, reason = self._nodes.get(pod.node), None
        kubelet = None if node is None else node.kubelet_version
        if node is not None and resizes_no_pods(node):
            reason = ReasonCode.RESIZE_UNSUPPORTED
        elif pod.pod_level is not None:
            # A pod without a node may get any.
            nodes = self._nodes.keys() if pod.node is None else {pod.node}
            if pod.pod_level.requests.is_empty or not self._pod_level_nodes.issuperset(nodes):
                reason = ReasonCode.POD_LEVEL_RESOURCES
        if reason is None:
            return None
        return _skip(pod, reason, "kubelet unknown" if kubelet is None else f"kubelet {kubelet[0]}.{kubelet[1]}")

    def _skip_for_other_autoscalers(self, pod: Pod, group: WorkloadPolicy) -> SkippedPod | None:
        """Skip a pod that another autoscaler sizes, or might."""
        if group.claims.is_sized_as_whole(pod):
            return _skip(pod, ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, group.claims.sized_by)
        pending = describe_pending_lookup(pod, self._snapshot, group.claims)
        return _skip(pod, ReasonCode.LOOKUP_PENDING, pending) if pending else None

    def explain_no_resize(self, pod: Pod) -> ReasonCode | None:
        """Return why settings or the pod's node forbid every resize of a bound pod now, None if they do not."""
        unsupported = self._skip_for_kubelet(pod)
        if unsupported is not None:
            return unsupported.reason
        if not has_working_kubelet(self._nodes.get(pod.node)):
            return ReasonCode.NODE_NOT_READY
        return self._workloads.find_for_pod(pod).skip_reason

    def get_policy_group(self, pod: Pod) -> object | None:
        """Return one object for all pods with the same overrides, autoscalers and workload.

        None if results depend on each pod: an autoscaler of the namespace selects by labels or by direct controllers.
        """
        return self._workloads.find_shared(pod)

    def forget_pods(self) -> None:
        """Drop what was resolved for pods so far; it is resolved again when needed."""
        self._workloads.forget_pods()

    @cached_property
    def largest_node_memory(self) -> int | None:
        """The largest memory limit that a new pod needs, in bytes; None if larger nodes may be added."""
        if self.nodes_autoscale:
            return None
        machines = [node for node in self._snapshot.nodes if not (node.deleting or node.is_virtual)]
        return max((node.allocatable.memory_bytes for node in machines), default=None)

    def get_other_daemonset_requests(self, pod: Pod) -> Resources:
        """Return what DaemonSets other than the pod's own may request on every node."""
        own_requests = self.daemonset_requests.get((pod.namespace, pod.workload_name), NO_RESOURCES)
        return self._total_daemonset_requests - own_requests

    @cached_property
    def daemonset_requests(self) -> Mapping[tuple[str, str], Resources]:
        """What a pod of each DaemonSet may come to request, by namespace and workload."""
        return estimate_daemonset_requests(self._snapshot, self._statistics)

    @cached_property
    def _total_daemonset_requests(self) -> Resources:
        return sum(self.daemonset_requests.values(), NO_RESOURCES)

    def explain_skipped_namespace(self, namespace: str) -> ReasonCode | None:
        """Return why settings leave out the pods of a namespace, None if they do not."""
        return explain_skipped_namespace(namespace, self._snapshot, self._policy)

    def get_effective_policy(self, pod: Pod) -> EffectivePolicy | UnreadableAnnotations:
        """Resolve the overrides that apply to a pod: its own, its workload's, its namespace's, and the stored ones."""
        return self._workloads.find_for_pod(pod).effective_policy

    def explain_not_evictable_for_sizing(
        self, pod: Pod, effective_policy: EffectivePolicy, *, killed: bool = False
    ) -> str | None:
        """Return why a pod is not evicted to relieve its node or to get a larger size, None if it may be.

        What a pod that another autoscaler sizes in part will request elsewhere is not known.
        """
        sized_by = self._workloads.find_sizing_autoscaler(pod)
        return sized_by or self.evictability.explain_not_evictable_for_sizing(pod, effective_policy, killed=killed)

    def get_stated_settings(self, pod: Pod) -> tuple[StatedSetting, ...]:
        """Return every override that reaches a pod, nearest first, and whether it is in effect."""
        return self._workloads.find_for_pod(pod).statements

    def explain_skip_at_admission(self, pod: Pod) -> ReasonCode | None:
        """Return why a pod that is being created is skipped, regardless of statistics."""
        group = self._workloads.find_for_pod(pod)
        return (
            _explain_finished(pod)
            or self._workloads.explain_skip(pod.namespace, group.effective_policy, Mode.INITIAL)
            or self._explain_unsupported(pod, group, is_new=True)
            or (ReasonCode.VIRTUAL_NODE if selects_virtual_node(pod) else None)
            or (ReasonCode.MANAGED_BY_OTHER_AUTOSCALER if group.claims.is_sized_as_whole(pod) else None)
            or (ReasonCode.LOOKUP_PENDING if self.explain_pending_lookup(pod) else None)
        )

    def explain_pending_lookup(self, pod: Pod) -> str:
        """Describe a lookup that decides about the pod and has not completed; empty if all have."""
        return describe_pending_lookup(pod, self._snapshot, self._workloads.find_for_pod(pod).claims)

    def get_autoscaler_claims(self, pod: Pod) -> AutoscalerClaims:
        """Return what other autoscalers do to a pod."""
        return self._workloads.find_for_pod(pod).claims

    def find_managed_at_admission(self, pod: Pod) -> ManagedContainers:
        """Return the containers of a pod that is being created that are sized; none if its overrides are unreadable."""
        group = self._workloads.find_for_pod(pod)
        policy, claims, shared = group.effective_policy, group.claims, group.shared_resources
        if isinstance(policy, UnreadableAnnotations):
            return NO_MANAGED_CONTAINERS
        if group.autoscaler is not None:
            # A resource that is left in running pods follows their requests in new ones.
            claims = claims._replace(scaled=frozenset())
            shared = find_shared_resources(policy, claims)
        found = find_managed_containers(pod, policy, claims, Mode.INITIAL, shared)
        return build_managed_containers(found.sized, [own - group.claims.scaled for own in found.resources])

    @property
    def has_static_managers(self) -> bool:
        """Whether a static manager is known of any node: a Guaranteed pod may run there."""
        return any(node.static_managers for node in self._refusing_nodes.values())

    @cached_property
    def has_kubelets_without_resize(self) -> bool:
        """Whether any node's kubelet is known to resize no pods."""
        return any(resizes_no_pods(node) for node in self._snapshot.nodes)

    def get_bounding_autoscaler(self, pod: Pod) -> HorizontalPodAutoscaler | None:
        """Return the HPA within whose target requests may change, None if they may not, or without one."""
        return self._workloads.find_for_pod(pod).autoscaler

    def get_hpa_bounds(self, pod: Pod) -> HpaBounds | None:
        """Return how far an HPA lets requests change, None if it bounds none."""
        return self._workloads.find_for_pod(pod).utilisation_bounds

    def explain_unusable_statistics(self, pod: Pod, rows: Sequence[int | None]) -> ReasonCode | None:
        """Return what is wrong with a pod's statistics: missing, stale, implausible, or of a new workload."""
        return self._usable.explain_unusable(
            self._usable.drop_never_run(rows), is_new=self._workloads.find_for_pod(pod).is_new
        )

    def is_new_revision(self, pod: Pod, age: timedelta) -> bool:
        """Return whether the pod's template revision states other resources than before and is younger than `age`."""
        return self._usable.is_new_revision(pod, age)

    def _check_statistics(
        self,
        pod: Pod,
        effective_policy: EffectivePolicy,
        group: WorkloadPolicy,
        managed: ManagedContainers,
        *,
        killed: bool,
    ) -> ResizablePod | SkippedPod:
        sized = managed.sized
        if pod.pod_level is not None:
            # All containers count for the pod, also those that keep their own sizes.
            sized = pod.sized_containers
        known_rows = None if group.is_new else self._usable.find_own_rows(pod, sized)
        is_usage_unknown = False
        if known_rows is None:
            rows = self._usable.find_rows(pod, sized)
            reason = self._usable.explain_unusable_for(pod, rows, is_new=group.is_new, was_killed=killed)
            if reason is not None:
                return _skip(pod, reason, self._usable.name_affected(reason, sized, rows))
            is_usage_unknown = self._usable.has_never_run(rows)
            known_rows = tuple([row for row in rows if row is not None])
        (manages_cpu, manages_memory), (restarts_for_cpu, restarts_for_memory) = managed.find_resources()
        refusing_node = self._refusing_nodes.get(pod.node or "")
        if refusing_node is not None:
            refused = find_unresizable_resources(pod, refusing_node)
            manages_cpu = manages_cpu and ResourceName.CPU not in refused
            # A killed pod gets more memory by an eviction where it cannot be resized.
            by_swap = refused.get(ResourceName.MEMORY) is ReasonCode.NODE_SWAP
            manages_memory = manages_memory and (ResourceName.MEMORY not in refused or (by_swap and killed))
            if refused and not manages_cpu and not manages_memory:
                return _skip(pod, refused.get(ResourceName.MEMORY) or refused[ResourceName.CPU])
        manages_cpu = manages_cpu and not restarts_for_cpu
        manages_memory = manages_memory and not restarts_for_memory and not is_usage_unknown
        counted = sized if pod.pod_level is None else (pod.pod_level,)
        stated, bounds = flatten_requests_and_limits(counted), group.utilisation_bounds
        if bounds is not None:
            # An HPA cannot compute the utilization of a pod without a request, and would start to with one.
            manages_cpu &= ResourceName.CPU not in bounds.metrics or all(stated[0::4])
            manages_memory &= ResourceName.MEMORY not in bounds.metrics or all(stated[1::4])
        if not manages_cpu and not manages_memory:
            skip_reason = (
                (ReasonCode.NO_STATISTICS, "")
                if is_usage_unknown
                else (ReasonCode.RESIZE_RESTARTS, "resizePolicy RestartContainer")
            )
            return _skip(pod, *skip_reason)
        container_rows: tuple[int, ...] = ()
        stating: tuple[Container, ...] = ()
        if pod.pod_level is not None:
            whole = self._statistics.find_row(pod.namespace, pod.name, pod.workload, POD_LEVEL, pod.identity)
            if whole is None:
                return _skip(pod, ReasonCode.NO_STATISTICS)
            sized, container_rows, known_rows = (pod.pod_level,), known_rows, (whole,)
            stated = flatten_requests_and_limits(sized)
            level_resources = find_pod_level_resources(pod, managed.resources)
            stating = select_containers_with_resources(managed, level_resources, effective_policy, self._policy)
            manages_cpu = manages_cpu and ResourceName.CPU in level_resources
            manages_memory = manages_memory and ResourceName.MEMORY in level_resources
        templates = read_recorded_memory_limits(pod) if group.template_limits is None else group.template_limits
        submitted = (
            get_template_requests_within_quotas(pod, sized, self._snapshot)
            if effective_policy.set_by_administrator is not None
            else ()
        )
        return ResizablePod(
            pod,
            effective_policy,
            sized,
            known_rows,
            stated,
            manages_cpu,
            manages_memory,
            templates,
            submitted,
            () if pod.pod_level is not None or managed.have_equal_resources else managed.resources,
            ()
            if pod.pod_level is not None or len(sized) == len(pod.containers)
            else select_kept_containers(pod, sized),
            bounds,
            container_rows,
            stating,
        )

    def _explain_unsupported(self, pod: Pod, group: WorkloadPolicy, *, is_new: bool = False) -> ReasonCode | None:
        """Return which property of the pod itself forbids a resize, or of a new pod other sizes.

        Only a new pod can get another QoS class.
        """
        reason = None
        if pod.is_mirror_pod:
            reason = ReasonCode.STATIC_POD
        elif pod.runs_on_windows:
            reason = ReasonCode.WINDOWS
        elif pod.qos is QosClass.BEST_EFFORT and not (is_new and group.adopts_best_effort):
            reason = ReasonCode.BEST_EFFORT
        elif pod.qos is QosClass.GUARANTEED and not group.sizes_guaranteed:
            reason = ReasonCode.GUARANTEED
        elif pod.pod_level is not None and not self._policy.rules.sizes_more_pods:
            reason = ReasonCode.POD_LEVEL_RESOURCES
        elif group.autoscaler is not None and not counts_requests_of(group.autoscaler, pod):
            reason = ReasonCode.MANAGED_BY_HPA
        elif requests_devices(pod) and not self._sizes_device_pods:
            reason = ReasonCode.EXTENDED_RESOURCES
        elif pod.workload is None:
            reason = ReasonCode.NO_CONTROLLER
        elif self._ambiguous_workloads and (pod.namespace, pod.workload) in self._ambiguous_workloads:
            reason = ReasonCode.AMBIGUOUS_WORKLOAD
        return reason

    @cached_property
    def _ambiguous_workloads(self) -> frozenset[tuple[str, WorkloadRef]]:
        """Workloads of the same kind and name in different API groups, by namespace."""
        return find_workloads_with_same_name(self._snapshot)


def _skip(pod: Pod, reason: ReasonCode, detail: str = "") -> SkippedPod:
    return SkippedPod(pod.namespace, pod.name, reason, detail)


def _explain_finished(pod: Pod) -> ReasonCode | None:
    """Return whether the pod is finished or terminating."""
    if pod.is_finished:
        return ReasonCode.COMPLETED
    return ReasonCode.TERMINATING if pod.terminating else None
