"""Which policy objects apply to a pod, the most specific first, and which ones a form may change."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import NamedTuple

from cruise.domain.annotations import MANAGED_BY, EffectivePolicy, Overrides
from cruise.domain.cluster import ClusterSnapshot, Pod, WorkloadRef
from cruise.domain.namespace_patterns import matches_any_pattern
from cruise.domain.overrides import OverrideLayer, ResolvedOverrides, SettingSource, resolve_possibly_unreadable_layers
from cruise.domain.policy import Mode
from cruise.domain.rightsizing_policies import RightsizingPolicy, is_pattern
from cruise.domain.scheduling import SelectorOperator
from cruise.domain.written_policies import OWN_MANAGER, PolicyOwnership, PolicyScope

_Label = tuple[str, str]
# What can be compared by its hash.
_SETTINGS = attrgetter(
    *(one.name for one in fields(EffectivePolicy) if one.name not in ("containers", "set_by_administrator"))
)
_SPARE_RESULTS = 10_000
# Marks that tools leave on objects that they apply from Git, and their names.
_TOOL_MARKS: Mapping[str, str] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "applyset.kubernetes.io/part-of": "kubectl apply",
    "kubectl.kubernetes.io/last-applied-configuration": "kubectl apply",
}


class AppliedPolicies(NamedTuple):
    """The policies that apply to a pod, nearest first, and their settings in the same order."""

    policies: tuple[RightsizingPolicy, ...]
    layers: tuple[OverrideLayer, ...]


NO_POLICIES = AppliedPolicies((), ())


class PolicyIndex:
    """The policy objects of one snapshot.

    Those of the namespace take precedence over those of the cluster. Within both, the more specific one takes
    precedence: one that names the workload, then one whose pattern matches its name, then one that selects by labels of
    pods, by namespaces, by kinds, and then one that selects all. Of equally specific ones, the one with the lowest mode
    takes precedence, then the first by name.

    What it finds depends only on the policies and on labels of namespaces: it may serve later snapshots with the same,
    and several threads.
    """

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._policies = snapshot.rightsizing_policies
        self._labels = snapshot.storage_and_namespaces.namespace_labels
        self._by_namespace: dict[str, list[RightsizingPolicy]] = {}
        self._of_some_namespaces: list[RightsizingPolicy] = []
        everywhere: list[RightsizingPolicy] = []
        for policy in snapshot.rightsizing_policies:
            selector = policy.selector
            if policy.namespace:
                self._by_namespace.setdefault(policy.namespace, []).append(policy)
            elif selector.namespace_labels is not None or any(map(is_pattern, selector.namespaces)):
                self._of_some_namespaces.append(policy)
            elif selector.namespaces:
                for namespace in selector.namespaces:
                    self._by_namespace.setdefault(namespace, []).append(policy)
            else:
                everywhere.append(policy)
        self._everywhere = _PolicyCandidates(everywhere)
        self._is_empty = not self._policies
        self._candidates: dict[str, _PolicyCandidates] = {}
        self._found: dict[tuple[str, WorkloadRef | None, tuple[_Label, ...]], AppliedPolicies] = {}
        self._found_for_pods: dict[tuple[str, int, int], tuple[AppliedPolicies, object, object]] = {}
        self._shared: dict[tuple[tuple[str, str], ...], AppliedPolicies] = {(): NO_POLICIES}
        # By the id of what `_shared` keeps.
        self._resolved: dict[tuple[int, Mode], ResolvedOverrides] = {}
        self._effective: dict[tuple[object, ...], EffectivePolicy] = {}

    def is_current(self, snapshot: ClusterSnapshot) -> bool:
        """Return whether a new index of this snapshot would find the same; conditions of policies do not count."""
        labels = snapshot.storage_and_namespaces.namespace_labels
        return self._policies == snapshot.rightsizing_policies and (
            not self._of_some_namespaces or self._labels == labels
        )

    def forget_gone_pods(self, pods: int) -> None:
        """Drop the results so far if there are many more of them than these pods can have."""
        if max(len(self._found), len(self._found_for_pods)) > 2 * pods + _SPARE_RESULTS:
            self.forget_pods()

    def depends_on_labels(self, namespace: str) -> bool:
        """Return whether the policies that apply to a pod of a namespace depend on its labels."""
        if self._is_empty:
            return False
        return self._everywhere.use_labels or self._get_candidates(namespace).use_labels

    def forget_pods(self) -> None:
        """Drop the results for the pods so far."""
        self._found.clear()
        self._found_for_pods.clear()

    def find_for_pod(self, pod: Pod) -> AppliedPolicies:
        """Return the policies that apply to a pod; pods with the same policies share one object."""
        if self._is_empty:
            return NO_POLICIES
        # The parts of pods are mostly shared. The entry keeps them, so that their ids are not reused.
        key = pod.namespace, id(pod.workload), id(pod.labels)
        known = self._found_for_pods.get(key)
        if known is None:
            found = self.find(pod.namespace, pod.workload, pod.labels)
            known = self._found_for_pods[key] = found, pod.workload, pod.labels
        return known[0]

    def find(self, namespace: str, workload: WorkloadRef | None, pod_labels: Mapping[str, str]) -> AppliedPolicies:
        """Return the policies that apply to a workload's pods with these labels."""
        if self._is_empty:
            return NO_POLICIES
        labels = tuple(sorted(pod_labels.items())) if self.depends_on_labels(namespace) else ()
        key = (namespace, workload, labels)
        found = self._found.get(key)
        if found is None:
            selected = self._select(namespace, workload, pod_labels)
            found = self._found[key] = self._share(tuple(selected))
        return found

    def resolve(self, policies: AppliedPolicies, cluster_mode: Mode) -> ResolvedOverrides:
        """Resolve the settings of policies that this index found, for pods without other overrides."""
        key = id(policies), cluster_mode
        found = self._resolved.get(key)
        if found is None:
            resolution = resolve_possibly_unreadable_layers(cluster_mode, policies.layers)
            found = self._resolved[key] = self._share_effective_policy(resolution)
        return found

    def _share_effective_policy(self, resolution: ResolvedOverrides) -> ResolvedOverrides:
        """Return the resolution with one object for equal effective policies: passes compute bounds once for each."""
        effective = resolution.effective_policy
        if not isinstance(effective, EffectivePolicy) or effective.containers or effective.set_by_administrator:
            return resolution
        return replace(resolution, effective_policy=self._effective.setdefault(_SETTINGS(effective), effective))

    def _share(self, policies: tuple[RightsizingPolicy, ...]) -> AppliedPolicies:
        """Return one object for the same policies in the same order."""
        key = tuple([policy.key for policy in policies])
        found = self._shared.get(key)
        if found is None:
            layers = tuple([(SettingSource(policy.source, policy.name), policy.overrides) for policy in policies])
            # Threads that find the same policies at once keep one object.
            found = self._shared.setdefault(key, AppliedPolicies(policies, layers))
        return found

    def _select(
        self, namespace: str, workload: WorkloadRef | None, pod_labels: Mapping[str, str]
    ) -> Sequence[RightsizingPolicy]:
        selected = [
            *self._get_candidates(namespace).select(workload, pod_labels),
            *self._everywhere.select(workload, pod_labels),
        ]
        selected.sort(key=lambda policy: _get_rank(policy, workload))
        return selected

    def _get_candidates(self, namespace: str) -> "_PolicyCandidates":
        """Return the policies for a namespace that are not for all of them."""
        found = self._candidates.get(namespace)
        if found is None:
            labels = self._labels.get(namespace, {})
            of_cluster = [one for one in self._of_some_namespaces if _selects_namespace(one, namespace, labels)]
            found = _PolicyCandidates([*self._by_namespace.get(namespace, ()), *of_cluster])
            self._candidates[namespace] = found
        return found


