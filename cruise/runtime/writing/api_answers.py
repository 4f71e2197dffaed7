"""The API server's answers to writes, the database's answer to whether writes are paused, and how writers slow down."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cruise.domain.actions import Action, EvictPod, ReasonCode, ResizePod
from cruise.errors import CruiseError, RefusedError, ThrottledError, UnavailableError
from cruise.runtime.ports import StorePort

# The API server's causes, by the names of the adapters.
NODE_CAPACITY = "NodeCapacity"
QUOTA_EXCEEDED = "QuotaExceeded"
MULTIPLE_BUDGETS = "MultipleDisruptionBudgets"
DISRUPTION_BUDGET = "DisruptionBudget"
# The client lacks the permission, for any pod.
FORBIDDEN_CAUSE = frozenset({"Unauthorized", "Forbidden"})
# An admission webhook does not answer: this concerns some objects only, so other writes are not slowed down.
WEBHOOK_FAILED = "WebhookFailed"

_UNEVICTABLE = {MULTIPLE_BUDGETS: ReasonCode.NOT_EVICTABLE, DISRUPTION_BUDGET: ReasonCode.POD_DISRUPTION_BUDGET}
MAX_SEQUENTIAL_FAILURES = 50


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """Why a write was refused.

    `remembered_as` is the reason under which the same resize is not tried again, None if it may be. `for_verb` tells
    that every action of its kind is refused.
    """

    reason: ReasonCode
    remembered_as: ReasonCode | None = None
    for_verb: bool = False


def classify_refusal(action: Action, error: RefusedError) -> WriteRefusal:
    """Return what a permanent refusal means for an action."""
    if error.cause in FORBIDDEN_CAUSE:
        return WriteRefusal(ReasonCode.FORBIDDEN, for_verb=True)
    if isinstance(action, EvictPod):
        return WriteRefusal(_UNEVICTABLE.get(error.cause, ReasonCode.RESIZE_REFUSED))
    if not isinstance(action, ResizePod):
        return WriteRefusal(ReasonCode.RESIZE_REFUSED)
    if error.cause == QUOTA_EXCEEDED:
        return WriteRefusal(ReasonCode.QUOTA_EXCEEDED)
    if error.cause == NODE_CAPACITY:
        return WriteRefusal(ReasonCode.RESIZE_INFEASIBLE, ReasonCode.RESIZE_INFEASIBLE)
    return WriteRefusal(ReasonCode.RESIZE_REFUSED, ReasonCode.RESIZE_REFUSED)


def is_disruption_budget_refusal(action: Action, error: ThrottledError) -> bool:
    """Distinguish a refusal by a PodDisruptionBudget from one by an overloaded server: both are answered with 429.

    Older servers state no cause for a PodDisruptionBudget; an overloaded server states a Retry-After.
    """
    if not isinstance(action, EvictPod):
        return False
    return error.cause == DISRUPTION_BUDGET or (not error.cause and error.retry_after_seconds is None)


@dataclass(frozen=True, slots=True)
class WriteTimeouts:
    """The waits of the writers of one process, in seconds.

    The pause is read and the audit stored every `poll`; `pause_check` is the longest wait for the database to report
    the pause. After a 429 the server's Retry-After applies, otherwise `first_delay`, doubled each time up to
    `longest_delay`; after `max_total_delay` without a success, the rest is left to the next pass. A write in progress
    whose plan is cancelled has `response` to be answered, well within the duration of a Lease.
    """

    poll: float = 0.4
    pause_check: float = 10.0
    first_delay: float = 0.5
    longest_delay: float = 30.0
    max_total_delay: float = 60.0
    response: float = 3.0


WRITE_TIMEOUTS = WriteTimeouts()


class PauseState:
    """Polls the database for the pause; without a database writes are never paused.

    Once paused it stays paused: a pause ends the plan, and the next pass continues.
    """

    def __init__(self, store: StorePort | None, timeouts: WriteTimeouts = WRITE_TIMEOUTS) -> None:
        self._store = store
        self.timeouts = timeouts
        # With the time until the next read, this stays below a second.
        self._valid_seconds = 1.8 * timeouts.poll
        self._answered_at = -float("inf")
        self._changed = asyncio.Event()
        self._failure: CruiseError | None = None
        self.is_paused = False

    async def watch(self, stop: asyncio.Event) -> None:
        """Read until `stop`; `allows_writing` raises a failure."""
        while not self.is_paused and self._failure is None and not await wait_for_event(stop, self.timeouts.poll):
            await self.read()

    async def read(self) -> None:
        """Read once."""
        if self._store is None:
            return
        started = time.monotonic()
        try:
            paused = await self._store.is_paused()
        except CruiseError as error:
            self._failure = error
        else:
            self.is_paused = self.is_paused or paused
            self._answered_at = started
        self._changed.set()
        self._changed = asyncio.Event()

    async def allows_writing(self) -> bool:
        """Return whether writes are allowed, by a recent answer; a slow database slows the writers.

        Raises what the database raised, and UnavailableError if no recent answer arrived within `pause_check`.
        """
        until = time.monotonic() + self.timeouts.pause_check
        while not self.is_paused:
            if self._failure is not None:
                raise UnavailableError(f"whether writing is paused is not known: {self._failure}") from self._failure
            if self._store is None or time.monotonic() - self._answered_at <= self._valid_seconds:
                return True
            if not await wait_for_event(self._changed, max(0.0, until - time.monotonic())):
                raise UnavailableError("whether writing is paused is not known: the database does not answer in time")
        return False

    async def sleep(self, seconds: float) -> None:
        """Wait for a time, or until paused."""
        until = time.monotonic() + seconds
        while not self.is_paused and (remaining := until - time.monotonic()) > 0:
            await wait_for_event(self._changed, min(remaining, self.timeouts.poll))


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most a time; return whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class WriteThrottle:
    """Slows writers down after a 429: one at a time, with growing delays, until one write succeeds."""

    def __init__(self, pause: PauseState) -> None:
        self._pause = pause
        self._one_at_a_time = asyncio.Lock()
        self._throttled_in_a_row = 0
        self._failures_in_a_row = 0
        self._resume_at = 0.0
        self._waited_seconds = 0.0
        self.has_given_up = False

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Wait until the next request may be sent; while slowed down, only one request is in progress."""
        if self._throttled_in_a_row == 0:
            yield
            return
        async with self._one_at_a_time:
            if self._throttled_in_a_row and not self.has_given_up:
                await self._pause.sleep(self._resume_at - time.monotonic())
                yield
                return
        yield

    def report_success(self) -> None:
        """Stop slowing down."""
        self._throttled_in_a_row = 0
        self._failures_in_a_row = 0
        self._waited_seconds = 0.0

    def report_failure(self) -> None:
        """Count a write that failed by itself; after many in a row the rest is left to the next pass."""
        self._failures_in_a_row += 1
        self.has_given_up = self.has_given_up or self._failures_in_a_row >= MAX_SEQUENTIAL_FAILURES

    def slow_down(self, retry_after_seconds: float | None) -> None:
        """Slow down for the time that the server states, or for twice the last delay."""
        now = time.monotonic()
        if self._throttled_in_a_row and now < self._resume_at:
            return  # sent at the same time as the request that slowed down
        timeouts = self._pause.timeouts
        doubled = timeouts.first_delay * 2.0 ** min(self._throttled_in_a_row, 10)
        seconds = min(
            doubled if retry_after_seconds is None else retry_after_seconds, self._pause.timeouts.longest_delay
        )
        # A stated time of zero would send all retries at the same time.
        seconds = max(seconds, timeouts.first_delay)
        self._throttled_in_a_row += 1
        self._waited_seconds += seconds
        self._resume_at = now + seconds
        self.has_given_up = self._waited_seconds > timeouts.max_total_delay
