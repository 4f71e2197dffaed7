"""The policy objects that forms write: which one belongs to a scope, and whether a form may change it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cruise.domain.annotations import MANAGED_BY, Overrides
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.written_policies import OWN_MANAGER, PolicyOwnership, PolicyScope

# Marks that tools leave on objects that they apply from Git, and their names.
_TOOL_MARKS: Mapping[str, str] = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "applyset.kubernetes.io/part-of": "kubectl apply",
    "kubectl.kubernetes.io/last-applied-configuration": "kubectl apply",
}


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
