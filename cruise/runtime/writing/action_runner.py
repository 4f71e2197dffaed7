"""One application of a plan: each action guarded, sent, and its answer judged."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.domain.actions import (
    Action,
    ActionResult,
    ContainerTarget,
    EvictPod,
    Outcome,
    ReasonCode,
    RefusedResize,
    ResizePod,
)
from cruise.domain.cluster import ClusterSnapshot, ResizePending
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.reasons import ReasonDetail
from cruise.errors import ConflictError, CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.writing.api_answers import (
    WEBHOOK_FAILED,
    PauseState,
    WriteThrottle,
    WriteTimeouts,
    classify_refusal,
    is_disruption_budget_refusal,
)
from cruise.runtime.writing.audit import AuditQueue, PlanIntents, reconcile_intents
from cruise.runtime.writing.evictions import EvictionLock
from cruise.runtime.writing.guards import WriteGuards

log = structlog.get_logger()

_MOST_ATTEMPTS = 5
_ORIGINALS_AT_ONCE = 5000
_UNTRIED = (ReasonCode.FORBIDDEN, ReasonCode.THROTTLED, ReasonCode.STALE_DECISION)


class ActionRunner:
    """Runs the actions of one plan, and keeps what one action teaches about the next."""

    def __init__(
        self,
        actions: Sequence[Action],
        cluster: ClusterPort,
        store: StorePort,
        guards: WriteGuards,
        audit: AuditQueue,
        evictions: EvictionLock,
        pause: PauseState,
        waits: WriteTimeouts,
        snapshot: ClusterSnapshot,
        now: datetime,
    ) -> None:
        self._actions = actions
        self._snapshot = snapshot
        self._cluster = cluster
        self._store = store
        self._guards = guards
        self._audit = audit
        self._evictions = evictions
        self._pause = pause
        self._waits = waits
        self._now = now
        self._brake = WriteThrottle(pause, waits)
        self._forbidden: set[type[Action]] = set()
        self._spent: Sequence[Outcome] | None = None
        self._to_remember: list[RefusedResize] = []
        self._outcomes: list[Outcome | None] = [None] * len(actions)
        self._intents = PlanIntents(actions, store, audit, now, self._sizes_before, self._may_be_sent)

    def outcomes(self) -> list[Outcome]:
        """Return how each action ended, in their order."""
        return [outcome for outcome in self._outcomes if outcome is not None]

    @property
    def needs_store(self) -> bool:
        """Tell whether there is anything that is not done without a store: all but taking off a taint of cruise's."""
        return any(self._guards.needs_store(action) for action in self._actions)

    async def begin(self) -> None:
        """Before the first write: see what others left open, read the pause, store sizes of pods never resized."""
        if all(self._guards.is_forbidden_by_mode(action) for action in self._actions) or not self.needs_store:
            return
        for found in await reconcile_intents(self._cluster, self._store, self._audit, self._snapshot):
            if isinstance(found.action, ResizePod):
                # It may arrive yet, or have arrived after the snapshot: its room is not given to another.
                self._guards.consume(found.action)
        await self._pause.read()
        keys = await self._store.signing_keys()
        for first in range(0, len(self._actions), _ORIGINALS_AT_ONCE):
            # In parts, since a plan may be about all pods of a large cluster, and other tasks wait for their turn.
            originals = self._guards.original_sizes(self._actions[first : first + _ORIGINALS_AT_ONCE], keys)
            if originals and await self._pause.allows_writing():
                await self._store.remember_original_sizes(originals)

    def announce(self, numbers: Iterable[int]) -> None:
        """Say which actions come next, in their order."""
        self._intents.announce(numbers)

    def finish(self) -> None:
        """After the last write: close what was recorded and not sent."""
        self._intents.close()

    async def record(self) -> None:
        """Bring the store up to date."""
        refused, self._to_remember = self._to_remember, []
        if refused:
            await self._store.remember_refused(refused)
        await self._audit.record(self._store)

    async def run_one(self, number: int) -> None:
        """Take one action to its end."""
        outcome = await self._ended(number, self._actions[number])
        if self._outcomes[number] is None:
            self._take(number, outcome)

    def _take(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of an action, for the audit as well."""
        self._outcomes[number] = outcome
        intent = self._intents.get_intent(number)
        # The first refusal of a kind stands for the rest, which is not even tried.
        untried = outcome.result is ActionResult.SKIPPED and outcome.reason in _UNTRIED
        if outcome.result is not ActionResult.OBSERVED and not untried:
            self._audit.add(outcome, intent)
        elif intent is not None:
            self._audit.close_intents([intent])

    def _may_be_sent(self, number: int) -> bool:
        action = self._actions[number]
        if self._outcomes[number] is not None:
            return False
        return not self._guards.is_forbidden_by_mode(action) and self._guards.explain_exclusion(action) is None

    async def _ended(self, number: int, action: Action) -> Outcome:
        if self._guards.is_forbidden_by_mode(action):
            return self._outcome(action, ActionResult.OBSERVED, ReasonCode.MODE_FORBIDS)
        excluded = self._guards.explain_exclusion(action)
        if excluded is not None:
            return self._outcome(action, ActionResult.SKIPPED, excluded)
        if isinstance(action, EvictPod):
            return await self._evicted(number, action)
        if isinstance(action, ResizePod):
            return await self._resized(number, action)
        return await self._attempted(number, action)

    async def _evicted(self, number: int, action: EvictPod) -> Outcome:
        """Evict in turn, on budgets read from the store where other writers may have spent them."""
        if not self._evictions.are_known(self._now):
            return self._outcome(action, ActionResult.SKIPPED, ReasonCode.HISTORY_INCOMPLETE)
        over = None if self._spent is None else self._guards.find_exceeded_budget(action, self._spent)
        if over is not None:
            return self._outcome(action, ActionResult.SKIPPED, over)
        async with self._evictions.acquire(self._store, self._audit, self._now) as self._spent:
            over = self._guards.find_exceeded_budget(action, self._spent)
            if over is not None:
                return self._outcome(action, ActionResult.SKIPPED, over)
            outcome = await self._attempted(number, action)
            if outcome.result is ActionResult.REFUSED:
                self._guards.refusing_nodes.add(action.node)
            # Within the turn, so that the next one knows.
            self._take(number, outcome)
            return outcome

    async def _resized(self, number: int, action: ResizePod) -> Outcome:
        detail = ""
        if not self._guards.requires_fresh_read(action) and self._guards.is_resized_by_other(action):
            return self._outcome(action, ActionResult.SKIPPED, ReasonCode.CHANGED)
        if not self._guards.has_capacity(action):
            part = self._guards.remove_growth(action)
            if part is None:
                return self._outcome(action, ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)
            action, detail = part, ReasonDetail.GROWTH_PENDING
        give_back = self._guards.consume(action)
        outcome = await self._attempted(number, action, detail)
        if outcome.result is not ActionResult.DONE:
            give_back()
        return outcome

    async def _attempted(self, number: int, action: Action, detail: str = "") -> Outcome:
        """Try an action until the server answers something else than "too many requests", within bounds."""
        if self._guards.respects_pause(action) and not await self._pause.allows_writing():
            return self._outcome(action, ActionResult.OBSERVED, ReasonCode.PAUSED)
        await self._begin(number, action)
        for left in reversed(range(_MOST_ATTEMPTS)):
            async with self._brake.acquire():
                if type(action) in self._forbidden:
                    return self._outcome(action, ActionResult.SKIPPED, ReasonCode.FORBIDDEN)
                if self._brake.has_given_up:
                    return self._outcome(action, ActionResult.SKIPPED, ReasonCode.THROTTLED)
                outcome = await self._attempt(number, action, detail, last=left == 0)
            if outcome is not None:
                return outcome
        raise AssertionError("the last attempt has an outcome")

    async def _begin(self, number: int, action: Action) -> None:
        """Record the action before it is sent; what is not recorded is not sent, but for taking off a taint."""
        if isinstance(action, EvictPod):
            # Alone, since what is begun counts against the budgets.
            await self._intents.begin_single(number)
        elif self._guards.needs_store(action):
            await self._intents.begin(number)
        else:
            with suppress(CruiseError, TimeoutError):
                async with asyncio.timeout(self._waits.response):
                    await self._intents.begin(number)

    async def _attempt(self, number: int, action: Action, detail: str, *, last: bool) -> Outcome | None:
        """Try an action once; None if it is to be tried again."""
        try:
            sendable = await self._checked(action)
            if isinstance(sendable, Outcome):
                return sendable
            await self._send(number, sendable, detail)
        except ThrottledError as error:
            if is_disruption_budget_refusal(action, error):
                return self._judged(action, error, detail)
            if error.cause == WEBHOOK_FAILED:
                self._brake.report_failure()
                return self._judged(action, error, detail)
            self._brake.slow_down(error.retry_after_seconds)
            return self._judged(action, error, detail) if last or self._brake.has_given_up else None
        except (ConflictError, NotFoundError, RefusedError) as error:
            self._brake.report_success()
            return self._judged(action, error, detail)
        self._brake.report_success()
        return self._judged(action, None, detail)

    async def _checked(self, action: Action) -> Action | Outcome:
        """Return an action as it is to be sent, by what is known right before, or how it ends if it is not."""
        if self._guards.is_too_old():
            return self._outcome(action, ActionResult.SKIPPED, ReasonCode.STALE_DECISION)
        changed, pod = None, None
        read_again = self._guards.requires_fresh_read(action)
        if self._guards.respects_pause(action):
            if await self._pause.allows_writing() and read_again:
                assert isinstance(action, ResizePod | EvictPod)
                pod = await self._cluster.read_pod(action.namespace, action.pod)
                changed = self._guards.explain_change(action, pod)
            # Once more, since reading may have taken its time.
            if not await self._pause.allows_writing():
                return self._outcome(action, ActionResult.OBSERVED, ReasonCode.PAUSED)
        # Once more, after every wait.
        if self._guards.is_too_old():
            return self._outcome(action, ActionResult.SKIPPED, ReasonCode.STALE_DECISION)
        if isinstance(action, EvictPod) and not self._evictions.are_known(self._now):
            # Once more, since the budget may have been read before the loss was noticed.
            return self._outcome(action, ActionResult.SKIPPED, ReasonCode.HISTORY_INCOMPLETE)
        if isinstance(action, ResizePod) and not read_again:
            pod = self._cluster.get_cached_pod(action.namespace, action.pod)
            changed = self._guards.explain_shrink_refusal(action, pod)
        if changed is not None:
            return self._outcome(action, ActionResult.SKIPPED, changed)
        # A pod that anybody has changed since then is left to the next pass: the server refuses the write.
        return replace(action, version=pod.version) if pod and isinstance(action, ResizePod | EvictPod) else action

    async def _send(self, number: int, action: Action, detail: str) -> None:
        """Send a write and wait for its answer, even where the plan is given up meanwhile."""
        # A task of its own, since a cancellation must not end it: it may be done already.
        sending = asyncio.ensure_future(self._cluster.perform(action))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending}, timeout=self._waits.response)
            if not sending.done():
                sending.cancel()
                await asyncio.wait({sending})
            unanswered = UnavailableError("given up before it was answered: it may have been done")
            error = unanswered if sending.cancelled() else sending.exception()
            if error is None or isinstance(error, CruiseError):
                self._leave(number, action, error, detail)
            raise
        except UnavailableError as error:
            self._leave(number, action, error, detail)
            raise

    def _leave(self, number: int, action: Action, error: CruiseError | None, detail: str) -> None:
        """Note how an action ended that ends its plan; without an answer it is compared with the cluster later."""
        outcome = self._judged(action, error, detail)
        intent = self._intents.get_intent(number)
        if intent is not None and isinstance(error, UnavailableError):
            self._audit.leave_open(intent, outcome)
        else:
            self._audit.add(outcome, intent)

    def _judged(self, action: Action, error: CruiseError | None, detail: str) -> Outcome:
        """Return the outcome that an answer means, and remember what it teaches."""
        match error:
            case None:
                self._learn_from_done(action)
                return self._outcome(action, ActionResult.DONE, action.reason, detail)
            case ConflictError():
                return self._outcome(action, ActionResult.SKIPPED, ReasonCode.CHANGED, str(error))
            case NotFoundError():
                return self._outcome(action, ActionResult.SKIPPED, ReasonCode.NOT_FOUND, str(error))
            case ThrottledError():
                budget = is_disruption_budget_refusal(action, error)
                return self._outcome(
                    action,
                    ActionResult.REFUSED,
                    ReasonCode.POD_DISRUPTION_BUDGET if budget else ReasonCode.THROTTLED,
                    str(error),
                )
            case RefusedError():
                return self._refused(action, error)
            case _:
                return self._outcome(action, ActionResult.FAILED, action.reason, str(error))

    def _refused(self, action: Action, error: RefusedError) -> Outcome:
        refusal = classify_refusal(action, error)
        if refusal.remembered_as is not None and isinstance(action, ResizePod):
            self._remember(action, action.containers, refusal.remembered_as)
        if refusal.for_verb:
            if type(action) in self._forbidden:
                # One of those that were under way together.
                return self._outcome(action, ActionResult.SKIPPED, refusal.reason, str(error))
            self._forbidden.add(type(action))
            log.warning("not permitted", action=type(action).__name__, error=str(error))
        return self._outcome(action, ActionResult.REFUSED, refusal.reason, str(error))

    def _learn_from_done(self, action: Action) -> None:
        decided_on = self._guards.set_decision(action) if isinstance(action, ResizePod) else None
        if isinstance(action, ResizePod) and action.reason is ReasonCode.WITHDRAWN and decided_on is not None:
            deferred = decided_on.resize.pending is ResizePending.DEFERRED
            why = ReasonCode.RESIZE_DEFERRED if deferred else ReasonCode.RESIZE_INFEASIBLE
            self._remember(action, get_spec_targets(decided_on), why)

    def _remember(self, action: ResizePod, containers: Sequence[ContainerTarget], why: ReasonCode) -> None:
        room = self._guards.get_capacity_at_refusal(action, why)
        self._to_remember.append(RefusedResize(action.uid, tuple(containers), why, self._now, room))

    def _outcome(self, action: Action, verdict: ActionResult, reason: ReasonCode, detail: str = "") -> Outcome:
        return Outcome(self._now, action, verdict, reason, detail, before=self._sizes_before(action))

    def _sizes_before(self, action: Action) -> tuple[ContainerTarget, ...]:
        if not isinstance(action, ResizePod):
            return ()
        found = self._guards.set_decision(action)
        return get_spec_targets(found) if found is not None and found.uid == action.uid else ()
