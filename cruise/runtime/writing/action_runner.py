"""The application of one plan: each action is checked, sent, and its answer turned into an outcome."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import structlog

from cruise.decisions.sizing.resizes import explain_pending_resize
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
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.reasons import ReasonDetailCode
from cruise.errors import ConflictError, CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError
from cruise.runtime.ports import ClusterPort, StorePort
from cruise.runtime.writing.api_answers import (
    WEBHOOK_FAILED,
    PauseState,
    WriteThrottle,
    classify_refusal,
    is_disruption_budget_refusal,
)
from cruise.runtime.writing.audit import AuditQueue, PlanIntents, reconcile_intents
from cruise.runtime.writing.evictions import EvictionLock
from cruise.runtime.writing.guards import DecidedActions, WriteGuards

log = structlog.get_logger()

_MAX_ATTEMPTS = 5
_ORIGINALS_PER_BATCH = 5000
_NOT_TRIED_REASONS = (ReasonCode.FORBIDDEN, ReasonCode.THROTTLED, ReasonCode.STALE_DECISION)


class ActionRunner:
    """Runs the actions of one plan; refusals and delays of one action apply to the next."""

    def __init__(
        self,
        decided: DecidedActions,
        cluster: ClusterPort,
        store: StorePort,
        guards: WriteGuards,
        audit: AuditQueue,
        evictions: EvictionLock,
        pause: PauseState,
    ) -> None:
        self._actions, self._snapshot, self._now = decided.actions, decided.snapshot, decided.now
        self._cluster = cluster
        self._store = store
        self._guards = guards
        self._audit = audit
        self._evictions = evictions
        self._pause = pause
        self._throttle = WriteThrottle(pause)
        self._forbidden: set[type[Action]] = set()
        self._spent_evictions: Sequence[Outcome] | None = None
        self._refused_targets: list[RefusedResize] = []
        self._outcomes: list[Outcome | None] = [None] * len(self._actions)
        self._intents = PlanIntents(
            decided.actions, store, audit, decided.now, self._get_sizes_before, self._may_be_sent
        )

    def list_outcomes(self) -> list[Outcome]:
        """Return how each action ended, in the order of the actions."""
        return [outcome for outcome in self._outcomes if outcome is not None]

    @property
    def needs_store(self) -> bool:
        """Whether any action requires the database: all do except the removal of cruise's own taints."""
        return any(self._guards.needs_store(action) for action in self._actions)

    async def begin(self) -> None:
        """Before the first write: resolve open intents, read the pause, store original sizes before first resizes."""
        is_forbidden = all(self._guards.is_forbidden_by_mode(action) for action in self._actions)
        writes = self.needs_store and not is_forbidden
        # A plan without actions compares them as well: in a quiet cluster it may be long until the next write.
        if not writes and not (self._audit.has_unresolved and not self._actions):
            return
        for found in await reconcile_intents(self._cluster, self._store, self._audit, self._snapshot):
            if isinstance(found.action, ResizePod):
                # It may still take effect, or did so after the snapshot: its capacity is not free.
                self._guards.reserve(found.action)
        if not writes:
            return
        if self._guards.needs_capacity:
            # Former leaders have closed these intents, but the writes may be in transit.
            for line in await self._store.read_unanswered_resizes(self._guards.oldest_in_transit):
                if isinstance(line.action, ResizePod):
                    self._guards.reserve(line.action)
        await self._pause.read()
        keys = await self._store.read_signing_keys()
        for first in range(0, len(self._actions), _ORIGINALS_PER_BATCH):
            # In batches: a plan may cover all pods of a large cluster, and other tasks must run in between.
            originals = self._guards.original_sizes(self._actions[first : first + _ORIGINALS_PER_BATCH], keys)
            if originals and await self._pause.allows_writing():
                await self._store.record_original_sizes(originals)

    def announce(self, numbers: Iterable[int]) -> None:
        """State which actions come next, in their order."""
        self._intents.announce(numbers)

    def finish(self) -> None:
        """After the last write: close the intents that were not sent."""
        self._intents.close()

    async def record(self) -> None:
        """Store refused resizes and the audit queue."""
        refused, self._refused_targets = self._refused_targets, []
        if refused:
            await self._store.record_refused_resizes(refused)
        await self._audit.record(self._store)

    async def run_action(self, number: int) -> None:
        """Run one action until it has an outcome."""
        outcome = await self._run(number, self._actions[number])
        if self._outcomes[number] is None:
            self._set_outcome(number, outcome)

    def _set_outcome(self, number: int, outcome: Outcome) -> None:
        """Keep the outcome of an action and add it to the audit."""
        self._outcomes[number] = outcome
        intent = self._intents.get_intent(number)
        # Of actions that are not tried after a refusal of their kind, only that refusal is recorded.
        is_not_tried = outcome.result is ActionResult.SKIPPED and outcome.reason in _NOT_TRIED_REASONS
        if outcome.result is not ActionResult.OBSERVED and not is_not_tried:
            self._audit.add(outcome, intent)
        elif intent is not None:
            self._audit.close_intents([intent])

    def _may_be_sent(self, number: int) -> bool:
        action = self._actions[number]
        if self._outcomes[number] is not None:
            return False
        return not self._guards.is_forbidden_by_mode(action) and self._guards.explain_exclusion(action) is None

    async def _run(self, number: int, action: Action) -> Outcome:
        if self._guards.is_forbidden_by_mode(action):
            return self._build_outcome(action, ActionResult.OBSERVED, ReasonCode.MODE_FORBIDS)
        excluded = self._guards.explain_exclusion(action)
        if excluded is not None:
            return self._build_outcome(action, ActionResult.SKIPPED, excluded)
        if isinstance(action, EvictPod):
            return await self._evict(number, action)
        if isinstance(action, ResizePod):
            return await self._resize(number, action)
        return await self._send_with_retries(number, action)

    async def _evict(self, number: int, action: EvictPod) -> Outcome:
        """Evict while holding the lock, within budgets that count the evictions of other writers."""
        if not self._evictions.are_known(self._now):
            return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.HISTORY_INCOMPLETE)
        exceeded = (
            None if self._spent_evictions is None else self._guards.find_exceeded_budget(action, self._spent_evictions)
        )
        if exceeded is not None:
            return self._build_outcome(action, ActionResult.SKIPPED, exceeded)
        async with self._evictions.acquire(self._store, self._audit, self._now) as self._spent_evictions:
            exceeded = self._guards.find_exceeded_budget(action, self._spent_evictions)
            if exceeded is not None:
                return self._build_outcome(action, ActionResult.SKIPPED, exceeded)
            outcome = await self._send_with_retries(number, action)
            if outcome.result is ActionResult.REFUSED:
                self._guards.refusing_nodes.add(action.node)
            # Before the lock is released, so that the next eviction counts this one.
            self._set_outcome(number, outcome)
            return outcome

    async def _resize(self, number: int, action: ResizePod) -> Outcome:
        detail = ""
        if not self._guards.requires_fresh_read(action) and self._guards.is_resized_by_other(action):
            return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.CHANGED)
        if not self._guards.has_capacity(action):
            without_growth = self._guards.remove_growth(action)
            if without_growth is None:
                return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)
            action, detail = without_growth, ReasonDetailCode.GROWTH_PENDING
        release = self._guards.consume(action)
        outcome = await self._send_with_retries(number, action, detail)
        if outcome.result is not ActionResult.DONE:
            release()
        return outcome

    async def _send_with_retries(self, number: int, action: Action, detail: str = "") -> Outcome:
        """Send an action until the server answers other than 429, at most a few times."""
        if self._guards.respects_pause(action) and not await self._pause.allows_writing():
            return self._build_outcome(action, ActionResult.OBSERVED, ReasonCode.PAUSED)
        await self._begin(number, action)
        for attempts_left in reversed(range(_MAX_ATTEMPTS)):
            async with self._throttle.acquire():
                if type(action) in self._forbidden:
                    return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.FORBIDDEN)
                if self._throttle.has_given_up:
                    return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.THROTTLED)
                outcome = await self._send_once(number, action, detail, last=attempts_left == 0)
            if outcome is not None:
                return outcome
        raise AssertionError("the last attempt has an outcome")

    async def _begin(self, number: int, action: Action) -> None:
        """Store the action's intent before it is sent; without one only cruise's own taints are removed."""
        if isinstance(action, EvictPod):
            # Not in a batch: open intents count against the budgets.
            await self._intents.begin_single(number)
        elif self._guards.needs_store(action):
            await self._intents.begin(number)
        else:
            with suppress(CruiseError, TimeoutError):
                async with asyncio.timeout(self._pause.timeouts.response):
                    await self._intents.begin(number)

    async def _send_once(self, number: int, action: Action, detail: str, *, last: bool) -> Outcome | None:
        """Send an action once; return None if it must be sent again."""
        try:
            sendable = await self._check(action)
            if isinstance(sendable, Outcome):
                return sendable
            await self._send(number, sendable, detail)
        except ThrottledError as error:
            if is_disruption_budget_refusal(action, error):
                return self._build_outcome_of_answer(action, error, detail)
            if error.cause == WEBHOOK_FAILED:
                self._throttle.report_failure()
                return self._build_outcome_of_answer(action, error, detail)
            self._throttle.slow_down(error.retry_after_seconds)
            return self._build_outcome_of_answer(action, error, detail) if last or self._throttle.has_given_up else None
        except (ConflictError, NotFoundError, RefusedError) as error:
            self._throttle.report_success()
            return self._build_outcome_of_answer(action, error, detail)
        self._throttle.report_success()
        return self._build_outcome_of_answer(action, None, detail)

    async def _check(self, action: Action) -> Action | Outcome:
        """Return the action to send, or its outcome if the state right before sending forbids it."""
        if self._guards.is_too_old():
            return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.STALE_DECISION)
        respects_pause, pod, changed = self._guards.respects_pause(action), None, None
        if respects_pause and await self._pause.allows_writing() and self._guards.requires_fresh_read(action):
            assert isinstance(action, ResizePod | EvictPod)
            pod = await self._cluster.read_pod(action.namespace, action.pod)
            changed = self._guards.explain_change(action, pod)
        if changed is None:
            await self._cluster.wait_for_write_turn()
        # Again: reading the pod and waiting for the rate limit may have taken long.
        if respects_pause and not await self._pause.allows_writing():
            return self._build_outcome(action, ActionResult.OBSERVED, ReasonCode.PAUSED)
        # Again, after all waits.
        if self._guards.is_too_old():
            return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.STALE_DECISION)
        if isinstance(action, EvictPod) and not self._evictions.are_known(self._now):
            # Again: the budget may have been read before the loss was detected.
            return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.HISTORY_INCOMPLETE)
        if isinstance(action, ResizePod) and not self._guards.requires_fresh_read(action):
            pod = self._cluster.get_cached_pod(action.namespace, action.pod)
            changed = self._guards.explain_shrink_refusal(action, pod)
        if isinstance(action, ResizePod) and changed is None:
            autoscalers = self._cluster.get_cached_autoscalers()
            changed = ReasonCode.HPA_CHANGED if self._guards.is_forbidden_by_autoscaler(action, autoscalers) else None
        if changed is not None:
            return self._build_outcome(action, ActionResult.SKIPPED, changed)
        # The server refuses the write if another client has changed the pod since; the next pass decides again.
        return (
            replace(action, resource_version=pod.resource_version)
            if pod and isinstance(action, ResizePod | EvictPod)
            else action
        )

    async def _send(self, number: int, action: Action, detail: str) -> None:
        """Send a write and wait for its answer, even if the plan is cancelled meanwhile."""
        # In a separate task, which a cancellation must not end: the write may have been done.
        sending = asyncio.ensure_future(self._cluster.perform(action))
        try:
            await asyncio.shield(sending)
        except asyncio.CancelledError:
            await asyncio.wait({sending}, timeout=self._pause.timeouts.response)
            if not sending.done():
                sending.cancel()
                await asyncio.wait({sending})
            unanswered = UnavailableError("given up before it was answered: it may have been done")
            error = unanswered if sending.cancelled() else sending.exception()
            if error is None or isinstance(error, CruiseError):
                self._set_final_outcome(number, action, error, detail)
            raise
        except UnavailableError as error:
            self._set_final_outcome(number, action, error, detail)
            raise

    def _set_final_outcome(self, number: int, action: Action, error: CruiseError | None, detail: str) -> None:
        """Record the outcome of the action that ended the plan; without an answer it is reconciled later."""
        outcome = self._build_outcome_of_answer(action, error, detail)
        intent = self._intents.get_intent(number)
        if intent is not None and isinstance(error, UnavailableError):
            self._audit.leave_intent_open(intent, outcome)
        else:
            self._audit.add(outcome, intent)

    def _build_outcome_of_answer(self, action: Action, error: CruiseError | None, detail: str) -> Outcome:
        """Return the outcome of an answer, and apply it to later actions."""
        match error:
            case None:
                self._record_withdrawn_target(action)
                return self._build_outcome(action, ActionResult.DONE, action.reason, detail)
            case ConflictError():
                return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.CHANGED, str(error))
            case NotFoundError():
                return self._build_outcome(action, ActionResult.SKIPPED, ReasonCode.NOT_FOUND, str(error))
            case ThrottledError():
                budget = is_disruption_budget_refusal(action, error)
                return self._build_outcome(
                    action,
                    ActionResult.REFUSED,
                    ReasonCode.POD_DISRUPTION_BUDGET if budget else ReasonCode.THROTTLED,
                    str(error),
                )
            case RefusedError():
                return self._build_refusal_outcome(action, error)
            case _:
                return self._build_outcome(action, ActionResult.FAILED, action.reason, str(error))

    def _build_refusal_outcome(self, action: Action, error: RefusedError) -> Outcome:
        refusal = classify_refusal(action, error)
        if refusal.remembered_as is not None and isinstance(action, ResizePod):
            self._add_refused_target(action, action.containers, refusal.remembered_as)
        if refusal.for_verb:
            if type(action) in self._forbidden:
                # It was sent at the same time as the first one.
                return self._build_outcome(action, ActionResult.SKIPPED, refusal.reason, str(error))
            self._forbidden.add(type(action))
            log.warning("not permitted", action=type(action).__name__, error=str(error))
        return self._build_outcome(action, ActionResult.REFUSED, refusal.reason, str(error))

    def _record_withdrawn_target(self, action: Action) -> None:
        decided_on = self._guards.get_decided_pod(action) if isinstance(action, ResizePod) else None
        if isinstance(action, ResizePod) and action.reason is ReasonCode.WITHDRAWN and decided_on is not None:
            reason = explain_pending_resize(decided_on.resize)
            self._add_refused_target(action, get_spec_targets(decided_on), reason)

    def _add_refused_target(self, action: ResizePod, containers: Sequence[ContainerTarget], reason: ReasonCode) -> None:
        capacity = self._guards.get_capacity_at_refusal(action, reason)
        self._refused_targets.append(RefusedResize(action.uid, tuple(containers), reason, self._now, capacity))

    def _build_outcome(self, action: Action, result: ActionResult, reason: ReasonCode, detail: str = "") -> Outcome:
        return Outcome(self._now, action, result, reason, detail, before=self._get_sizes_before(action))

    def _get_sizes_before(self, action: Action) -> tuple[ContainerTarget, ...]:
        if not isinstance(action, ResizePod):
            return ()
        found = self._guards.get_decided_pod(action)
        return get_spec_targets(found) if found is not None and found.uid == action.uid else ()
