"""The order in which pods leave and arrive."""

from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.proposing import NoOrder, propose
from cruise.domain.cluster import Snapshot
from cruise.domain.colocation import PodConstraints, PodTerm, SpreadConstraint
from cruise.domain.halts import Halt, HaltCode
from cruise.domain.scheduling import LabelSelector, Operator, Requirement
from cruise.packer.answer import figures_of, packing_of
from tests.decisions.packing.proposing.test_propose import proposal_for, stages_of
from tests.decisions.packing.shop import a_node, a_pod

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
ZONES = tuple(a_node(f"n{zone}", 5000, labels={"zone": zone}) for zone in "abc")


def test_of_two_cycles_each_is_cut_by_itself() -> None:
    nodes = tuple(a_node(f"n{i}", 500 + i) for i in range(4))
    pods = tuple(a_pod(f"p{i}", f"n{i}", 400 + 10 * i) for i in range(4))
    found = proposal_for(Snapshot(nodes=nodes, pods=pods), {"p0": "n1", "p1": "n0", "p2": "n3", "p3": "n2"})
    assert [sorted(leaves) for leaves, _ in stages_of(found)] == [["p0", "p1"], ["p2", "p3"]]


def test_pods_that_are_spread_arrive_in_the_emptiest_domain_first() -> None:
    spread = PodConstraints(spread=(SpreadConstraint("zone", WEB, 1),))
    pods = tuple(a_pod(f"p{i}", constraints=spread) for i in range(6))
    places: dict[str, str | None] = {"p0": "na", "p1": "na", "p2": "nb", "p3": "nb", "p4": "nc", "p5": "nc"}
    found = proposal_for(Snapshot(nodes=ZONES, pods=pods), places)
    (stage,) = found.stages
    counts = {name: 0 for name in ("na", "nb", "nc")}
    for arrival in stage.arrivals:
        counts[arrival.target] += 1
        assert max(counts.values()) - min(counts.values()) <= 1


def test_who_needs_a_neighbour_comes_after_it() -> None:
    near = PodConstraints(affinity=(PodTerm("zone", WEB, frozenset({"shop"})),))
    pods = (a_pod("a", labels={"app": "db"}, constraints=near, priority=9), a_pod("z"))
    found = proposal_for(Snapshot(nodes=ZONES, pods=pods), {"a": "na", "z": "na"})
    assert stages_of(found) == [([], ["z", "a"])]


def test_a_pod_follows_the_one_whose_anti_affinity_keeps_it_off_until_then() -> None:
    apart = PodConstraints(anti_affinity=(PodTerm("zone", WEB, frozenset({"shop"})),))
    pods = (a_pod("guard", "na", labels={"app": "guard"}, constraints=apart), a_pod("new"))
    found = proposal_for(Snapshot(nodes=ZONES, pods=pods), {"guard": "nb", "new": "na"})
    assert stages_of(found) == [(["guard"], ["guard", "new"])]


def test_a_packing_that_breaks_a_rule_has_no_order() -> None:
    near = PodConstraints(affinity=(PodTerm("zone", WEB, frozenset({"shop"})),))
    built = build_problem(Snapshot(nodes=ZONES, pods=(a_pod("a", labels={"app": "db"}, constraints=near),)))
    pod_node = built.problem.pod_node.copy()
    pod_node[0] = 0
    bound = figures_of(built.problem, pod_node).key(built.problem.objective)
    found = propose(built, packing_of(built.problem, pod_node, bound))
    assert found == NoOrder(Halt(HaltCode.NO_ORDER))


def test_a_pod_outside_every_domain_does_not_keep_another_from_starting_its_group() -> None:
    near = PodConstraints(affinity=(PodTerm("zone", WEB, frozenset({"shop"})),))
    snapshot = Snapshot(
        nodes=(*ZONES, a_node("outside")), pods=(a_pod("old", "outside"), a_pod("new", constraints=near))
    )
    assert stages_of(proposal_for(snapshot, {"new": "na"})) == [([], ["new"])]
