"""Replays of many recordings under many policies, by whatever executor: the answer does not depend on which."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from cruise.backtest.policies.policies import SLOW_POLICIES
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ConsolidationSizes, ReplayOptions
from cruise.backtest.tasks import (
    LoadedRecordingSource,
    ProgressShares,
    RecordingSource,
    RecordingSummary,
    ReplayTask,
    run_replay_task,
    set_progress_shares,
    summarize_recording,
)
from cruise.domain.backtest import BacktestResult, PolicyScore

# Tasks done at once by the process that submits them.

P = ParamSpec("P")
T = TypeVar("T")


class InProcessExecutor(Executor):
    """An executor without processes, whose tasks tell `shares` how far they are.

    What a task raises ends the submission.
    """

    def __init__(self, shares: ProgressShares | None = None) -> None:
        self._shares = shares

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do a task, and return its answer as a future that is over."""
        done: Future[T] = Future()
        before = set_progress_shares(self._shares)
        try:
            done.set_result(fn(*args, **kwargs))
        finally:
            set_progress_shares(before)
        return done


ResultT = TypeVar("ResultT")
ShowProgress = Callable[[str, float], None]
_POLL_SECONDS = 0.25
_PASS_AS_CONTAINERS = 200
_SLOWER = 6


@dataclass(frozen=True, slots=True)
class ReplayEntry:
    """A row of the answer: its name, and the policy and options that are replayed for it."""

    name: str
    policy: str
    options: ReplayOptions


@dataclass(slots=True)
class TaskProgress:
    """How far tasks are together; `polled` has the shares that other processes write, where they can.

    What is shown are the tasks added since `begin`.
    """

    show: ShowProgress = lambda what, done: None
    names: list[str] = field(default_factory=list)
    work_amounts: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    polled_progress: Sequence[float] | None = None
    first: int = 0

    def start(self, show: ShowProgress) -> None:
        """Show further tasks, and those alone, somewhere else."""
        self.show, self.first = show, len(self.names)

    def add(self, name: str, work: float) -> int:
        """Return the number of a new task."""
        self.names.append(name)
        self.work_amounts.append(work)
        self.shares.append(0.0)
        return len(self.names) - 1

    def __setitem__(self, number: int, share: float) -> None:
        """Take note of a task's share, and show it."""
        self.shares[number] = share
        self._show(self.names[number])

    def poll(self) -> None:
        """Show how far the tasks of other processes are."""
        if self.polled_progress is None:
            return
        self.shares = [max(known, now) for known, now in zip(self.shares, self.polled_progress, strict=False)]
        running = [name for name, share in zip(self.names, self.shares, strict=True) if 0 < share < 1]
        if running:
            self._show(running[0] if len(running) == 1 else f"{running[0]} and {len(running) - 1} more")

    def _show(self, what: str) -> None:
        done = zip(self.work_amounts[self.first :], self.shares[self.first :], strict=True)
        self.show(what, sum(work * share for work, share in done))


def read_all_recordings(
    executor: Executor,
    sources: Sequence[RecordingSource],
    options: ReplayOptions,
    kept_in: Path | None,
    board: TaskProgress,
) -> list[RecordingSummary]:
    """Read all recordings, in the order of their sources. Raises what reading raises."""
    submitted = {}
    for source in sources:
        number = board.add(f"reading {source.label}", 1.0)
        submitted[executor.submit(summarize_recording, number, source, options, kept_in)] = number
    found = {number: one for number, one in _as_they_end(submitted, board)}
    return [found[number] for number in sorted(found)]


