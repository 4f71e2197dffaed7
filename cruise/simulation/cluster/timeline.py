"""Simulated time: what is due when, in an order that never depends on chance."""

import heapq
from collections.abc import Callable
from datetime import UTC, datetime

MINUTE = 60


class Timeline:
    """Things to do at given seconds; those due at the same second run in the order in which they were planned."""

    def __init__(self, start: int) -> None:
        self.now = start
        self._due: list[tuple[int, int, Callable[[int], None]]] = []
        self._planned = 0

    def plan(self, at: int, action: Callable[[int], None]) -> None:
        """Plan `action`, which is called with the time that it is due."""
        self._planned += 1
        heapq.heappush(self._due, (max(at, self.now), self._planned, action))

    def run_until(self, end: int) -> None:
        """Run all that is due until `end`, whatever gets planned meanwhile included, and stop there."""
        while self._due and self._due[0][0] <= end:
            at, _, action = heapq.heappop(self._due)
            self.now = at
            action(at)
        self.now = end


def utc(seconds: int) -> datetime:
    """Return Unix seconds as a time."""
    return datetime.fromtimestamp(seconds, UTC)


def seconds(time: datetime) -> int:
    """Return a time as whole Unix seconds."""
    return int(time.timestamp())
