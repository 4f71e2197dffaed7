"""The rate of requests: a token bucket, and waits between attempts."""

import random
from dataclasses import dataclass

# The upper limit of the wait before a read, even if Retry-After is longer.
MAX_WAIT_SECONDS = 30.0


class TokenBucket:
    """Allows a burst and then `per_second`; times are seconds of any one monotonic clock."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._filled_at: float | None = None

    def reserve(self, now: float) -> float:
        """Take the next token and return the seconds to wait for it; tokens are given in the order of the calls."""
        self._fill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self._per_second)

    def acquire(self, now: float) -> bool:
        """Take a token if there is one."""
        self._fill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _fill(self, now: float) -> None:
        if self._filled_at is not None and now > self._filled_at:
            self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._per_second)
        self._filled_at = now if self._filled_at is None else max(now, self._filled_at)


def compute_retry_wait(attempt: int, retry_after_seconds: float | None) -> float:
    """Return the wait before the next attempt: as requested, plus up to a quarter so that clients spread out.

    `attempt` counts from 0. Without a time from the server, waits double from half a second.
    """
    seconds = 0.5 * 2**attempt if retry_after_seconds is None else retry_after_seconds
    return min(seconds, MAX_WAIT_SECONDS) * random.uniform(1.0, 1.25)


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first_seconds` to `max_seconds`, each shortened by a random part of up to a half."""

    first_seconds: float
    max_seconds: float
    failures: int = 0

    def next_seconds(self, at_least: float | None = None) -> float:
        """Count a failure and return the wait, which is never shorter than `at_least`."""
        # The exponent is limited only to avoid an overflow.
        wait = min(self.max_seconds, self.first_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(at_least or 0.0, wait * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Start again with the first wait."""
        self.failures = 0
