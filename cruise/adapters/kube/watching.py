"""One kind kept in sync with the API server by a list and a watch."""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from cruise.adapters.kube.client import Backoff, KubernetesClient
from cruise.adapters.kube.kinds import WatchedKind, explain_unreadable_kind, list_pages
from cruise.adapters.kube.object_store import Key, WatchedObjectStore, get_object_key
from cruise.errors import (
    BadInputError,
    CruiseError,
    ExpiredVersionError,
    NotFoundError,
    ThrottledError,
    UnavailableError,
    freeze_garbage_collection,
)
from cruise.kube_json.reading.stream import (
    BookmarkEvent,
    ChangedEvent,
    DeletedEvent,
    StreamDecoder,
    WatchError,
    WatchEvent,
)
from cruise.kube_json.wire.object_json import AnyObject

log = structlog.get_logger()

_MAX_NAMED_KINDS = 3


class BatchedWatchLog:
    """Collects the reports of `delay_seconds` into one log line.

    After an outage, watches are opened again at different times; one line reports when all of them continue.
    """

    def __init__(self, delay_seconds: float = 1.0) -> None:
        self._delay_seconds = delay_seconds
        self._failed: dict[str, str] = {}
        self._interrupted: dict[str, None] = {}
        self._recovered: list[str] = []
        self._expected = True
        self._timer: asyncio.TimerHandle | None = None

    def report_interruption(self, kind: str, because: str, *, expected: bool) -> None:
        """Report that a kind is not followed; `expected` if that happens in every cluster now and then."""
        self._failed[kind] = because
        self._interrupted[kind] = None
        self._expected = self._expected and expected
        self._schedule_write()

    def report_recovery(self, kind: str) -> None:
        """Report that a kind is followed again."""
        self._recovered.append(kind)
        self._interrupted.pop(kind, None)
        self._schedule_write()

    def write(self) -> None:
        """Log the collected reports now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._failed:
            line = log.info if self._expected else log.warning
            line(
                "watch interrupted", kinds=format_kinds(list(self._failed)), because=format_shared_problem(self._failed)
            )
        if self._recovered and not self._interrupted:
            log.info("watch continues", kinds=format_kinds(list(dict.fromkeys(self._recovered))))
            self._recovered = []
        self._failed, self._expected = {}, True

    def _schedule_write(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._delay_seconds, self.write)


def format_kinds(kinds: Sequence[str]) -> str:
    """Return the names of kinds: all if they are few, else the first ones and the number of the others."""
    if len(kinds) <= _MAX_NAMED_KINDS:
        return ", ".join(kinds)
    return f"{', '.join(kinds[: _MAX_NAMED_KINDS - 1])} and {len(kinds) - _MAX_NAMED_KINDS + 1} more"


def format_shared_problem(problems: Mapping[str, str]) -> str:
    """Return the problems of kinds in one line: the first, and the number of the others."""
    reasons = list(dict.fromkeys(problems.values()))
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more like it)"


_MAX_UNCONFIRMED_WATCHES = 2
# A page with as many items is usually followed by more.
_LARGE_PAGE = 500


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The timing of lists and watches, in seconds.

    The server ends a watch after about `watch_seconds`. An open watch proves that no change was missed, because the
    server first sends all changes since the requested version: it counts from when it was opened, once it was open for
    `trust_seconds` without an error. If watches end sooner, a list every `unconfirmed_seconds` proves it. A watch
    without an event for `grace_period_seconds` longer than `watch_seconds` is dead.

    A failure within `steady_seconds` makes the next wait longer. A watch is reopened at the earliest
    `min_reopen_seconds` after it was opened. A forbidden kind is tried again after `forbidden_retry_seconds`, a missing
    one after `missing_retry_seconds`. After `relist_failures` in a row the kind is listed again, in case the server
    does not know the version.
    """

    page_size: int = 500
    watch_seconds: float = 30.0
    trust_seconds: float = 1.0
    unconfirmed_seconds: float = 30.0
    grace_period_seconds: float = 10.0
    steady_seconds: float = 5.0
    min_reopen_seconds: float = 1.0
    first_retry_seconds: float = 0.5
    max_retry_seconds: float = 30.0
    forbidden_retry_seconds: float = 300.0
    missing_retry_seconds: float = 10.0
    relist_failures: int = 5
    events_per_turn: int = 100


