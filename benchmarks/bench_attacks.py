"""Attacks on the webhook: the answers, the memory, and the latency of normal reviews meanwhile.

The server is that of the webhook benchmark, on one core. On the other core a client sends 100 normal reviews a second
at a constant rate, and an attacker runs with the lowest priority. Latencies count from the scheduled time; the client's
own delay is reported separately. `CRUISE_BENCH_BEFORE` names another checkout whose server is attacked too.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attacks import ATTACKS
from benchmarks.bench_webhook import WebhookProcess
from benchmarks.open_loop import CLIENT_CORE
from benchmarks.table import BenchmarkRow
from benchmarks.webhook_world import make_reviews

NAME = "attacks"
WORKLOADS = 200
NODES = 200
SECONDS = 8.0
RATE = 100
WANTED_P99_MS = 50.0
_QUIET = "no attack"


@dataclass(frozen=True, slots=True)
class AttackOutcome:
    """One attack: its answers, its memory, and the 99th percentile and failures of normal reviews.

    `late_ms` is the 99th percentile of the client's delay, `taken_ms_a_second` the time that other processes took from
    the server's core.
    """

    answer: str
    more_mib: float
    p99_ms: float
    failed: int
    late_ms: float
    taken_ms_a_second: float


def run() -> list[BenchmarkRow]:
    """Measure each attack, also on another checkout if one is named."""
    before = os.environ.get("CRUISE_BENCH_BEFORE")
    earlier = outcomes(Path(before)) if before else {}
    rows = []
    for name, found in outcomes(Path.cwd()).items():
        was = earlier.get(name)
        against = f"wanted: {WANTED_P99_MS:g}" if was is None else f"before: {was.p99_ms:,.1f}, {was.failed} failed"
        ratio = found.p99_ms / (WANTED_P99_MS if was is None else was.p99_ms)
        rows.append(BenchmarkRow(NAME, f"{name}: usual reviews' 99th percentile", found.p99_ms, "ms", against, ratio))
        rows.append(BenchmarkRow(NAME, f"{name}: of that the client was late", found.late_ms, "ms"))
        rows.append(BenchmarkRow(NAME, f"{name}: core taken by other processes", found.taken_ms_a_second, "ms/s"))
        rows.append(BenchmarkRow(NAME, f"{name}: usual reviews that failed", found.failed, "reviews"))
        memory = "" if was is None else f"before: {was.more_mib:,.0f}"
        rows.append(BenchmarkRow(NAME, f"{name}: memory", found.more_mib, "MiB", memory))
        print(f"{name}: {found.answer}" + (f" (before: {was.answer})" if was else ""), file=sys.stderr)
    return rows


def outcomes(checkout: Path) -> dict[str, AttackOutcome]:
    """Make each attack on a new server of a checkout."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "reviews.txt"
        place.write_bytes(b"\n".join(make_reviews(WORKLOADS)))
        found = {}
        for name in (_QUIET, *ATTACKS):
            with _server(checkout) as (port, pid):
                found[name] = _outcome(name, port, pid, place)
        return found


def _outcome(name: str, port: int, pid: int, place: Path) -> AttackOutcome:
    command = [sys.executable, "-m", "benchmarks.steady_reviews", str(port), str(place), str(RATE)]
    # Each kind of pod was decided before, as on a running cluster.
    subprocess.run([*command, "2"], check=True, stdout=subprocess.DEVNULL)
    server = WebhookProcess(port, pid)
    waited = server.waited_seconds()
    with _watching(pid) as memory, subprocess.Popen([*command, str(SECONDS)], stdout=subprocess.PIPE) as usual:
        assert usual.stdout is not None
        time.sleep(1)
        answer = "" if name == _QUIET else _attack(name, port)
        latencies, late, failed = json.loads(usual.stdout.read())
    taken = (server.waited_seconds() - waited) * 1000 / SECONDS
    return AttackOutcome(answer, max(memory) - memory[0], _p99_ms(latencies), failed, _p99_ms(late), taken)


def _attack(name: str, port: int) -> str:
    attacker = ["nice", "-n", "19", sys.executable, "-m", "benchmarks.attacks", name, str(port), str(SECONDS - 2)]
    return subprocess.run(attacker, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def _p99_ms(seconds: Sequence[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100] * 1000 if seconds else float("inf")


@contextmanager
def _watching(pid: int) -> Iterator[list[float]]:
    """Record the memory of a process every few milliseconds, in MiB."""
    seen, over = [_resident_mib(pid)], threading.Event()

    def look() -> None:
        while not over.wait(0.02):
            seen.append(_resident_mib(pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextmanager
def _server(checkout: Path) -> Iterator[tuple[int, int]]:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.webhook_servers", "cruise", str(WORKLOADS), str(NODES)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.stdin.close()
