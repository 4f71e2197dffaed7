"""A plan stage by stage: which pods are present when a pod arrives, and which must have been evicted."""

from dataclasses import replace

import pytest

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.packing.plan_replay import PlanReplay
from cruise.decisions.packing.verification import FULL_MODE_POLICY
from cruise.decisions.scheduling.placements import is_waiting_for_scheduling
from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.cluster import ClusterSnapshot, ContainerRole, Pod, VerticalPodAutoscaler
from cruise.domain.packing_plan import PackingProposal, PackingSizes, PlanStage
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    PodAffinityTerm,
    PodConstraints,
    SelectorOperator,
    TopologySpreadConstraint,
)
from tests.builders import make_amounts, make_node, make_pod, make_snapshot
from tests.decisions.packing.plans import make_plan, make_small_pod, place, preempt


def objections(snapshot: ClusterSnapshot, plan: PackingProposal) -> list[str]:
    replay = PlanReplay(snapshot, plan, EvictionRules(snapshot, FULL_MODE_POLICY, {}))
    replay.run()
    return replay.objections


def resize(pod: Pod, cpu: int, node: str | None = None) -> ResizePod:
    target = ContainerTarget("app", ContainerRole.MAIN, make_amounts(cpu), make_amounts())
    return ResizePod(
        pod.namespace, pod.name, pod.uid, node or pod.node, pod.workload, (target,), NO_RESOURCES, ReasonCode.RIGHTSIZED
    )


def app(name: str) -> LabelSelector:
    return LabelSelector((LabelRequirement("app", SelectorOperator.IN, (name,)),))


def test_two_pods_change_places_in_one_stage_and_not_in_two():
    left, right = make_small_pod("left", 800, "n1"), make_small_pod("right", 900, "n2")
    snapshot = make_snapshot([left, right], [make_node("n1", cpu=1000), make_node("n2", cpu=1000)])
    there, back = place(left, "n2"), place(right, "n1")
    assert objections(snapshot, make_plan(snapshot, PlanStage((), (there, back), (there, back)))) == []
    found = objections(
        snapshot, make_plan(snapshot, PlanStage((), (there,), (there,)), PlanStage((), (back,), (back,)))
    )
    assert found == [
        "stage 1: pod shop/left is not let onto n2, which lacks cpu: 900 m used, 800 m more, of 1000 m",
    ]


def test_free_capacity_is_what_all_earlier_steps_left():
    first, second = make_small_pod("first", 600), make_small_pod("second", 600)
    snapshot = make_snapshot([first, second], [make_node("n1", cpu=1000)])
    found = objections(snapshot, make_plan(snapshot, PlanStage((), (), (place(first, "n1"), place(second, "n1")))))
    assert found[0] == "stage 1: pod shop/second is not let onto n1, which lacks cpu: 600 m used, 600 m more, of 1000 m"


def test_a_shrink_frees_capacity_for_later_steps():
    here, new = make_small_pod("here", 800, "n1"), make_small_pod("new", 400)
    snapshot = make_snapshot([here, new], [make_node("n1", cpu=1000)])
    stage = PlanStage((resize(here, 600),), (), (place(new, "n1"),))
    assert objections(snapshot, make_plan(snapshot, stage, sizes=PackingSizes.RIGHTSIZED)) == []
    found = objections(
        snapshot, make_plan(snapshot, replace(stage, resizes=(resize(here, 601),)), sizes=PackingSizes.RIGHTSIZED)
    )
    assert "stage 1: pod shop/new is not let onto n1, which lacks cpu: 601 m used, 400 m more, of 1000 m" in found


def test_a_pending_pod_is_shrunk_before_it_is_placed():
    new = make_small_pod("new", 1400)
    snapshot = make_snapshot([new], [make_node("n1", cpu=1000)])
    stage = PlanStage((resize(new, 1000),), (), (place(new, "n1"),))
    assert objections(snapshot, make_plan(snapshot, stage, sizes=PackingSizes.RIGHTSIZED)) == []
    by_arrival = replace(place(new, "n1"), containers=resize(new, 1000).containers)
    assert (
        objections(snapshot, make_plan(snapshot, PlanStage((), (), (by_arrival,)), sizes=PackingSizes.RIGHTSIZED)) == []
    )


@pytest.mark.parametrize(
    ("changes", "objection"),
    [
        ({"cpu": 900}, "grows from 800 m to 900 m"),
        ({"cpu": 600, "node": "n2"}, "is resized on n2, but is on n1"),
        ({"cpu": None}, "would lose the cpu request of container app"),
    ],
)
def test_a_resize_that_is_none(changes, objection):
    here = make_small_pod("here", 800, "n1")
    snapshot = make_snapshot([here], [make_node("n1"), make_node("n2")])
    plan = make_plan(snapshot, PlanStage((resize(here, **changes),), (), ()), sizes=PackingSizes.RIGHTSIZED)
    assert any(objection in one for one in objections(snapshot, plan))


def test_a_pod_is_resized_once_and_not_while_it_ends():
    here = make_small_pod("here", 800, "n1")
    stage = PlanStage((resize(here, 700), resize(here, 600)), (), ())
    snapshot = make_snapshot([here])
    found = objections(snapshot, make_plan(snapshot, stage, sizes=PackingSizes.RIGHTSIZED))
    assert found == ["stage 1: pod shop/here is resized twice"]
    ending = make_snapshot([replace(here, terminating=True)])
    once = make_plan(ending, replace(stage, resizes=stage.resizes[:1]), sizes=PackingSizes.RIGHTSIZED)
    assert objections(ending, once) == ["stage 1: pod shop/here is resized, though it ends"]


