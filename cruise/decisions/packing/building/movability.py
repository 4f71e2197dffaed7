"""Which running pods may be evicted for a plan, why the others stay, and what an eviction weighs."""

from typing import NamedTuple

from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.guidance.limit_ranges import breaks_limit_range
from cruise.decisions.guidance.quotas import grants
from cruise.domain.annotations import RECORDS, Unreadable
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.details import Detail
from cruise.domain.policy import EvictionRanking, Policy

_WEIGHTS = {EvictionRanking.LOW: 1, EvictionRanking.MEDIUM: 2, EvictionRanking.HIGH: 3}


class Mobility(NamedTuple):
    """Why a running pod stays (None: it may be evicted), and what its eviction weighs, budgets apart."""

    stays: str | None
    weight: int


class Movability:
    """Judges pods; those of one workload with the same annotations and labels are judged together."""

    def __init__(self, snapshot: Snapshot, eligibility: Eligibility, policy: Policy) -> None:
        self._snapshot = snapshot
        self._eligibility = eligibility
        self._policy = policy
        self._closed = {
            node.name: Detail.NODE_BEING_DELETED if node.ready else Detail.NODE_NOT_READY
            for node in snapshot.nodes
            if not node.takes_pods
        }
        self._others_size = any(one.changes_pods for one in snapshot.vertical_autoscalers)
        self._known: dict[tuple[object, ...], Mobility] = {}

    def of(self, pod: Pod, labels: int) -> Mobility:
        """Judge a pod; equal `labels` number equal pairs of namespace and labels."""
        annotations = pod.annotations
        stated = tuple(sorted(item for item in annotations.items() if item[0] not in RECORDS)) if annotations else ()
        key = (labels, pod.workload, pod.owner_kind, pod.runs_to_completion, pod.mirror, stated)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._judge(pod)
        own = self.own_reason(pod) if pod.node is not None else None
        return Mobility(own, known.weight) if known.stays is None and own is not None else known

    def own_reason(self, pod: Pod) -> str | None:
        """Tell why this running pod stays, apart from what it shares with others of its workload."""
        if pod.terminating:
            return Detail.BEING_DELETED
        if pod.node in self._closed:
            return self._closed[pod.node]
        # What else holds a pod keeps it from other sizes, not from another place: this one is, or may be, another's.
        of_others = self._eligibility.claimed(pod).sized_by if self._others_size else ""
        of_others = of_others or self._eligibility.why_pending(pod)
        if of_others:
            return of_others
        ranges = self._snapshot.limit_ranges.get(pod.namespace)
        if ranges and breaks_limit_range(pod, (), ranges):
            return Detail.LIMIT_RANGE_REFUSES
        quotas = self._snapshot.quotas.get(pod.namespace)
        if quotas and not grants(pod, quotas):
            return Detail.QUOTA_REFUSES
        return None

    def _judge(self, pod: Pod) -> Mobility:
        guidance = self._eligibility.guidance_of(pod)
        if self._policy.excludes(pod.namespace):
            return Mobility(Detail.NAMESPACE_EXCLUDED, 1)
        if isinstance(guidance, Unreadable):
            return Mobility(Detail.ANNOTATIONS_UNREADABLE.of(guidance.detail), 1)
        rules = self._eligibility.evictability
        kept = rules.why_protected(pod) or rules.why_kept(pod, guidance)
        return Mobility(kept, 1 if kept else _WEIGHTS[rules.ranking_of(pod, guidance)])
