"""The audit as writers fill it: lines in order, repetitions counted, kept until the store has them."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cruise.domain.actions import Action, EvictPod, Outcome, Reason, ResizePod, Verdict
from cruise.runtime.ports import Store

# A line of what goes on is brought up to date after this time, and what has not come again for as long has ended.
_TOLD_AFTER = timedelta(hours=1)
_MANY = 10_000
_Ending = tuple[Verdict, Reason]


@dataclass(slots=True)
class _Going:
    """What goes on: its line as it is now, and as of when and with which count it was last told."""

    line: Outcome
    told_at: datetime
    told_count: int = 1

    @property
    def is_untold(self) -> bool:
        return self.line.count > self.told_count


class AuditQueue:
    """Outcomes on their way into the audit; one for a process, so that what the store refused is not lost."""

    def __init__(self) -> None:
        self._recording = asyncio.Lock()
        self._unrecorded: list[Outcome] = []
        # Intents: those of this process of which the outcome is still to be stored, those that wait to be closed, and
        # those that were left open after their line.
        self._under_way: set[int] = set()
        self._closed: list[int] = []
        self._told_open: set[int] = set()
        self._found: set[int] = set()
        self._going: dict[tuple[type[Action], str], dict[_Ending, _Going]] = {}
        self._most_kept = _MANY

    def begin(self, intents: Iterable[int]) -> None:
        """Take on intents, until their outcomes are stored."""
        self._under_way.update(intents)

    @property
    def open_intents(self) -> int:
        """The intents without a stored outcome: of this process, and those of others that it has found."""
        return len(self._under_way | self._told_open | self._found)

    def find(self, intents: Iterable[int]) -> None:
        """Take note of intents that nobody saw the end of, until they are compared with the cluster."""
        self._found = set(intents)

    def is_under_way(self, intent: int) -> bool:
        """Tell whether the outcome of an intent is still to come from this process."""
        return intent in self._under_way

    def close(self, intents: Iterable[int]) -> None:
        """Close intents that were never sent."""
        self._closed += intents

    def leave_open(self, intent: int, line: Outcome | None = None) -> None:
        """Leave an intent to be compared with the cluster; `line` says what is known of it until then."""
        self._under_way.discard(intent)
        if line is not None:
            self._told_open.add(intent)
            self.note(line)

    def reconciled(self, intent: int, outcome: Outcome) -> None:
        """Close an intent that was compared with the cluster, with a line where there is news."""
        self._found.discard(intent)
        told = intent in self._told_open and outcome.verdict is Verdict.FAILED
        self._told_open.discard(intent)
        if told:
            self._closed.append(intent)
        else:
            self.note(outcome, intent)

    def note(self, outcome: Outcome, intent: int | None = None) -> None:
        """Add an outcome, which closes its intent.

        What was not done, and was not done last time for the same reason, counts on its line.
        """
        if intent is not None:
            self._closed.append(intent)
        key = (type(outcome.action), _subject(outcome.action))
        if outcome.verdict is Verdict.DONE:
            self._tell(self._going.pop(key, {}).values())
            self._unrecorded.append(outcome)
            return
        self._forget_old(outcome.at)
        endings = self._going.setdefault(key, {})
        ending = (outcome.verdict, outcome.reason)
        before = endings.get(ending)
        if before is None or outcome.at - before.line.at > _TOLD_AFTER:
            self._tell([] if before is None else [before])
            endings[ending] = _Going(outcome, outcome.at)
            self._unrecorded.append(outcome)
            return
        line = before.line
        before.line = replace(line, at=outcome.at, first_at=line.since, count=line.count + 1)
        if outcome.at - before.told_at >= _TOLD_AFTER or outcome.action.reason is Reason.OOM_KILLED:
            # Each kill is an event of its own, and rare: its count is not kept back.
            self._tell([before])

    async def record(self, store: Store) -> None:
        """Write the waiting lines to the store; where it fails they go on waiting."""
        async with self._recording:
            lines, self._unrecorded = self._unrecorded, []
            closed, self._closed = self._closed, []
            if not lines and not closed:
                return
            try:
                await store.record_outcomes(lines, closed)
            except BaseException:
                self._unrecorded = [*lines, *self._unrecorded]
                self._closed = [*closed, *self._closed]
                raise
            self._under_way.difference_update(closed)

    @property
    def unrecorded(self) -> Sequence[Outcome]:
        """The lines that wait for the store."""
        return tuple(self._unrecorded)

    def _tell(self, some: Iterable[_Going]) -> None:
        for going in some:
            if going.is_untold:
                self._unrecorded.append(going.line)
                going.told_at, going.told_count = going.line.at, going.line.count

    def _forget_old(self, now: datetime) -> None:
        if len(self._going) <= self._most_kept:
            return
        for key, endings in list(self._going.items()):
            if all(now - going.line.at > _TOLD_AFTER for going in endings.values()):
                self._tell(self._going.pop(key).values())
        self._most_kept = max(_MANY, 2 * len(self._going))


def _subject(action: Action) -> str:
    return action.uid if isinstance(action, ResizePod | EvictPod) else action.node
