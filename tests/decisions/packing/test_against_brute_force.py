"""A thousand tiny clusters with every kind of constraint: the packer against trying all plans, with fixed sizes."""

import pytest

from cruise.packer.problem import Objective
from tests.decisions.packing.brute_force_trials import find_disagreements
from tests.decisions.packing.clusters import cluster_of


@pytest.mark.parametrize("fifty", range(20))
def test_tiny_clusters_are_packed_as_well_as_can_be_and_every_proof_is_true(fifty):
    for seed in range(fifty * 50, fifty * 50 + 50):
        assert find_disagreements(cluster_of(seed), Objective.PAPER) == [], seed
