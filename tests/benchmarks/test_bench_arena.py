"""The table of the arena benchmark; VPA itself needs Go and runs only in the benchmark."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.bench_arena import ArenaResult, markdown, variant
from benchmarks.vpa_arena import RealVpa, VpaProgram
from cruise.backtest.replay.policy import ReplayOptions
from tests.backtest.baselines.recordings import get_sizes, make_recording, make_view
from tests.backtest_results import make_score

# Answers each message with the message itself as a resize of container 0, and leaves at the end of its input.
ECHO = """
import json, os, sys
answers = os.fdopen(int(sys.argv[1]), "w")
for line in sys.stdin:
    asked = json.loads(line)
    print(line, end="", file=sys.stderr)
    sizes = {"Container": [0], "CPU": [130], "Memory": [300], "Limit": [600]}
    print(json.dumps({"Sizes": sizes, "Evict": [1] if "decide" in asked else None}), file=answers, flush=True)
"""


def test_a_row_has_vpa_before_the_replica_and_dashes_for_missing_values():
    real, replica = make_score("vpa-real", oom=4.0), make_score("vpa", oom=3.0)
    row = markdown(ArenaResult("t", 0.25, 1200, 1.0, 0.5, replica, real))
    assert row == (
        "| t | 25.0 | 1,200 | 100 | 50.0 "
        "| 35.0, 35.0 | 41.0, 41.0 | 4.00, 3.00 | 4.20, 4.20 | 10.0, 10.0 | 8.25, 8.25 |"
    )
    blind = make_score(memory=None)
    assert "| 100 | – | 35.0, 35.0 | – | – | 4.20" in markdown(ArenaResult("t", 1.0, 1200, 1.0, None, blind, blind))
    assert variant("t", real, "minReplicas 2").startswith("t, minReplicas 2: CPU slack 35.0 %, memory slack 41.0 %")


def test_the_program_gets_samples_with_the_pods_they_belong_to_and_kills_once(capfd):
    recording = make_recording(np.array([[100.2, np.nan]]), np.array([[0.0, np.nan]]))
    ours, theirs = os.pipe()
    command = [sys.executable, "-c", ECHO, str(theirs)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=(theirs,)) as process:
        os.close(theirs)
        policy = RealVpa(recording, ReplayOptions(), VpaProgram(process, ours))
        policy.observe(300, recording.cpu_millicores, recording.memory_bytes)
        decision = policy.decide(make_view(get_sizes([1, 1], [1, 1]), time=300))
        assert (decision.resize.tolist(), decision.evict.tolist()) == ([0], [1])
        assert decision.sizes.cpu_millicores.tolist() == [130]
        policy.decide(make_view(get_sizes([1, 1], [1, 1]), time=600))
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0
        with pytest.raises((RuntimeError, ValueError)):
            policy.admit(np.zeros(1, dtype=np.int64), make_view(get_sizes([1], [1]), time=600))
    asked = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [next(iter(one)) for one in asked] == ["setup", "observe", "decide", "decide"]
    assert asked[0]["setup"]["loops"] == 5
    assert asked[1]["observe"]["rows"] == [{"at": 300, "cpu": [[0, 101]], "memory": [[0, 1]]}]
    assert asked[1]["observe"]["view"]["node"] == [0, 0]
