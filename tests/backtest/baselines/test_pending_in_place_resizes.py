import numpy as np

from cruise.backtest.baselines.vpa import PendingInPlaceResizes, find_rejected_limits
from tests.backtest.baselines.recordings import get_sizes

BOTH = np.array([0, 1])
NEITHER = np.array([False, False])
WAITING = np.array([True, True])


def test_a_resize_waits_until_it_is_seen_to_be_done() -> None:
    resizes = PendingInPlaceResizes(2)
    before, after = get_sizes([1000, 1000], [10, 10]), get_sizes([2000, 1000], [10, 20])
    resizes.request(BOTH, after, NEITHER)
    assert resizes.get_pending(before).tolist() == [True, True]
    assert resizes.get_pending(get_sizes([2000, 1000], [10, 10])).tolist() == [False, True]
    assert resizes.get_pending(after).tolist() == [False, False]
    assert resizes.get_pending(before).tolist() == [False, False]


def test_after_more_than_five_minutes_of_waiting_a_pod_may_be_evicted() -> None:
    resizes = PendingInPlaceResizes(2)
    resizes.request(BOTH, get_sizes([2000, 2000], [10, 10]), NEITHER)
    assert resizes.find_evictable(100, np.array([False, True])).tolist() == [False, False]
    assert resizes.find_evictable(400, WAITING).tolist() == [False, False]
    assert resizes.find_evictable(401, WAITING).tolist() == [False, True]
    assert resizes.get_target(np.array([1])).cpu_millicores.tolist() == [2000]


def test_the_second_pending_resize_of_a_pod_times_out_immediately() -> None:
    resizes = PendingInPlaceResizes(2)
    for size in (2000, 3000):
        resizes.request(BOTH, get_sizes([size] * 2, [10, 10]), NEITHER)
        find_evictable = resizes.find_evictable(size, WAITING)
    assert find_evictable.tolist() == [True, True]
    resizes.forget(np.array([0]))
    assert resizes.find_evictable(3000, WAITING).tolist() == [False, True], "a new pod has not waited"


def test_a_refused_resize_is_not_tried_again_and_its_pod_may_be_evicted() -> None:
    resizes = PendingInPlaceResizes(2)
    resizes.request(BOTH, get_sizes([2000, 2000], [10, 10]), np.array([True, False]))
    assert resizes.find_retried(WAITING).tolist() == [False, True]
    assert resizes.find_evictable(100, WAITING).tolist() == [True, False]


def test_a_limit_is_not_lowered_below_usage() -> None:
    limits, wanted = np.array([100, 100, 100, 0]), np.array([50, 50, 200, 0])
    assert find_rejected_limits(limits, wanted, np.array([51, 50, 300, 300])).tolist() == [True, False, False, False]
