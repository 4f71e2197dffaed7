from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.baselines.cruisekube_statistics import (
    EVICTED_FIRST,
    EVICTED_LATER,
    CruiseKubePodDemand,
    choose_cruisekube_evictions,
    share_cruisekube_headroom,
)
from cruise.domain.arrays import BoolArray, Int64Array
from tests.tiers import examples


def demand(base: Sequence[float], rest: Sequence[float], available: Sequence[float]) -> CruiseKubePodDemand:
    bases, rests = np.array(base, dtype=np.float64), np.array(rest, dtype=np.float64)
    return CruiseKubePodDemand(bases, rests, bases, rests, np.array(available, dtype=np.float64))


def nodes(*places: int) -> Int64Array:
    return np.array(places, dtype=np.int64)


def evicted(
    memory: CruiseKubePodDemand,
    cpu: CruiseKubePodDemand,
    *,
    ranking: Sequence[int] | None = None,
    fixed: Sequence[bool] | None = None,
) -> list[int]:
    count = len(memory.base)
    order, stays = choose_cruisekube_evictions(
        nodes(*[0] * count),
        np.array(ranking if ranking is not None else [EVICTED_FIRST] * count, dtype=np.int64),
        np.array(fixed if fixed is not None else [False] * count, dtype=np.bool_),
        memory,
        cpu,
    )
    assert sorted(order.tolist()) == np.flatnonzero(~stays).tolist()
    return [int(place) for place in order]


NO_CPU = demand([0, 0, 0], [0, 0, 0], [1000])


def test_the_largest_headroom_of_a_node_is_shared_in_proportion_to_the_headrooms() -> None:
    shares = share_cruisekube_headroom(
        nodes(0, 0, 0, 1), demand([300, 200, 100, 50], [200, 100, 0, 30], available=[1000, 1000, 1000])
    )
    assert shares.final == pytest.approx([300 + 200 * 2 / 3, 200 + 200 / 3, 100, 80])
    assert shares.base.tolist() == [600, 50, 0]
    assert shares.headroom.tolist() == [200, 30, 0]


def test_a_negative_rest_takes_from_its_pod_and_gives_to_the_others() -> None:
    # Rests of 100 and -90 add up to 10: the first gets ten times the headroom, the second minus nine times.
    shares = share_cruisekube_headroom(nodes(0, 0), demand([100, 100], [100, -90], available=[8000]))
    assert shares.final == pytest.approx([1100, -800])


def test_rests_that_add_up_to_nothing_make_no_number() -> None:
    shares = share_cruisekube_headroom(nodes(0, 0), demand([100, 200], [0, 0], available=[8000]))
    assert np.isnan(shares.final).all()


def test_without_any_base_nothing_is_shared() -> None:
    assert share_cruisekube_headroom(nodes(0), demand([0], [500], available=[8000])).final.tolist() == [0]


def test_no_pod_is_evicted_if_bases_and_the_largest_headroom_just_fit() -> None:
    assert evicted(demand([300, 200, 100], [400, 100, 0], [1000]), NO_CPU) == []
    assert evicted(demand([300, 200, 100], [400, 100, 0], [999]), NO_CPU) == [0]


def test_pods_are_evicted_by_ranking_then_by_the_larger_headroom() -> None:
    memory = demand([300, 300, 300], [10, 200, 100], [500])
    assert evicted(memory, NO_CPU) == [1, 2]
    assert evicted(memory, NO_CPU, ranking=[EVICTED_FIRST, EVICTED_LATER, EVICTED_LATER]) == [0, 1]


def test_all_other_pods_are_evicted_if_the_pods_of_daemon_sets_do_not_fit() -> None:
    memory = demand([900, 10, 10], [0, 0, 0], [500])
    assert evicted(memory, NO_CPU, fixed=[True, False, False]) == [1, 2]


def test_cpu_is_checked_without_pods_evicted_for_memory() -> None:
    memory = demand([600, 300, 100], [0, 50, 0], [900])
    cpu = demand([50, 900, 60], [0, 500, 10], [100])
    assert evicted(memory, cpu) == [1, 2], "without the second the first and third have 110 of 100"


def plain(
    node: int, places: Int64Array, ranking: Int64Array, fixed: BoolArray, both: Sequence[CruiseKubePodDemand]
) -> tuple[list[int], list[int]]:
    """One node, one pod after the other: sort, look, evict, look again."""
    pods = np.flatnonzero(places == node).tolist()
    gone: list[int] = []
    for one in both:
        rest = one.fit_rest.tolist()
        pods.sort(key=lambda pod: (bool(fixed[pod]), -int(ranking[pod]), -rest[pod]))
        place = 0
        while place < len(pods):
            used = sum(float(one.fit_base[pod]) for pod in pods)
            spare = float(one.available[node]) - used
            if spare >= 0 and max(0.0, *(rest[pod] for pod in pods)) <= spare:
                break
            if fixed[pods[place]]:
                place += 1
            else:
                gone.append(pods.pop(place))
    return gone, sorted(pods)


@examples(80)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 4))
def test_all_nodes_together_give_the_result_of_one_by_one(seed: int, pods: int, count: int) -> None:
    random = np.random.default_rng(seed)
    places: Int64Array = random.integers(0, count, pods)
    ranking: Int64Array = random.integers(EVICTED_LATER, EVICTED_FIRST + 1, pods)
    fixed: BoolArray = random.random(pods) < 0.2
    both = []
    for _ in range(2):
        # Whole numbers, all different: sums are exact in whatever order, and no order is left to chance.
        base, rest = random.integers(1, 1000, pods), random.permutation(pods * 20)[:pods] - 5
        both.append(demand(base.tolist(), rest.tolist(), random.integers(0, 1000 * pods // count + 1, count).tolist()))
    order, stays = choose_cruisekube_evictions(places, ranking, fixed, both[0], both[1])
    for node in range(count):
        gone, left = plain(node, places, ranking, fixed, both)
        here = places[order] == node
        assert sorted(order[here].tolist()) == sorted(gone)
        assert np.flatnonzero(stays & (places == node)).tolist() == left
    assert len(order) == len(set(order.tolist()))
