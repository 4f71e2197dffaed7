"""The random clusters are full and known to be packable, and the reference plan obeys their rules."""

import pytest

from benchmarks.ejection_heuristic import place_by_ejections
from benchmarks.openb_cluster import OPENB
from benchmarks.unlike_clusters import ClusterDrawing, DrawnBudgets, FullCluster, draw_full
from cruise.packer.problem import PackingObjective
from cruise.packer.verification import find_rule_violations

MAKES = [make for make in ClusterDrawing if make is not ClusterDrawing.OPENB or OPENB.exists()]


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("budgets", DrawnBudgets)
def test_a_drawn_cluster_holds_no_more_than_its_nodes(make, budgets):
    problem = draw_full(FullCluster(make, 20, budgets=budgets, priorities=3), 1)
    assert find_rule_violations(problem, problem.pod_node) == ()
    wanted = problem.demands[problem.pod_class].sum(axis=0)
    assert (wanted <= problem.capacities.sum(axis=0)).all()
    assert (wanted[:2] > 0.6 * problem.capacities.sum(axis=0)[:2]).any()


def test_of_a_full_cluster_some_share_of_its_pods_is_drawn():
    full, fewer, more = (
        draw_full(FullCluster(ClusterDrawing.BIMODAL, 20, percent=percent, priorities=3), 1, PackingObjective.OPERATOR)
        for percent in (100, 90, 101)
    )
    assert fewer.pod_count == full.pod_count * 90 // 100
    assert more.pod_count == full.pod_count + full.pod_count // 100
    waits = more.priorities[more.pod_class[more.pod_node < 0]].max()
    assert not (more.preemptible & (more.priorities >= waits)).any()


def test_the_simple_way_places_more_and_breaks_no_rule():
    problem = draw_full(FullCluster(ClusterDrawing.BIMODAL, 40), 1)
    pod_node = place_by_ejections(problem)
    assert find_rule_violations(problem, pod_node) == ()
    assert (pod_node < 0).sum() < (problem.pod_node < 0).sum()
