"""Which namespaces are sized: node pass and webhook agree, and name the reason."""

from dataclasses import replace

import pytest

from cruise.decisions.admission.admission import LeaveUnchanged, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.domain.actions import ReasonCode
from cruise.domain.policy import Mode, Policy
from cruise.errors import BadInputError
from cruise.settings import load_settings
from tests.builders import NOW, make_pod, make_snapshot, make_statistic_for, make_table

INCLUDED, EXCLUDED = None, ReasonCode.EXCLUDED_NAMESPACE
LEFT_OUT = ReasonCode.NAMESPACE_NOT_INCLUDED


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({}, INCLUDED),
        ({"INCLUDED_NAMESPACES": "shop"}, INCLUDED),
        ({"INCLUDED_NAMESPACES": "bank,sh?p"}, INCLUDED),
        ({"INCLUDED_NAMESPACES": "bank,team-*"}, LEFT_OUT),
        ({"INCLUDED_NAMESPACES": "sh*", "EXCLUDED_NAMESPACES": "shop"}, EXCLUDED),
        ({"NAMESPACE_SELECTOR": "team=web"}, INCLUDED),
        ({"NAMESPACE_SELECTOR": "team in (web,api),!legacy"}, INCLUDED),
        ({"NAMESPACE_SELECTOR": "team!=web"}, LEFT_OUT),
        ({"NAMESPACE_SELECTOR": "legacy"}, LEFT_OUT),
        ({"NAMESPACE_SELECTOR": "kubernetes.io/metadata.name=shop"}, INCLUDED),
        ({"INCLUDED_NAMESPACES": "bank", "NAMESPACE_SELECTOR": "team=web"}, LEFT_OUT),
    ],
)
def test_what_is_listed_and_selected_is_sized_unless_it_is_excluded(stated, expected):
    policy = replace(policy_of(stated), mode=Mode.FULL)
    pod = make_pod()
    labels = {"shop": {"team": "web", "kubernetes.io/metadata.name": "shop"}}
    snapshot = make_snapshot([pod])
    snapshot = replace(
        snapshot, storage_and_namespaces=replace(snapshot.storage_and_namespaces, namespace_labels=labels)
    )
    table = make_table(make_statistic_for(pod))
    eligibility = Eligibility(snapshot, table, {}, policy, NOW)
    verdict = eligibility.check(pod)
    assert (INCLUDED if isinstance(verdict, ResizablePod) else verdict.reason) is expected
    admitted = decide_admission(pod, eligibility, table, NodeIndex(snapshot.known_nodes), (), policy)
    left_out = isinstance(admitted, LeaveUnchanged) and admitted.reason in (EXCLUDED, LEFT_OUT)
    assert left_out == (expected is not INCLUDED)


@pytest.mark.parametrize(
    ("stated", "said"),
    [
        ({"INCLUDED_NAMESPACES": "Shop"}, "matches no namespace"),
        ({"INCLUDED_NAMESPACES": "shop-,bank"}, "matches no namespace"),
        ({"INCLUDED_NAMESPACES": "kube-system"}, "write !kube-system there"),
        ({"INCLUDED_NAMESPACES": "shop", "EXCLUDED_NAMESPACES": "shop"}, "remove it from one of the two"),
        ({"NAMESPACE_SELECTOR": "=web"}, "selector"),
        ({"NAMESPACE_SELECTOR": "team=a b"}, "selector"),
        ({"NAMESPACE_SELECTOR": "-team=web"}, "selector"),
    ],
)
def test_what_can_match_no_namespace_is_refused_in_one_line(stated, said):
    with pytest.raises(BadInputError) as refused:
        policy_of(stated)
    [line] = str(refused.value).splitlines()
    assert said in line or "matches no namespace" in line


def policy_of(stated: dict[str, str]) -> Policy:
    return load_settings({f"CRUISE_{name}": text for name, text in stated.items()}).to_policy()
