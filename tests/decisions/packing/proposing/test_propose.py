"""From a packing to a proposal with stages."""

import numpy as np

from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.proposing import propose
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import Proposal
from cruise.packer.answer import figures_of, packing_of
from tests.decisions.packing.shop import a_node, a_pod


def proposal_for(snapshot: Snapshot, places: dict[str, str | None]) -> Proposal:
    """Propose that the named pods are where `places` says, and all others stay."""
    built = build_problem(snapshot)
    index = {node.name: number for number, node in enumerate(built.nodes)}
    pod_node = built.problem.pod_node.copy()
    for number, pod in enumerate(built.pods):
        if pod.name in places:
            place = places[pod.name]
            pod_node[number] = -1 if place is None else index[place]
    bound = figures_of(built.problem, pod_node).key(built.problem.objective)
    found = propose(built, packing_of(built.problem, pod_node, bound))
    assert isinstance(found, Proposal)
    return found


def stages_of(proposal: Proposal) -> list[tuple[list[str], list[str]]]:
    return [([one.pod for one in stage.leaves], [one.pod for one in stage.arrivals]) for stage in proposal.stages]


def test_a_chain_of_moves_goes_from_its_tail() -> None:
    snapshot = Snapshot(
        nodes=(a_node("n1", 1000), a_node("n2", 900), a_node("n3", 800)),
        pods=(a_pod("a", "n1", 900), a_pod("b", "n2", 800), a_pod("new", cpu=1000)),
    )
    found = proposal_for(snapshot, {"new": "n1", "a": "n2", "b": "n3"})
    assert stages_of(found) == [(["b"], ["b"]), (["a"], ["a", "new"])]
    assert [move.target for move in found.moves] == ["n2", "n3"]


def test_two_pods_that_exchange_nodes_leave_together() -> None:
    snapshot = Snapshot(
        nodes=(a_node("n1", 1000), a_node("n2", 900)), pods=(a_pod("a", "n1", 900), a_pod("b", "n2", 800))
    )
    assert stages_of(proposal_for(snapshot, {"a": "n2", "b": "n1"})) == [(["a", "b"], ["a", "b"])]


def test_a_preemption_comes_right_before_the_pod_it_is_for() -> None:
    snapshot = Snapshot(nodes=(a_node("n1", 1000),), pods=(a_pod("low", "n1", 900), a_pod("new", cpu=1000, priority=5)))
    found = proposal_for(snapshot, {"low": None, "new": "n1"})
    assert stages_of(found) == [(["low"], ["new"])]
    assert [(line.priority, line.placed, line.bound, line.most) for line in found.by_priority] == [
        (5, 1, 0, 1),
        (0, 0, 1, 0),
    ]


def test_a_pod_that_stays_is_the_one_that_ran_there() -> None:
    snapshot = Snapshot(nodes=(a_node("n1", 500), a_node("n2", 500)), pods=(a_pod("a", "n1"), a_pod("b")))
    built = build_problem(snapshot)
    swapped = np.array([1, 0], dtype=np.int64)
    found = propose(built, packing_of(built.problem, swapped, (2, 1)))
    assert isinstance(found, Proposal)
    assert found.moves == ()
    assert [(one.pod, one.target) for one in found.placed] == [("b", "n2")]