def reuse_policy_index(snapshot: ClusterSnapshot, earlier: PolicyIndex | None) -> PolicyIndex:
    """Return the index of an earlier snapshot if it finds the same for this one, otherwise a new one."""
    return earlier if earlier is not None and earlier.is_current(snapshot) else PolicyIndex(snapshot)


class _PolicyCandidates:
    """Policies indexed by the workload name or label that they require, so that each pod is compared with few."""

    def __init__(self, policies: Iterable[RightsizingPolicy]) -> None:
        self._by_name: dict[str, list[RightsizingPolicy]] = {}
        self._by_label: dict[_Label, list[RightsizingPolicy]] = {}
        self._others: list[RightsizingPolicy] = []
        self.use_labels = False
        for policy in policies:
            selector = policy.selector
            self.use_labels |= selector.pod_labels is not None
            label = _get_required_label(policy)
            if selector.names and not any(map(is_pattern, selector.names)):
                for name in selector.names:
                    self._by_name.setdefault(name, []).append(policy)
            elif label is not None:
                self._by_label.setdefault(label, []).append(policy)
            else:
                self._others.append(policy)

    def select(self, workload: WorkloadRef | None, pod_labels: Mapping[str, str]) -> list[RightsizingPolicy]:
        """Return the policies that apply, in any order."""
        candidates = list(self._others)
        if workload is not None:
            candidates += self._by_name.get(workload.name, ())
        if self._by_label:
            for label in pod_labels.items():
                candidates += self._by_label.get(label, ())
        return [policy for policy in candidates if _selects_pod(policy, workload, pod_labels)]


