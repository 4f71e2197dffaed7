"""Tiny clusters whose pods are sized to base and shared headroom: the packer against trying all plans."""

from collections import Counter
from dataclasses import replace

from cruise.decisions.packing.building import AS_FULL, Built, Usage, build_problem
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.proposing import propose
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import Proposal, Sizes
from cruise.packer.answer import Packing
from cruise.packer.budget import Budget
from cruise.packer.pack import pack
from cruise.packer.problem import Objective
from tests.builders import NOW
from tests.decisions.packing.brute_force_cluster import best_plan
from tests.decisions.packing.brute_force_demands import Measured, demands_of, measure, table_of
from tests.decisions.packing.brute_force_trials import WORK_UNITS
from tests.decisions.packing.clusters import cluster_of

OPERATOR = Objective.OPERATOR


def measured_cluster_of(seed: int) -> tuple[Snapshot, Measured]:
    """A cluster, and what was measured in it; a LimitRange would change what is needed."""
    snapshot = replace(cluster_of(seed), limit_ranges={}, quotas={})
    return snapshot, measure(snapshot, seed)


def rightsized(snapshot: Snapshot, measured: Measured) -> tuple[Built, Packing, Proposal]:
    """Pack, and again without sizing whose sizes could not be written."""
    unsizable: frozenset[str] = frozenset()
    while True:
        usage = Usage(table_of(measured), NOW, unsizable=unsizable)
        built = build_problem(snapshot, AS_FULL, Sizes.RIGHTSIZED, usage)
        packing = pack(built.problem, Budget(work_units=WORK_UNITS), lambda _: None)
        proposal = propose(built, packing)
        if isinstance(proposal, Proposal):
            return built, packing, proposal
        assert proposal.unsizable - unsizable, proposal.why
        unsizable |= proposal.unsizable


def test_sized_clusters_are_packed_as_well_as_can_be_and_nobody_is_evicted_in_vain(seeds):
    rescued, tried = Counter[int](), seeds(300, fewest=50)
    for seed in tried:
        snapshot, measured = measured_cluster_of(seed)
        built, packing, proposal = rightsized(snapshot, measured)
        demands = demands_of(snapshot, measured, built.usage.unsizable)
        best, still = (best_plan(snapshot, OPERATOR, demands, still=still) for still in (False, True))
        assert (packing.after.key(OPERATOR), tuple(packing.bound)) == (best.key, best.key), seed
        assert find_objections(snapshot, proposal, demands=demands) == (), seed
        if best.key[:-1] == still.key[:-1]:
            assert (proposal.moves, proposal.preempted) == ((), ()), seed
            rescued[seed // 50] += still.key > best_plan(snapshot, OPERATOR, still=True).key
    # Sizing makes room in some of every fifty that there is not for pods as they are.
    assert all(rescued[fifty] >= 3 for fifty in range(len(tried) // 50))
