"""Attacks on the webhook's port: what comes back, what memory it takes, and how usual reviews fare meanwhile.

The server is that of the webhook's benchmark, on one core; attacker and usual reviews share the other. With
`CRUISE_BENCH_BEFORE` naming another checkout, its server is attacked as well.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.attacks import ATTACKS
from benchmarks.open_loop import CLIENT_CORE
from benchmarks.table import Row
from benchmarks.webhook_world import make_reviews

NAME = "attacks"
WORKLOADS = 200
NODES = 200
SECONDS = 8.0
RATE = 100
WANTED_P99_MS = 50.0
_QUIET = "no attack"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attack: what came back, the memory that it took, and of usual reviews the 99th percentile and failures."""

    answer: str
    more_mib: float
    p99_ms: float
    failed: int


def run() -> list[Row]:
    """The outcome of each attack, of another checkout too where one is named."""
    before = os.environ.get("CRUISE_BENCH_BEFORE")
    earlier = outcomes(Path(before)) if before else {}
    rows = []
    for name, found in outcomes(Path.cwd()).items():
        was = earlier.get(name)
        against = f"wanted: {WANTED_P99_MS:g}" if was is None else f"before: {was.p99_ms:,.1f}, {was.failed} failed"
        ratio = found.p99_ms / (WANTED_P99_MS if was is None else was.p99_ms)
        rows.append(Row(NAME, f"{name}: usual reviews' 99th percentile", found.p99_ms, "ms", against, ratio))
        rows.append(Row(NAME, f"{name}: usual reviews that failed", found.failed, "reviews"))
        memory = "" if was is None else f"before: {was.more_mib:,.0f}"
        rows.append(Row(NAME, f"{name}: memory", found.more_mib, "MiB", memory))
        print(f"{name}: {found.answer}" + (f" (before: {was.answer})" if was else ""), file=sys.stderr)
    return rows


def outcomes(checkout: Path) -> dict[str, Outcome]:
    """Attack the server of a checkout in every way, each time a new one."""
    os.sched_setaffinity(0, {CLIENT_CORE})
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "reviews.txt"
        place.write_bytes(b"\n".join(make_reviews(WORKLOADS)))
        found = {}
        for name in (_QUIET, *ATTACKS):
            with _server(checkout) as (port, pid):
                found[name] = _outcome(name, port, pid, place)
        return found


def _outcome(name: str, port: int, pid: int, place: Path) -> Outcome:
    command = [sys.executable, "-m", "benchmarks.steady_reviews", str(port), str(place), str(RATE)]
    # Each kind of pod is decided once before, as on a cluster that has run for a while.
    subprocess.run([*command, "2"], check=True, stdout=subprocess.DEVNULL)
    with _watching(pid) as memory, subprocess.Popen([*command, str(SECONDS)], stdout=subprocess.PIPE) as usual:
        assert usual.stdout is not None
        time.sleep(1)
        attack = ATTACKS.get(name)
        answer = "" if attack is None else asyncio.run(_ended(attack(port, SECONDS - 2)))
        latencies, failed = json.loads(usual.stdout.read())
    ordered = sorted(latencies)
    p99 = ordered[len(ordered) * 99 // 100] if ordered else float("inf")
    return Outcome(answer, max(memory) - memory[0], p99 * 1000, failed)


async def _ended(attack: object) -> str:
    assert asyncio.iscoroutine(attack)
    return str(await attack)


@contextmanager
def _watching(pid: int) -> Iterator[list[float]]:
    """Note every few milliseconds what memory a process takes, in MiB."""
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
