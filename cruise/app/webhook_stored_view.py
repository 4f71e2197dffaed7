"""The webhook's view of the database: read in another thread, and kept while the database is unavailable."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
import structlog

from cruise.domain.overrides import PausedWorkloads
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.usage import STATISTIC_COLUMNS, StatisticsTable
from cruise.errors import CruiseError, DatabaseRestoredError, pause_garbage_collection
from cruise.runtime.ports import StorePort

log = structlog.get_logger()

_STOP_SECONDS = 5.0
_STATISTICS_INTERVAL = timedelta(seconds=30)
# How far back new out-of-memory kills are looked for: the OOM reactor may be late.
_OOM_KILL_WINDOW = timedelta(minutes=10)
# A serve that knew the later state records the loss within seconds. One that was started since reads usage from where
# the database ends, as after a downtime, and records nothing.
_LOSS_WINDOW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class StoreState:
    """The state of the database as last read; `read_at` is the time of the statistics, None before the first read.

    With `history_incomplete` it lacks usage that it had before: it was restored to an earlier state.
    Parts that are equal after a read stay the same objects.
    """

    statistics: StatisticsTable
    paused_workloads: PausedWorkloads
    paused: bool
    read_at: datetime | None
    signing_keys: tuple[bytes, ...] = ()
    history_incomplete: bool = False


EMPTY_STORE_STATE = StoreState(StatisticsTable.from_rows([]), {}, False, None)


class StorePoller:
    """Polls the database in a thread with its own event loop, within a context.

    Decoding the statistics of tens of thousands of workloads takes long, and requests must not wait for it. `state` and
    `placement_hints` are replaced as a whole. After an OOM kill the statistics are read again immediately, because the
    kill raises memory. A database that does not answer is logged once and retried.
    """

    def __init__(
        self,
        open_store: Callable[[], AbstractAsyncContextManager[StorePort]],
        clock: Callable[[], datetime],
        *,
        pause_interval: timedelta = timedelta(seconds=1),
    ) -> None:
        self.state = EMPTY_STORE_STATE
        self.placement_hints: Sequence[PlacementHint] = ()
        self.problem: str | None = "the database is not open yet"
        self._open_store = open_store
        self._clock = clock
        self._pause_seconds = pause_interval.total_seconds()
        self._behind_since: datetime | None = None
        self._kills: frozenset[tuple[str, str, datetime]] = frozenset()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    def check(self) -> None:
        """Raise what ended the polling, if anything did: BadInputError for errors that do not pass."""
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> "StorePoller":
        # Not in the constructor: without a context it would never be closed.
        self._loop = asyncio.new_event_loop()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the polling; a thread that is blocked in the database driver ends with the process."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._cancel)
        self._thread.join(_STOP_SECONDS)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._poll())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            log.debug("store left")
        except BaseException as failure:
            # Raised in the thread that calls `check`.
            self._failure = failure
        finally:
            self._loop.close()

    async def _poll(self) -> None:
        async with self._open_store() as store:
            while True:
                await self._read(store)
                await asyncio.sleep(self._pause_seconds)

    async def _read(self, store: StorePort) -> None:
        state, now = self.state, self._clock()
        try:
            paused, incomplete = await store.is_paused(), await self._is_history_incomplete(store, now)
            hints = await store.read_placement_hints()
            records = await store.read_oom_records(now - _OOM_KILL_WINDOW)
            kills = frozenset((one.pod_uid, one.container, one.finished_at) for one in records)
            is_old = state.read_at is None or now - state.read_at >= _STATISTICS_INTERVAL or now < state.read_at
            if is_old or not kills <= self._kills:
                # The result is mostly equal to the last one, and freed before a collection.
                with pause_garbage_collection():
                    statistics = _unless_equal(state.statistics, await store.read_workload_statistics())
                paused_workloads, keys = await store.read_paused_workloads(), tuple(await store.read_signing_keys())
                state = StoreState(
                    statistics,
                    state.paused_workloads if paused_workloads == state.paused_workloads else paused_workloads,
                    paused,
                    now,
                    state.signing_keys if keys == state.signing_keys else keys,
                    incomplete,
                )
            elif (paused, incomplete) != (state.paused, state.history_incomplete):
                state = replace(state, paused=paused, history_incomplete=incomplete)
        except CruiseError as error:
            if str(error) != self.problem:
                log.warning("store not read", error=str(error))
            self.problem = str(error)
            return
        if list(hints) != list(self.placement_hints):
            self.placement_hints = hints
        self._kills = kills
        if self.problem is not None:
            log.info("store read", statistics=len(state.statistics.keys))
        self.problem = None
        self.state = state

    async def _is_history_incomplete(self, store: StorePort, now: datetime) -> bool:
        """Return whether the database is at an earlier state, and the usage since is not known to be read again."""
        try:
            history = await store.read_epoch_and_lost_usage()
        except DatabaseRestoredError as error:
            if self._behind_since is None:
                log.warning("the database went back", error=str(error))
                self._behind_since = now
            return now - self._behind_since < _LOSS_WINDOW
        self._behind_since = None
        return not history.regained


def _unless_equal(known: StatisticsTable, read: StatisticsTable) -> StatisticsTable:
    """Return the known table if the other one is equal."""
    same = (
        known.revisions == read.revisions
        and known.average_headroom_share == read.average_headroom_share
        and known.keys == read.keys
        and all(np.array_equal(getattr(known, name), getattr(read, name)) for name in STATISTIC_COLUMNS)
    )
    return known if same else read
