"""Replays of many recordings under many policies, by whatever executor: the answer does not depend on which."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from cruise.backtest.fleet.sources import Source
from cruise.backtest.fleet.tasks import ReplayTask, Survey, replay_task, survey
from cruise.backtest.policies.policies import SLOW
from cruise.backtest.replay.options import Judgement, ReplayOptions
from cruise.domain.backtest import BacktestResult, PolicyScore

T = TypeVar("T")
Show = Callable[[str, float], None]
_POLL_SECONDS = 0.25
_PASS_AS_CONTAINERS = 200
_SLOWER = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of the answer: its name, and the policy and options that are replayed for it."""

    name: str
    policy: str
    options: ReplayOptions


@dataclass(slots=True)
class Board:
    """How far tasks are together; `polled` has the shares that other processes write, where they can.

    What is shown are the tasks added since `begin`.
    """

    show: Show = lambda what, done: None
    names: list[str] = field(default_factory=list)
    works: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    polled: Sequence[float] | None = None
    first: int = 0

    def begin(self, show: Show) -> None:
        """Show further tasks, and those alone, somewhere else."""
        self.show, self.first = show, len(self.names)

    def add(self, name: str, work: float) -> int:
        """Return the number of a new task."""
        self.names.append(name)
        self.works.append(work)
        self.shares.append(0.0)
        return len(self.names) - 1

    def __setitem__(self, number: int, share: float) -> None:
        """Take note of a task's share, and show it."""
        self.shares[number] = share
        self._show(self.names[number])

    def poll(self) -> None:
        """Show how far the tasks of other processes are."""
        if self.polled is None:
            return
        self.shares = [max(known, now) for known, now in zip(self.shares, self.polled, strict=False)]
        running = [name for name, share in zip(self.names, self.shares, strict=True) if 0 < share < 1]
        if running:
            self._show(running[0] if len(running) == 1 else f"{running[0]} and {len(running) - 1} more")

    def _show(self, what: str) -> None:
        done = zip(self.works[self.first :], self.shares[self.first :], strict=True)
        self.show(what, sum(work * share for work, share in done))


def survey_all(
    executor: Executor, sources: Sequence[Source], options: ReplayOptions, kept_in: Path | None, board: Board
) -> list[Survey]:
    """Read all recordings, in the order of their sources. Raises what reading raises."""
    submitted = {}
    for source in sources:
        number = board.add(f"reading {source.label}", 1.0)
        submitted[executor.submit(survey, number, source, options, kept_in)] = number
    found = {number: one for number, one in _as_they_end(submitted, board)}
    return [found[number] for number in sorted(found)]


def replay_all(
    executor: Executor,
    surveys: Sequence[Survey],
    entries: Sequence[Entry],
    board: Board,
    *,
    watched_node: str | None = None,
    with_time_lines: bool = True,
    with_cells: bool = False,
) -> list[BacktestResult]:
    """Return one result a recording, with a score for each entry; both are in the order given.

    Each entry is replayed twice, as consolidation may judge in two ways; not where a single node sufficed, which
    cannot be emptied however that is judged. The longest replays begin first.
    """
    scores: dict[tuple[int, int, Judgement], PolicyScore] = {}
    cells: dict[int, tuple[int, int, Judgement]] = {}
    begun: set[tuple[int, int, Judgement]] = set()
    rows = sorted(range(len(entries)), key=lambda row: entries[row].policy not in SLOW)

    def submit(at: int, row: int, judgement: Judgement) -> tuple[Future[PolicyScore], int]:
        found, entry = surveys[at], entries[row]
        number = board.add(f"{found.name}: {entry.name}", _work(found, entry))
        cells[number] = (at, row, judgement)
        begun.add(cells[number])
        lines = with_time_lines and judgement is Judgement.ADMITTED
        task = ReplayTask(found.source, entry.policy, entry.options, judgement, watched_node, lines, with_cells)
        return executor.submit(replay_task, number, task), number

    pending = dict(submit(at, row, Judgement.ADMITTED) for at in range(len(surveys)) for row in rows)
    for number, score in _as_they_end(pending, board):
        at, row, judgement = cells[number]
        scores[at, row, judgement] = score
        if judgement is Judgement.REQUESTS:
            continue
        # What one policy needs several nodes for, the others mostly do: none has to wait for its own first replay.
        due = rows if score.nodes_peak > 1 else ()
        for other in due:
            if entries[other].options.both_judgements and (at, other, Judgement.REQUESTS) not in begun:
                future, added = submit(at, other, Judgement.REQUESTS)
                pending[future] = added
        if entries[row].options.both_judgements and (at, row, Judgement.REQUESTS) not in begun:
            scores[at, row, Judgement.REQUESTS] = score
    return [
        _result(
            found,
            entries[0].options,
            {
                entry.name: _joined(scores[at, row, Judgement.ADMITTED], scores.get((at, row, Judgement.REQUESTS)))
                for row, entry in enumerate(entries)
            },
        )
        for at, found in enumerate(surveys)
    ]


def work_of(surveys: Sequence[Survey], entries: Sequence[Entry]) -> float:
    """Return how much all replays are, in the unit of the board."""
    return sum(_work(found, one) * (1 + one.options.both_judgements) for found in surveys for one in entries)


def _work(found: Survey, entry: Entry) -> float:
    """Return how long a replay takes beside others: so much a pass, and so much for each container in it."""
    passes = found.days * 86_400 / max(entry.options.pass_seconds, found.step_seconds)
    return passes * (_PASS_AS_CONTAINERS + found.containers) * (_SLOWER if entry.policy in SLOW else 1)


def _as_they_end(pending: dict[Future[T], int], board: Board) -> Iterator[tuple[int, T]]:
    """Yield number and answer of each task as it ends; more may be put into `pending` meanwhile."""
    while pending:
        ended, _ = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        board.poll()
        for future in ended:
            number = pending.pop(future)
            answer = future.result()
            board[number] = 1.0
            yield number, answer


def _joined(score: PolicyScore, by_requests: PolicyScore | None) -> PolicyScore:
    if by_requests is None:
        return score
    return replace(
        score,
        nodes_mean_by_requests=by_requests.nodes_mean,
        moves_by_requests=by_requests.moves_per_1000_pod_days,
        seconds=score.seconds + (by_requests.seconds if by_requests is not score else 0.0),
    )


def _result(found: Survey, options: ReplayOptions, scores: dict[str, PolicyScore]) -> BacktestResult:
    return BacktestResult(
        trace=found.name,
        containers=found.containers,
        days=found.days,
        step_seconds=found.step_seconds,
        node=options.node,
        policies=scores,
        capped_containers=found.capped_containers,
    )
