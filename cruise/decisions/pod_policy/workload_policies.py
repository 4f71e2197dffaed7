"""What all pods of a workload share: namespace, overrides, autoscalers, and what follows from these."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np

from cruise.decisions.pod_policy.container_bounds import OverrideValidator, get_workload_memory_limits
from cruise.decisions.pod_policy.hpa_bounds import HpaBounds, MetricBounds, apply_hpa_bounds, do_requests_cover_usage
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerClaims, AutoscalerIndex
from cruise.decisions.pod_policy.policy_objects import AppliedPolicies, PolicyIndex, reuse_policy_index
from cruise.decisions.pod_policy.resizable_pod import SKIP_REASON_BY_MODE, find_shared_resources
from cruise.decisions.pod_policy.usable_statistics import StatisticsUsabilityCheck, get_largest_weekly_usage
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import EffectivePolicy, UnreadableAnnotations, is_override_annotation
from cruise.domain.arrays import convert_to_int64
from cruise.domain.cluster import ClusterSnapshot, HorizontalPodAutoscaler, Pod, WorkloadRef
from cruise.domain.overrides import (
    PausedWorkloads,
    ResolvedOverrides,
    StatedSetting,
    collect_layers_without_policies,
    resolve_possibly_unreadable_layers,
)
from cruise.domain.policy import BestEffortPolicy, GuaranteedPolicy, HpaPolicy, Mode, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.run_to_completion_operators import WORKLOAD_GROUP
from cruise.domain.usage import StatisticsTable
from cruise.domain.vpa_overrides import read_vpa_overrides


def explain_skipped_namespace(namespace: str, snapshot: ClusterSnapshot, policy: Policy) -> ReasonCode | None:
    """Return why the pods of a namespace are skipped, None if settings include it."""
    if policy.excludes_namespace(namespace):
        return ReasonCode.EXCLUDED_NAMESPACE
    labels = snapshot.storage_and_namespaces.namespace_labels.get(namespace, {})
    return None if policy.includes_namespace(namespace, labels) else ReasonCode.NAMESPACE_NOT_INCLUDED


Annotations = tuple[tuple[str, str], ...]


def list_overrides_of_pod(pod: Pod, snapshot: ClusterSnapshot) -> Annotations:
    """Return a pod's overrides, without the records that admission leaves on every pod."""
    annotations = _add_job_annotations(pod, snapshot) if pod.owner_kind == "Job" else pod.annotations
    return tuple(sorted(item for item in annotations.items() if is_override_annotation(item[0]))) if annotations else ()


def _add_job_annotations(pod: Pod, snapshot: ClusterSnapshot) -> Mapping[str, str]:
    """Return the annotations of a pod and of its Job, if the pod belongs to another workload that users named."""
    if pod.workload is None or pod.workload.kind != WORKLOAD_GROUP:
        return pod.annotations
    found = snapshot.workloads.get((pod.namespace, WorkloadRef("Job", pod.owner_name or "")))
    return pod.annotations if found is None else {**found.annotations, **pod.annotations}


@dataclass(frozen=True, slots=True)
class WorkloadPolicy:
    """What all pods of a workload with the same overrides share.

    `shared_resources` are sized of each container, None if containers differ. `autoscaler` is the HPA within whose
    target requests may change, `utilisation_bounds` how far they may.
    """

    effective_policy: EffectivePolicy | UnreadableAnnotations
    statements: tuple[StatedSetting, ...]
    skip_reason: ReasonCode | None
    is_new: bool
    claims: AutoscalerClaims
    shared_resources: frozenset[ResourceName] | None
    template_limits: Mapping[str, int] | None
    sizes_guaranteed: bool
    adopts_best_effort: bool
    utilisation_bounds: HpaBounds | None
    autoscaler: HorizontalPodAutoscaler | None


class _LatestPod(NamedTuple):
    """The parts of the last resolved pod of a workload that its policy depends on; equal parts of pods are shared."""

    workload: WorkloadRef | None
    namespace: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    policy: WorkloadPolicy


