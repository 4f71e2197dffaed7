"""What the board knows follows its pods as they come and go."""

from collections import Counter
from dataclasses import replace

from cruise.decisions.scheduling.board import Board, key_of
from cruise.domain.colocation import PodConstraints, PodTerm
from cruise.domain.scheduling import LabelSelector, Operator, Requirement
from tests.builders import make_pod, make_snapshot

EVERYTHING = LabelSelector()


def crowds(board: Board, selector: LabelSelector = EVERYTHING, with_ending: bool = True) -> dict[str, int]:
    found: Counter[str] = Counter()
    for _, nodes in board.crowds_selected("shop", selector, with_ending):
        found.update(nodes)
    return dict(+found)


def test_finished_pods_hold_nothing_and_pending_ones_are_nowhere():
    pods = [make_pod("a"), make_pod("b", phase="Succeeded"), make_pod("c", node=None)]
    board = Board(make_snapshot(pods))
    assert [pod.name for pod in board.pods_on("n1")] == ["a"]
    assert [board.place_of(key_of(pod)) for pod in pods] == ["n1", None, None]


def test_pods_with_the_same_labels_are_counted_together():
    pods = [make_pod("a", labels={"app": "x"}), make_pod("b", labels={"app": "x"}, node="n2"), make_pod("c")]
    board = Board(make_snapshot(pods))
    x = LabelSelector((Requirement("app", Operator.IN, ("x",)),))
    other = LabelSelector((Requirement("app", Operator.NOT_IN, ("x",)),))
    assert [crowds(board, selector) for selector in (x, other)] == [{"n1": 1, "n2": 1}, {"n1": 1}]
    board.remove(("shop", "a"))
    assert [crowds(board, selector) for selector in (x, other)] == [{"n2": 1}, {"n1": 1}]


def test_those_that_are_ending_are_counted_apart():
    board = Board(make_snapshot([replace(make_pod("a"), terminating=True)]))
    assert crowds(board, with_ending=False) == {}
    assert crowds(board) == {"n1": 1}
    assert board.namespaces() == ["shop"]


def test_claims_and_anti_affinity_are_given_back_with_their_pod():
    term = PodTerm("zone", LabelSelector(), frozenset({"bank"}))
    holder = make_pod("a", constraints=PodConstraints(anti_affinity=(term,), claims=("data",)))
    board = Board(make_snapshot([holder]))
    assert board.users_of(("shop", "data")).total() == 1
    assert [(found, dict(nodes)) for found, nodes in board.anti_affinity_against("bank", {})] == [(term, {"n1": 1})]
    assert list(board.anti_affinity_against("shop", {})) == []
    board.add(board.remove(("shop", "a")), "n2")
    assert board.users_of(("shop", "data")).total() == 1
    assert [dict(nodes) for _, nodes in board.anti_affinity_against("bank", {})] == [{"n1": 0, "n2": 1}]
    board.remove(("shop", "a"))
    assert board.users_of(("shop", "data")).total() == 0
