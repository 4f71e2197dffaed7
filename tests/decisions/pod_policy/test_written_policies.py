"""Whether the dashboard's form may change an object, and the policies of a replay."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.policy_objects import (
    explain_other_owner,
    remove_modes_of_other_policies,
    replace_written_policy,
)
from cruise.domain.annotations import MANAGED_BY, Overrides
from cruise.domain.policy import Mode
from cruise.domain.rightsizing_policies import RightsizingPolicy
from cruise.domain.written_policies import PolicyOwnership, PolicyScope
from tests.builders import make_ref

WEB = PolicyScope("shop", make_ref("Deployment/web"))
EXISTING = RightsizingPolicy("shop", "deployment-web", WEB.selector)
OWN = PolicyOwnership("uid", "1", {MANAGED_BY: "cruise"}, frozenset({"cruise"}))
TOOLS = {
    "argocd.argoproj.io/tracking-id": "Argo CD",
    "argocd.argoproj.io/instance": "Argo CD",
    "kustomize.toolkit.fluxcd.io/name": "Flux",
    "helm.toolkit.fluxcd.io/name": "Flux",
    "applyset.kubernetes.io/part-of": "kubectl apply",
    "kubectl.kubernetes.io/last-applied-configuration": "kubectl apply",
}


def test_the_form_creates_an_object_and_changes_its_own():
    assert explain_other_owner(None, None, WEB) == ""
    assert explain_other_owner(EXISTING, OWN, WEB) == ""


@pytest.mark.parametrize("mark", TOOLS)
def test_what_a_tool_applies_is_left_to_it_even_with_cruises_label(mark):
    tracked = replace(OWN, marks={MANAGED_BY: "cruise", mark: "shop"})
    assert explain_other_owner(EXISTING, tracked, WEB) == f"it is managed by {TOOLS[mark]}"


@given(st.dictionaries(st.text(), st.text()), st.frozensets(st.text()))
def test_only_an_object_with_the_label_and_no_other_manager_is_changed(marks, managers):
    ownership = PolicyOwnership("uid", "1", marks, managers)
    may = not explain_other_owner(EXISTING, ownership, WEB)
    assert may is (marks.get(MANAGED_BY) == "cruise" and managers <= {"cruise"})


def test_edited_objects_and_those_with_other_selectors_are_unchanged():
    edited = replace(OWN, spec_managers=frozenset({"cruise", "kubectl-edit"}))
    assert explain_other_owner(EXISTING, edited, WEB) == "kubectl-edit changed its spec"
    other = replace(EXISTING, selector=PolicyScope("shop", make_ref("Deployment/api")).selector)
    assert explain_other_owner(other, OWN, WEB) == "it selects other workloads"


def test_scopes_have_objects_of_their_own():
    scopes = [WEB, PolicyScope("shop"), PolicyScope("all-namespaces"), PolicyScope()]
    assert [one.title for one in scopes] == [
        "RightsizingPolicy shop/deployment-web",
        "ClusterRightsizingPolicy namespace-shop",
        "ClusterRightsizingPolicy namespace-all-namespaces",
        "ClusterRightsizingPolicy all-namespaces",
    ]
    assert [(sorted(one.selector.names), sorted(one.selector.namespaces)) for one in scopes] == [
        (["web"], []),
        ([], ["shop"]),
        ([], ["all-namespaces"]),
        ([], []),
    ]


def test_a_replay_has_no_modes_but_the_workloads_own_and_keeps_the_order():
    policies = (
        RightsizingPolicy("", "all", overrides=Overrides(mode=Mode.OBSERVE, headroom_factor=2.0)),
        replace(EXISTING, overrides=Overrides(mode=Mode.OFF)),
    )
    everything, own = remove_modes_of_other_policies(policies, WEB)
    assert everything.overrides == Overrides(headroom_factor=2.0)
    assert own.overrides == Overrides(mode=Mode.OFF)
    assert [one.overrides for one in remove_modes_of_other_policies(policies, None)] == [
        Overrides(headroom_factor=2.0),
        Overrides(),
    ]
    proposed = replace_written_policy((everything, own), WEB, Overrides(mode=Mode.RESIZE))
    assert [(one.key, one.overrides) for one in proposed] == [
        (("", "all"), Overrides(headroom_factor=2.0)),
        (("shop", "deployment-web"), Overrides(mode=Mode.RESIZE)),
    ]
