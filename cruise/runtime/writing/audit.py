"""The audit as writers fill it: lines in order, repetitions left out, kept until the store has them."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from cruise.domain.actions import Action, EvictPod, Outcome, Reason, ResizePod, Verdict
from cruise.runtime.ports import Store

# A hold or a refusal that goes on is repeated after this time.
_REPEATED_AFTER = timedelta(hours=1)
_MANY = 10_000


class AuditQueue:
    """Outcomes on their way into the audit; one for a process, so that what the store refused is not lost."""

    def __init__(self) -> None:
        self._recording = asyncio.Lock()
        self._unrecorded: list[Outcome] = []
        self._last: dict[tuple[type[Action], str], tuple[Verdict, Reason, datetime]] = {}
        self._most_kept = _MANY

    def note(self, outcome: Outcome) -> None:
        """Add an outcome, unless it repeats the last hold or refusal of the same kind for its pod or node."""
        key = (type(outcome.action), _subject(outcome.action))
        if outcome.verdict in (Verdict.HELD, Verdict.REFUSED):
            before = self._last.get(key)
            self._last[key] = (outcome.verdict, outcome.reason, outcome.at)
            self._forget_old(outcome.at)
            if before is not None and before[:2] == (outcome.verdict, outcome.reason):
                if outcome.at - before[2] <= _REPEATED_AFTER:
                    return
        else:
            self._last.pop(key, None)
        self._unrecorded.append(outcome)

    async def record(self, store: Store) -> None:
        """Write the waiting lines to the store; where it fails they go on waiting."""
        async with self._recording:
            lines, self._unrecorded = self._unrecorded, []
            if not lines:
                return
            try:
                await store.record_outcomes(lines)
            except BaseException:
                self._unrecorded = [*lines, *self._unrecorded]
                raise

    @property
    def unrecorded(self) -> Sequence[Outcome]:
        """The lines that wait for the store."""
        return tuple(self._unrecorded)

    def _forget_old(self, now: datetime) -> None:
        if len(self._last) > self._most_kept:
            self._last = {key: last for key, last in self._last.items() if now - last[2] <= _REPEATED_AFTER}
            self._most_kept = max(_MANY, 2 * len(self._last))


def _subject(action: Action) -> str:
    return action.uid if isinstance(action, ResizePod | EvictPod) else action.node
