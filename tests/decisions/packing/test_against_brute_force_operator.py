"""A thousand tiny clusters for the operator's objective: most pods by priority, then fewest evictions."""

from dataclasses import replace

from cruise.packer.problem import PackingObjective
from tests.builders import make_pod, make_snapshot, make_workload
from tests.decisions.packing.brute_force_cluster import best_plan, is_single, key_of_now
from tests.decisions.packing.brute_force_trials import find_disagreements, pack_trial
from tests.decisions.packing.clusters import cluster_of


def test_tiny_clusters_are_packed_as_well_as_can_be_and_every_proof_is_true(seeds):
    for seed in seeds(1000):
        assert find_disagreements(cluster_of(seed), PackingObjective.OPERATOR) == [], seed


def test_no_pod_is_evicted_if_all_can_be_placed_without_evictions(seeds):
    rescued, tried = 0, seeds(200, fewest=50)
    for seed in tried:
        snapshot = cluster_of(seed)
        best, still = (best_plan(snapshot, PackingObjective.OPERATOR, still=still) for still in (False, True))
        if best.key[:-1] == still.key[:-1]:
            assert pack_trial(snapshot, PackingObjective.OPERATOR).packing.planned.eviction_weight == 0, seed
            rescued += still.key > key_of_now(snapshot, PackingObjective.OPERATOR)
    assert rescued > len(tried) // 4


def test_single_replicas_are_read_from_the_workload_or_else_counted():
    pods = [make_pod("web-1"), make_pod("web-2")]
    for replicas, single in ((1, True), (2, False), (None, False)):
        snapshot = make_snapshot(pods, workloads=[make_workload(replicas=replicas)])
        assert is_single(snapshot, pods[0]) == single
    alone = make_snapshot([pods[0], replace(pods[1], phase="Failed")], workloads=[make_workload(replicas=None)])
    assert is_single(alone, pods[0])
    assert is_single(make_snapshot(), make_pod(workload="StatefulSet/db"))
