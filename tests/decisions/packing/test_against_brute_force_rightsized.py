"""Tiny clusters whose pods are sized to base and shared headroom: the packer against exhaustive search."""

from collections import Counter
from dataclasses import replace

from cruise.decisions.packing.problem import FULL_MODE, BuiltProblem, UsageInputs, build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import PackingProposal, PackingSizes
from cruise.packer.answer import Packing
from cruise.packer.budget import SolveBudget
from cruise.packer.pack import pack
from cruise.packer.problem import PackingObjective
from tests.builders import NOW
from tests.decisions.packing.brute_force_cluster import best_plan
from tests.decisions.packing.brute_force_demands import Measured, demands_of, measure, table_of
from tests.decisions.packing.brute_force_trials import WORK_UNITS
from tests.decisions.packing.clusters import cluster_of

OPERATOR = PackingObjective.OPERATOR


def measured_cluster_of(seed: int) -> tuple[ClusterSnapshot, Measured]:
    """A cluster, and what was measured in it; a LimitRange would change what is needed."""
    snapshot = replace(cluster_of(seed), limit_ranges={}, quotas={})
    return snapshot, measure(snapshot, seed)


def rightsized(snapshot: ClusterSnapshot, measured: Measured) -> tuple[BuiltProblem, Packing, PackingProposal]:
    """Pack, and again without sizing whose sizes could not be written."""
    unsizable: frozenset[str] = frozenset()
    while True:
        usage = UsageInputs(table_of(measured), NOW, not_resizable=unsizable)
        built = build_packing_problem(snapshot, FULL_MODE, PackingSizes.RIGHTSIZED, usage)
        packing = pack(built.problem, SolveBudget(work_units=WORK_UNITS), lambda _: None)
        proposal = build_proposal(built, packing)
        if isinstance(proposal, PackingProposal):
            return built, packing, proposal
        assert proposal.not_resizable - unsizable, proposal.reason
        unsizable |= proposal.not_resizable


def test_sized_clusters_are_packed_optimally_and_no_pod_is_evicted_in_vain(seeds):
    rescued, tried = Counter[int](), seeds(300, fewest=50)
    for seed in tried:
        snapshot, measured = measured_cluster_of(seed)
        built, packing, proposal = rightsized(snapshot, measured)
        demands = demands_of(snapshot, measured, built.usage.not_resizable)
        best, still = (best_plan(snapshot, OPERATOR, demands, still=still) for still in (False, True))
        assert (packing.planned.get_key(OPERATOR), tuple(packing.bound)) == (best.key, best.key), seed
        assert find_plan_objections(snapshot, proposal, demands=demands) == (), seed
        if best.key[:-1] == still.key[:-1]:
            assert (proposal.moves, proposal.preempted) == ((), ()), seed
            rescued[seed // 50] += still.key > best_plan(snapshot, OPERATOR, still=True).key
    # Sizing makes room in some of every fifty that there is not for pods as they are.
    assert all(rescued[fifty] >= 3 for fifty in range(len(tried) // 50))
