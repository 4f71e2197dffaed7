import math

import numpy as np
import pytest

from benchmarks.packing_instances import InstanceShape, draw_pending, problem_of
from benchmarks.unlike_clusters import ClusterDrawing, FullCluster, draw_full
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.bounds import ObjectiveEntryBound
from cruise.packer.columns.generation import ColumnGeneration, list_patterns, start_column_generation
from cruise.packer.columns.instance import build_instance, fix_running_copies
from cruise.packer.columns.primal_heuristics import AnnealingSearch
from cruise.packer.columns.subproblem import build_subproblem, get_patterns
from cruise.packer.pack import solve_subproblem
from cruise.packer.problem import IntArray, count_copies


def stays_question(seed: int, most_nodes: int) -> tuple[IntArray, ColumnGeneration]:
    """The question about stays in the best packing found, with its bound, from pricing that may stop early."""
    problem = problem_of(draw_pending(InstanceShape(8, 4, 1, 95), seed))
    found = solve_subproblem(problem, problem.pod_node, BudgetMeter(math.inf, 5e8), 1, lambda _: None)
    residual = fix_running_copies(build_instance(problem))
    best = residual.to_residual(count_copies(problem, found.pod_node))
    generation = start_column_generation(build_subproblem(residual, best, 1), np.random.default_rng(seed))
    generation.most_nodes = most_nodes
    generation.add_patterns(*get_patterns(generation.subproblem, residual.running))
    generation.generate(0, BudgetMeter(math.inf, math.inf))
    return best, generation


@pytest.mark.parametrize("most_nodes", [20, 30_000])
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_filling_of_a_plan_that_reaches_the_target_is_cut_off(seed, most_nodes):
    """Slack is measured against the values stored with the bound: others once proved a real plan impossible."""
    best, generation = stays_question(seed, most_nodes)
    phase = generation.subproblem
    listed = list_patterns(generation, phase.counted_classes, BudgetMeter(math.inf, math.inf))
    assert listed is not None
    groups, fillings = listed
    for node, filling in enumerate(best[phase.classes].T):
        mine = fillings[groups == phase.node_group[node]]
        assert (mine >= filling).all(axis=1).any(), node


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_bound_is_never_below_a_plan_however_early_pricing_stops(seed):
    for most_nodes in (5, 30_000):
        _, generation = stays_question(seed, most_nodes)
        assert generation.bound >= generation.subproblem.counted_classes - 1e-6
        assert generation.ceiling >= generation.subproblem.counted_classes


def test_diving_finds_a_pattern_for_every_node():
    """Once a filling that was fixed was beyond its bound in the master, whose other levels were wrong then by far."""
    problem = draw_full(FullCluster(ClusterDrawing.BIMODAL, 40, 20), 1)
    meter = BudgetMeter(math.inf, math.inf)
    assignment = count_copies(problem, problem.pod_node)
    for _ in range(3):
        assignment = AnnealingSearch(problem, 1).anneal(assignment, 0, meter)
    question = ObjectiveEntryBound(problem, assignment, 1, 1)
    found = question.search_whole_patterns(assignment, meter)
    assert found is not None
