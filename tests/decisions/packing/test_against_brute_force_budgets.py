"""Tiny clusters with random eviction budgets: plans are as good as exhaustive search, and proofs are true."""

import random

from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import UNLIMITED, EvictionAllowance
from cruise.packer.problem import PackingObjective
from tests.decisions.packing.brute_force_cluster import best_plan
from tests.decisions.packing.brute_force_trials import find_disagreements
from tests.decisions.packing.clusters import cluster_of


def drawn_allowance(snapshot: ClusterSnapshot, seed: int) -> EvictionAllowance:
    """What is left of the budgets of a node, a workload and the hour; some of each is spent already."""
    draw = random.Random(seed)
    refs = sorted({(pod.namespace, pod.workload) for pod in snapshot.pods if pod.workload is not None}, key=str)
    return EvictionAllowance(
        total=draw.choice([None, None, 1, 2, 3]),
        default_per_workload=draw.choice([None, 1, 1, 2]),
        by_workload={key: 0 for key in refs if draw.random() < 0.15},
        default_per_node=draw.choice([None, 1, 1, 2]),
        by_node={node.name: draw.randint(0, 1) for node in snapshot.nodes if draw.random() < 0.15},
    )


def test_no_plan_within_the_budgets_is_better_and_every_proof_is_true(seeds):
    bound, tried = 0, seeds(300)
    for seed in tried:
        snapshot = cluster_of(seed)
        allowance = drawn_allowance(snapshot, seed)
        for objective in (PackingObjective.OPERATOR, PackingObjective.PAPER):
            assert find_disagreements(snapshot, objective, allowance) == [], (seed, objective, allowance)
        free, within = (
            best_plan(snapshot, PackingObjective.OPERATOR, allowance=given) for given in (UNLIMITED, allowance)
        )
        bound += free.key > within.key
    assert bound > len(tried) // 20
