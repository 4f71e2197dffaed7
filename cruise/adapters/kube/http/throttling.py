"""How fast is asked: a bucket of tokens, and how long to wait when told to slow down."""

import random

# However long a server asks to be left alone, a read that somebody waits for is not put off for longer.
LONGEST_WAIT_SECONDS = 30.0


class TokenBucket:
    """Lets `burst` through at once and then `per_second`; times are seconds of any one clock that never goes back."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._tokens = float(burst)
        self._seen: float | None = None

    def reserve(self, now: float) -> float:
        """Take the next token, even one that is still to come; return for how many seconds to wait for it.

        Who asks first is served first.
        """
        self._fill(now)
        self._tokens -= 1
        return max(0.0, -self._tokens / self._per_second)

    def take(self, now: float) -> bool:
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


def wait_seconds(attempt: int, retry_after_seconds: float | None) -> float:
    """Return how long to wait before the next try: as asked, and up to a quarter more, so that not all come at once.

    `attempt` counts from 0; without a time from the server the waits double from half a second.
    """
    asked = 0.5 * 2**attempt if retry_after_seconds is None else retry_after_seconds
    return min(asked, LONGEST_WAIT_SECONDS) * random.uniform(1.0, 1.25)