def replay_all(
    executor: Executor,
    summaries: Sequence[RecordingSummary],
    entries: Sequence[ReplayEntry],
    board: TaskProgress,
    *,
    watched_node: str | None = None,
    with_time_lines: bool = True,
    with_hourly_counts: bool = False,
) -> list[BacktestResult]:
    """Return one result a recording, with a score for each entry; both are in the order given.

    Each entry is replayed twice, as consolidation may judge in two ways; not where a single node sufficed, which
    cannot be emptied however that is judged. The longest replays begin first.
    """
    scores: dict[tuple[int, int, ConsolidationSizes], PolicyScore] = {}
    cells: dict[int, tuple[int, int, ConsolidationSizes]] = {}
    begun: set[tuple[int, int, ConsolidationSizes]] = set()
    rows = sorted(range(len(entries)), key=lambda row: entries[row].policy not in SLOW_POLICIES)

    def submit(at: int, row: int, consolidation: ConsolidationSizes) -> tuple[Future[PolicyScore], int]:
        found, entry = summaries[at], entries[row]
        number = board.add(f"{found.name}: {entry.name}", _work(found, entry))
        cells[number] = (at, row, consolidation)
        begun.add(cells[number])
        lines = with_time_lines and consolidation is ConsolidationSizes.ADMITTED
        task = ReplayTask(
            found.source, entry.policy, entry.options, consolidation, watched_node, lines, with_hourly_counts
        )
        return executor.submit(run_replay_task, number, task), number

    pending = dict(submit(at, row, ConsolidationSizes.ADMITTED) for at in range(len(summaries)) for row in rows)
    for number, score in _as_they_end(pending, board):
        at, row, consolidation = cells[number]
        scores[at, row, consolidation] = score
        if consolidation is ConsolidationSizes.REQUESTS:
            continue
        # What one policy needs several nodes for, the others mostly do: none has to wait for its own first replay.
        due = rows if score.nodes_peak > 1 else ()
        for other in due:
            if (
                entries[other].options.with_both_consolidations
                and (at, other, ConsolidationSizes.REQUESTS) not in begun
            ):
                future, added = submit(at, other, ConsolidationSizes.REQUESTS)
                pending[future] = added
        if entries[row].options.with_both_consolidations and (at, row, ConsolidationSizes.REQUESTS) not in begun:
            scores[at, row, ConsolidationSizes.REQUESTS] = score
    return [
        _result(
            found,
            entries[0].options,
            {
                entry.name: _joined(
                    scores[at, row, ConsolidationSizes.ADMITTED], scores.get((at, row, ConsolidationSizes.REQUESTS))
                )
                for row, entry in enumerate(entries)
            },
        )
        for at, found in enumerate(summaries)
    ]


def compute_work(summaries: Sequence[RecordingSummary], entries: Sequence[ReplayEntry]) -> float:
    """Return how much all replays are, in the unit of the board."""
    return sum(_work(found, one) * (1 + one.options.with_both_consolidations) for found in summaries for one in entries)


def _work(found: RecordingSummary, entry: ReplayEntry) -> float:
    """Return how long a replay takes beside others: so much a pass, and so much for each container in it."""
    passes = found.days * 86_400 / max(entry.options.pass_seconds, found.step_seconds)
    return passes * (_PASS_AS_CONTAINERS + found.containers) * (_SLOWER if entry.policy in SLOW_POLICIES else 1)


def _as_they_end(pending: dict[Future[ResultT], int], board: TaskProgress) -> Iterator[tuple[int, ResultT]]:
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


def _result(found: RecordingSummary, options: ReplayOptions, scores: dict[str, PolicyScore]) -> BacktestResult:
    return BacktestResult(
        trace=found.name,
        containers=found.containers,
        days=found.days,
        step_seconds=found.step_seconds,
        node=options.node,
        policies=scores,
        capped_containers=found.capped_containers,
    )


# Some policies over one recording, one after the other.


def backtest_policies(
    recording: UsageRecording, policies: Sequence[str], options: ReplayOptions, *, watched_node: str | None = None
) -> BacktestResult:
    """Return the scores of policies, named as in POLICIES, in that order.

    Each is replayed twice, as consolidation may judge in two ways. Provisioned requests above a node's allocatable are
    cut to it, for all policies.
    """
    executor, board = InProcessExecutor(), TaskProgress()
    summaries = read_all_recordings(executor, [LoadedRecordingSource(recording)], options, None, board)
    entries = [ReplayEntry(name, name, options) for name in policies]
    return replay_all(executor, summaries, entries, board, watched_node=watched_node)[0]
