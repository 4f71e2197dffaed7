"""What each policy object did in a node pass, and which equally specific policies contradict each other."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from cruise.decisions.pod_policy.policy_objects import PolicyIndex, get_specificity
from cruise.decisions.revert import OriginalSizesByUid
from cruise.decisions.scan.waste import iterate_savings
from cruise.domain.actions import SkippedPod
from cruise.domain.annotations import Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.overrides import format_settings
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.rightsizing_policies import PolicyConflict, PolicyStatus, RightsizingPolicy

PolicyKey = tuple[str, str]
"""Namespace (empty for the cluster) and name."""


@dataclass(slots=True)
class _PolicyCounts:
    """What is counted for one policy; `conflicts` by the other policy's title."""

    workloads: set[tuple[str, WorkloadRef | None]] = field(default_factory=set)
    sized_pods: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    saved: Resources = NO_RESOURCES
    conflicts: dict[str, PolicyConflict] = field(default_factory=dict)

    def add_pod(self, pod: Pod, reason: str | None, saved: Resources) -> None:
        """Count a pod that is skipped for a reason, or sized."""
        self.workloads.add((pod.namespace, pod.workload))
        self.saved += saved
        if reason is None:
            self.sized_pods += 1
        else:
            self.skipped[reason] += 1


def summarize_policies(
    snapshot: ClusterSnapshot, skipped: Iterable[SkippedPod], originals: Mapping[str, OriginalSizesByUid]
) -> Mapping[PolicyKey, PolicyStatus]:
    """Return the status of every policy after a node pass that skipped these pods.

    Pods on nodes are counted, and sized if they are not skipped. `originals` are sizes before cruise by pod uid.
    """
    index = PolicyIndex(snapshot)
    reasons = {one.key: one.reason.value for one in skipped}
    counts = {one.key: _PolicyCounts() for one in snapshot.rightsizing_policies}
    savings = {pod.uid: before - now for pod, before, now in iterate_savings(snapshot, originals)}
    compared: set[tuple[int, WorkloadRef | None]] = set()
    for pod in snapshot.pods:
        if pod.node is None or pod.is_finished:
            continue
        applied = index.find_for_pod(pod)
        reason = reasons.get((pod.namespace, pod.name))
        saved = savings.get(pod.uid, NO_RESOURCES)
        for policy in applied.policies:
            counts[policy.key].add_pod(pod, reason, saved)
        # How specific they are depends on the workload as well.
        if len(applied.policies) > 1 and (id(applied), pod.workload) not in compared:
            compared.add((id(applied), pod.workload))
            for policy, conflict in _iterate_conflicts(applied.policies, pod.workload):
                counts[policy.key].conflicts.setdefault(conflict.policy, conflict)
    return {one.key: _build_status(one, counts[one.key]) for one in snapshot.rightsizing_policies}


@dataclass(frozen=True, slots=True)
class PolicyProblems:
    """Policy objects that a person should look at, each kind sorted by key.

    `unreadable` ones exclude their pods, `conflicting` ones contradict an equally specific one, and `unmatched` ones
    select no pod and no workload.
    """

    unreadable: tuple[RightsizingPolicy, ...] = ()
    conflicting: tuple[RightsizingPolicy, ...] = ()
    unmatched: tuple[RightsizingPolicy, ...] = ()


def find_policy_problems(snapshot: ClusterSnapshot) -> PolicyProblems:
    """Return the policies of a snapshot that are unreadable, contradict others or select nothing."""
    policies = snapshot.rightsizing_policies
    if not policies:
        return PolicyProblems()
    statuses = summarize_policies(snapshot, (), {})
    unmatched = _find_unmatched(snapshot)
    return PolicyProblems(
        tuple(one for one in policies if statuses[one.key].problem),
        tuple(one for one in policies if statuses[one.key].conflicts),
        tuple(one for one in policies if one.key in unmatched and not statuses[one.key].problem),
    )


def _find_unmatched(snapshot: ClusterSnapshot) -> set[PolicyKey]:
    """Return the policies that select no pod, and no workload that may have pods later."""
    index = PolicyIndex(snapshot)
    matched = {one.key for pod in snapshot.pods for one in index.find_for_pod(pod).policies}
    others = [one for one in snapshot.rightsizing_policies if one.key not in matched]
    # The labels of pods that do not exist yet are unknown.
    relaxed = [replace(one, selector=replace(one.selector, pod_labels=None)) for one in others]
    by_workload = PolicyIndex(replace(snapshot, rightsizing_policies=tuple(relaxed)))
    without_pods = snapshot.workloads.keys() - {(pod.namespace, pod.workload) for pod in snapshot.pods}
    found = {one.key for namespace, ref in without_pods for one in by_workload.find(namespace, ref, {}).policies}
    return {one.key for one in others} - found


def _build_status(policy: RightsizingPolicy, counts: _PolicyCounts) -> PolicyStatus:
    return PolicyStatus(
        generation=policy.generation,
        workloads=len(counts.workloads),
        sized_pods=counts.sized_pods,
        skipped=dict(sorted(counts.skipped.items())),
        saved=counts.saved,
        conflicts=tuple(counts.conflicts[title] for title in sorted(counts.conflicts)),
        problem=policy.overrides.detail if isinstance(policy.overrides, UnreadableAnnotations) else "",
    )


def _iterate_conflicts(
    policies: Sequence[RightsizingPolicy], workload: WorkloadRef | None
) -> Iterator[tuple[RightsizingPolicy, PolicyConflict]]:
    """Yield each policy with a conflict, given those of one workload, nearest first.

    What a nearer policy states is no conflict of the others.
    """
    decided: set[str] = set()
    for _, group in groupby(policies, key=lambda one: (one.namespace, get_specificity(one, workload))):
        equal = [(one, _get_settings(one)) for one in group]
        for number, (nearer, stated) in enumerate(equal):
            for other, others in equal[number + 1 :]:
                differing = sorted(
                    name for name in stated.keys() & others.keys() - decided if stated[name] != others[name]
                )
                if differing:
                    settings = tuple(differing)
                    yield nearer, PolicyConflict(other.title, nearer.title, settings, str(workload))
                    yield other, PolicyConflict(nearer.title, nearer.title, settings, str(workload))
            decided |= stated.keys()


def _get_settings(policy: RightsizingPolicy) -> Mapping[str, str]:
    return format_settings(policy.overrides) if isinstance(policy.overrides, Overrides) else {}
