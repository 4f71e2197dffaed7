"""The delay before the next attempt."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.kube.client import MAX_WAIT_SECONDS, Backoff


@given(st.floats(0.01, 5), st.floats(5, 60), st.integers(1, 2000))
def test_waits_double_up_to_the_longest_and_are_jittered(first, most, failures):
    backoff = Backoff(first, most)
    for number in range(failures):
        whole = min(most, first * 2.0 ** min(number, 40))
        assert whole / 2 <= backoff.next_seconds() <= whole
    backoff.reset()
    assert backoff.next_seconds() <= first


@given(st.floats(0.01, 5), st.floats(0, 600))
def test_waits_as_long_as_the_server_requests_up_to_half_a_minute(first, asked):
    assert min(asked, MAX_WAIT_SECONDS) <= Backoff(first, 30).next_seconds(asked) <= max(30, MAX_WAIT_SECONDS)
