"""The operator's pause, known to every writer within a second without a query for each action."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cruise.domain.actions import Action, EvictPod, ReasonCode, ResizePod
from cruise.errors import CruiseError, RefusedError, ThrottledError, UnavailableError
from cruise.runtime.ports import StorePort

# What the API server's answers to a write mean: an outcome, and what is remembered of a refusal.

# The API server's causes, as the adapters name them.
NODE_CAPACITY = "NodeCapacity"
QUOTA_EXCEEDED = "QuotaExceeded"
MULTIPLE_BUDGETS = "MultipleDisruptionBudgets"
DISRUPTION_BUDGET = "PodDisruptionBudget"
# The client may not do this at all, whatever the pod.
FORBIDDEN_CAUSE = frozenset({"Unauthorized", "Forbidden"})
# An admission webhook does not answer: that is about some objects, and no reason to slow down for all.
WEBHOOK_FAILED = "WebhookFailed"

_UNEVICTABLE = {MULTIPLE_BUDGETS: ReasonCode.NOT_EVICTABLE, DISRUPTION_BUDGET: ReasonCode.POD_DISRUPTION_BUDGET}


@dataclass(frozen=True, slots=True)
class WriteRefusal:
    """Why a write was not done.

    `remembered_as` is the reason under which the same resize is not tried again, None where it may be; `of_verb` says
    that no action of its kind will be let through.
    """

    reason: ReasonCode
    remembered_as: ReasonCode | None = None
    for_verb: bool = False


def classify_refusal(action: Action, error: RefusedError) -> WriteRefusal:
    """Return what a refusal for good means for an action."""
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
    """Tell a disruption budget's refusal from an overloaded server's: both are answered 429.

    Older servers give a budget's refusal without its cause, and an overloaded one says when to come again.
    """
    if not isinstance(action, EvictPod):
        return False
    return error.cause == DISRUPTION_BUDGET or (not error.cause and error.retry_after_seconds is None)


# How long writers wait for what.


@dataclass(frozen=True, slots=True)
class WriteTimeouts:
    """The waits of the writers of one process, in seconds.

    Between `poll` and `poll` the store is read for the pause, and the audit written; `pause_answer` is how long the
    store may take to say whether writing is paused. After a 429 the server's own delay counts, else `first_delay`,
    doubled each time, never over `longest_delay`; after `most_delay` in which nothing went through, the rest is left
    to the next pass. A write under way when its plan is given up has `answer` to be answered, well inside what a Lease
    leaves.
    """

    poll: float = 0.4
    pause_check: float = 10.0
    first_delay: float = 0.5
    longest_delay: float = 30.0
    max_total_delay: float = 60.0
    response: float = 3.0


WRITE_TIMEOUTS = WriteTimeouts()


class PauseState:
    """Reads from the store again and again whether writing is paused; without a store it never is.

    Once paused it stays so: a pause in the middle of a plan ends the plan, and going on is for the next one.
    """

    def __init__(self, store: StorePort | None, waits: WriteTimeouts = WRITE_TIMEOUTS) -> None:
        self._store = store
        self._waits = waits
        # With the time to the next read, and in the queue of a slow client, this stays under a second.
        self._good_for_seconds = 1.8 * waits.poll
        self._answered_at = -float("inf")
        self._news = asyncio.Event()
        self._failure: CruiseError | None = None
        self.is_paused = False

    async def watch(self, stop: asyncio.Event) -> None:
        """Read until `stop`; a failure reaches the writers through `allows_writing`."""
        while not self.is_paused and self._failure is None and not await wait_for_event(stop, self._waits.poll):
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
            self.is_paused = self.is_paused or paused
            self._answered_at = began
        self._news.set()
        self._news = asyncio.Event()

    async def allows_writing(self) -> bool:
        """Tell whether writing may go on, by an answer that is young enough; a slow store makes slow writers.

        Raises what the store raised, and Unavailable where no answer was young enough within `pause_answer`, however
        many came too late.
        """
        until = time.monotonic() + self._waits.pause_check
        while not self.is_paused:
            if self._failure is not None:
                raise UnavailableError(f"whether writing is paused is not known: {self._failure}") from self._failure
            if self._store is None or time.monotonic() - self._answered_at <= self._good_for_seconds:
                return True
            if not await wait_for_event(self._news, max(0.0, until - time.monotonic())):
                raise UnavailableError("whether writing is paused is not known: the store does not answer in time")
        return False

    async def sleep(self, seconds: float) -> None:
        """Wait for a time, or until paused."""
        until = time.monotonic() + seconds
        while not self.is_paused and (left := until - time.monotonic()) > 0:
            await wait_for_event(self._news, min(left, self._waits.poll))


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event for at most a time; tell whether it came."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


# Slowing down when the API server answers that there are too many requests.

MAX_SEQUENTIAL_FAILURES = 50


class WriteThrottle:
    """Lets writers through freely, and after a 429 one at a time and later, until one goes through again."""

    def __init__(self, pause: PauseState, waits: WriteTimeouts = WRITE_TIMEOUTS) -> None:
        self._pause = pause
        self._waits = waits
        self._one_at_a_time = asyncio.Lock()
        self._in_a_row = 0
        self._alone_in_a_row = 0
        self._resume_at = 0.0
        self._waited_seconds = 0.0
        self.has_given_up = False

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[None]:
        """Wait until the next request may go out; while slowed down, hold the others back until it is answered."""
        if self._in_a_row == 0:
            yield
            return
        async with self._one_at_a_time:
            if self._in_a_row and not self.has_given_up:
                await self._pause.sleep(self._resume_at - time.monotonic())
                yield
                return
        yield

    def report_success(self) -> None:
        """Let all writers through again."""
        self._in_a_row = 0
        self._alone_in_a_row = 0
        self._waited_seconds = 0.0

    def report_failure(self) -> None:
        """Count a write that failed for itself; where only such come, the rest is left to the next pass."""
        self._alone_in_a_row += 1
        self.has_given_up = self.has_given_up or self._alone_in_a_row >= MAX_SEQUENTIAL_FAILURES

    def slow_down(self, retry_after_seconds: float | None) -> None:
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
        self.has_given_up = self._waited_seconds > self._waits.max_total_delay
