"""The demo's simulated clock: as fast as it is to be, but never further ahead than its passes keep up with."""

from collections import deque
from datetime import datetime, timedelta

from cruise.app.serve.activity import Activity

# A process that was stopped for a while does not make up for it in one leap.
_MOST_SECONDS_AT_ONCE = 1.0
_MEASURED_SECONDS = 10.0


class DemoClock:
    """Simulated time at `pace` times real time, at most `ahead` after the last statistics and the last node pass.

    On a machine that is too slow for the pace the clock waits for the passes, so that nothing is stale on its account.
    """

    def __init__(self, start: datetime, pace: float, ahead: timedelta, activity: Activity) -> None:
        self.now = start
        self._pace = pace
        self._ahead = ahead
        self._activity = activity
        self._real_seconds = 0.0
        self._ticks: deque[tuple[float, datetime]] = deque([(0.0, start)])

    def tick(self, seconds: float) -> datetime:
        """Let so many real seconds pass, and return the simulated time."""
        wanted = self.now + timedelta(seconds=self._pace * min(seconds, _MOST_SECONDS_AT_ONCE))
        done = self._activity.node_pass
        kept_up = [self._activity.refreshed_at, done.at if done is not None else None]
        latest = min((at + self._ahead for at in kept_up if at is not None), default=wanted)
        self.now = max(self.now, min(wanted, latest))
        self._real_seconds += seconds
        self._ticks.append((self._real_seconds, self.now))
        while len(self._ticks) > 2 and self._ticks[1][0] <= self._real_seconds - _MEASURED_SECONDS:
            self._ticks.popleft()
        return self.now

    @property
    def speed(self) -> float:
        """How many times real time it has been in the last ten seconds; the pace before the first tick."""
        (began, then), (now, _) = self._ticks[0], self._ticks[-1]
        return (self.now - then).total_seconds() / (now - began) if now > began else self._pace
