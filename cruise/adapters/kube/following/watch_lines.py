"""Log lines of watches: those that fail together share one line, and all that recover another."""

import asyncio
from collections.abc import Mapping, Sequence

import structlog

log = structlog.get_logger()

_FEW = 3


class WatchLines:
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

    def interrupted(self, kind: str, because: str, *, usual: bool) -> None:
        """Report that a kind is not followed; `usual` where every cluster has that now and then."""
        self._failed[kind] = because
        self._down[kind] = None
        self._usual = self._usual and usual
        self._later()

    def goes_on(self, kind: str) -> None:
        """Report that it is followed again."""
        self._well.append(kind)
        self._down.pop(kind, None)
        self._later()

    def say(self) -> None:
        """Log what was gathered now."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._failed:
            line = log.info if self._usual else log.warning
            line("watch interrupted", kinds=named(list(self._failed)), because=shared(self._failed))
        if self._well and not self._down:
            log.info("watch goes on", kinds=named(list(dict.fromkeys(self._well))))
            self._well = []
        self._failed, self._usual = {}, True

    def _later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._together_seconds, self.say)


def named(kinds: Sequence[str]) -> str:
    """Return kinds in words: all where they are few, else the first and how many more."""
    if len(kinds) <= _FEW:
        return ", ".join(kinds)
    return f"{', '.join(kinds[: _FEW - 1])} and {len(kinds) - _FEW + 1} more"


def shared(problems: Mapping[str, str]) -> str:
    """Return the problems of kinds in one line: the first of them, and how many others there are."""
    reasons = list(dict.fromkeys(problems.values()))
    return reasons[0] if len(reasons) == 1 else f"{reasons[0]} (and {len(reasons) - 1} more like it)"
