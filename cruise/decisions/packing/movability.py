"""Which running pods may be evicted for a plan, why the others stay, and what an eviction weighs."""

from collections.abc import Iterable
from typing import NamedTuple

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.limit_ranges import violates_limit_range
from cruise.decisions.pod_policy.quotas import allows_one_more_pod
from cruise.domain.annotations import CRUISE_RECORDS, HOSTNAME, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.policy import EvictionRanking, Policy
from cruise.domain.reasons import ReasonDetail
from cruise.domain.scheduling import StorageAndNamespaces

_WEIGHTS = {EvictionRanking.LOW: 1, EvictionRanking.MEDIUM: 2, EvictionRanking.HIGH: 3}


class EvictionCost(NamedTuple):
    """Why a running pod stays (None: it may be evicted), and what its eviction weighs, budgets apart."""

    immovable_reason: str | None
    weight: int


class MovabilityCheck:
    """Judges pods; those of one workload with the same annotations and labels are judged together."""

    def __init__(self, snapshot: ClusterSnapshot, eligibility: Eligibility, policy: Policy) -> None:
        self._snapshot = snapshot
        self._eligibility = eligibility
        self._policy = policy
        self._closed = {
            node.name: ReasonDetail.NODE_BEING_DELETED if node.ready else ReasonDetail.NODE_NOT_READY
            for node in snapshot.nodes
            if not node.takes_pods
        }
        self._others_size = any(one.changes_pods for one in snapshot.vertical_autoscalers)
        self._known: dict[tuple[object, ...], EvictionCost] = {}

    def check(self, pod: Pod, labels: int) -> EvictionCost:
        """Judge a pod; equal `labels` number equal pairs of namespace and labels."""
        annotations = pod.annotations
        stated = (
            tuple(sorted(item for item in annotations.items() if item[0] not in CRUISE_RECORDS)) if annotations else ()
        )
        key = (labels, pod.workload, pod.owner_kind, pod.runs_to_completion, pod.mirror, stated)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._judge(pod)
        own = self.explain_immovable(pod) if pod.node is not None else None
        return EvictionCost(own, known.weight) if known.immovable_reason is None and own is not None else known

    def explain_immovable(self, pod: Pod) -> str | None:
        """Tell why this running pod stays, apart from what it shares with others of its workload."""
        if pod.terminating:
            return ReasonDetail.BEING_DELETED
        if pod.node in self._closed:
            return self._closed[pod.node]
        # What else holds a pod keeps it from other sizes, not from another place: this one is, or may be, another's.
        of_others = self._eligibility.get_autoscaler_claims(pod).sized_by if self._others_size else ""
        of_others = of_others or self._eligibility.explain_pending_lookup(pod)
        if of_others:
            return of_others
        ranges = self._snapshot.limit_ranges.get(pod.namespace)
        if ranges and violates_limit_range(pod, (), ranges):
            return ReasonDetail.LIMIT_RANGE_REFUSES
        quotas = self._snapshot.quotas.get(pod.namespace)
        if quotas and not allows_one_more_pod(pod, quotas):
            return ReasonDetail.QUOTA_REFUSES
        return None

    def _judge(self, pod: Pod) -> EvictionCost:
        guidance = self._eligibility.get_effective_policy(pod)
        if self._policy.excludes_namespace(pod.namespace):
            return EvictionCost(ReasonDetail.NAMESPACE_EXCLUDED, 1)
        if isinstance(guidance, UnreadableAnnotations):
            return EvictionCost(ReasonDetail.ANNOTATIONS_UNREADABLE.create(guidance.detail), 1)
        rules = self._eligibility.evictability
        kept = rules.explain_protection(pod) or rules.explain_not_evictable(pod, guidance)
        return EvictionCost(kept, 1 if kept else _WEIGHTS[rules.get_ranking(pod, guidance)])


# Pods on nodes that are not known: in which zone, or the like, they count is not known either.


class PodsOnUnknownNodes:
    """The pods on nodes that are not known, and which others no rule can be judged of on their account."""

    def __init__(self, pods: Iterable[Pod], surroundings: StorageAndNamespaces) -> None:
        self._surroundings = surroundings
        # One for all that rules do not tell apart.
        self._pods = list({_seen_by_rules(pod): pod for pod in pods}.values())

    def explain_unsupported(self, pod: Pod) -> str | None:
        """Say on which node a pod is that the rules of this one count, or that keeps it away; None for none."""
        for other in self._pods:
            if self._counts(pod, other) or self._keeps_apart(pod, other) or self._keeps_apart(other, pod):
                return f"its rules count pods on node {other.node}, which is not known"
        return None

    def _counts(self, pod: Pod, other: Pod) -> bool:
        """Tell whether the other one is company for a pod, or counts where it is spread."""
        spreads = pod.constraints.spread if other.namespace == pod.namespace and not other.terminating else ()
        return any(
            self._surroundings.find_matching_namespaces(term, other.namespace, other.labels)
            for term in pod.constraints.affinity
        ) or any(one.matches(other.labels) for one in spreads)

    def _keeps_apart(self, holder: Pod, other: Pod) -> bool:
        """Tell whether anti-affinity of the one may keep the two apart on different nodes."""
        return any(
            term.topology_key != HOSTNAME
            and self._surroundings.find_matching_namespaces(term, other.namespace, other.labels)
            for term in holder.constraints.anti_affinity
        )


def _seen_by_rules(pod: Pod) -> tuple[object, ...]:
    return pod.namespace, frozenset(pod.labels.items()), pod.constraints.anti_affinity, pod.terminating
