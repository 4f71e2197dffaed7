"""Which pod may be the first of an affinity group: packer, verification and exhaustive search agree."""

from dataclasses import replace

import pytest

from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot, Pod
from cruise.domain.packing_plan import PackingProposal
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    PodAffinityTerm,
    PodConstraints,
    SchedulingConstraints,
    SelectorOperator,
)
from cruise.packer.problem import PackingObjective
from tests.decisions.packing.brute_force_trials import find_disagreements, pack_trial
from tests.decisions.packing.shop import make_shop_node, make_shop_pod
from tests.packer.problems import WITHOUT_FLEET

WEB = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))
NEAR = PodConstraints(affinity=(PodAffinityTerm("zone", WEB, frozenset({"shop"})),))
NODES = tuple(make_shop_node(f"n{zone}", 5000, labels={"zone": zone}) for zone in "ab")


def in_zone(pod: Pod, zone: str) -> Pod:
    return replace(pod, placement=SchedulingConstraints(node_selector=(("zone", zone),)))


@pytest.mark.parametrize("objective", WITHOUT_FLEET)
@pytest.mark.parametrize("zones", ["ab", "aa"])
@pytest.mark.parametrize("running", [False, True])
def test_a_matching_pod_elsewhere_prevents_a_first_pod(objective: PackingObjective, zones: str, running: bool) -> None:
    other = in_zone(make_shop_pod("other", f"n{zones[1]}" if running else None), zones[1])
    snapshot = ClusterSnapshot(nodes=NODES, pods=(in_zone(make_shop_pod("follows", constraints=NEAR), zones[0]), other))
    assert find_disagreements(snapshot, objective) == []
    built = pack_trial(snapshot, objective)
    assert sum(built.packing.pod_node >= 0) == (2 if zones == "aa" else 1)


@pytest.mark.parametrize("objective", WITHOUT_FLEET)
def test_two_pods_with_mutual_affinity_stay_placed_despite_a_peer_in_another_zone(objective: PackingObjective) -> None:
    pods = [in_zone(make_shop_pod(f"follows-{i}", constraints=NEAR), "a") for i in range(2)]
    snapshot = ClusterSnapshot(nodes=NODES, pods=(*pods, in_zone(make_shop_pod("other"), "b")))
    answer = pack_trial(snapshot, objective)
    assert (answer.packing.pod_node >= 0).all()
    assert isinstance(answer.proposal, PackingProposal)
    assert find_plan_objections(snapshot, answer.proposal) == ()
