"""Building a packing problem from a snapshot."""

import pytest

from cruise.decisions.packing.problem import build_packing_problem
from cruise.domain.cluster import ClusterSnapshot, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.scheduling import (
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    TaintEffect,
    Toleration,
)
from cruise.packer.answer import PackingNote, PackingNoteCode
from tests.builders import GIBIBYTE
from tests.decisions.packing.shop import make_shop_node, make_shop_pod

DEDICATED = Taint("dedicated", "gpu", TaintEffect.NO_SCHEDULE)


def test_indistinguishable_pods_are_one_class() -> None:
    built = build_packing_problem(
        ClusterSnapshot(
            nodes=(make_shop_node("n1"), make_shop_node("n2")),
            pods=(make_shop_pod("a", "n1"), make_shop_pod("b", labels={"app": "other"})),
        )
    )
    assert built.problem.class_count == 1
    assert built.problem.pod_node.tolist() == [0, -1]
    assert built.problem.demands.tolist() == [[500, GIBIBYTE, 1]]
    assert built.problem.capacities.tolist() == [[1000, 4 * GIBIBYTE, 110]] * 2


def test_taints_selectors_and_cordons_say_where_a_pod_may_arrive() -> None:
    nodes = (
        make_shop_node("n1"),
        make_shop_node("n2", taints=(DEDICATED,)),
        make_shop_node("n3", labels={"disk": "ssd"}),
        make_shop_node("n4", unschedulable=True),
        make_shop_node("n5", ready=False),
    )
    tolerant = SchedulingConstraints(tolerations=(Toleration("dedicated", exists=True),))
    selective = SchedulingConstraints(node_selector=(("disk", "ssd"),))
    built = build_packing_problem(
        ClusterSnapshot(
            nodes=nodes,
            pods=(
                make_shop_pod("plain"),
                make_shop_pod("selective", placement=selective),
                make_shop_pod("tolerant", placement=tolerant),
            ),
        )
    )
    problem = built.problem
    assert problem.allowed_nodes[problem.node_mask_of_class[problem.pod_class]].tolist() == [
        [True, False, True, False, False],
        [False, False, True, False, False],
        [True, True, True, False, False],
    ]


def test_only_pending_pods_are_planned_on_virtual_nodes() -> None:
    nodes = (make_shop_node("n1"), make_shop_node("n2", labels={"type": "virtual-kubelet"}))
    pods = (make_shop_pod("a", "n1"), make_shop_pod("b"))
    problem = build_packing_problem(ClusterSnapshot(nodes=nodes, pods=pods)).problem
    allowed = problem.allowed_nodes[problem.node_mask_of_class[problem.pod_class]].tolist()
    assert allowed == [[True, False], [True, True]]


def test_a_running_pod_is_kept_on_its_platform_unless_it_states_the_label() -> None:
    arch = "kubernetes.io/arch"
    nodes = tuple(make_shop_node(f"n-{value}", labels={arch: value}) for value in ("amd64", "arm64"))
    either = NodeSelectorTerm((LabelRequirement(arch, SelectorOperator.IN, ("amd64", "arm64")),))
    pods = (
        make_shop_pod("any", "n-arm64", placement=SchedulingConstraints(terms=(either,))),
        make_shop_pod("bound", "n-arm64"),
        make_shop_pod("pending"),
    )
    problem = build_packing_problem(ClusterSnapshot(nodes=nodes, pods=pods)).problem
    allowed = problem.allowed_nodes[problem.node_mask_of_class[problem.pod_class]].tolist()
    assert allowed == [[True, True], [False, True], [True, True]]


def test_a_pod_without_a_controller_is_not_moved_and_has_a_reason() -> None:
    built = build_packing_problem(
        ClusterSnapshot(
            nodes=(make_shop_node("n1"),), pods=(make_shop_pod("bare", "n1", owner_kind=None, workload=None),)
        )
    )
    assert built.problem.movable.tolist() == [False]
    assert built.immovable_reasons == (ReasonDetailCode.NO_CONTROLLER,)


@pytest.mark.parametrize(("mode", "stays"), [("Recreate", True), ("Off", False)])
def test_what_a_vpa_sizes_is_neither_moved_nor_sized(mode: str, stays: bool) -> None:
    pods = (
        make_shop_pod("web", "n1"),
        make_shop_pod("other", "n1", workload=WorkloadRef("Deployment", "other"), owner_name="other-1"),
    )
    rival = VerticalPodAutoscaler("shop", "rival", WorkloadRef("Deployment", "web"), mode)
    built = build_packing_problem(
        ClusterSnapshot(nodes=(make_shop_node("n1"),), pods=pods, vertical_autoscalers=(rival,))
    )
    held = {pod.name: why for pod, why in zip(built.pods, built.immovable_reasons, strict=True)}
    assert held == {"web": ReasonDetailCode.SIZED_BY_VPA.create("rival") if stays else None, "other": None}


def test_a_gated_pod_is_left_out_with_a_note() -> None:
    built = build_packing_problem(
        ClusterSnapshot(nodes=(make_shop_node("n1"),), pods=(make_shop_pod("gated", scheduling_gated=True),))
    )
    assert built.pods == ()
    assert [one.blocked_by for one in built.ignored_pods] == [("not-judged: scheduling gates",)]
    assert built.notes == (PackingNote(PackingNoteCode.PODS_IGNORED, "not-judged: scheduling gates", 1),)


def test_a_resource_that_no_node_can_run_short_of_is_no_column() -> None:
    plenty = {"ephemeral-storage": 110 * GIBIBYTE}
    scarce = {"ephemeral-storage": 109 * GIBIBYTE}
    pods = (make_shop_pod("a", extended_requests=(("ephemeral-storage", GIBIBYTE),)), make_shop_pod("b"))
    enough = build_packing_problem(
        ClusterSnapshot(nodes=(make_shop_node("n1", allocatable_extended=plenty),), pods=pods)
    ).problem
    assert enough.resources == ("cpu", "memory", "pods")
    assert enough.class_count == 1
    short = build_packing_problem(
        ClusterSnapshot(nodes=(make_shop_node("n1", allocatable_extended=scarce),), pods=pods)
    ).problem
    assert short.resources == ("cpu", "memory", "pods", "ephemeral-storage")
    assert short.demands[:, 3].tolist() == [GIBIBYTE, 0]
