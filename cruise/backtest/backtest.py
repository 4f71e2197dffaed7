"""Some policies over one recording, one after the other."""

from collections.abc import Sequence

from cruise.backtest.fleet.here import Here
from cruise.backtest.fleet.running import Board, Entry, replay_all, survey_all
from cruise.backtest.fleet.sources import ReadSource
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.options import ReplayOptions
from cruise.domain.backtest import BacktestResult


def backtest(
    recording: Recording, policies: Sequence[str], options: ReplayOptions, *, watched_node: str | None = None
) -> BacktestResult:
    """Return the scores of policies, named as in POLICIES, in that order.

    Each is replayed twice, as consolidation may judge in two ways. Provisioned requests above a node's allocatable are
    cut to it, for all policies.
    """
    executor, board = Here(), Board()
    surveys = survey_all(executor, [ReadSource(recording)], options, None, board)
    entries = [Entry(name, name, options) for name in policies]
    return replay_all(executor, surveys, entries, board, watched_node=watched_node)[0]