def test_no_plan_sizes_what_a_vpa_sizes():
    new, here = make_small_pod("new", 1400), make_small_pod("here", 800, "n1")
    rivals = tuple(VerticalPodAutoscaler("shop", "rival", one.workload, "Recreate") for one in (new, here))
    snapshot = make_snapshot([new, here], [make_node("n1"), make_node("n2")])
    snapshot = replace(snapshot, vertical_autoscalers=rivals)
    by_arrival = replace(place(new, "n2"), containers=resize(new, 1000).containers)
    plan = make_plan(snapshot, PlanStage((resize(here, 700),), (), (by_arrival,)), sizes=PackingSizes.RIGHTSIZED)
    assert objections(snapshot, plan) == [
        "stage 1: pod shop/here is resized, though another autoscaler sizes it",
        "stage 1: pod shop/new arrives with other sizes, though another autoscaler sizes it",
    ]


def test_a_terminating_pod_occupies_its_capacity_until_it_is_gone():
    ending, new = make_small_pod("ending", 800, "n1", terminating=True), make_small_pod("new", 400)
    snapshot = make_snapshot([ending, new], [make_node("n1", cpu=1000)])
    assert len(objections(snapshot, make_plan(snapshot, PlanStage((), (), (place(new, "n1"),))))) == 2
    finished = make_snapshot([replace(ending, phase="Succeeded"), new], snapshot.nodes)
    assert objections(finished, make_plan(finished, PlanStage((), (), (place(new, "n1"),)))) == []


def test_affinity_requires_the_other_pod_to_be_placed_first():
    near_db = PodConstraints(affinity=(PodAffinityTerm("zone", app("db"), frozenset({"shop"})),))
    db, web = make_small_pod("db", 100), make_small_pod("web", 100, constraints=near_db)
    snapshot = make_snapshot([db, web], [make_node("n1", labels={"zone": "a"})])
    right = PlanStage((), (), (place(db, "n1"), place(web, "n1")))
    assert objections(snapshot, make_plan(snapshot, right)) == []
    wrong = replace(right, arrivals=right.arrivals[::-1])
    assert objections(snapshot, make_plan(snapshot, wrong)) == [
        "stage 1: pod shop/web is not let onto n1, which has no pod of its affinity in the same zone"
    ]


def test_later_steps_must_not_violate_the_rules_of_a_placed_pod():
    near_db = PodConstraints(affinity=(PodAffinityTerm("zone", app("db"), frozenset({"shop"})),))
    db, web = make_small_pod("db", 100, "n1"), make_small_pod("web", 100, constraints=near_db)
    nodes = [make_node("n1", labels={"zone": "a"}), make_node("n2", labels={"zone": "b"})]
    snapshot = make_snapshot([db, web], nodes)
    away = place(db, "n2")
    plan = make_plan(snapshot, PlanStage((), (), (place(web, "n1"),)), PlanStage((), (away,), (away,)))
    assert objections(snapshot, plan) == [
        "in the end: pod shop/web is not let onto n1, which has no pod of its affinity in the same zone"
    ]


def test_spread_is_counted_as_pods_are_placed():
    even = PodConstraints(spread=(TopologySpreadConstraint("zone", app("web"), 1),))
    pods = [make_small_pod(f"web-{number}", 100, app="web", constraints=even) for number in range(3)]
    nodes = [make_node("n1", labels={"zone": "a"}), make_node("n2", labels={"zone": "b"})]
    snapshot = make_snapshot(pods, nodes)
    first, second, third = pods
    right = PlanStage((), (), (place(first, "n1"), place(second, "n2"), place(third, "n1")))
    assert objections(snapshot, make_plan(snapshot, right)) == []
    wrong = PlanStage((), (), (place(first, "n1"), place(third, "n1"), place(second, "n2")))
    assert objections(snapshot, make_plan(snapshot, wrong)) == [
        "stage 1: pod shop/web-2 is not let onto n1, which would skew its spread over zone by 2, of 1"
    ]


def test_a_pod_may_lose_its_place_to_its_equals_only_where_sizes_are_fixed():
    """The paper's objective trades pods of one priority; for operators only less important ones go."""
    big, one, two = make_small_pod("big", 800, "n1"), make_small_pod("one", 400), make_small_pod("two", 400)
    snapshot = make_snapshot([big, one, two], [make_node("n1", cpu=800)])
    stage = PlanStage((), (preempt(big),), (place(one, "n1"), place(two, "n1")))
    assert objections(snapshot, make_plan(snapshot, stage)) == []
    assert objections(snapshot, make_plan(snapshot, stage, sizes=PackingSizes.RIGHTSIZED)) == [
        "stage 1: pod shop/big of priority 0 is preempted for pods of at most 0"
    ]


@pytest.mark.parametrize(
    ("changes", "pending"),
    [
        ({}, True),
        ({"node": "n1"}, False),
        ({"scheduling_gated": True}, False),
        ({"terminating": True}, False),
        ({"phase": "Failed"}, False),
    ],
)
def test_which_pods_wait_for_scheduling(changes, pending):
    assert is_waiting_for_scheduling(replace(make_pod(node=None), **changes)) == pending
