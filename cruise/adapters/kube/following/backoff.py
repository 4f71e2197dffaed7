"""How long to wait before the next try, so that neither one client nor many at once press a server in trouble."""

import random
from dataclasses import dataclass


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
