"""Replays recordings under policies with any executor; the results do not depend on the executor."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ParamSpec, TypeVar

from cruise.backtest.policies.policies import SLOW_POLICIES
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ConsolidationSizeBasis, ReplayOptions
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

P = ParamSpec("P")
T = TypeVar("T")
ResultT = TypeVar("ResultT")
ShowProgress = Callable[[str, float], None]
_POLL_SECONDS = 0.25
# The fixed work of a pass, in containers.
_PASS_AS_CONTAINERS = 200
# How much slower SLOW_POLICIES are.
_SLOW_FACTOR = 6
# Recording, entry, and the sizes of consolidation.
_ReplayKey = tuple[int, int, ConsolidationSizeBasis]


class InProcessExecutor(Executor):
    """Runs each task immediately, in the submitting process; a task reports its progress to `shares`.

    An error of a task is raised by `submit`.
    """

    def __init__(self, shares: ProgressShares | None = None) -> None:
        self._shares = shares

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a task and return its result as a completed future."""
        done: Future[T] = Future()
        before = set_progress_shares(self._shares)
        try:
            done.set_result(fn(*args, **kwargs))
        finally:
            set_progress_shares(before)
        return done


@dataclass(frozen=True, slots=True)
class ReplayConfiguration:
    """A row of the result: its name, the policy and the options of its replay."""

    name: str
    policy: str
    options: ReplayOptions


@dataclass(slots=True)
class TotalProgress:
    """The total progress of the tasks added since `start`.

    `polled_progress` has the shares that other processes write, if they can.
    """

    show: ShowProgress = lambda what, done: None
    names: list[str] = field(default_factory=list)
    work_amounts: list[float] = field(default_factory=list)
    shares: list[float] = field(default_factory=list)
    polled_progress: Sequence[float] | None = None
    first_task: int = 0

    def start(self, show: ShowProgress) -> None:
        """Show only tasks that are added from now on."""
        self.show, self.first_task = show, len(self.names)

    def add(self, name: str, work: float) -> int:
        """Return the number of a new task."""
        self.names.append(name)
        self.work_amounts.append(work)
        self.shares.append(0.0)
        return len(self.names) - 1

    def __setitem__(self, number: int, share: float) -> None:
        """Set and show the completed share of a task."""
        self.shares[number] = share
        self._show(self.names[number])

    def poll(self) -> None:
        """Show the progress of the tasks in other processes."""
        if self.polled_progress is None:
            return
        self.shares = [max(known, now) for known, now in zip(self.shares, self.polled_progress, strict=False)]
        running = [name for name, share in zip(self.names, self.shares, strict=True) if 0 < share < 1]
        if running:
            self._show(running[0] if len(running) == 1 else f"{running[0]} and {len(running) - 1} more")

    def _show(self, what: str) -> None:
        done = zip(self.work_amounts[self.first_task :], self.shares[self.first_task :], strict=True)
        self.show(what, sum(work * share for work, share in done))


def read_all_recordings(
    executor: Executor,
    sources: Sequence[RecordingSource],
    options: ReplayOptions,
    directory: Path | None,
    progress: TotalProgress,
) -> list[RecordingSummary]:
    """Read recordings, in the order of their sources; save them to a directory that all processes can read.

    Raises the errors of reading.
    """
    pending = {}
    for source in sources:
        number = progress.add(f"reading {source.label}", 1.0)
        pending[executor.submit(summarize_recording, number, source, options, directory)] = number
    summaries = dict(_iterate_completed(pending, progress))
    return [summaries[number] for number in sorted(summaries)]


