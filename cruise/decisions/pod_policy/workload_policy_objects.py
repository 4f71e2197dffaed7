"""The policy object that the dashboard's form writes for one workload: what it selects, and who may change it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cruise.domain.annotations import MANAGED_BY, Overrides
from cruise.domain.cluster import WorkloadRef
from cruise.domain.rightsizing_policies import (
    OWN_MANAGER,
    PolicyOwnership,
    PolicySelector,
    RightsizingPolicy,
    get_workload_policy_name,
)

# Marks that tools leave on objects that they apply from Git, and their names.
_TOOL_MARKS: Mapping[str, str] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "applyset.kubernetes.io/part-of": "kubectl apply",
    "kubectl.kubernetes.io/last-applied-configuration": "kubectl apply",
}


def build_workload_selector(workload: WorkloadRef) -> PolicySelector:
    """Return the selector of one workload."""
    return PolicySelector(frozenset({workload.kind}), frozenset({workload.name}))


def find_workload_policy(
    policies: Sequence[RightsizingPolicy], namespace: str, workload: WorkloadRef
) -> RightsizingPolicy | None:
    """Return the policy object with the name of a workload's own one; it may select something else."""
    key = namespace, get_workload_policy_name(workload.kind, workload.name)
    return next((one for one in policies if one.key == key), None)


def replace_workload_policy(
    policies: Sequence[RightsizingPolicy], namespace: str, workload: WorkloadRef, overrides: Overrides
) -> tuple[RightsizingPolicy, ...]:
    """Return the policies, sorted by key, with other overrides in a workload's own one."""
    own = RightsizingPolicy(
        namespace, get_workload_policy_name(workload.kind, workload.name), build_workload_selector(workload), overrides
    )
    others = [one for one in policies if one.key != own.key]
    return tuple(sorted([*others, own], key=lambda one: one.key))


def list_replayed_policies(
    policies: Sequence[RightsizingPolicy], namespace: str | None, workload: WorkloadRef | None
) -> tuple[RightsizingPolicy, ...]:
    """Return the policies as a replay in mode `full` uses them: without modes, except that of a workload's own one."""
    own = (
        None
        if namespace is None or workload is None
        else (namespace, get_workload_policy_name(workload.kind, workload.name))
    )
    return tuple(
        one
        if one.key == own or not isinstance(one.overrides, Overrides)
        else replace(one, overrides=replace(one.overrides, mode=None))
        for one in policies
    )


def explain_other_owner(
    existing: RightsizingPolicy | None, ownership: PolicyOwnership | None, workload: WorkloadRef
) -> str:
    """Return why a workload's own policy object must not be changed by the form; empty if it may be.

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
    if existing is not None and existing.selector != build_workload_selector(workload):
        return "it selects other workloads"
    return ""
