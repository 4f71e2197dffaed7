"""Which pod may be the first of those that its affinity names: the packer, the judge and trying all plans agree."""

from dataclasses import replace

import pytest

from cruise.decisions.packing.judging import find_objections
from cruise.domain.cluster import Pod, Snapshot
from cruise.domain.colocation import PodConstraints, PodTerm
from cruise.domain.packing import Proposal
from cruise.domain.scheduling import LabelSelector, Operator, Placement, Requirement
from cruise.packer.problem import Objective
from tests.decisions.packing.brute_force_trials import find_disagreements, packed
from tests.decisions.packing.shop import a_node, a_pod
from tests.packer.problems import WITHOUT_FLEET

WEB = LabelSelector((Requirement("app", Operator.IN, ("web",)),))
NEAR = PodConstraints(affinity=(PodTerm("zone", WEB, frozenset({"shop"})),))
NODES = tuple(a_node(f"n{zone}", 5000, labels={"zone": zone}) for zone in "ab")


def in_zone(pod: Pod, zone: str) -> Pod:
    return replace(pod, placement=Placement(node_selector=(("zone", zone),)))


@pytest.mark.parametrize("objective", WITHOUT_FLEET)
@pytest.mark.parametrize("zones", ["ab", "aa"])
@pytest.mark.parametrize("running", [False, True])
def test_a_target_elsewhere_keeps_a_first_one_away(objective: Objective, zones: str, running: bool) -> None:
    other = in_zone(a_pod("other", f"n{zones[1]}" if running else None), zones[1])
    snapshot = Snapshot(nodes=NODES, pods=(in_zone(a_pod("follows", constraints=NEAR), zones[0]), other))
    assert find_disagreements(snapshot, objective) == []
    built = packed(snapshot, objective)
    assert sum(built.packing.pod_node >= 0) == (2 if zones == "aa" else 1)


@pytest.mark.parametrize("objective", WITHOUT_FLEET)
def test_two_that_follow_each_other_stand_beside_a_target_elsewhere(objective: Objective) -> None:
    pods = [in_zone(a_pod(f"follows-{i}", constraints=NEAR), "a") for i in range(2)]
    snapshot = Snapshot(nodes=NODES, pods=(*pods, in_zone(a_pod("other"), "b")))
    answer = packed(snapshot, objective)
    assert (answer.packing.pod_node >= 0).all()
    assert isinstance(answer.proposal, Proposal)
    assert find_objections(snapshot, answer.proposal) == ()
