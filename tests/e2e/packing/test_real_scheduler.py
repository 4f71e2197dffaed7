"""cruise's scheduling rules against the real kube-scheduler, for single pods and for whole plans."""

import pytest

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot, Node
from cruise.domain.packing_plan import PackingProposal
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from tests.controlplane.api import wait_until
from tests.e2e.packing.carrying import PlanRun
from tests.e2e.packing.probing import agrees, all_judged, create_probes, nodes_that_admit
from tests.e2e.packing.stage import PackingCluster

# Each judges a pod of every cluster; the first two pin each of them once.
ROUNDS, OF_ALL_TIERS = 7, 4
# Work, not time: the plans are the same whatever else the machine does.
WORK_EACH = 5e8


@pytest.mark.parametrize(
    "number",
    [*range(OF_ALL_TIERS), *(pytest.param(one, marks=pytest.mark.long) for one in range(OF_ALL_TIERS, ROUNDS))],
)
def test_the_checker_accepts_a_pod_where_kube_scheduler_does(stage: PackingCluster, number: int):
    names = create_probes(stage, number)
    admitting = {
        names[cluster]: nodes_that_admit(snapshot, names[cluster]) for cluster, snapshot in stage.snapshots().items()
    }
    stage.each(
        names.values(), lambda pod: stage.api.patch("pods", *pod, {"spec": {"schedulingGates": []}}, kind="merge")
    )
    try:
        judged = wait_until(lambda: all_judged(stage, admitting), "the scheduler has judged all")
    finally:
        stage.remove_pods(list(names.values()))
    differing = [
        f"{name}: the scheduler says {judged[name]}, the judge {sorted(admitting[name].items())}"
        for name in names.values()
        if not agrees(admitting[name], judged[name][0])
    ]
    assert not differing, "\n".join(differing)
    bound = sum(node is not None for node, _ in judged.values())
    assert 10 < bound < len(names)


def test_the_real_scheduler_accepts_what_plans_want(stage: PackingCluster):
    plans: dict[str, PackingProposal] = {}
    nodes: dict[str, Node] = {}
    for name, snapshot in stage.snapshots().items():
        nodes |= {node.name: node for node in snapshot.nodes}
        plan = plan_for(snapshot)
        assert isinstance(plan, PackingProposal), f"{name}: {plan.reason}"
        assert find_plan_objections(snapshot, plan) == (), name
        plans[name] = plan
    staying = stage.staying(plans.values())
    carrying = PlanRun(stage, plans, nodes)
    carrying.run()
    landings = carrying.landings
    elsewhere = [landing for landing in landings if not landing.as_planned]
    told = "\n".join(landing.in_words() for landing in elsewhere)
    assert all(landing.node for landing in landings), told
    assert all(landing.reasons for landing in elsewhere), told
    assert len(elsewhere) <= len(landings) // 100, told
    assert len(landings) > 1.5 * len(stage.clusters)
    # No pod was preempted that the plans keep.
    assert stage.places(staying) == staying


def plan_for(snapshot: ClusterSnapshot) -> PackingProposal | MoveOrderFailure:
    """The plan for a cluster as it is."""
    built = build_packing_problem(snapshot)
    return build_proposal(built, pack(built.problem, SolveBudget(work_units=WORK_EACH), lambda packing: None))
