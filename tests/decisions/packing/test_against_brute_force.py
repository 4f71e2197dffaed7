"""A thousand tiny clusters with every kind of constraint: the packer against exhaustive search, fixed sizes."""

from cruise.packer.problem import PackingObjective
from tests.decisions.packing.brute_force_trials import find_disagreements
from tests.decisions.packing.clusters import cluster_of


def test_tiny_clusters_are_packed_as_well_as_can_be_and_every_proof_is_true(seeds):
    for seed in seeds(1000):
        assert find_disagreements(cluster_of(seed), PackingObjective.PAPER) == [], seed
