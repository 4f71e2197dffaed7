"""Fuzzing of untrusted input: many cases of each kind, selected by branch coverage."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS
from tests.tiers import is_long

pytest.importorskip("atheris", reason="atheris has no build for this interpreter")
ROOT = Path(__file__).parents[2]


@pytest.mark.server
@pytest.mark.parametrize("kind", TARGETS)
def test_no_case_breaks_what_reads_it(kind: str, tmp_path: Path, request: pytest.FixtureRequest):
    cases = 1_000_000 if is_long(request.config) else 2000
    command = [sys.executable, "-m", "tests.fuzz", kind, "--cases", str(cases), "--directory", str(tmp_path)]
    # The same cases in every run, as far as the time allows.
    fixed = os.environ | {"PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=ROOT, env=fixed, capture_output=True, text=True, check=False)
    broken = [path.read_bytes()[:2000] for path in tmp_path.iterdir() if path.is_file()]
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-3000:]} {broken}"
    assert f"{kind}: {cases:,} cases" in done.stdout
