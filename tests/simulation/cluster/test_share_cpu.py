"""CPU shares and OOM victims, against hand-computed cases and invariants of fair sharing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import QosClass
from cruise.simulation.cluster.containers import (
    choose_oom_victims,
    compute_cpu_pressure,
    compute_oom_score_adjustment,
    find_containers_over_memory_limit,
    share_cpu,
)


def shared(wanted: list[float], weight: list[float], node: list[int], capacity: list[float]) -> list[float]:
    got = share_cpu(
        np.array(wanted, float), np.array(weight, float), np.array(node, dtype=np.int64), np.array(capacity, float)
    )
    return [round(value, 6) for value in got.tolist()]


def test_with_enough_cpu_all_receive_their_demand() -> None:
    assert shared([300, 600], [1, 1000], [0, 0], [1000]) == [300, 600]


def test_full_node_shares_by_weight() -> None:
    assert shared([900, 900], [100, 300], [0, 0], [1000]) == [250, 750]


def test_unused_capacity_of_one_is_given_to_the_others() -> None:
    # Equal weights, 333 each; the first wants 100, so the two others share 900.
    assert shared([100, 800, 800], [500, 500, 500], [0, 0, 0], [1000]) == [100, 450, 450]


def test_each_node_shares_its_own_capacity() -> None:
    assert shared([900, 900, 900], [1, 1, 1], [0, 1, 1], [1000, 1000]) == [900, 500, 500]


def test_no_request_still_has_the_smallest_weight() -> None:
    assert shared([1000, 1000], [0, 998], [0, 0], [1000]) == [2, 998]


containers = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 4000), st.integers(0, 2)), min_size=1, max_size=20)


@given(containers)
def test_shares_are_fair_and_use_the_node_up(drawn: list[tuple[int, int, int]]) -> None:
    wanted, weight, node = (np.array(column) for column in zip(*drawn, strict=True))
    capacity = np.array([1000.0, 4000.0, 8000.0])
    got = share_cpu(wanted.astype(float), weight.astype(float), node, capacity)
    assert (got <= wanted + 1e-6).all()
    assert (got >= 0).all()
    for index, room in enumerate(capacity):
        here = node == index
        assert got[here].sum() == pytest.approx(min(room, wanted[here].sum()))
        # No unsatisfied container has less for its weight than another.
        rate = got[here] / np.maximum(weight[here], 2)
        hungry = got[here] < wanted[here] - 1e-6
        if hungry.any():
            assert rate[hungry].min() >= rate.max() - 1e-6


def test_pressure_is_the_share_of_unmet_demand() -> None:
    assert compute_cpu_pressure(np.array([100.0, 200.0, 0.0]), np.array([100.0, 50.0, 0.0])).tolist() == [0, 0.75, 0]


def test_only_memory_beyond_the_limit_kills() -> None:
    memory = np.array([100.0, 101.0, np.nan, 500.0])
    assert find_containers_over_memory_limit(memory, np.array([100.0, 100.0, 100.0, np.inf])).tolist() == [
        False,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("qos", "request_bytes", "adjustment"),
    [
        (QosClass.GUARANTEED, 4 << 30, -997),
        (QosClass.BEST_EFFORT, 0, 1000),
        (QosClass.BURSTABLE, 4 << 30, 750),  # a quarter of 16 GiB: 1000 - 250
        (QosClass.BURSTABLE, 16 << 30, 3),
        (QosClass.BURSTABLE, 0, 999),
    ],
)
def test_oom_score_adjustment(qos: QosClass, request_bytes: int, adjustment: int) -> None:
    assert compute_oom_score_adjustment(qos, request_bytes, 16 << 30) == adjustment


def test_kernel_kills_best_effort_before_larger_guaranteed() -> None:
    assert choose_oom_victims([600, 300, 200], [-997, 500, 1000], 1000) == [2]


def test_kernel_kills_until_the_rest_fits() -> None:
    assert choose_oom_victims([600, 300, 500], [0, 0, 0], 500) == [0, 2]


def test_no_container_without_memory_is_killed() -> None:
    assert choose_oom_victims([0, 1200], [1000, -997], 1000) == [1]