def replay_all(
    executor: Executor,
    summaries: Sequence[RecordingSummary],
    entries: Sequence[ReplayConfiguration],
    progress: TotalProgress,
    *,
    watched_node: str | None = None,
    with_time_lines: bool = True,
    with_hourly_counts: bool = False,
) -> list[BacktestResult]:
    """Return one result per recording with a score per entry, both in the given order.

    Each entry is replayed twice, once for each choice of ConsolidationSizeBasis; only once if a single node was enough,
    because consolidation has nothing to remove then. The longest replays start first.
    """
    scores: dict[_ReplayKey, PolicyScore] = {}
    keys: dict[int, _ReplayKey] = {}
    started: set[_ReplayKey] = set()
    rows = sorted(range(len(entries)), key=lambda row: entries[row].policy not in SLOW_POLICIES)

    def submit(index: int, row: int, consolidation: ConsolidationSizeBasis) -> tuple[Future[PolicyScore], int]:
        summary, entry = summaries[index], entries[row]
        number = progress.add(f"{summary.name}: {entry.name}", _compute_replay_work(summary, entry))
        keys[number] = (index, row, consolidation)
        started.add(keys[number])
        lines = with_time_lines and consolidation is ConsolidationSizeBasis.ADMITTED
        task = ReplayTask(
            summary.source, entry.policy, entry.options, consolidation, watched_node, lines, with_hourly_counts
        )
        return executor.submit(run_replay_task, number, task), number

    def is_second_due(index: int, row: int) -> bool:
        key = (index, row, ConsolidationSizeBasis.REQUESTS)
        return entries[row].options.with_both_consolidations and key not in started

    pending = dict(
        submit(index, row, ConsolidationSizeBasis.ADMITTED) for index in range(len(summaries)) for row in rows
    )
    for number, score in _iterate_completed(pending, progress):
        index, row, consolidation = keys[number]
        scores[index, row, consolidation] = score
        if consolidation is ConsolidationSizeBasis.REQUESTS:
            continue
        # If one policy needs several nodes, the others mostly do: their second replays can start now.
        for other in rows if score.nodes_peak > 1 else ():
            if is_second_due(index, other):
                future, added = submit(index, other, ConsolidationSizeBasis.REQUESTS)
                pending[future] = added
        if is_second_due(index, row):
            scores[index, row, ConsolidationSizeBasis.REQUESTS] = score
    return [
        _build_result(
            summary,
            entries[0].options,
            {
                entry.name: _join_scores(
                    scores[index, row, ConsolidationSizeBasis.ADMITTED],
                    scores.get((index, row, ConsolidationSizeBasis.REQUESTS)),
                )
                for row, entry in enumerate(entries)
            },
        )
        for index, summary in enumerate(summaries)
    ]


def compute_replay_work(summaries: Sequence[RecordingSummary], entries: Sequence[ReplayConfiguration]) -> float:
    """Return the work of all replays, in the unit of TotalProgress."""
    return sum(
        _compute_replay_work(summary, entry) * (1 + entry.options.with_both_consolidations)
        for summary in summaries
        for entry in entries
    )


def _compute_replay_work(summary: RecordingSummary, entry: ReplayConfiguration) -> float:
    """Return the work of a replay relative to others: a fixed amount per pass, and one per container in it."""
    passes = summary.days * 86_400 / max(entry.options.pass_seconds, summary.step_seconds)
    factor = _SLOW_FACTOR if entry.policy in SLOW_POLICIES else 1
    return passes * (_PASS_AS_CONTAINERS + summary.containers) * factor


def _iterate_completed(pending: dict[Future[ResultT], int], progress: TotalProgress) -> Iterator[tuple[int, ResultT]]:
    """Yield the number and result of each task when it completes; tasks may be added to `pending` meanwhile."""
    while pending:
        completed, _ = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
        progress.poll()
        for future in completed:
            number = pending.pop(future)
            result = future.result()
            progress[number] = 1.0
            yield number, result


def _join_scores(score: PolicyScore, by_requests: PolicyScore | None) -> PolicyScore:
    if by_requests is None:
        return score
    return replace(
        score,
        nodes_mean_by_requests=by_requests.nodes_mean,
        moves_by_requests=by_requests.moves_per_1000_pod_days,
        seconds=score.seconds + (by_requests.seconds if by_requests is not score else 0.0),
    )


def _build_result(summary: RecordingSummary, options: ReplayOptions, scores: dict[str, PolicyScore]) -> BacktestResult:
    return BacktestResult(
        trace=summary.name,
        containers=summary.containers,
        days=summary.days,
        step_seconds=summary.step_seconds,
        node=options.node,
        policies=scores,
        capped_containers=summary.capped_containers,
    )


def backtest_policies(
    recording: UsageRecording, policies: Sequence[str], options: ReplayOptions, *, watched_node: str | None = None
) -> BacktestResult:
    """Replay one recording under policies of POLICIES in this process; return their scores in the given order.

    Provisioned requests above a node's allocatable are limited to it for all policies.
    """
    executor, progress = InProcessExecutor(), TotalProgress()
    summaries = read_all_recordings(executor, [LoadedRecordingSource(recording)], options, None, progress)
    entries = [ReplayConfiguration(name, name, options) for name in policies]
    return replay_all(executor, summaries, entries, progress, watched_node=watched_node)[0]