def _get_required_label(policy: RightsizingPolicy) -> _Label | None:
    """Return a label that all selected pods have, None if there is no such label."""
    requirements = () if policy.selector.pod_labels is None else policy.selector.pod_labels.requirements
    for one in requirements:
        if one.operator is SelectorOperator.IN and len(one.values) == 1:
            return one.key, one.values[0]
    return None


def _selects_namespace(policy: RightsizingPolicy, namespace: str, labels: Mapping[str, str]) -> bool:
    selector = policy.selector
    is_listed = not selector.namespaces or matches_any_pattern(selector.namespaces, namespace)
    return is_listed and (selector.namespace_labels is None or selector.namespace_labels.matches(labels))


def _selects_pod(policy: RightsizingPolicy, workload: WorkloadRef | None, labels: Mapping[str, str]) -> bool:
    selector = policy.selector
    if selector.kinds and (workload is None or workload.kind not in selector.kinds):
        return False
    if selector.names and (workload is None or not matches_any_pattern(selector.names, workload.name)):
        return False
    return selector.pod_labels is None or selector.pod_labels.matches(labels)


def _get_rank(policy: RightsizingPolicy, workload: WorkloadRef | None) -> tuple[bool, tuple[bool, ...], Mode, str]:
    """Return a key by which the nearest policy comes first."""
    return not policy.namespace, get_specificity(policy, workload), _find_lowest_mode(policy), policy.name


def get_specificity(policy: RightsizingPolicy, workload: WorkloadRef | None) -> tuple[bool, ...]:
    """Return how specifically a policy selects a workload; the lowest is the most specific."""
    selector = policy.selector
    return (
        workload is None or workload.name not in selector.names,
        not selector.names,
        selector.pod_labels is None,
        not selector.namespaces and selector.namespace_labels is None,
        not selector.kinds,
    )


def _find_lowest_mode(policy: RightsizingPolicy) -> Mode:
    """Return the lowest mode that a policy states for a pod or a container; full if it states none."""
    overrides = policy.overrides
    if not isinstance(overrides, Overrides):
        return Mode.OFF
    modes = [overrides.mode, *(one.mode for one in overrides.containers.values())]
    return min((mode for mode in modes if mode is not None), default=Mode.FULL)


def find_written_policy(policies: Sequence[RightsizingPolicy], scope: PolicyScope) -> RightsizingPolicy | None:
    """Return the policy object with the name of a scope's own one; it may select something else."""
    return next((one for one in policies if one.key == scope.key), None)


def replace_written_policy(
    policies: Sequence[RightsizingPolicy], scope: PolicyScope, overrides: Overrides
) -> tuple[RightsizingPolicy, ...]:
    """Return the policies, sorted by key, with other overrides in a scope's own one."""
    own = RightsizingPolicy(*scope.key, scope.selector, overrides)
    others = [one for one in policies if one.key != own.key]
    return tuple(sorted([*others, own], key=lambda one: one.key))


def remove_modes_of_other_policies(
    policies: Sequence[RightsizingPolicy], scope: PolicyScope | None
) -> tuple[RightsizingPolicy, ...]:
    """Return the policies as a replay in mode `full` uses them: without modes, except that of a scope's own one."""
    own = None if scope is None else scope.key
    return tuple(
        one
        if one.key == own or not isinstance(one.overrides, Overrides)
        else replace(one, overrides=replace(one.overrides, mode=None))
        for one in policies
    )


def explain_other_owner(
    existing: RightsizingPolicy | None, ownership: PolicyOwnership | None, scope: PolicyScope
) -> str:
    """Return why a scope's own policy object must not be changed by the form; empty if it may be.

    The form changes only what it created: an object that another client applies would be changed back, or keep fields
    of both.
    """
    if ownership is None:
        return ""
    tool = next((name for mark, name in _TOOL_MARKS.items() if mark in ownership.marks), "")
    manager = ownership.marks.get(MANAGED_BY, "")
    if tool or manager != OWN_MANAGER:
        return f"it is managed by {tool or manager or 'another client'}"
    others = sorted(ownership.spec_managers - {OWN_MANAGER})
    if others:
        return f"{others[0]} changed its spec"
    if existing is not None and existing.selector != scope.selector:
        return "it selects other workloads"
    return ""
