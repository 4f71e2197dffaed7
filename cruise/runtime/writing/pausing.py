"""The operator's pause, known to every writer within a second without a query an action."""

import asyncio
import time

from cruise.errors import CruiseError, Unavailable
from cruise.runtime.ports import Store

POLL_SECONDS = 0.4
_PATIENCE_SECONDS = 10.0


class Pause:
    """Asks the store again and again whether writing is paused; None as the store is never paused.

    Once paused it stays so: a pause in the middle of a plan ends the plan, and going on is for the next one.
    """

    def __init__(self, store: Store | None, poll_seconds: float = POLL_SECONDS) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        # With the time to the next question, and in the queue of a slow client, this stays under a second.
        self._good_for_seconds = 1.8 * poll_seconds
        self._answer_to = -float("inf")
        self._news = asyncio.Event()
        self._failure: CruiseError | None = None
        self.paused = False

    async def watch(self, stop: asyncio.Event) -> None:
        """Ask until `stop`; an answer that cannot be had is told to those who want to write."""
        while not self.paused and self._failure is None and not await waited(stop, self._poll_seconds):
            await self.ask()

    async def ask(self) -> None:
        """Ask once."""
        if self._store is None:
            return
        asked_at = time.monotonic()
        try:
            paused = await self._store.paused()
        except CruiseError as error:
            self._failure = error
        else:
            self.paused = self.paused or paused
            self._answer_to = asked_at
        self._news.set()
        self._news = asyncio.Event()

    async def allows_writing(self) -> bool:
        """Tell whether writing may go on, by an answer that is young enough; a slow store makes slow writers.

        Raises what the store raised, and Unavailable where it does not answer.
        """
        while not self.paused:
            if self._failure is not None:
                raise Unavailable(f"whether writing is paused is not known: {self._failure}") from self._failure
            if self._store is None or time.monotonic() - self._answer_to <= self._good_for_seconds:
                return True
            if not await waited(self._news, _PATIENCE_SECONDS):
                raise Unavailable("whether writing is paused is not known: the store does not answer")
        return False

    async def sleep(self, seconds: float) -> None:
        """Wait for a time, or until paused."""
        until = time.monotonic() + seconds
        while not self.paused and (left := until - time.monotonic()) > 0:
            await waited(self._news, min(left, self._poll_seconds))


async def waited(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most a time; tell whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
