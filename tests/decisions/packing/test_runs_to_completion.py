"""Plans do not evict pods that run to completion unless `eviction-ranking: low` is stated."""

from dataclasses import replace

import pytest

from cruise.decisions.packing.consolidation import summarize_node_count_change
from cruise.decisions.packing.node_types import add_candidate_nodes
from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import build_proposal, get_reached_packing
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import PackingProposal
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import PackingObjective
from tests.builders import make_pod, make_snapshot
from tests.decisions.packing.brute_force_trials import SIZES
from tests.decisions.packing.clusters import cluster_of
from tests.decisions.packing.test_truth_at_the_edges import a_node, a_pod, planned

RANKING = "cruise.io/eviction-ranking"


def proposed(snapshot: ClusterSnapshot, objective: PackingObjective) -> PackingProposal:
    built = build_packing_problem(snapshot, sizes=SIZES[objective])
    plan = build_proposal(built, pack(built.problem, SolveBudget(work_units=5e7), lambda packing: None))
    assert isinstance(plan, PackingProposal)
    return plan


def leaving(plan: PackingProposal) -> set[tuple[str, str]]:
    return {one.key for one in (*plan.moves, *plan.preempted)}


def test_no_plan_takes_a_pod_off_its_node_that_runs_to_completion(seeds):
    moved = low = 0
    for seed in seeds(120):
        snapshot = cluster_of(seed)
        plan = proposed(snapshot, PackingObjective.OPERATOR)
        gone = leaving(plan)
        if not gone:
            continue
        moved += 1
        pods = tuple(
            replace(pod, restart_policy="Never" if at % 2 else "OnFailure")
            if (pod.namespace, pod.name) in gone
            else pod
            for at, pod in enumerate(snapshot.pods)
        )
        held = replace(snapshot, pods=pods)
        again = proposed(held, PackingObjective.OPERATOR)
        assert not leaving(again) & gone, seed
        assert find_plan_objections(held, again) == (), seed
        # The judge reads it for itself.
        assert any("would lose its work" in one for one in find_plan_objections(held, plan)), seed
        stated = tuple(
            replace(pod, annotations={**pod.annotations, RANKING: "low"}) if (pod.namespace, pod.name) in gone else pod
            for pod in pods
        )
        low += bool(leaving(proposed(replace(snapshot, pods=stated), PackingObjective.OPERATOR)))
    assert moved == low > 0


@pytest.mark.parametrize(
    ("policy", "annotations", "emptied"),
    [("Always", {}, 1), ("OnFailure", {}, 0), ("Never", {}, 0), ("Never", {RANKING: "low"}, 1)],
)
def test_no_node_is_emptied_of_pods_that_run_to_completion(policy: str, annotations: dict[str, str], emptied: int):
    pods = [
        make_pod(f"work-{node}", node=node, workload="Deployment/work", restart_policy=policy, annotations=annotations)
        for node in ("n1", "n2")
    ]
    candidate_nodes = add_candidate_nodes(make_snapshot(pods), None)
    built = build_packing_problem(candidate_nodes.snapshot, prices=candidate_nodes.prices)
    packing = pack(built.problem, SolveBudget(work_units=5e7), lambda _: None)
    plan = build_proposal(built, packing)
    assert isinstance(plan, PackingProposal)
    change = summarize_node_count_change(built, get_reached_packing(built, packing, plan), plan, candidate_nodes)
    assert len(change.drained) == emptied


@pytest.mark.parametrize("objective", [PackingObjective.PAPER, PackingObjective.OPERATOR])
@pytest.mark.parametrize(
    ("stays", "late", "proved"),
    [
        ({"restartPolicy": "Never"}, {"priority": 5}, False),
        ({"restartPolicy": "Never"}, {"priority": 0}, True),
        ({"restartPolicy": "Never"}, {"priority": 5, "preemptionPolicy": "Never"}, True),
        ({"restartPolicy": "Never", "priority": 9}, {"priority": 5}, True),
        # Not even an empty node would do.
        ({"restartPolicy": "Never"}, {"priority": 5, "cpu": "1200m"}, True),
    ],
)
def test_what_kube_scheduler_may_preempt_proves_nothing(objective, stays, late, proved):
    plan = planned(a_node("n1"), a_pod("work-1", "n1", **stays), a_pod("late-1", **late), objective=objective)
    (found,) = plan.unplaced
    assert found.impossible is proved
    told = "kube-scheduler may preempt pods of lower priority that no plan evicts" in describe_unplaced_pod(found)
    assert told is not proved


def test_a_member_of_a_group_of_lower_priority_proves_nothing_either():
    member = a_pod("gang-1", "n1")
    member["metadata"]["labels"] |= {"scheduling.x-k8s.io/pod-group": "gang"}
    plan = planned(a_node("n1"), member, a_pod("late-1", priority=5))
    assert [(one.pod, one.impossible) for one in plan.unplaced] == [("late-1", False)]
