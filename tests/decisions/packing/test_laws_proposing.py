"""Every proposal for a random cluster passes verification."""

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.packing.plan_replay import BaseAndHeadroom
from cruise.decisions.packing.problem import FULL_MODE, BuiltProblem, UsageInputs, build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.packing_plan import PackingProposal, PackingSizes
from cruise.domain.resources import Resources
from cruise.packer.answer import Packing
from cruise.packer.budget import BudgetMeter
from cruise.packer.exact.model import solve_exact
from cruise.packer.greedy import pack_quickly
from cruise.packer.problem import PackingProblem
from tests.builders import NOW
from tests.decisions.packing.clusters import cluster_of
from tests.decisions.packing.sized_clusters import sized_cluster_of
from tests.strategies import DrawnClusterValues
from tests.tiers import examples


@examples(300)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_a_proposal(seed: int) -> None:
    snapshot = cluster_of(seed)
    built = build_packing_problem(snapshot)
    found = build_proposal(built, pack_quickly(built.problem))
    assert isinstance(found, PackingProposal)
    assert find_plan_objections(snapshot, found) == ()


def demands_of(built: BuiltProblem) -> dict[tuple[str, str], BaseAndHeadroom]:
    problem = built.problem
    base, headroom = problem.demands[problem.pod_class], problem.headroom[problem.pod_class]
    return {
        (pod.namespace, pod.name): BaseAndHeadroom(
            Resources(int(base[index, 0]), int(base[index, 1])),
            Resources(int(headroom[index, 0]), int(headroom[index, 1])),
        )
        for index, pod in enumerate(built.pods)
    }


def rightsized(
    cluster: DrawnClusterValues, pack: Callable[[PackingProblem], Packing] = pack_quickly
) -> tuple[BuiltProblem, PackingProposal]:
    """Build, pack and propose, as often as sizes turn out not to be writable."""
    unsizable: frozenset[str] = frozenset()
    while True:
        usage = UsageInputs(cluster.statistics, NOW, not_resizable=unsizable)
        built = build_packing_problem(cluster.snapshot, FULL_MODE, PackingSizes.RIGHTSIZED, usage)
        found = build_proposal(built, pack(built.problem))
        if isinstance(found, PackingProposal):
            return built, found
        assert not found.not_resizable <= unsizable
        unsizable |= found.not_resizable


@examples(300)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_sizes(seed: int) -> None:
    cluster = sized_cluster_of(seed)
    built, found = rightsized(cluster)
    assert find_plan_objections(cluster.snapshot, found, demands=demands_of(built)) == ()


def exactly(problem: PackingProblem) -> Packing:
    """The best packing of all, which moves pods where the quick one does not."""
    return solve_exact(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), lambda _: None)


@examples(60)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_the_best_plan_with_sizes(seed: int) -> None:
    cluster = sized_cluster_of(seed)
    built, found = rightsized(cluster, exactly)
    assert find_plan_objections(cluster.snapshot, found, demands=demands_of(built)) == ()
