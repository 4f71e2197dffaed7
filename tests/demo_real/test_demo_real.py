"""The demo on a real control plane runs unattended, and reports in one line if it cannot."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.controlplane import binaries
from tests.controlplane.control_plane import ControlPlane
from tests.demo_real.__main__ import main

ROOT = Path(__file__).parents[2]


def test_it_shrinks_what_asks_for_too_much_and_ends_by_itself(control_plane: ControlPlane):
    """The shared control plane only shows that one can run; the demo has its own."""
    command = [sys.executable, "-m", "tests.demo_real"]
    environment = {**os.environ, "DEMO_SECONDS": "25"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"^export KUBECONFIG=/\S+$", done.stdout, re.MULTILINE)
    [end] = re.findall(
        r"in the end: requested ([\d.]+) -> ([\d.]+) of 48 cores \(([\d.]+) less than asked, ([\d.]+) more\),"
        r" (\d+) pending, (.*)",
        done.stdout,
    )
    before, after, less, more = (float(one) for one in end[:4])
    assert end[4] == "0"
    # More pods than before, in fewer cores. Half of the way to peaks is kept, and a part of each node's band.
    assert after < before
    asked = after + less - more
    assert less > asked * 0.4
    assert "resized" in end[5]


def test_without_go_it_reports_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(binaries, "GO_PLACES", ())
    main()
    said = capsys.readouterr()
    assert re.fullmatch(r"demo-real: there is no Kubernetes control plane on this machine: .*needs Go.*\n", said.out)
    assert said.err == ""