class WorkloadPolicies:
    """The overrides and autoscalers of one snapshot, resolved once per workload: thousands of pods may share them."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        paused_workloads: PausedWorkloads,
        policy: Policy,
        usable: StatisticsUsabilityCheck,
        policy_index: PolicyIndex | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._paused_workloads = paused_workloads
        self._policy = policy
        self._usable = usable
        self._autoscalers = AutoscalerIndex(snapshot)
        self._scaled_pods = ScaledPods(snapshot, statistics, self._autoscalers, usable)
        self._hpas = {(one.namespace, one.name): one for one in snapshot.autoscalers if one.scaling is not None}
        self._vpa_overrides = read_vpa_overrides(snapshot)
        self._policy_objects = reuse_policy_index(snapshot, policy_index)
        self._override_checks = OverrideValidator(snapshot, statistics)
        self._found: dict[
            tuple[str, WorkloadRef | None, Annotations, AutoscalerClaims | None, int], WorkloadPolicy
        ] = {}
        self._last: tuple[Pod, WorkloadPolicy] | None = None
        # By the id of a workload. An entry keeps what it is compared with, so that ids are not reused.
        self._latest: dict[int, _LatestPod] = {}
        self._skipped_namespaces: dict[str, ReasonCode | None] = {}

    def find_shared(self, pod: Pod) -> WorkloadPolicy | None:
        """Return the one policy of all pods with the same overrides, autoscalers and workload.

        None if results depend on each pod: an autoscaler of the namespace selects by labels or by direct controllers,
        or a policy object by labels.
        """
        if pod.namespace in self._autoscalers.by_pod or self._policy_objects.depends_on_labels(pod.namespace):
            return None
        return self.find_for_pod(pod)

    def forget_pods(self) -> None:
        """Drop what was resolved for pods so far; it is resolved again when needed."""
        self._found.clear()
        self._last = None
        self._latest.clear()
        self._autoscalers.forget_pods()
        self._policy_objects.forget_pods()

    def find_for_pod(self, pod: Pod) -> WorkloadPolicy:
        """Return what a pod shares with others of its workload."""
        workload = pod.workload
        latest = self._latest.get(id(workload))
        if (
            latest is not None
            and latest.workload is workload
            and latest.labels is pod.labels
            and latest.annotations is pod.annotations
            and latest.namespace == pod.namespace
            # The annotations of their own Jobs count for pods of Jobs.
            and pod.owner_kind != "Job"
        ):
            return latest.policy
        # An admission asks up to eight times for its pod.
        last = self._last
        if last is not None and last[0] is pod:
            return last[1]
        stated = list_overrides_of_pod(pod, self._snapshot)
        claims = self._autoscalers.find_for_pod(pod) if pod.namespace in self._autoscalers.by_pod else None
        policies = self._policy_objects.find_for_pod(pod)
        # The index keeps the policies, so that their id is not reused.
        key = (pod.namespace, pod.workload, stated, claims, id(policies))
        group = self._found.get(key)
        if group is None:
            claims = claims or self._autoscalers.find_for_pod(pod)
            group = self._found[key] = self._build(dict(stated), pod, claims, policies)
        self._last = (pod, group)
        if pod.owner_kind != "Job" and pod.namespace not in self._autoscalers.by_pod:
            self._latest[id(workload)] = _LatestPod(workload, pod.namespace, pod.labels, pod.annotations, group)
        return group

    def find_sizing_autoscaler(self, pod: Pod) -> str:
        """Name the VPA that sizes a pod at least in part, or might; empty if there is none."""
        return self.find_for_pod(pod).claims.sized_by if self._autoscalers.has_claims(pod.namespace) else ""

    def _build(
        self, annotations: Mapping[str, str], pod: Pod, claims: AutoscalerClaims, policies: AppliedPolicies
    ) -> WorkloadPolicy:
        namespace, workload = pod.namespace, pod.workload
        resolution = self._resolve(annotations, namespace, workload, policies)
        effective_policy = resolution.effective_policy
        if isinstance(effective_policy, EffectivePolicy) and resolution.statements:
            effective_policy = self._override_checks.explain_unusable(resolution, pod) or effective_policy
        if isinstance(effective_policy, EffectivePolicy) and not self._policy.rules.reserved_capacity:
            effective_policy = (
                replace(effective_policy, set_by_administrator=None)
                if effective_policy.set_by_administrator is not None
                else effective_policy
            )
        if not self._policy.rules.sizes_more_pods:
            claims = claims._replace(left_by_vpa=())
        sizes_guaranteed = adopts_best_effort = False
        autoscaler = bounds = shared_resources = None
        if isinstance(effective_policy, EffectivePolicy):
            if (effective_policy.hpa or self._policy.hpa) is not HpaPolicy.HOLD and self._policy.rules.sizes_more_pods:
                autoscaler = self._hpas.get((namespace, claims.autoscaler))
            if autoscaler is not None:
                target = None if workload is None else self._snapshot.workloads.get((namespace, workload))
                find_resources_below_template = partial(self._scaled_pods.find_resources_below_template, namespace)
                claims, bounds = apply_hpa_bounds(claims, autoscaler, target, find_resources_below_template)
            if bounds is not None and bounds.is_at_minimum:
                bounds = bounds.without_shrink(self._scaled_pods.find_resources_below_usage(namespace, bounds))
            stated = effective_policy.guaranteed or self._policy.guaranteed
            sizes_guaranteed = stated is GuaranteedPolicy.RESIZE and self._policy.rules.sizes_more_pods
            best_effort = effective_policy.best_effort or self._policy.best_effort
            adopts_best_effort = best_effort is BestEffortPolicy.ADOPT and self._policy.rules.sizes_more_pods
            shared_resources = find_shared_resources(effective_policy, claims)
        return WorkloadPolicy(
            effective_policy=effective_policy,
            statements=resolution.statements,
            skip_reason=self.explain_skip(namespace, effective_policy, Mode.RESIZE),
            is_new=workload is not None and self._usable.is_new_workload(namespace, workload),
            claims=claims,
            shared_resources=shared_resources,
            template_limits=None
            if workload is None
            else get_workload_memory_limits(namespace, workload, self._snapshot),
            sizes_guaranteed=sizes_guaranteed,
            adopts_best_effort=adopts_best_effort,
            utilisation_bounds=bounds,
            autoscaler=autoscaler,
        )

    def _resolve(
        self,
        annotations: Mapping[str, str],
        namespace: str,
        workload: WorkloadRef | None,
        policies: AppliedPolicies,
    ) -> ResolvedOverrides:
        """Resolve the overrides of a workload; those without own ones share the result for their policies."""
        own = collect_layers_without_policies(
            annotations, namespace, workload, self._snapshot, self._paused_workloads, self._vpa_overrides
        )
        if own:
            return resolve_possibly_unreadable_layers(self._policy.mode, [*own, *policies.layers])
        return self._policy_objects.resolve(policies, self._policy.mode)

    def explain_skip(
        self, namespace: str, effective_policy: EffectivePolicy | UnreadableAnnotations, needed: Mode
    ) -> ReasonCode | None:
        """Return why pods of a namespace are skipped under their policy, which must allow the mode `needed`."""
        if namespace not in self._skipped_namespaces:
            self._skipped_namespaces[namespace] = explain_skipped_namespace(namespace, self._snapshot, self._policy)
        reason = self._skipped_namespaces[namespace]
        if reason is not None:
            return reason
        if isinstance(effective_policy, UnreadableAnnotations):
            return ReasonCode.UNREADABLE_ANNOTATION
        return SKIP_REASON_BY_MODE[effective_policy.mode] if effective_policy.mode < needed else None


class ScaledPods:
    """The running pods of a snapshot by the HPA that scales them, and whether each requests what its use needs.

    An HPA averages over pods: one that uses more than its part relies on what the others request beyond theirs
    (ADR 0047).
    """

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        statistics: StatisticsTable,
        autoscalers: AutoscalerIndex,
        usable: StatisticsUsabilityCheck,
    ) -> None:
        self._snapshot = snapshot
        self._statistics = statistics
        self._autoscalers = autoscalers
        self._usable = usable

    def find_resources_below_usage(self, namespace: str, bounds: HpaBounds) -> frozenset[ResourceName]:
        """Return the resources of which a pod of an HPA requests less than its use needs: it relies on the others."""
        pods = self._by_autoscaler.get((namespace, bounds.autoscaler), ())
        covered = {one for one, metrics in bounds.metrics.items() if self._cover(pods, one, metrics)}
        return frozenset(bounds.metrics.keys() - covered)

    def find_resources_below_template(self, namespace: str, bounds: HpaBounds) -> frozenset[ResourceName]:
        """Return the resources of which a pod of an HPA requests less than its template."""
        pods = self._by_autoscaler.get((namespace, bounds.autoscaler), ())
        pairs = [
            (container.requests.resources, bounds.submitted[container.name].resources)
            for pod in pods
            for container in (pod.sized_containers if pod.pod_level is None else (pod.pod_level,))
            if container.name in bounds.submitted
        ]
        return frozenset(
            one for one in bounds.metrics if any(0 < now.get(one) < stated.get(one) for now, stated in pairs)
        )

    def _cover(self, pods: Sequence[Pod], resource: ResourceName, metrics: Sequence[MetricBounds]) -> bool:
        current: list[int] = []
        rows: list[int] = []
        names: list[str] = []
        pod_of: list[int] = []
        for number, pod in enumerate(pods):
            sized = pod.sized_containers if pod.pod_level is None else (pod.pod_level,)
            for container, row in zip(sized, self._usable.find_rows(pod, sized), strict=True):
                request = container.requests.resources.get(resource)
                if row is None or not request:
                    return False
                current.append(request)
                rows.append(row)
                names.append(container.name)
                pod_of.append(number)
        if not pods:
            return True
        requests, groups = convert_to_int64(current), convert_to_int64(pod_of)
        largest = get_largest_weekly_usage(self._statistics, convert_to_int64(rows), resource).largest
        for metric in metrics:
            counted = np.array([metric.container in ("", name) for name in names], dtype=np.bool_)
            factors = np.full(len(pods), metric.peak_factor)
            if not do_requests_cover_usage(requests[counted], largest[counted], groups[counted], factors):
                return False
        return True

    @cached_property
    def _by_autoscaler(self) -> Mapping[tuple[str, str], Sequence[Pod]]:
        namespaces = {one.namespace for one in self._snapshot.autoscalers if one.scaling is not None}
        shared: dict[tuple[str, WorkloadRef | None], AutoscalerClaims] = {}
        found: dict[tuple[str, str], list[Pod]] = {}
        for pod in self._snapshot.pods:
            # Pending pods use nothing; the HPA ignores those that are terminating.
            if pod.namespace not in namespaces or pod.phase != "Running" or pod.terminating:
                continue
            if pod.namespace in self._autoscalers.by_pod:
                claims = self._autoscalers.find_for_pod(pod)
            else:
                key = (pod.namespace, pod.workload)
                claims = shared.get(key) or shared.setdefault(key, self._autoscalers.find_for_pod(pod))
            if claims.autoscaler:
                found.setdefault((pod.namespace, claims.autoscaler), []).append(pod)
        return found
