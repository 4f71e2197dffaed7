"""Starts real processes whose heap has a bound, and measures the most memory that they take."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAMS = Path(__file__).parent / "heap_programs"
_PEAK = re.compile(r"VmHWM:\s+(\d+)")
_SAMPLE_SECONDS = 0.02


def find_program(name: str) -> str | None:
    """Return the path of a runtime's program, None if this machine has none."""
    return shutil.which(name)


def compile_java(directory: Path) -> Path:
    """Compile the JVM's program into a directory and return it."""
    subprocess.run(["javac", "-d", str(directory), str(PROGRAMS / "Fill.java")], check=True, stdin=subprocess.DEVNULL)
    return directory


def compile_go(directory: Path) -> Path:
    """Compile Go's program and return its path."""
    target = directory / "fill"
    command = ["go", "build", "-o", str(target), str(PROGRAMS / "fill.go")]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, env=os.environ | {"GO111MODULE": "off"})
    return target


def measure_peak_bytes(command: Sequence[str], environment: Mapping[str, str] | None = None) -> int:
    """Run a process to its end, whether it succeeds or dies at its bound, and return its largest resident set."""
    process = subprocess.Popen(
        command,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    peak = 0
    while process.poll() is None:
        try:
            found = _PEAK.search(Path(f"/proc/{process.pid}/status").read_text())
        except OSError:
            break
        peak = max(peak, int(found.group(1)) * 1024) if found else peak
        time.sleep(_SAMPLE_SECONDS)
    process.wait()
    return peak
