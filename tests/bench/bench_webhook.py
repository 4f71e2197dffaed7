"""The webhook with its real decision over TLS 1.3 on one core, beside FastAPI and pydantic around the same decision.

20,000 workloads on 1,000 nodes are known; each request is a 6 kB review of another workload's new pod. Load comes from
the other core: `wrk` keeps 16 connections busy, and an open loop asks at a constant rate.
"""

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cruise.runtime.reviewing import Reviewer
from tests.bench.open_loop import CLIENT_CORE
from tests.bench.table import Row
from tests.bench.webhook_servers import Kind
from tests.bench.webhook_world import make_reviews, make_world

NAME = "webhook"
ROUNDS = 3
SECONDS = 4
RATE = 5_000
WANTED_PER_SECOND = 15_000
WANTED_P99_MS = 2.0
_FILE_OF_REVIEWS = "reviews.txt"

_SCRIPT = """
local requests, number = {{}}, 0
function init(args)
  local headers = {{ ["Content-Type"] = "application/json" }}
  for line in io.lines("{place}") do
    requests[#requests + 1] = wrk.format("POST", "/mutate?timeout=2s", headers, line)
  end
end
function request()
  number = number % #requests + 1
  return requests[number]
end
function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d %d", summary.requests, summary.duration, latency:percentile(99),
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


def run() -> list[Row]:
    """Requests a second, latencies at a constant rate, and what deciding alone takes."""
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is not installed (apt install wrk)")
    reviews = make_reviews()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / _FILE_OF_REVIEWS
        place.write_bytes(b"\n".join(reviews))
        return [*_in_process(reviews), *_throughput(place), *_latency(place)]


def _in_process(reviews: Sequence[bytes]) -> list[Row]:
    """Microseconds from a review's bytes to the answer's, without HTTP and TLS."""
    reviewer = Reviewer()
    reviewer.use(*make_world())
    first = _seconds_of(reviewer, reviews)
    again = min(_seconds_of(reviewer, reviews) for _ in range(ROUNDS))
    if reviewer.counts.verdicts != {("mutated", ""): (1 + ROUNDS) * len(reviews)}:
        raise RuntimeError(f"not every pod was sized: {reviewer.counts.verdicts}")
    count = len(reviews)
    return [
        Row(NAME, "deciding: first pod of a workload", first / count * 1e6, "µs", "", None),
        Row(NAME, "deciding: its other pods", again / count * 1e6, "µs", "its first", again / first),
    ]


def _seconds_of(reviewer: Reviewer, reviews: Sequence[bytes]) -> float:
    began = time.perf_counter()
    for review in reviews:
        reviewer.review(review)
    return time.perf_counter() - began


def _throughput(place: Path) -> list[Row]:
    """Medians of interleaved rounds, so that whatever else the machine does hits both alike."""
    measured: dict[tuple[Kind, int], list[float]] = {}
    cold = 0.0
    with _server("cruise") as ours, _server("fastapi") as theirs:
        # All workloads are new to it for as long as this takes.
        cold = _wrk(ours, place, 16, 1)
        _wrk(ours, place, 16, SECONDS)
        ports: dict[Kind, int] = {"cruise": ours, "fastapi": theirs}
        for _ in range(ROUNDS):
            for kind, port in ports.items():
                for connections in (16, 1):
                    measured.setdefault((kind, connections), []).append(_wrk(port, place, connections, SECONDS))
    medians = {key: statistics.median(values) for key, values in measured.items()}
    ours_16, theirs_16 = medians["cruise", 16], medians["fastapi", 16]
    ours_1, theirs_1 = medians["cruise", 1], medians["fastapi", 1]
    return [
        Row(NAME, "16 connections", ours_16, "requests/s", f"FastAPI, pydantic: {theirs_16:,.0f}", ours_16 / theirs_16),
        Row(
            NAME, "16 connections", ours_16, "requests/s", f"wanted: {WANTED_PER_SECOND:,}", ours_16 / WANTED_PER_SECOND
        ),
        Row(NAME, "1 connection", ours_1, "requests/s", f"FastAPI, pydantic: {theirs_1:,.0f}", ours_1 / theirs_1),
        Row(NAME, "16 connections, first pods only", cold, "requests/s", f"later pods: {ours_16:,.0f}", cold / ours_16),
    ]


def _latency(place: Path) -> list[Row]:
    """Percentiles of the medial round; the first round meets workloads that are new to the server."""
    with _server("cruise") as port:
        first = _percentiles(_open_loop(port, place, SECONDS))
        rounds = sorted((_percentiles(_open_loop(port, place, SECONDS)) for _ in range(ROUNDS)), key=lambda p: p[1])
    half, most, longest = rounds[len(rounds) // 2]
    wanted = f"wanted: {WANTED_P99_MS:g}"
    return [
        Row(NAME, f"{RATE:,}/s: 50th percentile", half, "ms"),
        Row(NAME, f"{RATE:,}/s: 99th percentile", most, "ms", wanted, most / WANTED_P99_MS),
        Row(NAME, f"{RATE:,}/s: longest", longest, "ms"),
        Row(NAME, f"{RATE:,}/s, first pods: 99th percentile", first[1], "ms", wanted, first[1] / WANTED_P99_MS),
    ]


def _percentiles(latencies: Sequence[float]) -> tuple[float, float, float]:
    ordered = sorted(latency * 1000 for latency in latencies)
    return ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100], ordered[-1]


def _open_loop(port: int, place: Path, seconds: int) -> list[float]:
    arguments = [str(port), str(place), str(RATE), str(seconds), "16"]
    told = subprocess.run(
        [sys.executable, "-m", "tests.bench.open_loop", *arguments], check=True, capture_output=True, text=True
    )
    found: list[float] = json.loads(told.stdout)
    return found


def _wrk(port: int, place: Path, connections: int, seconds: int) -> float:
    """Return the requests a second, all of them answered with 200."""
    script = place.with_suffix(".lua")
    script.write_text(_SCRIPT.format(place=place))
    shape = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script)]
    command = ["taskset", "-c", str(CLIENT_CORE), "wrk", *shape, f"https://127.0.0.1:{port}"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = next(line for line in told.splitlines() if line.startswith("RESULT"))
    requests, microseconds, _, errors = (int(word) for word in result.split()[1:])
    if errors:
        raise RuntimeError(f"{errors} requests failed:\n{told}")
    return requests / microseconds * 1e6


@contextmanager
def _server(kind: Kind) -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.bench.webhook_servers", kind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.stdin.close()
