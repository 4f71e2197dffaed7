import asyncio

import pytest

from cruise.errors import UnavailableError
from cruise.runtime.writing.api_answers import PauseState, WriteTimeouts, wait_for_event
from cruise.simulation.store import InMemoryStore

FAST = 0.005


class Counting(InMemoryStore):
    """A store that counts its reads, and fails while `lost`."""

    asked = 0
    lost = False

    async def is_paused(self) -> bool:
        self.asked += 1
        if self.lost:
            raise UnavailableError("the database is gone")
        return await super().is_paused()


async def test_an_answer_is_good_for_a_while_and_no_longer():
    store = Counting()
    pause = PauseState(store, WriteTimeouts(poll=60))
    await pause.read()
    assert await pause.allows_writing()
    assert await pause.allows_writing()
    assert store.asked == 1
    # It is not read again, and writing by an answer of long ago is not allowed.
    old = PauseState(store, WriteTimeouts(poll=0.0, pause_check=FAST))
    await old.read()
    with pytest.raises(UnavailableError, match="the database does not answer"):
        await old.allows_writing()


async def test_a_pause_is_noticed_and_remains_in_effect():
    store, stop = Counting(), asyncio.Event()
    pause = PauseState(store, WriteTimeouts(poll=FAST))
    await pause.read()
    watching = asyncio.ensure_future(pause.watch(stop))
    await store.set_paused(True)
    while not pause.is_paused:
        await asyncio.sleep(FAST)
    await store.set_paused(False)
    await pause.read()
    assert not await pause.allows_writing()
    # Nothing more to learn.
    await watching


async def test_a_store_that_fails_stops_writing():
    store, stop = Counting(), asyncio.Event()
    pause = PauseState(store, WriteTimeouts(poll=FAST))
    await pause.read()
    store.lost = True
    await pause.watch(stop)
    with pytest.raises(UnavailableError, match="not known: the database is gone"):
        await pause.allows_writing()


async def test_watching_ends_when_stopped():
    store, stop = Counting(), asyncio.Event()
    watching = asyncio.ensure_future(PauseState(store, WriteTimeouts(poll=60)).watch(stop))
    await asyncio.sleep(0)
    stop.set()
    await watching
    assert store.asked == 0


async def test_without_a_store_nothing_is_ever_paused():
    pause = PauseState(None)
    await pause.read()
    assert await pause.allows_writing()


async def test_a_pause_ends_every_wait():
    store = Counting()
    pause = PauseState(store, WriteTimeouts(poll=FAST))
    sleeping = asyncio.ensure_future(pause.sleep(3600))
    await asyncio.sleep(2 * FAST)
    assert not sleeping.done()
    await store.set_paused(True)
    await pause.read()
    await sleeping
    await pause.sleep(-1)


async def test_waiting_returns_what_arrived():
    event = asyncio.Event()
    assert not await wait_for_event(event, 0.001)
    event.set()
    assert await wait_for_event(event, 60)
