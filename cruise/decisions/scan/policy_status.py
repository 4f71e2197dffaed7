"""What each policy object did in a node pass, and which policies contradict each other."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import groupby

from cruise.decisions.pod_policy.policy_objects import PolicyIndex, get_specificity, reuse_policy_index
from cruise.decisions.revert import OriginalSizesByUid
from cruise.decisions.scan.waste import iterate_realized_savings
from cruise.domain.actions import SkippedPod
from cruise.domain.annotations import Overrides, UnreadableAnnotations
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.overrides import SettingSource, SourcedValue, find_cluster_maximum, format_settings, iterate_settings
from cruise.domain.resources import NO_RESOURCES, Resources
from cruise.domain.rightsizing_policies import PolicyConflict, PolicyStatus, RightsizingPolicy

PolicyKey = tuple[str, str]
"""Namespace (empty for the cluster) and name."""
_PolicyMatch = tuple[Sequence[RightsizingPolicy], WorkloadRef | None]
# By the key of the policy and the title of the other one.
_Conflicts = dict[PolicyKey, dict[str, PolicyConflict]]


@dataclass(slots=True)
class _PodCounts:
    """Pods with the same policies: their workloads, their number by skip reason (None: sized), and what they save."""

    policies: tuple[RightsizingPolicy, ...]
    workloads: set[tuple[str, WorkloadRef | None]] = field(default_factory=set)
    reasons: Counter[str | None] = field(default_factory=Counter)
    saved: Resources = NO_RESOURCES

    def add(self, other: "_PodCounts") -> None:
        """Add other pods."""
        self.workloads.update(other.workloads)
        self.reasons.update(other.reasons)
        self.saved += other.saved


def summarize_policies(
    snapshot: ClusterSnapshot,
    skipped: Iterable[SkippedPod],
    originals: Mapping[str, OriginalSizesByUid],
    policy_index: PolicyIndex | None = None,
) -> Mapping[PolicyKey, PolicyStatus]:
    """Return the status of every policy after a node pass that skipped these pods.

    Pods on nodes are counted, and sized if they are not skipped. `originals` are sizes before cruise by pod uid.
    `policy_index` is that of an earlier snapshot, used again if nothing changed.
    """
    counted, matches = _count_pods(snapshot, skipped, originals, reuse_policy_index(snapshot, policy_index))
    counts = {one.key: _PodCounts((one,)) for one in snapshot.rightsizing_policies}
    for pods in counted:
        for policy in pods.policies:
            counts[policy.key].add(pods)
    conflicts = _find_conflicts(matches)
    return {key: _build_status(one, conflicts.get(key, {})) for key, one in counts.items()}


def _count_pods(
    snapshot: ClusterSnapshot,
    skipped: Iterable[SkippedPod],
    originals: Mapping[str, OriginalSizesByUid],
    index: PolicyIndex,
) -> tuple[Collection[_PodCounts], Sequence[_PolicyMatch]]:
    """Count the pods on nodes by the policies that apply to them, and list the workloads of each, in order.

    Thousands of pods may have the same policies: each policy is counted once for all of them.
    """
    reasons = {one.key: one.reason.value for one in skipped}
    savings = {pod.uid: before - now for pod, before, now in iterate_realized_savings(snapshot, originals)}
    counted: dict[int, _PodCounts] = {}
    matches: list[_PolicyMatch] = []
    for pod in snapshot.pods:
        if pod.node is None or pod.is_finished:
            continue
        applied = index.find_for_pod(pod)
        if not applied.policies:
            continue
        # The index keeps the policies, so that their id is not reused.
        pods = counted.get(id(applied))
        if pods is None:
            pods = counted[id(applied)] = _PodCounts(applied.policies)
        workload = pod.namespace, pod.workload
        if workload not in pods.workloads:
            pods.workloads.add(workload)
            matches.append((applied.policies, pod.workload))
        pods.reasons[reasons.get((pod.namespace, pod.name))] += 1
        saved = savings.get(pod.uid)
        if saved is not None:
            pods.saved += saved
    return counted.values(), matches


@dataclass(frozen=True, slots=True)
class PolicyProblems:
    """Policy objects that a person should look at, each kind sorted by key.

    `unreadable` ones exclude their pods, `conflicting` ones contradict an equally specific one or exceed
    the maximum of a ClusterRightsizingPolicy, and `unmatched` ones select no pod and no workload.
    """

    unreadable: tuple[RightsizingPolicy, ...] = ()
    conflicting: tuple[RightsizingPolicy, ...] = ()
    unmatched: tuple[RightsizingPolicy, ...] = ()


def find_policy_problems(snapshot: ClusterSnapshot, policy_index: PolicyIndex | None = None) -> PolicyProblems:
    """Return the policies of a snapshot that are unreadable, contradict others or select nothing."""
    policies = snapshot.rightsizing_policies
    if not policies:
        return PolicyProblems()
    index = reuse_policy_index(snapshot, policy_index)
    statuses = summarize_policies(snapshot, (), {}, index)
    unmatched = _find_unmatched(snapshot, index)
    return PolicyProblems(
        tuple(one for one in policies if statuses[one.key].problem),
        tuple(one for one in policies if statuses[one.key].conflicts),
        tuple(one for one in policies if one.key in unmatched and not statuses[one.key].problem),
    )


def _find_unmatched(snapshot: ClusterSnapshot, index: PolicyIndex) -> set[PolicyKey]:
    """Return the policies that select no pod, and no workload that may have pods later."""
    matched = {one.key for pod in snapshot.pods for one in index.find_for_pod(pod).policies}
    others = [one for one in snapshot.rightsizing_policies if one.key not in matched]
    # The labels of pods that do not exist yet are unknown.
    relaxed = [replace(one, selector=replace(one.selector, pod_labels=None)) for one in others]
    by_workload = PolicyIndex(replace(snapshot, rightsizing_policies=tuple(relaxed)))
    without_pods = snapshot.workloads.keys() - {(pod.namespace, pod.workload) for pod in snapshot.pods}
    found = {one.key for namespace, ref in without_pods for one in by_workload.find(namespace, ref, {}).policies}
    return {one.key for one in others} - found


def _build_status(counts: _PodCounts, conflicts: Mapping[str, PolicyConflict]) -> PolicyStatus:
    [policy] = counts.policies
    return PolicyStatus(
        generation=policy.generation,
        workloads=len(counts.workloads),
        sized_pods=counts.reasons[None],
        skipped=dict(sorted((reason, pods) for reason, pods in counts.reasons.items() if reason is not None)),
        saved=counts.saved,
        conflicts=tuple(conflicts[title] for title in sorted(conflicts)),
        problem=policy.overrides.detail if isinstance(policy.overrides, UnreadableAnnotations) else "",
    )


def _find_conflicts(matches: Iterable[_PolicyMatch]) -> _Conflicts:
    """Return the conflicts, each for the first workload that has it; policies are compared once, not per workload."""
    found: _Conflicts = {}
    named: dict[int, frozenset[str]] = {}
    compared: set[tuple[int, str | None]] = set()
    settings: dict[PolicyKey, Mapping[str, str]] = {}
    for policies, workload in matches:
        if len(policies) < 2:
            continue
        names = named.get(id(policies))
        if names is None:
            names = named[id(policies)] = frozenset().union(*(one.selector.names for one in policies))
            settings |= {one.key: _get_settings(one) for one in policies if one.key not in settings}
        # How specific they are depends on the workload only if one of them names it.
        name = workload.name if workload is not None and workload.name in names else None
        if (id(policies), name) not in compared:
            compared.add((id(policies), name))
            for policy, conflict in _iterate_conflicts(policies, workload, settings):
                found.setdefault(policy.key, {}).setdefault(conflict.policy, conflict)
    return found


def _iterate_conflicts(
    policies: Sequence[RightsizingPolicy], workload: WorkloadRef | None, settings: Mapping[PolicyKey, Mapping[str, str]]
) -> Iterator[tuple[RightsizingPolicy, PolicyConflict]]:
    """Yield each policy with a conflict, given those of one workload, nearest first, and what each one states.

    What a nearer policy states is no conflict of the others.
    """
    decided: set[str] = set()
    limits: dict[str, list[SourcedValue]] = {}
    for one in policies:
        if not one.namespace and isinstance(one.overrides, Overrides):
            for setting, value in iterate_settings(one.overrides):
                limits.setdefault(setting, []).append((value, SettingSource(one.source, one.name)))
    for _, group in groupby(policies, key=lambda one: (one.namespace, get_specificity(one, workload))):
        equal = [(one, settings[one.key]) for one in group]
        for number, (nearer, stated) in enumerate(equal):
            for other, others in equal[number + 1 :]:
                differing = sorted(
                    name for name in stated.keys() & others.keys() - decided if stated[name] != others[name]
                )
                if differing:
                    stated_by_both = tuple(differing)
                    yield nearer, PolicyConflict(other.title, nearer.title, stated_by_both, str(workload))
                    yield other, PolicyConflict(nearer.title, nearer.title, stated_by_both, str(workload))
            for conflict in _iterate_exceeded(nearer, limits, decided, str(workload)) if nearer.namespace else ():
                yield nearer, conflict
            decided |= stated.keys()


def _iterate_exceeded(
    policy: RightsizingPolicy, limits: Mapping[str, Sequence[SourcedValue]], decided: Set[str], workload: str
) -> Iterator[PolicyConflict]:
    """Yield the ClusterRightsizingPolicies whose maximum a policy of a namespace exceeds, with the settings that do."""
    exceeding: dict[str, list[str]] = {}
    for setting, value in iterate_settings(policy.overrides) if isinstance(policy.overrides, Overrides) else ():
        name, dot, container = setting.partition(".")
        # A minimum above the maximum excludes the pods.
        limit, source = find_cluster_maximum(f"{name.replace('-min', '-max')}{dot}{container}", limits)
        if source is not None and value > limit and setting not in decided:
            exceeding.setdefault(str(source), []).append(setting)
    for title, settings in sorted(exceeding.items()):
        yield PolicyConflict(title, title, tuple(sorted(settings)), workload, is_maximum=True)


def _get_settings(policy: RightsizingPolicy) -> Mapping[str, str]:
    return format_settings(policy.overrides) if isinstance(policy.overrides, Overrides) else {}
