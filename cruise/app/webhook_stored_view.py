"""The webhook's view of the store: read beside the event loop, kept when the database is unavailable."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import structlog

from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.usage import STATISTIC_COLUMNS, StatisticsTable
from cruise.errors import CruiseError, pause_garbage_collection
from cruise.runtime.ports import StorePort

log = structlog.get_logger()

_STOP_SECONDS = 5.0
# How far back out-of-memory kills are looked for: a reactor may be late with one.
_KILLS_OF = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The store as it was last read; `read_at` is when the statistics were, None where they never were.

    What was read again and is equal is the same object as before.
    """

    statistics: StatisticsTable
    overrides: StoredOverrides
    paused: bool
    read_at: datetime | None
    signing_keys: tuple[bytes, ...] = ()


EMPTY_STORE_STATE = StoreState(StatisticsTable.from_rows([]), {}, False, None)


class StorePoller:
    """Reads the store over and over in a thread with a loop of its own, for as long as a `with` lasts.

    Statistics of tens of thousands of workloads take a while to unpack, and requests must not wait for that.
    `view` is replaced as a whole, and so is `steered` when it changes. Once a kill was answered the statistics are read
    again, whatever their interval: they have what it teaches. A database that does not answer is logged once
    and tried again.
    """

    def __init__(
        self,
        open_store: Callable[[], AbstractAsyncContextManager[StorePort]],
        clock: Callable[[], datetime],
        *,
        statistics_interval: timedelta = timedelta(seconds=30),
        pause_interval: timedelta = timedelta(seconds=1),
    ) -> None:
        self.state = EMPTY_STORE_STATE
        self.placement_hints: Sequence[PlacementHint] = ()
        self.problem: str | None = "the store is not open yet"
        self._open_store = open_store
        self._clock = clock
        self._interval = statistics_interval
        self._pause_seconds = pause_interval.total_seconds()
        self._kills: frozenset[tuple[str, str, datetime]] = frozenset()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._following: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    def check(self) -> None:
        """Raise what ended the reading, if anything has: BadInputError for what waiting does not heal."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> "StorePoller":
        # Not before: the webhook may end without ever getting here, and nobody would close it.
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the reading, wherever it is; a thread that hangs in the database's driver dies with the process."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_STOP_SECONDS)

    def _cancel(self) -> None:
        if self._following is not None:
            self._following.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._following = self._loop.create_task(self._follow())
        try:
            self._loop.run_until_complete(self._following)
        except asyncio.CancelledError:
            log.debug("store left")
        except BaseException as failure:
            # Raised in the thread that calls `check`.
            self._failure = failure
        finally:
            self._loop.close()

    async def _follow(self) -> None:
        async with self._open_store() as store:
            while True:
                await self._read(store)
                await asyncio.sleep(self._pause_seconds)

    async def _read(self, store: StorePort) -> None:
        view, now = self.state, self._clock()
        try:
            paused = await store.paused()
            steered = await store.placement_hints()
            records = await store.oom_records(now - _KILLS_OF)
            kills = frozenset((one.pod_uid, one.container, one.finished_at) for one in records)
            is_old = view.read_at is None or now - view.read_at >= self._interval or now < view.read_at
            if is_old or not kills <= self._kills:
                # What is read is mostly equal, and gone before the collector may look at it.
                with pause_garbage_collection():
                    statistics = _unless_equal(view.statistics, await store.workload_statistics())
                overrides, keys = await store.overrides(), tuple(await store.signing_keys())
                view = StoreState(
                    statistics,
                    view.overrides if overrides == view.overrides else overrides,
                    paused,
                    now,
                    view.signing_keys if keys == view.signing_keys else keys,
                )
            elif paused != view.paused:
                view = replace(view, paused=paused)
        except CruiseError as error:
            if str(error) != self.problem:
                log.warning("store not read", error=str(error))
            self.problem = str(error)
            return
        if list(steered) != list(self.placement_hints):
            self.placement_hints = steered
        self._kills = kills
        if self.problem is not None:
            log.info("store read", statistics=len(view.statistics.keys))
        self.problem = None
        self.state = view


def _unless_equal(known: StatisticsTable, read: StatisticsTable) -> StatisticsTable:
    """Return the known table where the other one is equal."""
    same = (
        known.revisions == read.revisions
        and known.sharing == read.sharing
        and known.keys == read.keys
        and all(np.array_equal(getattr(known, name), getattr(read, name)) for name in STATISTIC_COLUMNS)
    )
    return known if same else read
