"""Determines which running pods may be evicted for a plan, and how much an eviction counts."""

from collections.abc import Iterable
from typing import NamedTuple

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.decisions.pod_policy.workload_policies import explain_skipped_namespace
from cruise.domain.annotations import CRUISE_RECORDS, HOSTNAME, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import EvictionRanking, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.scheduling import StorageAndNamespaces

_WEIGHTS = {EvictionRanking.LOW: 1, EvictionRanking.MEDIUM: 2, EvictionRanking.HIGH: 3}


class PodMovability(NamedTuple):
    """Why a running pod must stay (None: it may be evicted), and its eviction weight without budgets."""

    immovable_reason: str | None
    weight: int


class MovabilityCheck:
    """Checks pods, once for all pods of a workload with the same annotations and labels."""

    def __init__(self, snapshot: ClusterSnapshot, eligibility: Eligibility, policy: Policy) -> None:
        self._snapshot = snapshot
        self._eligibility = eligibility
        self._policy = policy
        self._unavailable_nodes = {
            node.name: ReasonDetailCode.NODE_BEING_DELETED if node.ready else ReasonDetailCode.NODE_NOT_READY
            for node in snapshot.nodes
            if not node.accepts_pods
        }
        self._has_vertical_autoscalers = any(one.changes_pods for one in snapshot.vertical_autoscalers)
        self._known: dict[tuple[object, ...], PodMovability] = {}

    def check(self, pod: Pod, labels: int) -> PodMovability:
        """Return the movability of a pod; equal `labels` number equal pairs of namespace and labels."""
        annotations = pod.annotations
        stated = (
            tuple(sorted(item for item in annotations.items() if item[0] not in CRUISE_RECORDS)) if annotations else ()
        )
        key = (labels, pod.workload, pod.owner_kind, pod.runs_to_completion, pod.is_mirror_pod, stated)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._check_shared(pod)
        own = self.explain_immovable(pod) if pod.node is not None else None
        return PodMovability(own, known.weight) if known.immovable_reason is None and own is not None else known

    def explain_immovable(self, pod: Pod) -> str | None:
        """Return why this running pod must stay, apart from what it shares with its workload."""
        if pod.terminating:
            return ReasonDetailCode.BEING_DELETED
        if pod.node in self._unavailable_nodes:
            return self._unavailable_nodes[pod.node]
        # Other skip reasons keep a pod's sizes, not its node; this one says that another autoscaler may own the pod.
        autoscaler = self._eligibility.get_autoscaler_claims(pod).sized_by if self._has_vertical_autoscalers else ""
        autoscaler = autoscaler or self._eligibility.explain_pending_lookup(pod)
        if autoscaler:
            return autoscaler
        ranges = self._snapshot.limit_ranges.get(pod.namespace)
        if ranges and violates_limit_range(pod, (), ranges):
            return ReasonDetailCode.LIMIT_RANGE_REFUSES
        quotas = self._snapshot.quotas.get(pod.namespace)
        if quotas and not allows_one_more_pod(pod, quotas):
            return ReasonDetailCode.QUOTA_REFUSES
        return None

    def _check_shared(self, pod: Pod) -> PodMovability:
        effective_policy = self._eligibility.get_effective_policy(pod)
        if explain_skipped_namespace(pod.namespace, self._snapshot, self._policy) is not None:
            return PodMovability(ReasonDetailCode.NAMESPACE_EXCLUDED, 1)
        if isinstance(effective_policy, UnreadableAnnotations):
            return PodMovability(ReasonDetailCode.ANNOTATIONS_UNREADABLE.create(effective_policy.detail), 1)
        rules = self._eligibility.evictability
        protection = rules.explain_protection(pod) or rules.explain_not_evictable(pod, effective_policy)
        return PodMovability(protection, 1 if protection else _WEIGHTS[rules.get_ranking(pod, effective_policy)])


class PodsOnUnknownNodes:
    """Pods on unknown nodes: the domains in which they count are unknown as well."""

    def __init__(self, pods: Iterable[Pod], storage_and_namespaces: StorageAndNamespaces) -> None:
        self._storage_and_namespaces = storage_and_namespaces
        # One pod represents all that rules do not distinguish.
        self._pods = list({_get_rule_key(pod): pod for pod in pods}.values())

    def explain_unsupported(self, pod: Pod) -> str | None:
        """Return on which unknown node a pod runs that the rules of this pod concern; None if there is none."""
        for other in self._pods:
            if self._counts(pod, other) or self._keeps_apart(pod, other) or self._keeps_apart(other, pod):
                return f"its rules count pods on node {other.node}, which is unknown"
        return None

    def _counts(self, pod: Pod, other: Pod) -> bool:
        """Return whether the affinity or topology spread of a pod counts the other pod."""
        spreads = pod.constraints.spread if other.namespace == pod.namespace and not other.terminating else ()
        return any(
            self._storage_and_namespaces.term_matches_pod(term, other.namespace, other.labels)
            for term in pod.constraints.affinity
        ) or any(one.matches(other.labels) for one in spreads)

    def _keeps_apart(self, holder: Pod, other: Pod) -> bool:
        """Return whether anti-affinity of the holder may separate the two on different nodes."""
        return any(
            term.topology_key != HOSTNAME
            and self._storage_and_namespaces.term_matches_pod(term, other.namespace, other.labels)
            for term in holder.constraints.anti_affinity
        )


def _get_rule_key(pod: Pod) -> tuple[object, ...]:
    return pod.namespace, frozenset(pod.labels.items()), pod.constraints.anti_affinity, pod.terminating
