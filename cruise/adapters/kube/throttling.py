"""How fast requests go out: a bucket of tokens, and the waits between tries."""

import random
from dataclasses import dataclass

# A read is not delayed for longer, whatever Retry-After says.
MAX_WAIT_SECONDS = 30.0


class TokenBucket:
    """Lets `burst` through at once and then `per_second`; times are seconds of any one clock that never goes back."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._seen: float | None = None

    def reserve(self, now: float) -> float:
        """Take the next token, even one that is still to come; return for how many seconds to wait for it.

        Tokens go out in the order of the calls.
        """
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
        if self._seen is not None and now > self._seen:
            self._tokens = min(self._burst, self._tokens + (now - self._seen) * self._per_second)
        self._seen = now if self._seen is None else max(now, self._seen)


def compute_retry_wait(attempt: int, retry_after_seconds: float | None) -> float:
    """Return how long to wait before the next try: as asked, and up to a quarter more, so that not all come at once.

    `attempt` counts from 0; without a time from the server the waits double from half a second.
    """
    asked = 0.5 * 2**attempt if retry_after_seconds is None else retry_after_seconds
    return min(asked, MAX_WAIT_SECONDS) * random.uniform(1.0, 1.25)


@dataclass(slots=True)
class Backoff:
    """Waits that double from `first_seconds` to `most_seconds`, each shortened at random by up to half."""

    first_seconds: float
    most_seconds: float
    failures: int = 0

    def next_seconds(self, at_least: float | None = None) -> float:
        """Count a failure and return how long to wait; never shorter than the server asked for."""
        # Any exponent will do once the longest wait is reached.
        wait = min(self.most_seconds, self.first_seconds * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return max(at_least or 0.0, wait * random.uniform(0.5, 1.0))

    def reset(self) -> None:
        """Begin anew: things work."""
        self.failures = 0
