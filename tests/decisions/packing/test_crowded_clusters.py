"""Clusters whose pods are related by rules: each plan can be executed, and no order contradicts a proof."""

from collections import Counter

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.packing_plan import PackingProposal
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from tests.decisions.packing.crowded_clusters import count_most_placed, make_contended_cluster


def test_plans_are_sound_and_no_order_of_arrival_places_more_than_is_proved(seeds):
    for seed in seeds(1000):
        snapshot = make_contended_cluster(seed)
        built = build_packing_problem(snapshot)
        plan = build_proposal(built, pack(built.problem, SolveBudget(work_units=5e8), lambda packing: None))
        assert isinstance(plan, PackingProposal), seed
        assert find_plan_objections(snapshot, plan) == (), seed
        placed = Counter({line.priority: line.placed - line.running for line in plan.by_priority})
        most = Counter({line.priority: line.maximum - line.running for line in plan.by_priority})
        let_in = count_most_placed(snapshot)
        # Of the first priority of which an order lets in another number than the plan.
        for priority in sorted(let_in, reverse=True):
            if let_in[priority] != placed[priority]:
                assert let_in[priority] <= most[priority], seed
                break
