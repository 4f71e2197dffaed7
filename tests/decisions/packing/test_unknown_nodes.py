"""Pods on nodes that are not listed, because the cluster grew while it was printed."""

from dataclasses import replace
from typing import Any

import pytest

from cruise.decisions.packing.movability import PodsOnUnknownNodes
from cruise.decisions.packing.problem import build_packing_problem
from cruise.domain.packing_plan import PackingProposal
from cruise.domain.scheduling import NO_STORAGE_OR_NAMESPACES
from cruise.packer.answer import PackingNote, PackingNoteCode, PackingStatus
from tests.builders import Json
from tests.decisions.packing.test_truth_at_the_edges import ZONE, a_node, a_pod, cluster, placed, planned, said

UNKNOWN = "not-judged: its rules count pods on node n7, which is unknown"
WEB = {"matchLabels": {"app": "web"}}


def affinity(kind: str, key: str, selector: Json) -> Json:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": key, "labelSelector": selector}]}
    return {"affinity": {kind: required}}


def spread(key: str) -> Json:
    even = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}
    return {"topologySpreadConstraints": [even]}


def grown(*pods: Json) -> PackingProposal:
    """The plan for two nodes in two zones, and a pod called web-9 on a third node that is not listed."""
    nodes = [a_node("n1", labels={ZONE: "a"}), a_node("n2", labels={ZONE: "b"})]
    return planned(*nodes, *pods, *([] if any(pod["spec"].get("nodeName") == "n7" for pod in pods) else [there()]))


def there(**spec: Any) -> Json:
    return a_pod("web-9", "n7", **spec)


def test_a_pod_on_an_unlisted_node_is_skipped_and_takes_no_capacity():
    plan = grown(a_pod("other-1"), a_pod("other-2"))
    assert sorted(placed(plan)) == ["other-1", "other-2"]
    assert (plan.status, plan.moves, plan.unplaced) == (PackingStatus.OPTIMAL, (), ())
    assert plan.notes == (PackingNote(PackingNoteCode.NODES_MISSING, count=1),)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (affinity("podAffinity", ZONE, WEB), {}),
        (affinity("podAntiAffinity", ZONE, WEB), {}),
        ({}, affinity("podAntiAffinity", ZONE, {"matchLabels": {"app": "late"}})),
        (spread(ZONE), {}),
    ],
)
def test_no_place_is_claimed_for_a_pod_whose_rules_count_what_runs_there(mine, theirs):
    plan = grown(a_pod("late-1", **mine), a_pod("other-1"), there(**theirs))
    assert said(plan) == {"late-1": ((UNKNOWN,), False)}
    assert list(placed(plan)) == ["other-1"]


def test_pods_on_a_node_exclude_no_pod_from_other_nodes():
    plan = grown(a_pod("late-1", **affinity("podAntiAffinity", "kubernetes.io/hostname", WEB)))
    assert (list(placed(plan)), plan.status) == (["late-1"], PackingStatus.OPTIMAL)


@pytest.mark.parametrize("leaving_first", [True, False])
def test_a_terminating_pod_does_not_hide_an_equal_one_that_remains(leaving_first):
    late, staying = cluster(a_node("n1"), a_pod("late-1", **spread(ZONE)), there()).pods
    leaving = replace(staying, name="web-8", terminating=True)
    elsewhere = PodsOnUnknownNodes(
        [leaving, staying] if leaving_first else [staying, leaving], NO_STORAGE_OR_NAMESPACES
    )
    assert elsewhere.explain_unsupported(late) == UNKNOWN.removeprefix("not-judged: ")


def test_a_running_pod_whose_rules_count_pods_on_its_node_is_not_moved():
    late = a_pod("late-1", "n1", **affinity("podAntiAffinity", ZONE, WEB))
    nodes = [a_node("n1", labels={ZONE: "a"}), a_node("n2", labels={ZONE: "b"})]
    built = build_packing_problem(cluster(*nodes, late, there()))
    assert built.immovable_reasons == (UNKNOWN,)


def test_a_node_that_is_not_listed_may_be_one_more_to_spread_over():
    plan = planned(a_node("n1", "2"), *(a_pod(f"api-{n}", **spread_api()) for n in "12"), there())
    assert (len(plan.placed), plan.status) == (2, PackingStatus.FEASIBLE)


def spread_api() -> Json:
    even = spread("kubernetes.io/hostname")["topologySpreadConstraints"][0]
    return {"topologySpreadConstraints": [even | {"labelSelector": {"matchLabels": {"app": "api"}}}]}


def test_nothing_is_planned_onto_a_node_that_is_being_deleted():
    going = a_node("n2")
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert placed(planned(a_node("n2"), a_pod("web-1"))) == {"web-1": "n2"}
    assert placed(planned(going, a_pod("web-1"))) == {}
