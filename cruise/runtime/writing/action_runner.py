"""One application of a plan: each action guarded, sent, and its answer judged."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime

import structlog

from cruise.domain.actions import Action, ContainerTarget, EvictPod, Outcome, Reason, RefusedTarget, ResizePod, Verdict
from cruise.domain.cluster import ResizePending, Snapshot
from cruise.domain.details import Detail
from cruise.domain.sizes import spec_targets
from cruise.errors import Conflict, CruiseError, NotFound, Refused, Throttled, Unavailable
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.writing.answers import WEBHOOK_FAILED, forbids_disruption, refusal_of
from cruise.runtime.writing.audit import AuditQueue
from cruise.runtime.writing.braking import Brake
from cruise.runtime.writing.evictions import EvictionTurns
from cruise.runtime.writing.guards import Guards
from cruise.runtime.writing.intents import PlanIntents, reconcile
from cruise.runtime.writing.pausing import Pause
from cruise.runtime.writing.waits import WriteWaits

log = structlog.get_logger()

_MOST_ATTEMPTS = 5
_ORIGINALS_AT_ONCE = 5000
_UNTRIED = (Reason.FORBIDDEN, Reason.THROTTLED, Reason.STALE_DECISION)


class ActionRunner:
    """Runs the actions of one plan, and keeps what one action teaches about the next."""

    def __init__(
        self,
        actions: Sequence[Action],
        cluster: Cluster,
        store: Store,
        guards: Guards,
        audit: AuditQueue,
        evictions: EvictionTurns,
        pause: Pause,
        waits: WriteWaits,
        snapshot: Snapshot,
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
        self._brake = Brake(pause, waits)
        self._forbidden: set[type[Action]] = set()
        self._spent: Sequence[Outcome] | None = None
        self._to_remember: list[RefusedTarget] = []
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
        if all(self._guards.forbidden_by_mode(action) for action in self._actions) or not self.needs_store:
            return
        for found in await reconcile(self._cluster, self._store, self._audit, self._snapshot):
            if isinstance(found.action, ResizePod):
                # It may arrive yet, or have arrived after the snapshot: its room is not given to another.
                self._guards.take(found.action)
        await self._pause.read()
        keys = await self._store.signing_keys()
        for first in range(0, len(self._actions), _ORIGINALS_AT_ONCE):
            # In parts, since a plan may be about all pods of a large cluster, and other tasks wait for their turn.
            originals = self._guards.original_sizes(self._actions[first : first + _ORIGINALS_AT_ONCE], keys)
            if originals and await self._pause.allows_writing():
                await self._store.remember_original_sizes(originals)

    def expect(self, numbers: Iterable[int]) -> None:
        """Say which actions come next, in their order."""
        self._intents.expect(numbers)

    def end(self) -> None:
        """After the last write: close what was recorded and not sent."""
        self._intents.close()

    async def record(self) -> None:
        """Bring the store up to date."""
        refused, self._to_remember = self._to_remember, []
        if refused:
            await self._store.remember_refused(refused)
        await self._audit.record(self._store)

    async def one(self, number: int) -> None:
        """Take one action to its end."""
        outcome = await self._ended(number, self._actions[number])
        if self._outcomes[number] is None:
            self._take(number, outcome)

    def _take(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of an action, for the audit as well."""
        self._outcomes[number] = outcome
        intent = self._intents.take(number)
        # The first refusal of a kind stands for the rest, which is not even tried.
        untried = outcome.verdict is Verdict.HELD and outcome.reason in _UNTRIED
        if outcome.verdict is not Verdict.OBSERVED and not untried:
            self._audit.note(outcome, intent)
        elif intent is not None:
            self._audit.close([intent])

    def _may_be_sent(self, number: int) -> bool:
        action = self._actions[number]
        if self._outcomes[number] is not None:
            return False
        return not self._guards.forbidden_by_mode(action) and self._guards.why_excluded(action) is None

    async def _ended(self, number: int, action: Action) -> Outcome:
        if self._guards.forbidden_by_mode(action):
            return self._outcome(action, Verdict.OBSERVED, Reason.MODE)
        excluded = self._guards.why_excluded(action)
        if excluded is not None:
            return self._outcome(action, Verdict.HELD, excluded)
        if isinstance(action, EvictPod):
            return await self._evicted(number, action)
        if isinstance(action, ResizePod):
            return await self._resized(number, action)
        return await self._attempted(number, action)

    async def _evicted(self, number: int, action: EvictPod) -> Outcome:
        """Evict in turn, on budgets read from the store where other writers may have spent them."""
        if not self._evictions.are_known(self._now):
            return self._outcome(action, Verdict.HELD, Reason.HISTORY_INCOMPLETE)
        over = None if self._spent is None else self._guards.over_budget(action, self._spent)
        if over is not None:
            return self._outcome(action, Verdict.HELD, over)
        async with self._evictions.turn(self._store, self._audit, self._now) as self._spent:
            over = self._guards.over_budget(action, self._spent)
            if over is not None:
                return self._outcome(action, Verdict.HELD, over)
            outcome = await self._attempted(number, action)
            if outcome.verdict is Verdict.REFUSED:
                self._guards.refusing_nodes.add(action.node)
            # Within the turn, so that the next one knows.
            self._take(number, outcome)
            return outcome

    async def _resized(self, number: int, action: ResizePod) -> Outcome:
        detail = ""
        if not self._guards.must_be_read_again(action) and self._guards.resized_by_another(action):
            return self._outcome(action, Verdict.HELD, Reason.CHANGED_SINCE)
        if not self._guards.has_room(action):
            part = self._guards.part_without_growth(action)
            if part is None:
                return self._outcome(action, Verdict.HELD, Reason.WAITING_FOR_ROOM)
            action, detail = part, Detail.GROWTH_WAITS
        give_back = self._guards.take(action)
        outcome = await self._attempted(number, action, detail)
        if outcome.verdict is not Verdict.DONE:
            give_back()
        return outcome

    async def _attempted(self, number: int, action: Action, detail: str = "") -> Outcome:
        """Try an action until the server answers something else than "too many requests", within bounds."""
        if self._guards.heeds_pause(action) and not await self._pause.allows_writing():
            return self._outcome(action, Verdict.OBSERVED, Reason.PAUSED)
        await self._begin(number, action)
        for left in reversed(range(_MOST_ATTEMPTS)):
            async with self._brake.turn():
                if type(action) in self._forbidden:
                    return self._outcome(action, Verdict.HELD, Reason.FORBIDDEN)
                if self._brake.given_up:
                    return self._outcome(action, Verdict.HELD, Reason.THROTTLED)
                outcome = await self._attempt(number, action, detail, last=left == 0)
            if outcome is not None:
                return outcome
        raise AssertionError("the last attempt has an outcome")

    async def _begin(self, number: int, action: Action) -> None:
        """Record the action before it is sent; what is not recorded is not sent, but for taking off a taint."""
        if isinstance(action, EvictPod):
            # Alone, since what is begun counts against the budgets.
            await self._intents.begin_alone(number)
        elif self._guards.needs_store(action):
            await self._intents.begin(number)
        else:
            with suppress(CruiseError, TimeoutError):
                async with asyncio.timeout(self._waits.answer):
                    await self._intents.begin(number)

    async def _attempt(self, number: int, action: Action, detail: str, *, last: bool) -> Outcome | None:
        """Try an action once; None if it is to be tried again."""
        try:
            sendable = await self._checked(action)
            if isinstance(sendable, Outcome):
                return sendable
            await self._send(number, sendable, detail)
        except Throttled as error:
            if forbids_disruption(action, error):
                return self._judged(action, error, detail)
            if error.cause == WEBHOOK_FAILED:
                self._brake.failed_alone()
                return self._judged(action, error, detail)
            self._brake.press(error.retry_after_seconds)
            return self._judged(action, error, detail) if last or self._brake.given_up else None
        except (Conflict, NotFound, Refused) as error:
            self._brake.went_through()
            return self._judged(action, error, detail)
        self._brake.went_through()
        return self._judged(action, None, detail)

    async def _checked(self, action: Action) -> Action | Outcome:
        """Return an action as it is to be sent, by what is known right before, or how it ends if it is not."""
        if self._guards.is_too_old():
            return self._outcome(action, Verdict.HELD, Reason.STALE_DECISION)
        changed, pod = None, None
        read_again = self._guards.must_be_read_again(action)
        if self._guards.heeds_pause(action):
            if await self._pause.allows_writing() and read_again:
                assert isinstance(action, ResizePod | EvictPod)
                pod = await self._cluster.pod(action.namespace, action.pod)
                changed = self._guards.why_changed(action, pod)
            # Once more, since reading may have taken its time.
            if not await self._pause.allows_writing():
                return self._outcome(action, Verdict.OBSERVED, Reason.PAUSED)
        # Once more, after every wait.
        if self._guards.is_too_old():
            return self._outcome(action, Verdict.HELD, Reason.STALE_DECISION)
        if isinstance(action, EvictPod) and not self._evictions.are_known(self._now):
            # Once more, since the budget may have been read before the loss was noticed.
            return self._outcome(action, Verdict.HELD, Reason.HISTORY_INCOMPLETE)
        if isinstance(action, ResizePod) and not read_again:
            pod = self._cluster.known_pod(action.namespace, action.pod)
            changed = self._guards.why_not_to_shrink(action, pod)
        if changed is not None:
            return self._outcome(action, Verdict.HELD, changed)
        # A pod that anybody has changed since then is left to the next pass: the server refuses the write.
        return replace(action, version=pod.version) if pod and isinstance(action, ResizePod | EvictPod) else action

    async def _send(self, number: int, action: Action, detail: str) -> None:
        """Send a write and wait for its answer, even where the plan is given up meanwhile."""
        # A task of its own, since a cancellation must not end it: it may be done already.
        sending = asyncio.ensure_future(self._cluster.perform(action))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending}, timeout=self._waits.answer)
            if not sending.done():
                sending.cancel()
                await asyncio.wait({sending})
            unanswered = Unavailable("given up before it was answered: it may have been done")
            error = unanswered if sending.cancelled() else sending.exception()
            if error is None or isinstance(error, CruiseError):
                self._leave(number, action, error, detail)
            raise
        except Unavailable as error:
            self._leave(number, action, error, detail)
            raise

    def _leave(self, number: int, action: Action, error: CruiseError | None, detail: str) -> None:
        """Note how an action ended that ends its plan; without an answer it is compared with the cluster later."""
        outcome = self._judged(action, error, detail)
        intent = self._intents.take(number)
        if intent is not None and isinstance(error, Unavailable):
            self._audit.leave_open(intent, outcome)
        else:
            self._audit.note(outcome, intent)

    def _judged(self, action: Action, error: CruiseError | None, detail: str) -> Outcome:
        """Return the outcome that an answer means, and remember what it teaches."""
        match error:
            case None:
                self._learn_from_done(action)
                return self._outcome(action, Verdict.DONE, action.reason, detail)
            case Conflict():
                return self._outcome(action, Verdict.HELD, Reason.CHANGED_SINCE, str(error))
            case NotFound():
                return self._outcome(action, Verdict.HELD, Reason.GONE, str(error))
            case Throttled():
                budget = forbids_disruption(action, error)
                return self._outcome(
                    action, Verdict.REFUSED, Reason.DISRUPTION_BUDGET if budget else Reason.THROTTLED, str(error)
                )
            case Refused():
                return self._refused(action, error)
            case _:
                return self._outcome(action, Verdict.FAILED, action.reason, str(error))

    def _refused(self, action: Action, error: Refused) -> Outcome:
        refusal = refusal_of(action, error)
        if refusal.remembered_as is not None and isinstance(action, ResizePod):
            self._remember(action, action.containers, refusal.remembered_as)
        if refusal.of_verb:
            if type(action) in self._forbidden:
                # One of those that were under way together.
                return self._outcome(action, Verdict.HELD, refusal.reason, str(error))
            self._forbidden.add(type(action))
            log.warning("not permitted", action=type(action).__name__, error=str(error))
        return self._outcome(action, Verdict.REFUSED, refusal.reason, str(error))

    def _learn_from_done(self, action: Action) -> None:
        decided_on = self._guards.decided_on(action) if isinstance(action, ResizePod) else None
        if isinstance(action, ResizePod) and action.reason is Reason.WITHDRAWN and decided_on is not None:
            deferred = decided_on.resize.pending is ResizePending.DEFERRED
            why = Reason.RESIZE_DEFERRED if deferred else Reason.RESIZE_INFEASIBLE
            self._remember(action, spec_targets(decided_on), why)

    def _remember(self, action: ResizePod, containers: Sequence[ContainerTarget], why: Reason) -> None:
        room = self._guards.room_at_refusal(action, why)
        self._to_remember.append(RefusedTarget(action.uid, tuple(containers), why, self._now, room))

    def _outcome(self, action: Action, verdict: Verdict, reason: Reason, detail: str = "") -> Outcome:
        return Outcome(self._now, action, verdict, reason, detail, before=self._sizes_before(action))

    def _sizes_before(self, action: Action) -> tuple[ContainerTarget, ...]:
        if not isinstance(action, ResizePod):
            return ()
        found = self._guards.decided_on(action)
        return spec_targets(found) if found is not None and found.uid == action.uid else ()
