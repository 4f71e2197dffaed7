"""The log of the first reading of usage, which may take long: lines with the share done and the time left."""

import time
from collections.abc import Callable
from datetime import timedelta

import structlog

from cruise.runtime.usage.reading import ReadingProgress

log = structlog.get_logger()

_BETWEEN_LINES_SECONDS = 10.0


class ReadingLog:
    """Logs how far the reading is, at most every ten seconds; a reading that ends before that is not logged."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._first: ReadingProgress | None = None
        self._began = self._logged = 0.0

    def __call__(self, read: ReadingProgress) -> None:
        """Take over how far it is."""
        now = self._clock()
        first = self._first
        if first is None or first.total_container_hours != read.total_container_hours:
            self._first, self._began, self._logged = read, now, now
        elif now - self._logged >= _BETWEEN_LINES_SECONDS:
            self._logged = now
            left = time_left(first, read, now - self._began)
            log.info("reading usage", percent=percent_of(read), left="unknown" if left is None else str(left))


def percent_of(read: ReadingProgress) -> int:
    """Return how much is read, in whole percent; not all before all is."""
    if read.done_container_hours >= read.total_container_hours:
        return 100
    return min(99, int(100 * read.done_container_hours / read.total_container_hours))


def time_left(first: ReadingProgress, read: ReadingProgress, seconds: float) -> timedelta | None:
    """Return how long the rest takes if it goes on as it did in the `seconds` since `first`, None where it did not."""
    done = read.done_container_hours - first.done_container_hours
    if done <= 0:
        return None
    return timedelta(seconds=round((read.total_container_hours - read.done_container_hours) * seconds / done))
