"""The order in which pods leave and arrive."""

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.reasons import PlanCondition, PlanStatusReason
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    PodAffinityTerm,
    PodConstraints,
    SelectorOperator,
    TopologySpreadConstraint,
)
from cruise.packer.answer import build_packing, compute_figures
from tests.decisions.packing.shop import make_shop_node, make_shop_pod
from tests.decisions.packing.test_proposal import proposal_for, stages_of

WEB = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
ZONES = tuple(make_shop_node(f"n{zone}", 5000, labels={"zone": zone}) for zone in "abc")


def test_of_two_cycles_each_is_cut_by_itself() -> None:
    nodes = tuple(make_shop_node(f"n{i}", 500 + i) for i in range(4))
    pods = tuple(make_shop_pod(f"p{i}", f"n{i}", 400 + 10 * i) for i in range(4))
    found = proposal_for(ClusterSnapshot(nodes=nodes, pods=pods), {"p0": "n1", "p1": "n0", "p2": "n3", "p3": "n2"})
    assert [sorted(leaves) for leaves, _ in stages_of(found)] == [["p0", "p1"], ["p2", "p3"]]


def test_pods_that_are_spread_arrive_in_the_emptiest_domain_first() -> None:
    spread = PodConstraints(spread=(TopologySpreadConstraint("zone", WEB, 1),))
    pods = tuple(make_shop_pod(f"p{i}", constraints=spread) for i in range(6))
    places: dict[str, str | None] = {"p0": "na", "p1": "na", "p2": "nb", "p3": "nb", "p4": "nc", "p5": "nc"}
    found = proposal_for(ClusterSnapshot(nodes=ZONES, pods=pods), places)
    (stage,) = found.stages
    counts = {name: 0 for name in ("na", "nb", "nc")}
    for arrival in stage.arrivals:
        counts[arrival.target] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


def test_a_pod_with_affinity_is_placed_after_its_peer() -> None:
    near = PodConstraints(affinity=(PodAffinityTerm("zone", WEB, frozenset({"shop"})),))
    pods = (make_shop_pod("a", labels={"app": "db"}, constraints=near, priority=9), make_shop_pod("z"))
    found = proposal_for(ClusterSnapshot(nodes=ZONES, pods=pods), {"a": "na", "z": "na"})
    assert stages_of(found) == [([], ["z", "a"])]


def test_a_pod_follows_the_one_whose_anti_affinity_keeps_it_off_until_then() -> None:
    apart = PodConstraints(anti_affinity=(PodAffinityTerm("zone", WEB, frozenset({"shop"})),))
    pods = (make_shop_pod("guard", "na", labels={"app": "guard"}, constraints=apart), make_shop_pod("new"))
    found = proposal_for(ClusterSnapshot(nodes=ZONES, pods=pods), {"guard": "nb", "new": "na"})
    assert stages_of(found) == [(["guard"], ["guard", "new"])]


def test_a_packing_that_breaks_a_rule_has_no_order() -> None:
    near = PodConstraints(affinity=(PodAffinityTerm("zone", WEB, frozenset({"shop"})),))
    built = build_packing_problem(
        ClusterSnapshot(nodes=ZONES, pods=(make_shop_pod("a", labels={"app": "db"}, constraints=near),))
    )
    pod_node = built.problem.pod_node.copy()
    pod_node[0] = 0
    bound = compute_figures(built.problem, pod_node).get_key(built.problem.objective)
    found = build_proposal(built, build_packing(built.problem, pod_node, bound))
    assert found == MoveOrderFailure(PlanCondition(PlanStatusReason.NO_MOVE_ORDER))


def test_a_pod_outside_every_domain_does_not_keep_another_from_starting_its_group() -> None:
    near = PodConstraints(affinity=(PodAffinityTerm("zone", WEB, frozenset({"shop"})),))
    snapshot = ClusterSnapshot(
        nodes=(*ZONES, make_shop_node("outside")),
        pods=(make_shop_pod("old", "outside"), make_shop_pod("new", constraints=near)),
    )
    assert stages_of(proposal_for(snapshot, {"new": "na"})) == [([], ["new"])]
