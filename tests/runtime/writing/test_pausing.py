import asyncio

import pytest

from cruise.errors import Unavailable
from cruise.runtime.writing.pausing import Pause, waited
from cruise.runtime.writing.waits import WriteWaits
from cruise.simulation.store.store import MemoryStore

FAST = 0.005


class Counting(MemoryStore):
    """A store that counts how often it was asked, and fails while `lost`."""

    asked = 0
    lost = False

    async def paused(self) -> bool:
        self.asked += 1
        if self.lost:
            raise Unavailable("the database is gone")
        return await super().paused()


async def test_an_answer_is_good_for_a_while_and_no_longer():
    store = Counting()
    pause = Pause(store, WriteWaits(poll=0.2))
    await pause.read()
    assert await pause.allows_writing()
    assert await pause.allows_writing()
    assert store.asked == 1
    # It is not read again, and writing by an answer of long ago is not allowed.
    old = Pause(store, WriteWaits(poll=0.0, pause_answer=FAST))
    await old.read()
    with pytest.raises(Unavailable, match="the store does not answer"):
        await old.allows_writing()


async def test_a_pause_is_noticed_and_stays():
    store, stop = Counting(), asyncio.Event()
    pause = Pause(store, WriteWaits(poll=FAST))
    await pause.read()
    watching = asyncio.ensure_future(pause.watch(stop))
    await store.set_paused(True)
    while not pause.paused:
        await asyncio.sleep(FAST)
    await store.set_paused(False)
    await pause.read()
    assert not await pause.allows_writing()
    # Nothing more to learn.
    await watching


async def test_a_store_that_fails_stops_writing():
    store, stop = Counting(), asyncio.Event()
    pause = Pause(store, WriteWaits(poll=FAST))
    await pause.read()
    store.lost = True
    await pause.watch(stop)
    with pytest.raises(Unavailable, match="not known: the database is gone"):
        await pause.allows_writing()


async def test_watching_ends_when_stopped():
    store, stop = Counting(), asyncio.Event()
    watching = asyncio.ensure_future(Pause(store, WriteWaits(poll=60)).watch(stop))
    await asyncio.sleep(0)
    stop.set()
    await watching
    assert store.asked == 0


async def test_without_a_store_nothing_is_ever_paused():
    pause = Pause(None)
    await pause.read()
    assert await pause.allows_writing()


async def test_a_pause_ends_every_wait():
    store = Counting()
    pause = Pause(store, WriteWaits(poll=FAST))
    sleeping = asyncio.ensure_future(pause.sleep(3600))
    await asyncio.sleep(2 * FAST)
    assert not sleeping.done()
    await store.set_paused(True)
    await pause.read()
    await sleeping
    await pause.sleep(-1)


async def test_waiting_tells_what_came():
    event = asyncio.Event()
    assert not await waited(event, 0.001)
    event.set()
    assert await waited(event, 60)
