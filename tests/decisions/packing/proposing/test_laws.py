"""Every proposal of a random cluster passes the judge."""

import math
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.packing.building import AS_FULL, Built, Usage, build_problem
from cruise.decisions.packing.judging.objections import find_objections
from cruise.decisions.packing.judging.sizing import Demand
from cruise.decisions.packing.proposing import propose
from cruise.domain.packing import Proposal, Sizes
from cruise.domain.resources import Resources
from cruise.packer.answer import Packing
from cruise.packer.budget import Meter
from cruise.packer.constrained.solving import solve_constrained
from cruise.packer.pack import quick_packing
from cruise.packer.problem import Problem
from tests.builders import NOW
from tests.decisions.packing.clusters import cluster_of
from tests.decisions.packing.proposing.sized_clusters import sized_cluster_of
from tests.strategies import Cluster
from tests.tiers import examples


@examples(300)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_a_proposal(seed: int) -> None:
    snapshot = cluster_of(seed)
    built = build_problem(snapshot)
    found = propose(built, quick_packing(built.problem))
    assert isinstance(found, Proposal)
    assert find_objections(snapshot, found) == ()


def demands_of(built: Built) -> dict[tuple[str, str], Demand]:
    problem = built.problem
    base, headroom = problem.demands[problem.pod_class], problem.headroom[problem.pod_class]
    return {
        (pod.namespace, pod.name): Demand(
            Resources(int(base[index, 0]), int(base[index, 1])),
            Resources(int(headroom[index, 0]), int(headroom[index, 1])),
        )
        for index, pod in enumerate(built.pods)
    }


def rightsized(cluster: Cluster, pack: Callable[[Problem], Packing] = quick_packing) -> tuple[Built, Proposal]:
    """Build, pack and propose, as often as sizes turn out not to be writable."""
    unsizable: frozenset[str] = frozenset()
    while True:
        usage = Usage(cluster.statistics, NOW, unsizable=unsizable)
        built = build_problem(cluster.snapshot, AS_FULL, Sizes.RIGHTSIZED, usage)
        found = propose(built, pack(built.problem))
        if isinstance(found, Proposal):
            return built, found
        assert not found.unsizable <= unsizable
        unsizable |= found.unsizable


@examples(300)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_sizes(seed: int) -> None:
    cluster = sized_cluster_of(seed)
    built, found = rightsized(cluster)
    assert find_objections(cluster.snapshot, found, demands=demands_of(built)) == ()


def exactly(problem: Problem) -> Packing:
    """The best packing of all, which moves pods where the quick one does not."""
    return solve_constrained(problem, problem.pod_node, Meter(math.inf, math.inf), lambda _: None)


@examples(60)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_the_best_plan_with_sizes(seed: int) -> None:
    cluster = sized_cluster_of(seed)
    built, found = rightsized(cluster, exactly)
    assert find_objections(cluster.snapshot, found, demands=demands_of(built)) == ()
