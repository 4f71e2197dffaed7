"""What is called next to the audit: Events, notifications, the log of what is read."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from cruise.domain.actions import Hold, Outcome
from cruise.domain.cluster import Pod
from cruise.domain.usage import StatisticsTable
from cruise.runtime.oom import Reaction
from cruise.runtime.usage.reading import ReadingProgress

Pods = Mapping[tuple[str, str], Pod]
Announce = Callable[[Sequence[Outcome], Sequence[Hold], Pods], Awaitable[None]]


async def say_nothing(outcomes: Sequence[Outcome], holds: Sequence[Hold], pods: Pods) -> None:
    """Announce nothing."""


async def _learn_nothing(statistics: StatisticsTable) -> None:
    """Leave the statistics alone."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """What is called beside the audit; none of these may raise.

    `announce` gets outcomes, holds and the pods that they are about, by (namespace, name); `reacted` what followed each
    kill; `meanwhile` runs beside the passes; `learn` gets the statistics after each refresh and each kill; `progress`
    how far usage is read.
    """

    announce: Announce = say_nothing
    reacted: Callable[[Reaction], None] = lambda reaction: None
    meanwhile: Callable[[], Awaitable[None]] | None = None
    learn: Callable[[StatisticsTable], Awaitable[None]] = _learn_nothing
    progress: Callable[[ReadingProgress], None] = lambda read: None


NO_HOOKS = Hooks()
