"""Slowing down when the API server answers that there are too many requests."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cruise.runtime.writing.pausing import Pause
from cruise.runtime.writing.waits import WRITE_WAITS, WriteWaits

MOST_ALONE = 50


class Brake:
    """Lets writers through freely, and after a 429 one at a time and later, until one goes through again."""

    def __init__(self, pause: Pause, waits: WriteWaits = WRITE_WAITS) -> None:
        self._pause = pause
        self._waits = waits
        self._one_at_a_time = asyncio.Lock()
        self._in_a_row = 0
        self._alone_in_a_row = 0
        self._resume_at = 0.0
        self._waited_seconds = 0.0
        self.given_up = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until the next request may go out; while slowed down, hold the others back until it is answered."""
        if self._in_a_row == 0:
            yield
            return
        async with self._one_at_a_time:
            if self._in_a_row and not self.given_up:
                await self._pause.sleep(self._resume_at - time.monotonic())
                yield
                return
        yield

    def went_through(self) -> None:
        """Let all writers through again."""
        self._in_a_row = 0
        self._alone_in_a_row = 0
        self._waited_seconds = 0.0

    def failed_alone(self) -> None:
        """Count a write that failed for itself; where only such come, the rest is left to the next pass."""
        self._alone_in_a_row += 1
        self.given_up = self.given_up or self._alone_in_a_row >= MOST_ALONE

    def press(self, retry_after_seconds: float | None) -> None:
        """Slow down for as long as the server states, or for twice as long as the last time."""
        now = time.monotonic()
        if self._in_a_row and now < self._resume_at:
            return  # one of those that were under way together: the same storm
        doubled = self._waits.first_delay * 2.0 ** min(self._in_a_row, 10)
        seconds = min(doubled if retry_after_seconds is None else retry_after_seconds, self._waits.longest_delay)
        # Where the server states no time at all, retries would come all at once.
        seconds = max(seconds, self._waits.first_delay)
        self._in_a_row += 1
        self._waited_seconds += seconds
        self._resume_at = now + seconds
        self.given_up = self._waited_seconds > self._waits.most_delay
