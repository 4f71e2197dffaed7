"""Every proposal of a random cluster passes the judge."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from cruise.decisions.packing.building import AS_FULL, Built, Usage, build_problem
from cruise.decisions.packing.judging.objections import find_objections
from cruise.decisions.packing.judging.sizing import Demand
from cruise.decisions.packing.pack import quick_packing
from cruise.decisions.packing.proposal import Proposal, Sizes
from cruise.decisions.packing.proposing import propose
from cruise.domain.resources import Resources
from tests import strategies
from tests.builders import NOW
from tests.decisions.packing.clusters import cluster_of


@settings(max_examples=300, deadline=None)
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


@settings(max_examples=300, deadline=None)
@given(cluster=strategies.clusters(), cpu=st.integers(1, 100), memory=st.integers(1, 100))
def test_the_judge_has_no_objection_to_sizes(cluster: strategies.Cluster, cpu: int, memory: int) -> None:
    nodes = tuple(
        replace(
            node,
            allocatable=Resources(
                node.allocatable.cpu_millicores * cpu // 100, node.allocatable.memory_bytes * memory // 100
            ),
        )
        for node in cluster.snapshot.nodes
    )
    snapshot = replace(cluster.snapshot, nodes=nodes)
    unsizable: frozenset[str] = frozenset()
    while True:
        usage = Usage(cluster.statistics, NOW, unsizable=unsizable)
        built = build_problem(snapshot, None, AS_FULL, Sizes.RIGHTSIZED, usage)
        found = propose(built, quick_packing(built.problem))
        if isinstance(found, Proposal):
            break
        assert not found.unsizable <= unsizable
        unsizable |= found.unsizable
    assert find_objections(snapshot, found, demands=demands_of(built)) == ()
