"""The process of a rehearsal: two replays of the cluster's own history, told to the process that started it."""

import json
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TextIO

from cruise.app.serve.what_if import WhatIfOrder
from cruise.backtest.backtest import (
    InProcessExecutor,
    ReplayEntry,
    TaskProgress,
    compute_work,
    read_all_recordings,
    replay_all,
)
from cruise.backtest.comparison import compare_configurations
from cruise.backtest.recordings.prometheus import read_recording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.tasks import LoadedRecordingSource
from cruise.domain.users import WhatIfComparison
from cruise.errors import CruiseError

_TODAY, _PROPOSED = "today", "proposed"
# Rather this process than the controller, where memory runs out.
_OOM_SCORE = 900
_NICENESS = 5


def run_what_if_process() -> None:
    """Take an order from standard input, write how far it is and what came of it to standard output, line by line."""
    out = os.fdopen(os.dup(1), "w")
    # What a library prints must not be taken for an answer.
    os.dup2(2, 1)
    order = pickle.load(sys.stdin.buffer)
    _give_way(order.memory_bytes)
    try:
        _tell(
            out,
            {
                "comparison": asdict(
                    compare_policies(order, lambda what, done: _tell(out, {"what": what, "done": done}))
                )
            },
        )
    except CruiseError as error:
        _tell(out, {"error": str(error)})
    except Exception as error:
        # Want of memory shows in many ways; to say so takes some.
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        _tell(out, {"error": f"{error!r}, with at most {order.memory_bytes >> 20} MiB of memory"})


def compare_policies(order: WhatIfOrder, show: Callable[[str, float], None]) -> WhatIfComparison:
    """Read the history once, and replay it under both. Raises BadInputError, Unavailable."""
    options = ReplayOptions(
        node=order.node,
        pass_seconds=order.pass_seconds,
        policy=order.current_policy,
        with_both_consolidations=False,
        stored=order.current_overrides,
    )
    entries = [
        ReplayEntry(_TODAY, "cruise", options),
        ReplayEntry(
            _PROPOSED, "cruise", replace(options, policy=order.proposed_policy, stored=order.proposed_overrides)
        ),
    ]
    notes: list[str] = []
    recording = read_recording(
        order.prometheus,
        order.days,
        order.end,
        order.snapshot,
        lambda share: show("reading the history", share / 2),
        notes.append,
        order.pass_seconds,
    )
    board = TaskProgress()
    found = read_all_recordings(InProcessExecutor(board), [LoadedRecordingSource(recording)], options, None, board)
    work = compute_work(found, entries)
    board.start(lambda what, done: show("replaying it", 0.5 + done / work / 2))
    [result] = replay_all(
        InProcessExecutor(board), found, entries, board, with_time_lines=False, with_hourly_counts=True
    )
    difference = compare_configurations(result, _PROPOSED, _TODAY, {}, options.seed)
    return WhatIfComparison(result.days, result.containers, difference.metrics, tuple(notes))


def _give_way(memory_bytes: int) -> None:
    # Ctrl-C is for the process that started this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    Path("/proc/self/oom_score_adj").write_text(f"{_OOM_SCORE}\n")
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, resource.RLIM_INFINITY))


def _tell(out: TextIO, line: object) -> None:
    try:
        print(json.dumps(line), file=out, flush=True)
    except BrokenPipeError:
        # Nobody waits for the answer any more.
        os._exit(1)
