import numpy as np

from cruise.backtest.baselines.vpa.in_place import ResizesInPlace, refused_for_use
from tests.backtest.baselines.recordings import sizes_of

BOTH = np.array([0, 1])


def test_a_resize_waits_until_it_is_seen_to_be_done() -> None:
    resizes = ResizesInPlace(2)
    before, after = sizes_of([1000, 1000], [10, 10]), sizes_of([2000, 1000], [10, 20])
    resizes.request(BOTH, after, 100)
    assert resizes.waiting(before).tolist() == [True, True]
    assert resizes.waiting(sizes_of([2000, 1000], [10, 10])).tolist() == [False, True]
    assert resizes.waiting(after).tolist() == [False, False]
    assert resizes.waiting(before).tolist() == [False, False]


def test_after_more_than_five_minutes_it_is_overdue() -> None:
    resizes = ResizesInPlace(2)
    resizes.request(np.array([1]), sizes_of([2000], [10]), 100)
    assert resizes.overdue(400).tolist() == [False, False]
    assert resizes.overdue(401).tolist() == [False, True]
    assert resizes.wanted(np.array([1])).cpu_millicores.tolist() == [2000]


def test_a_pod_that_is_gone_waits_for_nothing() -> None:
    resizes = ResizesInPlace(2)
    resizes.request(BOTH, sizes_of([2000, 2000], [10, 10]), 100)
    resizes.drop(np.array([0]))
    assert resizes.overdue(1000).tolist() == [False, True]


def test_a_limit_is_not_lowered_below_what_is_in_use() -> None:
    limits, wanted = np.array([100, 100, 100, 0]), np.array([50, 50, 200, 0])
    assert refused_for_use(limits, wanted, np.array([51, 50, 300, 300])).tolist() == [True, False, False, False]
