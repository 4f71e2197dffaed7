"""What a worker does: it looks at a recording, or replays one policy over it; both answers are small."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Protocol

from cruise.backtest.fleet.sources import Source, keep
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.capping import capped_to
from cruise.backtest.replay.options import Judgement, ReplayOptions
from cruise.backtest.replay.replay import replay
from cruise.domain.backtest import PolicyScore


class Shares(Protocol):
    """How far tasks are, by number, each from 0 to 1."""

    def __setitem__(self, number: int, share: float, /) -> None:
        """Take note of a task's share."""
        ...


@dataclass(frozen=True, slots=True)
class Survey:
    """What is known of a recording that was read: `source` is where to read it from now on."""

    source: Source
    name: str
    containers: int
    capped_containers: int
    days: float
    step_seconds: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """One replay; `watched_node` is the node whose time line is wanted, `with_time_line` whether any is.

    So with cells: an answer has what is needed of it.
    """

    source: Source
    policy: str
    options: ReplayOptions
    judgement: Judgement
    watched_node: str | None
    with_time_line: bool
    with_cells: bool


def survey(number: int, source: Source, options: ReplayOptions, kept_in: Path | None) -> Survey:
    """Read a recording, so that a bad one is refused before any replay; keep it for the others in a directory."""
    notes: list[str] = []
    recording, capped = capped_to(source.read(_report(number), notes.append), options.node)
    if kept_in is not None:
        source = keep(recording, kept_in / str(number))
    return Survey(
        source=source,
        name=recording.name,
        containers=len(recording.containers),
        capped_containers=capped,
        days=recording.days,
        step_seconds=recording.step_seconds,
        notes=tuple(notes),
    )


def replay_task(number: int, task: ReplayTask) -> PolicyScore:
    """Return a policy's score, whose `seconds` are those of this replay."""
    recording, _ = capped_to(task.source.read(_silent, _silent), task.options.node)
    begun = perf_counter()
    score = replay(
        recording,
        POLICIES[task.policy](recording, task.options),
        task.options,
        judgement=task.judgement,
        watched_node=task.watched_node,
        on_progress=_report(number),
    )
    line = score.time_line if task.with_time_line else None
    cells = score.cells if task.with_cells else None
    return replace(score, seconds=perf_counter() - begun, time_line=line, cells=cells)


def report_to(shares: Shares | None) -> Shares | None:
    """Have the tasks of this process say how far they are; return what they told before."""
    before, _process.shares = _process.shares, shares
    return before


class _Process:
    """What the tasks of one process share."""

    shares: Shares | None = None


_process = _Process()


def _report(number: int) -> Callable[[float], None]:
    def reported(share: float) -> None:
        if _process.shares is not None:
            _process.shares[number] = share

    return reported


def _silent(_: float | str) -> None:
    """Say nothing: what there was to say was said at the first reading."""
