"""One kind kept in step with the API server: a list, then a watch, and from every failure back to one of the two."""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.kinds import WatchedKind, is_optional_kind_missing, list_pages
from cruise.adapters.kube.object_store import Key, WatchedObjectStore, get_object_key
from cruise.adapters.kube.throttling import Backoff
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

# Log lines of watches: those that fail together share one line, and all that recover another.

log = structlog.get_logger()

_FEW = 3


class WatchLog:
    """Gathers the reports of `together_seconds` into one line.

    Watches are tried again at different times after an outage: that they continue is logged once all of them do.
    """

    def __init__(self, together_seconds: float = 1.0) -> None:
        self._together_seconds = together_seconds
        self._failed: dict[str, str] = {}
        self._down: dict[str, None] = {}
        self._well: list[str] = []
        self._usual = True
        self._timer: asyncio.TimerHandle | None = None

    def report_interruption(self, kind: str, because: str, *, usual: bool) -> None:
        """Report that a kind is not followed; `usual` where every cluster has that now and then."""
        self._failed[kind] = because
        self._down[kind] = None
        self._usual = self._usual and usual
        self._later()

    def report_recovery(self, kind: str) -> None:
        """Report that it is followed again."""
        self._well.append(kind)
        self._down.pop(kind, None)
        self._later()

    def write(self) -> None:
        """Log what was gathered now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._failed:
            line = log.info if self._usual else log.warning
            line(
                "watch interrupted", kinds=format_kinds(list(self._failed)), because=format_shared_problem(self._failed)
            )
        if self._well and not self._down:
            log.info("watch goes on", kinds=format_kinds(list(dict.fromkeys(self._well))))
            self._well = []
        self._failed, self._usual = {}, True

    def _later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._together_seconds, self.write)


def format_kinds(kinds: Sequence[str]) -> str:
    """Return kinds in words: all where they are few, else the first and how many more."""
    if len(kinds) <= _FEW:
        return ", ".join(kinds)
    return f"{', '.join(kinds[: _FEW - 1])} and {len(kinds) - _FEW + 1} more"


def format_shared_problem(problems: Mapping[str, str]) -> str:
    """Return the problems of kinds in one line: the first of them, and how many others there are."""
    reasons = list(dict.fromkeys(problems.values()))
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more like it)"


_UNPROVED_WATCHES = 2
# Items of a page that is followed by more like it.
_MANY = 500


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """The pace of lists and watches, in seconds.

    A watch is kept open by the server for `watch_seconds`, give or take a fifth: bookmarks come only about once a
    minute, and for no fixed time of kinds that nothing happens to. What is
    opened anew proves that nothing was missed, since a server sends at once what has happened since a version, or that
    it has expired: so it counts from its opening, once it has been open for `trust_seconds` without an
    error. Where watches end sooner than that, by whatever is in between, a list proves it every `unproved_seconds`.
    A watch without an event for `grace_seconds` longer than it should last is dead. What fails within `steady_seconds`
    makes the next wait longer; one that the server ends is opened anew no sooner than `least_seconds` after it was
    opened. A kind that is forbidden is looked for again after `absent_wait_seconds`, one that the server does not have
    after `missing_wait_seconds`. After `relist_failures` in a row the version is suspected to be one that the server
    never had: the kind is listed anew.
    """

    page_size: int = 500
    watch_seconds: float = 30.0
    trust_seconds: float = 1.0
    unconfirmed_seconds: float = 30.0
    grace_period_seconds: float = 10.0
    steady_seconds: float = 5.0
    least_seconds: float = 1.0
    first_wait_seconds: float = 0.5
    longest_wait_seconds: float = 30.0
    absent_wait_seconds: float = 300.0
    missing_wait_seconds: float = 10.0
    relist_failures: int = 5
    events_in_a_row: int = 100


class KindWatch:
    """Follows one kind for as long as `run` does.

    `listed` is set once its objects were all seen, or it was found that there can be none: then it is `absent`.
    `problem` says why it is not followed now, and is empty where all is well.
    """

    def __init__(
        self,
        client: KubernetesClient,
        kind: WatchedKind,
        shelf: WatchedObjectStore,
        timing: WatchTiming,
        clock: Callable[[], float],
        lines: WatchLog | None = None,
    ) -> None:
        self.kind = kind
        self.listed = asyncio.Event()
        self.version: str | None = None
        self.problem = ""
        self.list_count = 0
        self._client = client
        self._shelf = shelf
        self._timing = timing
        self._clock = clock
        self._lines = lines or WatchLog()
        self._decoder = StreamDecoder(kind.shape)
        self.is_absent = False
        self._proved_at = -math.inf
        self._opened_at: float | None = None
        self._unproved = 0

    def lag_seconds(self) -> float:
        """How long ago the objects were last known to be those of the server; infinite before the first list."""
        if self.is_absent:
            return 0.0
        now = self._clock()
        opened_at = self._opened_at if self._trusts_watch(now) else None
        proved_at = self._proved_at if opened_at is None else max(self._proved_at, opened_at)
        return now - proved_at if self.listed.is_set() else math.inf

    async def run(self) -> None:
        """Keep in step until cancelled."""
        timing = self._timing
        waits = Backoff(timing.first_wait_seconds, timing.longest_wait_seconds)
        while True:
            began = self._clock()
            try:
                if self._needs_list(waits.failures):
                    await self._list()
                await self._watch()
            except (CruiseError, BadInputError) as error:
                if self._clock() - began >= timing.steady_seconds:
                    waits.reset()
                without = await is_optional_kind_missing(self._client, self.kind, error)
                wait = self._do_without(error) if without else self._wait_after(error, waits)
            else:
                waits.reset()
                # A server that ends its watches early, again and again, is left in peace a little.
                wait = max(0.0, timing.least_seconds * random.uniform(0.5, 1.0) - (self._clock() - began))
            await asyncio.sleep(wait)

    def _needs_list(self, failures: int) -> bool:
        unproved = self._unproved >= _UNPROVED_WATCHES and self.lag_seconds() >= self._timing.unconfirmed_seconds
        return self.version is None or unproved or failures >= self._timing.relist_failures

    def _wait_after(self, error: CruiseError, waits: Backoff) -> float:
        asked = None
        match error:
            case ExpiredVersionError() | BadInputError():
                self.version = None
            case ThrottledError():
                asked = error.retry_after_seconds
            case UnavailableError():
                pass
            case _:
                # What the server will not continue from, it may still list.
                self.version = None
        self._report_problem(error)
        return waits.next_seconds(asked)

    async def _list(self) -> None:
        self.version = None
        names: set[Key] = set()
        version = ""
        async for page in list_pages(self._client, self.kind, self._decoder, self._timing.page_size):
            for item in (*page.items, *page.unreadable):
                names.add(get_object_key(item))
                self._shelf.put(item, page.version)
            version = page.version
            if len(page.items) >= _MANY:
                freeze_garbage_collection()
            await asyncio.sleep(0)
        self._shelf.retain(names)
        self.is_absent = False
        self.version = version
        self.list_count += 1
        self._prove(self._clock())
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
        async with self._client.stream_lines(self.kind.path, query, silence_seconds=silence) as lines:
            self._report_recovery()
            self._opened_at = self._clock()
            self._unproved += 1
            try:
                await self._receive(lines)
                if self._trusts_watch(self._clock()):
                    # Events of the very last moment may not have arrived.
                    self._prove(self._clock() - timing.trust_seconds)
            finally:
                if self._trusts_watch(self._clock()):
                    self._prove(self._opened_at)
                self._opened_at = None

    async def _receive(self, lines: AsyncIterator[bytes]) -> None:
        in_a_row = 0
        async for line in lines:
            self._take(self._decoder.event(line))
            self._prove(self._clock())
            in_a_row += 1
            if in_a_row % self._timing.events_in_a_row == 0:
                # Lines that have arrived already are read without a pause, and others want their turn.
                await asyncio.sleep(0)

    def _take(self, event: WatchEvent[AnyObject]) -> None:
        match event:
            case ChangedEvent(item, version):
                self._shelf.put(item, version)
            case DeletedEvent(item, version):
                self._shelf.drop(get_object_key(item), version)
            case BookmarkEvent(version):
                pass
            case WatchError(expired, message):
                self._opened_at = None
                raise ExpiredVersionError(message) if expired else UnavailableError(message)
        if version:
            self.version = version

    def _prove(self, at: float | None) -> None:
        """Note that everything up to a time is known."""
        if at is not None:
            self._proved_at = max(self._proved_at, at)
            self._unproved = 0

    def _trusts_watch(self, now: float) -> bool:
        return self._opened_at is not None and now - self._opened_at >= self._timing.trust_seconds

    def _do_without(self, error: CruiseError) -> float:
        """Go on as if there were no objects; return when to look again: what is not served may be installed."""
        if self.problem != str(error):
            self.problem = str(error)
            # What is not installed is nothing to be warned of.
            say = log.info if isinstance(error, NotFoundError) else log.warning
            say("doing without a kind", kind=self.kind.plural, because=self.problem)
        self._shelf.retain(set())
        self.is_absent = True
        self.listed.set()
        timing = self._timing
        seconds = timing.missing_wait_seconds if isinstance(error, NotFoundError) else timing.absent_wait_seconds
        return seconds * random.uniform(0.8, 1.2)

    def _report_problem(self, error: CruiseError) -> None:
        if self.problem != str(error):
            self.problem = str(error)
            self._lines.report_interruption(
                self.kind.plural, self.problem, usual=isinstance(error, ExpiredVersionError)
            )

    def _report_recovery(self) -> None:
        if self.problem:
            self.problem = ""
            self._lines.report_recovery(self.kind.plural)
