"""Checks which pods may be evicted, directly from the objects of a snapshot."""

from collections import Counter
from collections.abc import Sequence

from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerIndex, describe_pending_lookup
from cruise.decisions.pod_policy.policy_objects import PolicyIndex
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.pod_policy.workload_policies import explain_skipped_namespace
from cruise.decisions.scheduling.filters import (
    UNUSABLE_CLAIM,
    explain_unsupported_volumes,
    explain_unusable_claim,
    iterate_claims,
)
from cruise.domain.annotations import DO_NOT_DISRUPT, SAFE_TO_EVICT, EffectivePolicy, UnreadableAnnotations
from cruise.domain.cluster import DEFAULT_SCHEDULER, ClusterSnapshot, Pod
from cruise.domain.overrides import PausedWorkloads, resolve_overrides
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.policy import EvictionRanking, Mode, Policy
from cruise.domain.vpa_overrides import read_vpa_overrides


class EvictionRules:
    """The rules about which pods a plan may move or preempt, for one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy, paused_workloads: PausedWorkloads) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._paused_workloads = paused_workloads
        self._unavailable_nodes = {
            node.name: "its node is being deleted" if node.ready else "its node is not ready, so it would not end"
            for node in snapshot.nodes
            if not node.accepts_pods
        }
        self._autoscalers = AutoscalerIndex(snapshot)
        self._vpa_overrides = read_vpa_overrides(snapshot)
        self._policy_objects = PolicyIndex(snapshot)
        self.disruption_budgets = DisruptionBudgetIndex(snapshot.budgets)

    def explain_not_evictable(self, pod: Pod) -> str | None:
        """Return why a pod must not be evicted; None if it may be."""
        if pod.is_finished or pod.terminating:
            return "it ends by itself"
        if pod.is_mirror_pod or pod.owner_kind is None or pod.owner_kind == "DaemonSet":
            return "no controller would start it elsewhere"
        if pod.node in self._unavailable_nodes:
            return self._unavailable_nodes[pod.node]
        if pod.scheduler != DEFAULT_SCHEDULER:
            return f"scheduler {pod.scheduler} would place it"
        return self.explain_owned_by_others(pod) or self._explain_protected(pod) or self._explain_no_replacement(pod)

    def explain_owned_by_others(self, pod: Pod) -> str | None:
        """Return that another autoscaler owns the pod, or that this is not known yet; else None."""
        claims = self._autoscalers.find_for_pod(pod)
        if claims.sized_by:
            return "another autoscaler sizes it"
        pending = describe_pending_lookup(pod, self._snapshot, claims)
        return f"it is not known yet what decides about it ({pending})" if pending else None

    def get_mode(self, pod: Pod) -> Mode:
        """Return the mode that applies to a pod; off if it is excluded or its annotations are unreadable."""
        effective_policy = self.get_effective_policy(pod)
        is_excluded = explain_skipped_namespace(pod.namespace, self._snapshot, self._policy) is not None
        return Mode.OFF if is_excluded or isinstance(effective_policy, UnreadableAnnotations) else effective_policy.mode

    def explain_unusable_claims(self, pod: Pod) -> str | None:
        """Return the claim that keeps a pod pending on any node; None if there is none."""
        storage_and_namespaces = self._snapshot.storage_and_namespaces
        unsupported = explain_unsupported_volumes(storage_and_namespaces, pod)
        if unsupported is not None:
            return f"its {unsupported}"
        for name, claim in iterate_claims(storage_and_namespaces, pod):
            unusable = explain_unusable_claim(pod, name, claim)
            if unusable is not None:
                return f"its claim {name} {UNUSABLE_CLAIM[unusable]}"
        return None

    def _explain_protected(self, pod: Pod) -> str | None:
        if pod.annotations.get(SAFE_TO_EVICT) == "false":
            return f"its annotation {SAFE_TO_EVICT}"
        for annotation in DO_NOT_DISRUPT:
            if pod.annotations.get(annotation, "false") != "false":
                return f"its annotation {annotation}"
        if len(self.disruption_budgets.find_for_pod(pod)) > 1:
            return "more than one disruption budget covers it"
        if self.get_mode(pod) is not Mode.FULL:
            return f"its mode is {self.get_mode(pod).label}"
        effective_policy = self.get_effective_policy(pod)
        ranking = effective_policy.ranking if isinstance(effective_policy, EffectivePolicy) else None
        if pod.runs_to_completion and self._policy.rules.eviction_safeguards and ranking is not EvictionRanking.LOW:
            return "it runs to completion and would lose its work"
        return "its ranking is never" if ranking is EvictionRanking.NEVER else None

    def _explain_no_replacement(self, pod: Pod) -> str | None:
        """Return why the API server or a volume would keep a replacement pod from running."""
        if violates_limit_range(pod, (), self._snapshot.limit_ranges.get(pod.namespace, ())):
            return "a LimitRange would refuse its replacement"
        if not allows_one_more_pod(pod, self._snapshot.quotas.get(pod.namespace, ())):
            return "a ResourceQuota would refuse its replacement"
        if pod.pod_group:
            return f"its replacement waits for all of pod group {pod.pod_group}"
        return self.explain_unusable_claims(pod)

    def get_effective_policy(self, pod: Pod) -> EffectivePolicy | UnreadableAnnotations:
        """Return the effective policy of a pod, or that its annotations are unreadable."""
        return resolve_overrides(
            pod.annotations,
            pod.namespace,
            pod.workload,
            self._snapshot,
            self._paused_workloads,
            self._policy.mode,
            self._vpa_overrides,
            self._policy_objects.find_for_pod(pod).layers,
        ).effective_policy


def find_exceeded_disruption_budgets(eviction_rules: EvictionRules, evicted: Sequence[Pod]) -> list[str]:
    """Return the PodDisruptionBudgets that these evictions exceed."""
    return [
        f"{budget.title} allows {budget.disruptions_allowed}, the plan evicts {count}"
        for budget, count in eviction_rules.disruption_budgets.find_exceeded(evicted)
    ]


def find_exceeded_eviction_budgets(allowance: EvictionAllowance, evicted: Sequence[Pod]) -> list[str]:
    """Return the eviction budgets that these evictions exceed."""
    budgets = [("evictions in this hour", len(evicted), allowance.total)]
    count_by_node = Counter(pod.node for pod in evicted if pod.node is not None)
    budgets += [
        (f"evictions from node {node}", count, allowance.get_for_node(node))
        for node, count in sorted(count_by_node.items())
    ]
    count_by_workload = Counter((pod.namespace, pod.workload) for pod in evicted if pod.workload is not None)
    budgets += [
        (f"evictions of {ref} in {namespace}", count, allowance.get_for_workload(namespace, ref))
        for (namespace, ref), count in sorted(count_by_workload.items())
    ]
    return [
        f"{name}: {allowed} left, {count} planned"
        for name, count, allowed in budgets
        if allowed is not None and count > allowed
    ]
