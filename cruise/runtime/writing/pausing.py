"""The operator's pause, known to every writer within a second without a query for each action."""

import asyncio
import time

from cruise.errors import CruiseError, Unavailable
from cruise.runtime.ports import Store
from cruise.runtime.writing.waits import WRITE_WAITS, WriteWaits


class Pause:
    """Reads from the store again and again whether writing is paused; without a store it never is.

    Once paused it stays so: a pause in the middle of a plan ends the plan, and going on is for the next one.
    """

    def __init__(self, store: Store | None, waits: WriteWaits = WRITE_WAITS) -> None:
        self._store = store
        self._waits = waits
        # With the time to the next read, and in the queue of a slow client, this stays under a second.
        self._good_for_seconds = 1.8 * waits.poll
        self._answered_at = -float("inf")
        self._news = asyncio.Event()
        self._failure: CruiseError | None = None
        self.paused = False

    async def watch(self, stop: asyncio.Event) -> None:
        """Read until `stop`; a failure reaches the writers through `allows_writing`."""
        while not self.paused and self._failure is None and not await waited(stop, self._waits.poll):
            await self.read()

    async def read(self) -> None:
        """Read once."""
        if self._store is None:
            return
        began = time.monotonic()
        try:
            paused = await self._store.paused()
        except CruiseError as error:
            self._failure = error
        else:
            self.paused = self.paused or paused
            self._answered_at = began
        self._news.set()
        self._news = asyncio.Event()

    async def allows_writing(self) -> bool:
        """Tell whether writing may go on, by an answer that is young enough; a slow store makes slow writers.

        Raises what the store raised, and Unavailable where no answer was young enough within `pause_answer`, however
        many came too late.
        """
        until = time.monotonic() + self._waits.pause_answer
        while not self.paused:
            if self._failure is not None:
                raise Unavailable(f"whether writing is paused is not known: {self._failure}") from self._failure
            if self._store is None or time.monotonic() - self._answered_at <= self._good_for_seconds:
                return True
            if not await waited(self._news, max(0.0, until - time.monotonic())):
                raise Unavailable("whether writing is paused is not known: the store does not answer in time")
        return False

    async def sleep(self, seconds: float) -> None:
        """Wait for a time, or until paused."""
        until = time.monotonic() + seconds
        while not self.paused and (left := until - time.monotonic()) > 0:
            await waited(self._news, min(left, self._waits.poll))


async def waited(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most a time; tell whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
