"""Which pods may be touched: for each the guidance that holds for it, or the reason to leave it alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import NamedTuple

import numpy as np

from cruise.decisions.pod_policy.container_bounds import (
    OverrideChecks,
    get_workload_memory_limits,
    read_recorded_memory_limits,
)
from cruise.decisions.pod_policy.evictability import Evictability, estimate_daemonset_requests
from cruise.decisions.pod_policy.other_autoscalers import (
    AutoscalerClaims,
    AutoscalerIndex,
    describe_pending_lookup,
    find_ambiguous_workloads,
)
from cruise.decisions.pod_policy.quotas import get_submitted_requests
from cruise.decisions.usage.estimation import OWN_SAMPLES_SECONDS
from cruise.decisions.usage.plausibility import MAX_REJECTED_PERCENT
from cruise.decisions.usage.revisions import get_revisions_in_use
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.annotations import EffectivePolicy, UnreadableAnnotations, is_override
from cruise.domain.cluster import ClusterSnapshot, Container, Pod, QosClass, WorkloadRef
from cruise.domain.original_resources import WorkloadRevisions
from cruise.domain.overrides import StatedSetting, StoredOverrides, read_vpa_overrides, resolve_overrides
from cruise.domain.policy import AdmissionSize, Mode, Policy
from cruise.domain.resources import NO_RESOURCES, ResourceName, Resources, is_extended
from cruise.domain.usage import StatisticsTable

Annotations = tuple[tuple[str, str], ...]
FIRST_RESIZING_KUBELET = (1, 33)

# Which revisions still run is noted once an hour.
_LATELY = timedelta(hours=3)
# What may be said of statistics that are another revision's.
_OF_ANOTHER_REVISION = (None, ReasonCode.STALE_STATISTICS)
_SKIP_REASON_BY_MODE = {
    Mode.OFF: ReasonCode.MODE_OFF,
    Mode.OBSERVE: ReasonCode.MODE_OBSERVE,
    Mode.INITIAL: ReasonCode.MODE_INITIAL,
}


class ResizablePod(NamedTuple):
    """A pod that may be resized: its guidance, and for each sized container the row of its statistic.

    `sized` are the main containers and sidecars, in the pod's order. `stated` has four numbers for each of them: CPU
    request, memory request, CPU limit, memory limit, 0 for what is absent. `manages_cpu` and `manages_memory` tell
    which resources are not left to the user or to an autoscaler. `template_limits` are the memory limits that the pod
    template states, by container, None where they are not known. `submitted` has for each container the requests
    there (None: not known), only where the guidance asks for more than administrators grant.
    """

    pod: Pod
    effective_policy: EffectivePolicy
    sized: tuple[Container, ...]
    rows: tuple[int, ...]
    stated_resources: tuple[int, ...]
    manages_cpu: bool
    manages_memory: bool
    template_limits: Mapping[str, int] | None = None
    submitted_requests: tuple[Resources | None, ...] = ()


@dataclass(frozen=True, slots=True)
class _WorkloadPods:
    """What is the same for all pods of a workload: guidance, why all are held, what is managed."""

    effective_policy: EffectivePolicy | UnreadableAnnotations
    statements: tuple[StatedSetting, ...]
    skip_reason: ReasonCode | None
    managed: frozenset[ResourceName]
    manages_cpu: bool
    manages_memory: bool
    is_new: bool
    claimed: AutoscalerClaims
    template_limits: Mapping[str, int] | None


class Eligibility:
    """The rules on which pods may be touched, prepared for one snapshot; every answer is pure.

    Overrides and autoscalers are resolved once for each workload, since thousands of pods share them.
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        stored: StoredOverrides,
        policy: Policy,
        now: datetime,
    ) -> None:
        self._snapshot = snapshot
        self._statistics = statistics
        self._stored = stored
        self._policy = policy
        self._oldest_seconds = int((now - policy.max_age).timestamp())
        # So far ahead of the clock they are no newer: the clock was set back, and how old they are is not known.
        self._newest_seconds = int((now + policy.max_age).timestamp())
        self._newest_start_seconds = int((now - policy.new_workload_age).timestamp())
        self._now = now
        self._revisions = statistics.revisions
        self._has_own_samples_since = now - timedelta(seconds=OWN_SAMPLES_SECONDS)
        self._updated_at = statistics.updated_at.tolist()
        self._history_since = statistics.history_since.tolist()
        refused = (statistics.rejected_percent > MAX_REJECTED_PERCENT) & policy.rules.plausibility_checks
        self._implausible = frozenset(np.flatnonzero(refused).tolist())
        # Zero memory of a container that waits is no use; all along, it is unknown; of refused samples, it is neither.
        largest = np.maximum(statistics.memory_peak_bytes, statistics.memory_7d_max_bytes)
        idle = (statistics.memory_base_bytes == 0) & policy.rules.plausibility_checks & ~refused
        self._idle = frozenset(np.flatnonzero(idle).tolist())
        self._never_ran = frozenset(np.flatnonzero(idle & (largest == 0)).tolist())
        self._others = AutoscalerIndex(snapshot)
        self._vertical = read_vpa_overrides(snapshot)
        self._override_checks = OverrideChecks(snapshot, statistics)
        self.evictability = Evictability(snapshot, policy.rules)
        self.nodes_autoscale = snapshot.node_autoscaler is not None
        # Peaks on new nodes, evicted again until they share one: where nodes are consolidated that need not end.
        by_itself = policy.rules.template_limits and self.nodes_autoscale
        self.admission_size = policy.admission_size or (AdmissionSize.NODE_PASS if by_itself else AdmissionSize.PEAK)
        self._kubelets: dict[str | None, tuple[int, int] | None] = {
            node.name: node.kubelet_version for node in snapshot.nodes
        }
        self._unready = frozenset(node.name for node in snapshot.nodes if not node.ready)
        self._groups: dict[tuple[str, WorkloadRef | None, Annotations, AutoscalerClaims | None], _WorkloadPods] = {}

    def check(self, pod: Pod, *, killed: bool = False) -> ResizablePod | SkippedPod:
        """Tell whether a bound pod may be resized, and under which guidance, or why it is left alone.

        One that was `killed` for lack of memory need not wait for more samples: the kill says enough.
        """
        group = self._group_of(pod)
        reason = _why_over(pod) if pod.phase != "Running" or pod.terminating else None
        reason = reason or group.skip_reason or self._why_unfit(pod)
        guidance = group.effective_policy
        if reason is not None or isinstance(guidance, UnreadableAnnotations):
            detail = guidance.detail if isinstance(guidance, UnreadableAnnotations) else ""
            return SkippedPod(pod.namespace, pod.name, reason or ReasonCode.UNREADABLE_ANNOTATION, detail)
        if pod.node in self._unready:
            # No kubelet would resize it, and an evicted pod would not end.
            return SkippedPod(pod.namespace, pod.name, ReasonCode.NODE_NOT_READY)
        kubelet = self._kubelets.get(pod.node)
        if kubelet is not None and kubelet < FIRST_RESIZING_KUBELET:
            return SkippedPod(
                pod.namespace, pod.name, ReasonCode.RESIZE_UNSUPPORTED, f"kubelet {kubelet[0]}.{kubelet[1]}"
            )
        held = self._held_for_others(pod, group)
        if held is not None:
            return held
        return self._with_statistics(pod, guidance, group, killed=killed)

    def _held_for_others(self, pod: Pod, group: "_WorkloadPods") -> SkippedPod | None:
        """Hold a pod that others size or scale, or may do so for all that is known."""
        pending = describe_pending_lookup(pod, self._snapshot, group.claimed)
        if group.claimed.sized_by:
            return SkippedPod(pod.namespace, pod.name, ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, group.claimed.sized_by)
        if pending:
            return SkippedPod(pod.namespace, pod.name, ReasonCode.LOOKUP_PENDING, pending)
        return (
            None
            if group.managed
            else SkippedPod(pod.namespace, pod.name, ReasonCode.MANAGED_BY_HPA, group.claimed.scaled_by)
        )

    def get_policy_group(self, pod: Pod) -> object | None:
        """Return one object for pods of the same overrides, autoscalers and workload.

        None where that is up to each pod: some autoscaler of the namespace goes by labels, or by direct controllers.
        """
        return None if pod.namespace in self._others.by_pod else self._group_of(pod)

    def forget_pods(self) -> None:
        """Give back what was resolved for the pods so far; it is resolved anew where they come again."""
        self._groups.clear()
        self._others.forget_pods()

    @cached_property
    def largest_node_memory(self) -> int | None:
        """What no memory limit of a new pod need pass, in bytes; None where larger nodes may come."""
        if self.nodes_autoscale:
            return None
        return max((node.allocatable.memory_bytes for node in self._snapshot.nodes if not node.deleting), default=None)

    def get_other_daemonset_requests(self, pod: Pod) -> Resources:
        """Return what every node may lose to the pods of DaemonSets, its own apart."""
        own = self.daemonset_requests.get((pod.namespace, pod.workload_name), NO_RESOURCES)
        return self._all_daemons - own

    @cached_property
    def daemonset_requests(self) -> Mapping[tuple[str, str], Resources]:
        """What a pod of each DaemonSet may come to ask for, by namespace and workload: its template, or a peak."""
        return estimate_daemonset_requests(self._snapshot, self._statistics)

    @cached_property
    def _all_daemons(self) -> Resources:
        return sum(self.daemonset_requests.values(), NO_RESOURCES)

    def get_effective_policy(self, pod: Pod) -> EffectivePolicy | UnreadableAnnotations:
        """Resolve the overrides that hold for a pod: its own, its workload's, its namespace's, the stored ones."""
        return self._group_of(pod).effective_policy

    def get_stated_settings(self, pod: Pod) -> tuple[StatedSetting, ...]:
        """Return every override that reaches a pod, nearest first, and whether it holds."""
        return self._group_of(pod).statements

    def explain_skip_at_admission(self, pod: Pod) -> ReasonCode | None:
        """Tell why a pod that is being created is left as it is, statistics apart."""
        group = self._group_of(pod)
        return (
            _why_over(pod)
            or self._why_group_is_held(pod.namespace, group.effective_policy, Mode.INITIAL)
            or self._why_unfit(pod)
            or (ReasonCode.MANAGED_BY_OTHER_AUTOSCALER if group.claimed.sized_by else None)
            or (ReasonCode.LOOKUP_PENDING if self.explain_pending_lookup(pod) else None)
        )

    def explain_pending_lookup(self, pod: Pod) -> str:
        """Return the detail of what decides about a pod and is not known yet, empty where all is known."""
        return describe_pending_lookup(pod, self._snapshot, self._group_of(pod).claimed)

    def get_autoscaler_claims(self, pod: Pod) -> AutoscalerClaims:
        """Return what other autoscalers do to a pod."""
        return self._group_of(pod).claimed

    def get_managed_resources(self, pod: Pod) -> frozenset[ResourceName]:
        """Return the resources that neither an override nor an autoscaler takes from cruise."""
        return self._group_of(pod).managed

    def explain_unusable_statistics(self, pod: Pod, rows: Sequence[int | None]) -> ReasonCode | None:
        """Tell what is wrong with a pod's statistics: missing, stale, implausible, or of a workload that is too new."""
        known = [None if row in self._never_ran else row for row in rows] if self._never_ran else rows
        return self._why_rows_forbid(known, self._group_of(pod))

    def is_new_revision(self, pod: Pod, age: timedelta) -> bool:
        """Tell whether the pod's template states other resources than the revision before it, which is younger.

        Then the workload's statistics tell of another revision's use.
        """
        if not self._policy.rules.template_revisions:
            return False
        revisions = self._known_revisions()
        return revisions.is_new(pod, revisions.get_stated_resources(pod), int((self._now - age).timestamp()))

    def _waits_for_own_samples(self, pod: Pod, rows: Sequence[int | None]) -> bool:
        """Tell whether a pod has too few samples of its own, and its workload's are, or may be, another revision's."""
        since = self._has_own_samples_since
        is_young = pod.created_at is not None and pod.created_at > since
        borrows = not all(row is not None and self._statistics.keys[row].pod for row in rows)
        if not (is_young or borrows) or not self._policy.rules.template_revisions:
            return False
        if self.is_new_revision(pod, self._now - since):
            return True
        # With a sample it would have the base of the pods that state the same; a workload's row is about all of them.
        revisions = self._known_revisions()
        seen_since = int((self._now - _LATELY).timestamp())
        return borrows and revisions.is_one_of_several(pod, revisions.get_stated_resources(pod), seen_since)

    def _known_revisions(self) -> WorkloadRevisions:
        if self._revisions is None:
            self._revisions = get_revisions_in_use(self._snapshot.pods, self._statistics)
        return self._revisions

    def _why_rows_forbid(self, rows: Sequence[int | None], group: "_WorkloadPods") -> ReasonCode | None:
        reason = ReasonCode.NEW_WORKLOAD if group.is_new else None
        if self._implausible and not self._implausible.isdisjoint(rows):
            return ReasonCode.IMPLAUSIBLE_USAGE
        for row in rows:
            if row is None:
                return ReasonCode.NO_STATISTICS
            if not self._oldest_seconds <= self._updated_at[row] <= self._newest_seconds:
                reason = ReasonCode.STALE_STATISTICS
            elif reason is None and self._history_since[row] > self._newest_start_seconds:
                reason = ReasonCode.NEW_WORKLOAD
        return reason if rows else ReasonCode.NO_STATISTICS

    def _with_statistics(
        self, pod: Pod, guidance: EffectivePolicy, group: "_WorkloadPods", *, killed: bool
    ) -> ResizablePod | SkippedPod:
        sized = pod.sized_containers
        find = self._statistics.find
        rows = [find(pod.namespace, pod.name, pod.workload, container.name, pod.identity) for container in sized]
        if self._idle:
            rows = [
                None if row in self._idle and not one.running else row for one, row in zip(sized, rows, strict=True)
            ]
        reason = self._why_rows_forbid(rows, group)
        if reason in _OF_ANOTHER_REVISION and not killed and self._waits_for_own_samples(pod, rows):
            reason = ReasonCode.NEW_TEMPLATE_REVISION
        if reason is not None:
            blamed = self._implausible if reason is ReasonCode.IMPLAUSIBLE_USAGE else {None}
            lacking = ", ".join(container.name for container, row in zip(sized, rows, strict=True) if row in blamed)
            return SkippedPod(pod.namespace, pod.name, reason, lacking)
        manages_cpu, manages_memory = group.manages_cpu, group.manages_memory
        # Read here, where the pod is at hand: later passes over all pods go node by node, far apart in memory.
        stated: list[int] = []
        unknown = not self._never_ran.isdisjoint(rows)
        for container in sized:
            requests, limits = container.requests, container.limits
            stated += (requests.cpu_millicores or 0, requests.memory_bytes or 0)
            stated += (limits.cpu_millicores or 0, limits.memory_bytes or 0)
            manages_cpu = manages_cpu and not container.cpu_resize_restarts
            manages_memory = manages_memory and not container.memory_resize_restarts and not unknown
        if not manages_cpu and not manages_memory:
            why = (
                (ReasonCode.NO_STATISTICS, "")
                if unknown
                else (ReasonCode.RESIZE_RESTARTS, "resizePolicy RestartContainer")
            )
            return SkippedPod(pod.namespace, pod.name, *why)
        known = tuple([row for row in rows if row is not None])
        templates = read_recorded_memory_limits(pod) if group.template_limits is None else group.template_limits
        submitted = (
            get_submitted_requests(pod, sized, self._snapshot) if guidance.set_by_administrator is not None else ()
        )
        return ResizablePod(
            pod, guidance, sized, known, tuple(stated), manages_cpu, manages_memory, templates, submitted
        )

    def _why_unfit(self, pod: Pod) -> ReasonCode | None:
        """Tell what about the pod itself forbids a resize."""
        reason = None
        if pod.mirror:
            reason = ReasonCode.STATIC_POD
        elif pod.windows:
            reason = ReasonCode.WINDOWS
        elif pod.qos is not QosClass.BURSTABLE:
            reason = ReasonCode.GUARANTEED if pod.qos is QosClass.GUARANTEED else ReasonCode.BEST_EFFORT
        elif pod.pod_requests is not None or pod.pod_limits is not None:
            reason = ReasonCode.POD_LEVEL_RESOURCES
        elif _asks_devices(pod) and not self._policy.allow_extended_resources:
            reason = ReasonCode.EXTENDED_RESOURCES
        elif pod.workload is None:
            reason = ReasonCode.NO_CONTROLLER
        elif self._lookalikes and (pod.namespace, pod.workload) in self._lookalikes:
            reason = ReasonCode.AMBIGUOUS_WORKLOAD
        return reason

    @cached_property
    def _lookalikes(self) -> frozenset[tuple[str, WorkloadRef]]:
        """The workloads that stand for several, by namespace."""
        return find_ambiguous_workloads(self._snapshot)

    def _group_of(self, pod: Pod) -> "_WorkloadPods":
        stated = _stated(pod.annotations) if pod.annotations else ()
        claimed = self._others.find_for_pod(pod) if pod.namespace in self._others.by_pod else None
        key = (pod.namespace, pod.workload, stated, claimed)
        group = self._groups.get(key)
        if group is None:
            claimed = claimed or self._others.find_for_pod(pod)
            group = self._groups[key] = self._make_group(dict(stated), pod, claimed)
        return group

    def _make_group(self, annotations: Mapping[str, str], pod: Pod, claimed: AutoscalerClaims) -> "_WorkloadPods":
        namespace, ref = pod.namespace, pod.workload
        resolution = resolve_overrides(
            annotations, namespace, ref, self._snapshot, self._stored, self._policy.mode, self._vertical
        )
        guidance = resolution.effective_policy
        if isinstance(guidance, EffectivePolicy) and resolution.statements:
            guidance = self._override_checks.explain_unusable(resolution, pod) or guidance
        if isinstance(guidance, EffectivePolicy) and not self._policy.rules.reserved_capacity:
            guidance = (
                replace(guidance, set_by_administrator=None) if guidance.set_by_administrator is not None else guidance
            )
        managed: frozenset[ResourceName] = frozenset()
        if isinstance(guidance, EffectivePolicy):
            managed = guidance.resources - claimed.scaled
        return _WorkloadPods(
            effective_policy=guidance,
            statements=resolution.statements,
            skip_reason=self._why_group_is_held(namespace, guidance, Mode.RESIZE),
            managed=managed,
            manages_cpu=ResourceName.CPU in managed,
            manages_memory=ResourceName.MEMORY in managed,
            is_new=ref is not None and self._workload_is_new(namespace, ref),
            claimed=claimed,
            template_limits=None if ref is None else get_workload_memory_limits(namespace, ref, self._snapshot),
        )

    def _why_group_is_held(
        self, namespace: str, guidance: EffectivePolicy | UnreadableAnnotations, needed: Mode
    ) -> ReasonCode | None:
        if self._policy.excludes_namespace(namespace):
            return ReasonCode.EXCLUDED_NAMESPACE
        if isinstance(guidance, UnreadableAnnotations):
            return ReasonCode.UNREADABLE_ANNOTATION
        return _SKIP_REASON_BY_MODE[guidance.mode] if guidance.mode < needed else None

    def _workload_is_new(self, namespace: str, ref: WorkloadRef) -> bool:
        workload = self._snapshot.workloads.get((namespace, ref))
        created = workload.created_at if workload is not None else None
        return created is not None and created.timestamp() > self._newest_start_seconds


def _stated(annotations: Mapping[str, str]) -> Annotations:
    """Return the annotations that guide decisions; the records that admission leaves on every pod do not."""
    return tuple(sorted(item for item in annotations.items() if is_override(item[0])))


def _asks_devices(pod: Pod) -> bool:
    return any(is_extended(resource) for resource, _ in pod.extended_requests)


def _why_over(pod: Pod) -> ReasonCode | None:
    """Tell whether the pod is finished, or on its way out."""
    if pod.is_finished:
        return ReasonCode.COMPLETED
    return ReasonCode.TERMINATING if pod.terminating else None