class KindWatch:
    """Follows one kind while `run` runs.

    `listed` is set once all objects are read, or if the kind is missing (`is_absent`). `problem` states why the kind is
    not followed at present.
    """

    def __init__(
        self,
        client: KubernetesClient,
        kind: WatchedKind,
        store: WatchedObjectStore,
        timing: WatchTiming,
        clock: Callable[[], float],
        log_lines: BatchedWatchLog | None = None,
    ) -> None:
        self.kind = kind
        self.listed = asyncio.Event()
        self.version: str | None = None
        self.problem = ""
        self.list_count = 0
        self._client = client
        self._store = store
        self._timing = timing
        self._clock = clock
        self._log = log_lines or BatchedWatchLog()
        self._decoder = StreamDecoder(kind.shape)
        self.is_absent = False
        self._confirmed_at = -math.inf
        self._opened_at: float | None = None
        self._unconfirmed = 0

    def get_lag_seconds(self) -> float:
        """Return for how long the objects may differ from the server's; infinite before the first list."""
        if self.is_absent:
            return 0.0
        now = self._clock()
        opened_at = self._opened_at if self._trusts_watch(now) else None
        confirmed_at = self._confirmed_at if opened_at is None else max(self._confirmed_at, opened_at)
        return now - confirmed_at if self.listed.is_set() else math.inf

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        timing = self._timing
        waits = Backoff(timing.first_retry_seconds, timing.max_retry_seconds)
        while True:
            started = self._clock()
            try:
                if self._needs_list(waits.failures):
                    await self._list()
                await self._watch()
            except (CruiseError, BadInputError) as error:
                if self._clock() - started >= timing.steady_seconds:
                    waits.reset()
                problem = await explain_unreadable_kind(self._client, self.kind, error, self._store.has_objects())
                wait = self._continue_without(error) if problem is None else self._wait_after(problem, waits)
            else:
                waits.reset()
                # Do not reopen watches at once on a server that ends them early.
                wait = max(0.0, timing.min_reopen_seconds * random.uniform(0.5, 1.0) - (self._clock() - started))
            await asyncio.sleep(wait)

    def _needs_list(self, failures: int) -> bool:
        unconfirmed = (
            self._unconfirmed >= _MAX_UNCONFIRMED_WATCHES and self.get_lag_seconds() >= self._timing.unconfirmed_seconds
        )
        return self.version is None or unconfirmed or failures >= self._timing.relist_failures

    def _wait_after(self, error: CruiseError, waits: Backoff) -> float:
        at_least = None
        match error:
            case ExpiredVersionError() | BadInputError():
                self.version = None
            case ThrottledError():
                at_least = error.retry_after_seconds
            case UnavailableError():
                pass
            case _:
                # The server may still list a kind when it rejects a watch from this version.
                self.version = None
        self._report_problem(error)
        return waits.next_seconds(at_least)

    async def _list(self) -> None:
        self.version = None
        names: set[Key] = set()
        version = ""
        async for page in list_pages(self._client, self.kind, self._decoder, self._timing.page_size):
            for item in (*page.items, *page.unreadable):
                names.add(get_object_key(item))
                self._store.put(item, page.version)
            version = page.version
            if len(page.items) >= _LARGE_PAGE:
                freeze_garbage_collection()
            await asyncio.sleep(0)
        self._store.retain(names)
        self.is_absent = False
        self.version = version
        self.list_count += 1
        self._confirm(self._clock())
        self.listed.set()

    async def _watch(self) -> None:
        timing = self._timing
        seconds = max(1, round(timing.watch_seconds * random.uniform(0.8, 1.2)))
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self.version or "",
            "timeoutSeconds": str(seconds),
        }
        silence = seconds + timing.grace_period_seconds
        async with self._client.stream_lines(self.kind.path, query, idle_timeout_seconds=silence) as lines:
            self._report_recovery()
            self._opened_at = self._clock()
            self._unconfirmed += 1
            try:
                await self._receive(lines)
                if self._trusts_watch(self._clock()):
                    # Events of the last moment may not have arrived.
                    self._confirm(self._clock() - timing.trust_seconds)
            finally:
                if self._trusts_watch(self._clock()):
                    self._confirm(self._opened_at)
                self._opened_at = None

    async def _receive(self, lines: AsyncIterator[bytes]) -> None:
        received = 0
        async for line in lines:
            self._apply(self._decoder.decode_event(line))
            self._confirm(self._clock())
            received += 1
            if received % self._timing.events_per_turn == 0:
                # Lines that have arrived are read without a pause; let other tasks run.
                await asyncio.sleep(0)

    def _apply(self, event: WatchEvent[AnyObject]) -> None:
        match event:
            case ChangedEvent(item, version):
                self._store.put(item, version)
            case DeletedEvent(item, version):
                self._store.drop(get_object_key(item), version)
            case BookmarkEvent(version):
                pass
            case WatchError(expired, message):
                self._opened_at = None
                raise ExpiredVersionError(message) if expired else UnavailableError(message)
        if version:
            self.version = version

    def _confirm(self, at: float | None) -> None:
        """Note that all changes up to a time are known."""
        if at is not None:
            self._confirmed_at = max(self._confirmed_at, at)
            self._unconfirmed = 0

    def _trusts_watch(self, now: float) -> bool:
        return self._opened_at is not None and now - self._opened_at >= self._timing.trust_seconds

    def _continue_without(self, error: CruiseError) -> float:
        """Continue as if there were no objects; return the wait until the next try, since a kind may be installed."""
        if self.problem != str(error):
            self.problem = str(error)
            # A kind that is not installed needs no warning.
            write = log.info if isinstance(error, NotFoundError) else log.warning
            write("continuing without a kind", kind=self.kind.plural, because=self.problem)
        self._store.retain(set())
        self.is_absent = True
        self.listed.set()
        timing = self._timing
        seconds = timing.missing_retry_seconds if isinstance(error, NotFoundError) else timing.forbidden_retry_seconds
        return seconds * random.uniform(0.8, 1.2)

    def _report_problem(self, error: CruiseError) -> None:
        if self.problem != str(error):
            self.problem = str(error)
            self._log.report_interruption(
                self.kind.plural, self.problem, expected=isinstance(error, ExpiredVersionError)
            )

    def _report_recovery(self) -> None:
        if self.problem:
            self.problem = ""
            self._log.report_recovery(self.kind.plural)
