from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.kube.client import MAX_WAIT_SECONDS, TokenBucket, compute_retry_wait

TIMES = st.lists(st.floats(0, 10), max_size=60).map(sorted)


def test_sends_a_burst_immediately_and_the_rest_in_order():
    bucket = TokenBucket(per_second=10, burst=3)
    waits = [bucket.reserve(100.0) for _ in range(6)]
    assert [round(wait, 6) for wait in waits] == [0, 0, 0, 0.1, 0.2, 0.3]


def test_tokens_are_refilled_up_to_the_burst():
    bucket = TokenBucket(per_second=10, burst=3)
    assert [bucket.acquire(0.0) for _ in range(4)] == [True, True, True, False]
    assert [bucket.acquire(0.15) for _ in range(2)] == [True, False]
    assert [bucket.acquire(1000.0) for _ in range(4)] == [True, True, True, False]


def test_gives_no_token_when_the_clock_moves_backwards():
    bucket = TokenBucket(per_second=1, burst=1)
    assert bucket.acquire(100.0)
    assert not bucket.acquire(0.0)
    assert not bucket.acquire(100.5)
    assert bucket.acquire(101.0)


@given(st.floats(0.1, 100), st.integers(1, 20), TIMES)
def test_never_more_than_the_rate_and_one_burst(per_second: float, burst: int, times: list[float]):
    bucket = TokenBucket(per_second, burst)
    served = sorted(time + bucket.reserve(time) for time in times)
    for first in range(len(served)):
        for last in range(first, len(served)):
            allowed = burst + (served[last] - served[first]) * per_second
            assert last - first + 1 <= allowed + 1e-6


@given(st.floats(0.1, 100), st.integers(1, 20), TIMES, st.integers(1, 5))
def test_a_rejected_token_request_takes_no_token(per_second: float, burst: int, times: list[float], insistence: int):
    calm, eager = TokenBucket(per_second, burst), TokenBucket(per_second, burst)
    for time in times:
        taken = calm.acquire(time)
        assert eager.acquire(time) == taken
        if not taken:
            assert not any(eager.acquire(time) for _ in range(insistence))


@given(st.integers(0, 20), st.none() | st.floats(0, 1e6))
def test_waits_as_long_as_requested_and_a_little_more(attempt: int, asked: float | None):
    expected = min(0.5 * 2**attempt if asked is None else asked, MAX_WAIT_SECONDS)
    assert expected <= compute_retry_wait(attempt, asked) <= 1.25 * expected
