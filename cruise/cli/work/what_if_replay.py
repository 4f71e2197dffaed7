"""The process of a what-if run: two replays of the cluster's history, reported to its parent."""

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

from cruise.app.serve.what_if_replay import WhatIfTask
from cruise.backtest.backtest import (
    InProcessExecutor,
    ReplayConfiguration,
    TotalProgress,
    compute_replay_work,
    read_all_recordings,
    replay_all,
)
from cruise.backtest.comparison import compare_configurations
from cruise.backtest.recordings.prometheus import read_recording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.tasks import LoadedRecordingSource
from cruise.domain.users import WhatIfComparison
from cruise.errors import CruiseError

_CURRENT, _PROPOSED = "current", "proposed"
# The kernel kills this process before the controller.
_OOM_SCORE = 900
_NICENESS = 5


def run_what_if_process() -> None:
    """Read an order from standard input, and write progress and result to standard output, one JSON document a line."""
    out = os.fdopen(os.dup(1), "w")
    # Output of libraries must not mix with results.
    os.dup2(2, 1)
    order = pickle.load(sys.stdin.buffer)
    _limit_process(order.memory_bytes)
    try:
        _write_line(
            out,
            {
                "comparison": asdict(
                    compare_policies(order, lambda what, done: _write_line(out, {"what": what, "done": done}))
                )
            },
        )
    except CruiseError as error:
        _write_line(out, {"error": str(error)})
    except Exception as error:
        # Lack of memory has many symptoms; reporting needs some memory.
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        _write_line(out, {"error": f"{error!r}, with at most {order.memory_bytes >> 20} MiB of memory"})


def compare_policies(order: WhatIfTask, show: Callable[[str, float], None]) -> WhatIfComparison:
    """Read the history once, and replay it under both policies. BadInputError, UnavailableError."""
    options = ReplayOptions(
        node=order.node,
        pass_seconds=order.pass_seconds,
        policy=order.current_policy,
        with_both_consolidations=False,
        policy_objects=order.current_objects,
    )
    entries = [
        ReplayConfiguration(_CURRENT, "cruise", options),
        ReplayConfiguration(
            _PROPOSED, "cruise", replace(options, policy=order.proposed_policy, policy_objects=order.proposed_objects)
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
    progress = TotalProgress()
    found = read_all_recordings(
        InProcessExecutor(progress), [LoadedRecordingSource(recording)], options, None, progress
    )
    work = compute_replay_work(found, entries)
    progress.start(lambda what, done: show("replaying it", 0.5 + done / work / 2))
    [result] = replay_all(
        InProcessExecutor(progress), found, entries, progress, with_time_lines=False, with_hourly_counts=True
    )
    difference = compare_configurations(result, _PROPOSED, _CURRENT, {}, options.seed)
    return WhatIfComparison(result.days, result.containers, difference.metrics, tuple(notes))


def _limit_process(memory_bytes: int) -> None:
    # The parent handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    Path("/proc/self/oom_score_adj").write_text(f"{_OOM_SCORE}\n")
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, resource.RLIM_INFINITY))


def _write_line(out: TextIO, line: object) -> None:
    try:
        print(json.dumps(line), file=out, flush=True)
    except BrokenPipeError:
        # The parent has closed the pipe.
        os._exit(1)
