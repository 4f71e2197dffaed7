"""Nodes of equal size: the node selected for a pod, and the reuse of indices."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.replay.nodes import ReplayedNodes
from cruise.backtest.replay.policy import ReplayOptions
from cruise.domain.resources import Resources

TERMS = ReplayOptions(node=Resources(1000, 1000), node_pods=3)
NEEDS = st.builds(Resources, st.integers(0, 600), st.integers(0, 600))


def of(count: int) -> ReplayedNodes:
    nodes = ReplayedNodes(TERMS)
    for _ in range(count):
        nodes.add()
    return nodes


def test_the_freest_node_is_chosen_and_of_equals_the_first():
    nodes = of(3)
    nodes.add_pod(0, Resources(500, 500))
    assert nodes.choose(Resources(100, 100)) == 1
    nodes.add_pod(1, Resources(100, 100))
    nodes.add_pod(2, Resources(200, 200))
    assert nodes.choose(Resources(100, 100)) == 1


def test_no_pod_is_placed_on_a_full_node():
    nodes = of(2)
    nodes.add_pod(0, Resources(500, 100))
    nodes.add_pod(1, Resources(0, 600))
    assert nodes.choose(Resources(600, 100)) == 1
    assert nodes.choose(Resources(600, 500)) is None
    for _ in range(2):
        nodes.add_pod(1, Resources())
    assert nodes.choose(Resources(600, 100)) is None


def test_the_lowest_free_index_is_used_again():
    nodes = of(3)
    nodes.add_pod(1, Resources(1, 1))
    nodes.remove_empty()
    assert nodes.exists.tolist() == [False, True, False]
    assert nodes.choose(Resources(1, 1)) == 1
    assert [nodes.add(), nodes.add(), nodes.add()] == [0, 2, 3]
    assert (nodes.node_count, nodes.peak) == (4, 4)


def test_a_copy_is_filled_without_consequence():
    nodes = of(1)
    copy = nodes.copy()
    copy.add_pod(0, Resources(900, 900))
    copy.exists[0] = False
    assert nodes.choose(Resources(900, 900)) == 0


def test_a_resize_changes_counted_and_scored_requests():
    nodes = of(1)
    nodes.add_pod(0, Resources(100, 0))
    nodes.add_pod(0, Resources(200, 50))
    before = (np.array([100, 200]), np.array([0, 50]))
    nodes.resize(np.array([0, 0]), before, (np.array([0, 250]), np.array([10, 0])))
    again = of(1)
    again.add_pod(0, Resources(0, 10))
    again.add_pod(0, Resources(250, 0))
    assert nodes.cpu_millicores.tolist() == again.cpu_millicores.tolist() == [250]
    assert nodes.memory_bytes.tolist() == again.memory_bytes.tolist() == [10]
    assert nodes.scored_cpu_millicores.tolist() == again.scored_cpu_millicores.tolist()
    assert nodes.scored_memory_bytes.tolist() == again.scored_memory_bytes.tolist()


@given(st.lists(NEEDS, max_size=6), st.lists(NEEDS, max_size=6))
def test_pods_that_cannot_fit_are_never_placed(there: list[Resources], coming: list[Resources]):
    nodes = of(3)
    for need in there:
        chosen = nodes.choose(need)
        if chosen is not None:
            nodes.add_pod(chosen, need)
    possible = nodes.may_fit(coming)
    placed = True
    for need in coming:
        chosen = nodes.choose(need)
        placed = placed and chosen is not None
        if chosen is not None:
            nodes.add_pod(chosen, need)
    assert possible or not placed
    assert (nodes.cpu_millicores <= 1000).all() and (nodes.memory_bytes <= 1000).all() and (nodes.pods <= 3).all()


def test_the_compute_requested_share_is_that_of_the_scarcer_resource():
    nodes = of(2)
    nodes.add_pod(0, Resources(100, 300))
    nodes.add_pod(1, Resources(400, 0))
    assert nodes.compute_requested_share().tolist() == [0.3, 0.4]
