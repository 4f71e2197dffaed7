"""Which pods may be taken off a node, read once more from the cluster's own objects."""

from collections import Counter
from collections.abc import Sequence

from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.pod_policy.other_autoscalers import AutoscalerIndex, describe_pending_lookup
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.scheduling.filters import (
    UNUSABLE_CLAIM,
    explain_unsupported_volumes,
    explain_unusable_claim,
    iterate_claims,
)
from cruise.domain.annotations import DO_NOT_DISRUPT, SAFE_TO_EVICT, EffectivePolicy, UnreadableAnnotations
from cruise.domain.cluster import DEFAULT_SCHEDULER, ClusterSnapshot, Pod
from cruise.domain.overrides import StoredOverrides, read_vpa_overrides, resolve_overrides
from cruise.domain.packing_plan import EvictionAllowance
from cruise.domain.policy import EvictionRanking, Mode, Policy


class EvictionRules:
    """The rules on which pods a plan may move or preempt, for one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, policy: Policy, stored: StoredOverrides) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._stored = stored
        self._closed = {
            node.name: "its node is being deleted" if node.ready else "its node is not ready, so it would not end"
            for node in snapshot.nodes
            if not node.takes_pods
        }
        self._others = AutoscalerIndex(snapshot)
        self._vertical = read_vpa_overrides(snapshot)
        self.disruption_budgets = DisruptionBudgetIndex(snapshot.budgets)

    def explain_not_evictable(self, pod: Pod) -> str | None:
        """Say why the pod may not be taken off its node; None if it may."""
        if pod.is_finished or pod.terminating:
            return "it ends by itself"
        if pod.mirror or pod.owner_kind is None or pod.owner_kind == "DaemonSet":
            return "no controller would start it elsewhere"
        if pod.node in self._closed:
            return self._closed[pod.node]
        if pod.scheduler != DEFAULT_SCHEDULER:
            return f"scheduler {pod.scheduler} would place it"
        return self.explain_owned_by_others(pod) or self._why_guarded(pod) or self._why_not_created_again(pod)

    def explain_owned_by_others(self, pod: Pod) -> str | None:
        """Say that a VerticalPodAutoscaler holds the pod, or that it is not known yet whether one does; else None."""
        claimed = self._others.find_for_pod(pod)
        if claimed.sized_by:
            return "another autoscaler sizes it"
        pending = describe_pending_lookup(pod, self._snapshot, claimed)
        return f"it is not known yet what decides about it ({pending})" if pending else None

    def get_mode(self, pod: Pod) -> Mode:
        """How far cruise may go with the pod; off where it is excluded or its annotations cannot be read."""
        guidance = self.get_effective_policy(pod)
        excluded = self._policy.excludes_namespace(pod.namespace)
        return Mode.OFF if excluded or isinstance(guidance, UnreadableAnnotations) else guidance.mode

    def explain_unusable_claims(self, pod: Pod) -> str | None:
        """Say which claim keeps a pod pending wherever it goes; None if all are bound, or bind with it."""
        surroundings = self._snapshot.storage_and_namespaces
        unjudged = explain_unsupported_volumes(surroundings, pod)
        if unjudged is not None:
            return f"its {unjudged}"
        for name, claim in iterate_claims(surroundings, pod):
            unusable = explain_unusable_claim(pod, name, claim)
            if unusable is not None:
                return f"its claim {name} {UNUSABLE_CLAIM[unusable]}"
        return None

    def _why_guarded(self, pod: Pod) -> str | None:
        if pod.annotations.get(SAFE_TO_EVICT) == "false":
            return f"its annotation {SAFE_TO_EVICT}"
        for annotation in DO_NOT_DISRUPT:
            if pod.annotations.get(annotation, "false") != "false":
                return f"its annotation {annotation}"
        if len(self.disruption_budgets.find_for_pod(pod)) > 1:
            return "more than one disruption budget covers it"
        if self.get_mode(pod) is not Mode.FULL:
            return f"its mode is {self.get_mode(pod).label}"
        guidance = self.get_effective_policy(pod)
        ranking = guidance.ranking if isinstance(guidance, EffectivePolicy) else None
        if pod.runs_to_completion and self._policy.rules.eviction_safeguards and ranking is not EvictionRanking.LOW:
            return "it runs to completion and would lose its work"
        return "its ranking is never" if ranking is EvictionRanking.NEVER else None

    def _why_not_created_again(self, pod: Pod) -> str | None:
        """Say why the API server, or what is known of its volumes, would keep a replacement from running."""
        if violates_limit_range(pod, (), self._snapshot.limit_ranges.get(pod.namespace, ())):
            return "a LimitRange would refuse its replacement"
        if not allows_one_more_pod(pod, self._snapshot.quotas.get(pod.namespace, ())):
            return "a ResourceQuota would refuse its replacement"
        if pod.pod_group:
            return f"its replacement waits for all of pod group {pod.pod_group}"
        return self.explain_unusable_claims(pod)

    def get_effective_policy(self, pod: Pod) -> EffectivePolicy | UnreadableAnnotations:
        """The overrides that hold for a pod: its own, its workload's, its namespace's, the stored ones."""
        return resolve_overrides(
            pod.annotations,
            pod.namespace,
            pod.workload,
            self._snapshot,
            self._stored,
            self._policy.mode,
            self._vertical,
        ).effective_policy


def find_exceeded_disruption_budgets(leaving: EvictionRules, gone: Sequence[Pod]) -> list[str]:
    """Say which disruption budgets the whole plan exceeds."""
    return [
        f"disruption budget {one.namespace}/{one.name} allows {one.disruptions_allowed}, the plan evicts {many}"
        for one, many in leaving.disruption_budgets.find_exceeded(gone)
    ]


def find_exceeded_eviction_budgets(allowance: EvictionAllowance, gone: Sequence[Pod]) -> list[str]:
    """Say which eviction budgets the whole plan exceeds."""
    found = [("evictions in this hour", len(gone), allowance.total)]
    of_nodes = Counter(pod.node for pod in gone if pod.node is not None)
    found += [
        (f"evictions from node {node}", many, allowance.get_for_node(node)) for node, many in sorted(of_nodes.items())
    ]
    of_workloads = Counter((pod.namespace, pod.workload) for pod in gone if pod.workload is not None)
    found += [
        (f"evictions of {ref} in {namespace}", many, allowance.get_for_workload(namespace, ref))
        for (namespace, ref), many in sorted(of_workloads.items())
    ]
    return [
        f"{what}: {allowed} left, {many} planned"
        for what, many, allowed in found
        if allowed is not None and many > allowed
    ]
