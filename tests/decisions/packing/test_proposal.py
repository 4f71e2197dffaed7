"""From a packing to a proposal with stages."""

import numpy as np

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import PackingProposal
from cruise.packer.answer import build_packing, compute_figures
from tests.decisions.packing.shop import make_shop_node, make_shop_pod


def proposal_for(snapshot: ClusterSnapshot, places: dict[str, str | None]) -> PackingProposal:
    """Propose that the named pods are on the nodes of `places`, and all others stay."""
    built = build_packing_problem(snapshot)
    index = {node.name: number for number, node in enumerate(built.nodes)}
    pod_node = built.problem.pod_node.copy()
    for number, pod in enumerate(built.pods):
        if pod.name in places:
            place = places[pod.name]
            pod_node[number] = -1 if place is None else index[place]
    bound = compute_figures(built.problem, pod_node).get_key(built.problem.objective)
    found = build_proposal(built, build_packing(built.problem, pod_node, bound))
    assert isinstance(found, PackingProposal)
    return found


def stages_of(proposal: PackingProposal) -> list[tuple[list[str], list[str]]]:
    return [([one.pod for one in stage.evictions], [one.pod for one in stage.arrivals]) for stage in proposal.stages]


def test_a_chain_of_moves_starts_at_its_tail() -> None:
    snapshot = ClusterSnapshot(
        nodes=(make_shop_node("n1", 1000), make_shop_node("n2", 900), make_shop_node("n3", 800)),
        pods=(make_shop_pod("a", "n1", 900), make_shop_pod("b", "n2", 800), make_shop_pod("new", cpu=1000)),
    )
    found = proposal_for(snapshot, {"new": "n1", "a": "n2", "b": "n3"})
    assert stages_of(found) == [(["b"], ["b"]), (["a"], ["a", "new"])]
    assert [move.target for move in found.moves] == ["n2", "n3"]


def test_two_pods_that_exchange_nodes_leave_together() -> None:
    snapshot = ClusterSnapshot(
        nodes=(make_shop_node("n1", 1000), make_shop_node("n2", 900)),
        pods=(make_shop_pod("a", "n1", 900), make_shop_pod("b", "n2", 800)),
    )
    assert stages_of(proposal_for(snapshot, {"a": "n2", "b": "n1"})) == [(["a", "b"], ["a", "b"])]


def test_a_preemption_is_directly_before_its_pod() -> None:
    snapshot = ClusterSnapshot(
        nodes=(make_shop_node("n1", 1000),),
        pods=(make_shop_pod("low", "n1", 900), make_shop_pod("new", cpu=1000, priority=5)),
    )
    found = proposal_for(snapshot, {"low": None, "new": "n1"})
    assert stages_of(found) == [(["low"], ["new"])]
    assert [(line.priority, line.placed, line.running, line.maximum) for line in found.by_priority] == [
        (5, 1, 0, 1),
        (0, 0, 1, 0),
    ]


def test_a_pod_that_is_not_moved_is_the_one_that_ran_there() -> None:
    snapshot = ClusterSnapshot(
        nodes=(make_shop_node("n1", 500), make_shop_node("n2", 500)),
        pods=(make_shop_pod("a", "n1"), make_shop_pod("b")),
    )
    built = build_packing_problem(snapshot)
    swapped = np.array([1, 0], dtype=np.int64)
    found = build_proposal(built, build_packing(built.problem, swapped, (2, 1)))
    assert isinstance(found, PackingProposal)
    assert found.moves == ()
    assert [(one.pod, one.target) for one in found.placed] == [("b", "n2")]
