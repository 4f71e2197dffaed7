"""The index of placements stays correct when pods are added and removed."""

from collections import Counter
from dataclasses import replace

from cruise.decisions.scheduling.placements import PodPlacements, get_pod_key
from cruise.domain.scheduling import LabelRequirement, LabelSelector, PodAffinityTerm, PodConstraints, SelectorOperator
from tests.builders import make_pod, make_snapshot

EVERYTHING = LabelSelector()


def crowds(board: PodPlacements, selector: LabelSelector = EVERYTHING, with_ending: bool = True) -> dict[str, int]:
    found: Counter[str] = Counter()
    for _, nodes in board.find_matching_groups("shop", selector, with_ending):
        found.update(nodes)
    return dict(+found)


def test_finished_pods_hold_nothing_and_pending_ones_are_nowhere():
    pods = [make_pod("a"), make_pod("b", phase="Succeeded"), make_pod("c", node=None)]
    board = PodPlacements(make_snapshot(pods))
    assert [pod.name for pod in board.get_pods_on("n1")] == ["a"]
    assert [board.get_node(get_pod_key(pod)) for pod in pods] == ["n1", None, None]


def test_pods_with_the_same_labels_are_counted_together():
    pods = [make_pod("a", labels={"app": "x"}), make_pod("b", labels={"app": "x"}, node="n2"), make_pod("c")]
    board = PodPlacements(make_snapshot(pods))
    x = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("x",)),))
    other = LabelSelector((LabelRequirement("app", SelectorOperator.NOT_IN, ("x",)),))
    assert [crowds(board, selector) for selector in (x, other)] == [{"n1": 1, "n2": 1}, {"n1": 1}]
    board.remove(("shop", "a"))
    assert [crowds(board, selector) for selector in (x, other)] == [{"n2": 1}, {"n1": 1}]


def test_terminating_pods_are_counted_separately():
    board = PodPlacements(make_snapshot([replace(make_pod("a"), terminating=True)]))
    assert crowds(board, with_ending=False) == {}
    assert crowds(board) == {"n1": 1}
    assert board.get_namespaces() == ["shop"]


def test_claims_and_anti_affinity_are_given_back_with_their_pod():
    term = PodAffinityTerm("zone", LabelSelector(), frozenset({"bank"}))
    holder = make_pod("a", constraints=PodConstraints(anti_affinity=(term,), claims=("data",)))
    board = PodPlacements(make_snapshot([holder]))
    assert board.get_claim_users(("shop", "data")).total() == 1
    assert [(found, dict(nodes)) for found, nodes in board.find_anti_affinity_against("bank", {})] == [
        (term, {"n1": 1})
    ]
    assert list(board.find_anti_affinity_against("shop", {})) == []
    board.add(board.remove(("shop", "a")), "n2")
    assert board.get_claim_users(("shop", "data")).total() == 1
    assert [dict(nodes) for _, nodes in board.find_anti_affinity_against("bank", {})] == [{"n1": 0, "n2": 1}]
    board.remove(("shop", "a"))
    assert board.get_claim_users(("shop", "data")).total() == 0
