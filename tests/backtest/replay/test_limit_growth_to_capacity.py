"""Increases within the nodes' free capacity before the pass."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.replay.cluster import limit_growth_to_capacity
from cruise.decisions.sizing.update_threshold import get_update_threshold
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE
from tests.backtest.replay.policies import get_placements, sizes

MIB = MEBIBYTE
BAND = get_update_threshold(Policy())


def held(wanted, current, node, free_cpu, free_memory, patched=None):
    """Return who is written and with what, after the cut."""
    wanted, current = sizes(*wanted), sizes(*current)
    chosen = np.ones(len(node), dtype=np.bool_) if patched is None else np.array(patched)
    free = (get_placements(*free_cpu), get_placements(*[mib * MIB for mib in free_memory]))
    left = limit_growth_to_capacity(chosen, wanted, current, get_placements(*node), free, BAND)
    return left.tolist(), wanted


def test_increases_that_fit_are_written():
    left, wanted = held([(300, 200 * MIB, 0)], [(100, 100 * MIB, 0)], [0], [200], [100])
    assert left == [True]
    assert (wanted.cpu_millicores.tolist(), wanted.memory_bytes.tolist()) == ([300], [200 * MIB])


def test_decreases_of_an_increase_that_does_not_fit_are_written():
    left, wanted = held([(300, 50 * MIB, 400 * MIB)], [(100, 100 * MIB, 200 * MIB)], [0], [199], [0])
    assert left == [True]
    assert wanted.cpu_millicores.tolist() == [100]
    assert (wanted.memory_bytes.tolist(), wanted.memory_limit_bytes.tolist()) == ([50 * MIB], [400 * MIB])


def test_a_limit_raised_for_a_request_is_unchanged_if_the_request_is():
    left, wanted = held([(50, 400 * MIB, 400 * MIB)], [(100, 100 * MIB, 200 * MIB)], [0], [0], [0])
    assert left == [True]
    assert (wanted.memory_bytes.tolist(), wanted.memory_limit_bytes.tolist()) == ([100 * MIB], [200 * MIB])


def test_decreases_inside_the_update_threshold_are_not_written():
    left, _ = held([(300, 95 * MIB, 0)], [(100, 100 * MIB, 0)], [0], [0], [0])
    assert left == [False]


def test_the_first_uses_free_capacity_and_a_smaller_one_may_still_fit():
    current = [(100, 0, 0)] * 3
    left, wanted = held([(300, 0, 0), (350, 0, 0), (150, 0, 0)], current, [0, 0, 0], [250], [0])
    assert left == [True, False, True]
    assert wanted.cpu_millicores.tolist() == [300, 100, 150]


def test_a_decrease_on_the_same_node_frees_no_capacity_yet():
    left, _ = held([(50, 0, 0), (200, 0, 0)], [(150, 0, 0), (100, 0, 0)], [0, 0], [99], [0])
    assert left == [True, False]


numbers = st.integers(0, 400)


@given(
    st.lists(st.tuples(numbers, numbers, numbers, numbers, st.integers(0, 2), st.booleans()), min_size=1, max_size=12),
    st.tuples(numbers, numbers, numbers),
    st.tuples(numbers, numbers, numbers),
)
def test_increases_stay_within_free_capacity_and_others_are_never_resized(pods, free_cpu, free_memory):
    wanted = [(cpu, memory * MIB, 0) for cpu, memory, *_ in pods]
    current = [(cpu, memory * MIB, 0) for _, _, cpu, memory, *_ in pods]
    node, patched = [pod[4] for pod in pods], [pod[5] for pod in pods]
    left, after = held(wanted, current, node, free_cpu, free_memory, patched)
    assert all(was or not now for was, now in zip(patched, left, strict=True))
    for index in range(3):
        here = [place for place in range(len(pods)) if node[place] == index and left[place]]
        grown_cpu = sum(max(0, int(after.cpu_millicores[place]) - current[place][0]) for place in here)
        grown_memory = sum(max(0, int(after.memory_bytes[place]) - current[place][1]) for place in here)
        assert grown_cpu <= free_cpu[index]
        assert grown_memory <= free_memory[index] * MIB
