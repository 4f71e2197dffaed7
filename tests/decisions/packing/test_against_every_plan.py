"""Tiny clusters with every kind of constraint: fewest nodes and verification against exhaustive search."""

from dataclasses import replace

from cruise.decisions.packing.consolidation import summarize_node_count_change
from cruise.decisions.packing.node_types import add_candidate_nodes
from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import MoveOrderFailure, build_proposal, get_reached_packing
from cruise.decisions.packing.verification import find_plan_objections
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from tests.decisions.packing.clusters import cluster_of
from tests.packer.every_assignment import best_key_without_faults, count_assignments

# More are not tried one by one.
MOST_PLANS = 2_000


def packed(snapshot, prices):
    built = build_packing_problem(snapshot, prices=prices)
    return built, pack(built.problem, SolveBudget(work_units=2e8), lambda _: None)


def test_no_plan_needs_fewer_nodes_than_the_bound_and_what_is_proved_is_the_best(seeds):
    looked_at = 0
    for seed in seeds(200):
        snapshot = cluster_of(seed)
        built, packing = packed(snapshot, {node.name: 1 for node in snapshot.nodes})
        problem = built.problem
        if count_assignments(problem) > MOST_PLANS:
            continue
        best = best_key_without_faults(problem)
        assert packing.planned.get_key(problem.objective) <= best <= packing.bound, seed
        looked_at += 1
    assert looked_at > 0


def test_every_plan_passes_the_judge_and_counts_its_nodes_right(seeds):
    for seed in seeds(400):
        candidate_nodes = add_candidate_nodes(cluster_of(seed), None)
        built, packing = packed(candidate_nodes.snapshot, candidate_nodes.prices)
        plan = build_proposal(built, packing)
        assert not isinstance(plan, MoveOrderFailure)
        change = summarize_node_count_change(built, get_reached_packing(built, packing, plan), plan, candidate_nodes)
        objections = find_plan_objections(candidate_nodes.snapshot, replace(plan, node_count_change=change))
        assert [line for line in objections if "neither placed" not in line] == [], seed
        assert change.nodes_bound <= change.nodes_after
