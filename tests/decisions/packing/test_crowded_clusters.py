"""Clusters in which most pods are tied by rules: each plan can be carried out, and no order refutes what it proves."""

from collections import Counter

from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.proposing import propose
from cruise.domain.packing import Proposal
from cruise.packer.budget import Budget
from cruise.packer.pack import pack
from tests.decisions.packing.crowded_clusters import crowded_cluster, most_let_in


def test_plans_are_sound_and_no_order_of_arriving_lets_in_more_than_is_proved(seeds):
    for seed in seeds(1000):
        snapshot = crowded_cluster(seed)
        built = build_problem(snapshot)
        plan = propose(built, pack(built.problem, Budget(work_units=5e8), lambda packing: None))
        assert isinstance(plan, Proposal), seed
        assert find_objections(snapshot, plan) == (), seed
        placed = Counter({line.priority: line.placed - line.bound for line in plan.by_priority})
        most = Counter({line.priority: line.most - line.bound for line in plan.by_priority})
        let_in = most_let_in(snapshot)
        # Of the first priority of which an order lets in another number than the plan.
        for priority in sorted(let_in, reverse=True):
            if let_in[priority] != placed[priority]:
                assert let_in[priority] <= most[priority], seed
                break
