"""Building a packing problem from a snapshot."""

import pytest

from cruise.decisions.packing.building import build_problem
from cruise.domain.cluster import Snapshot, VerticalAutoscaler, WorkloadRef
from cruise.domain.details import Detail
from cruise.domain.scheduling import Placement, Taint, TaintEffect, Toleration
from cruise.packer.answer import Note, NoteCode
from tests.builders import GIBIBYTE
from tests.decisions.packing.shop import a_node, a_pod

DEDICATED = Taint("dedicated", "gpu", TaintEffect.NO_SCHEDULE)


def test_pods_that_nothing_tells_apart_are_one_class() -> None:
    built = build_problem(
        Snapshot(nodes=(a_node("n1"), a_node("n2")), pods=(a_pod("a", "n1"), a_pod("b", labels={"app": "other"})))
    )
    assert built.problem.class_count == 1
    assert built.problem.pod_node.tolist() == [0, -1]
    assert built.problem.demands.tolist() == [[500, GIBIBYTE, 1]]
    assert built.problem.capacities.tolist() == [[1000, 4 * GIBIBYTE, 110]] * 2


def test_taints_selectors_and_cordons_say_where_a_pod_may_arrive() -> None:
    nodes = (
        a_node("n1"),
        a_node("n2", taints=(DEDICATED,)),
        a_node("n3", labels={"disk": "ssd"}),
        a_node("n4", unschedulable=True),
        a_node("n5", ready=False),
    )
    tolerant = Placement(tolerations=(Toleration("dedicated", exists=True),))
    selective = Placement(node_selector=(("disk", "ssd"),))
    built = build_problem(
        Snapshot(
            nodes=nodes,
            pods=(a_pod("plain"), a_pod("selective", placement=selective), a_pod("tolerant", placement=tolerant)),
        )
    )
    problem = built.problem
    assert problem.admits[problem.sites[problem.pod_class]].tolist() == [
        [True, False, True, False, False],
        [False, False, True, False, False],
        [True, True, True, False, False],
    ]


def test_a_pod_without_a_controller_stays_and_says_why() -> None:
    built = build_problem(Snapshot(nodes=(a_node("n1"),), pods=(a_pod("bare", "n1", owner_kind=None, workload=None),)))
    assert built.problem.movable.tolist() == [False]
    assert built.unmovable == (Detail.NO_CONTROLLER,)


@pytest.mark.parametrize(("mode", "stays"), [("Recreate", True), ("Off", False)])
def test_what_a_vpa_sizes_is_neither_moved_nor_sized(mode: str, stays: bool) -> None:
    pods = (a_pod("web", "n1"), a_pod("other", "n1", workload=WorkloadRef("Deployment", "other"), owner_name="other-1"))
    rival = VerticalAutoscaler("shop", "rival", WorkloadRef("Deployment", "web"), mode)
    built = build_problem(Snapshot(nodes=(a_node("n1"),), pods=pods, vertical_autoscalers=(rival,)))
    held = {pod.name: why for pod, why in zip(built.pods, built.unmovable, strict=True)}
    assert held == {"web": Detail.SIZED_BY_VPA.of("rival") if stays else None, "other": None}


def test_a_gated_pod_is_left_out_with_a_note() -> None:
    built = build_problem(Snapshot(nodes=(a_node("n1"),), pods=(a_pod("gated", scheduling_gated=True),)))
    assert built.pods == ()
    assert [one.blocked_by for one in built.left_out] == [("not-judged: scheduling gates",)]
    assert built.notes == (Note(NoteCode.LEFT_OUT, "not-judged: scheduling gates", 1),)


def test_a_resource_that_no_node_can_run_short_of_is_no_column() -> None:
    plenty = {"ephemeral-storage": 110 * GIBIBYTE}
    scarce = {"ephemeral-storage": 109 * GIBIBYTE}
    pods = (a_pod("a", extended_requests=(("ephemeral-storage", GIBIBYTE),)), a_pod("b"))
    enough = build_problem(Snapshot(nodes=(a_node("n1", allocatable_extended=plenty),), pods=pods)).problem
    assert enough.resources == ("cpu", "memory", "pods")
    assert enough.class_count == 1
    short = build_problem(Snapshot(nodes=(a_node("n1", allocatable_extended=scarce),), pods=pods)).problem
    assert short.resources == ("cpu", "memory", "pods", "ephemeral-storage")
    assert short.demands[:, 3].tolist() == [GIBIBYTE, 0]
