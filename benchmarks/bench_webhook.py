"""The webhook over TLS 1.3 on one core, compared with FastAPI and pydantic around the same decision.

There are 20,000 workloads on 1,000 nodes; each request is a 6 kB review of another workload's new pod. The first pod of
a workload needs a decision; later ones are recognized as equal while nothing changes. The load runs on the other core:
`wrk` with 16 connections, and an open loop with a constant rate.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.open_loop import CLIENT_CORE
from benchmarks.table import BenchmarkRow
from benchmarks.webhook_servers import Kind
from benchmarks.webhook_world import WORKLOADS, make_reviews, make_webhook_cluster
from cruise.runtime.admission_reviewer import AdmissionReviewer

NAME = "webhook"
ROUNDS = 3
SECONDS = 4
RATE = 5_000
FIRST_RATE = 1_000
WANTED_PER_SECOND = 15_000
WANTED_P99_MS = 2.0
PATH = "/mutate?timeout=2s"
_FILE_OF_REVIEWS = "reviews.txt"

_SCRIPT = """
local requests, number = {{}}, 0
function init(args)
  local headers = {{ ["Content-Type"] = "application/json" }}
  for line in io.lines("{place}") do
    requests[#requests + 1] = wrk.format("POST", "{path}", headers, line)
  end
end
function request()
  number = number % #requests + 1
  return requests[number]
end
function done(summary, latency, requests)
  local errors = summary.errors
  print(string.format("RESULT %d %d %d", summary.requests, summary.duration,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout))
end
"""


def run() -> list[BenchmarkRow]:
    """Measure requests a second, latencies at a constant rate, and the decision alone."""
    if shutil.which("wrk") is None:
        sys.exit("webhook: wrk is not installed (apt install wrk)")
    reviews = make_reviews()
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / _FILE_OF_REVIEWS
        place.write_bytes(b"\n".join(reviews))
        return [*_in_process(reviews), *_throughput(place), *_latency(place)]


def _in_process(reviews: Sequence[bytes]) -> list[BenchmarkRow]:
    """Return the microseconds from a review's bytes to the response's, without HTTP and TLS."""
    reviewer = AdmissionReviewer()
    reviewer.set_state(*make_webhook_cluster())
    first = _seconds_of(reviewer, reviews)
    again = min(_seconds_of(reviewer, reviews) for _ in range(ROUNDS))
    if reviewer.counts.answers != {("mutated", "peak"): (1 + ROUNDS) * len(reviews)}:
        raise RuntimeError(f"not every pod was sized: {reviewer.counts.answers}")
    count = len(reviews)
    return [
        BenchmarkRow(NAME, "deciding: first pod of a workload", first / count * 1e6, "µs", "", None),
        BenchmarkRow(NAME, "deciding: its other pods", again / count * 1e6, "µs", "its first", again / first),
    ]


def _seconds_of(reviewer: AdmissionReviewer, reviews: Sequence[bytes]) -> float:
    began = time.perf_counter()
    for review in reviews:
        reviewer.review(review)
    return time.perf_counter() - began


def _throughput(place: Path) -> list[BenchmarkRow]:
    """Return medians of interleaved rounds, so that other load on the machine affects both."""
    measured: dict[tuple[Kind, int], list[WebhookLoad]] = {}
    with running("cruise") as ours, running("fastapi") as theirs:
        first = _warmed_up(ours, place)
        servers: dict[Kind, WebhookProcess] = {"cruise": ours, "fastapi": theirs}
        for _ in range(ROUNDS):
            for kind, server in servers.items():
                for connections in (16, 1):
                    measured.setdefault((kind, connections), []).append(load(server, place, connections, SECONDS))
    medians = {key: statistics.median(one.per_second for one in loads) for key, loads in measured.items()}
    cpu = statistics.median(one.cpu_microseconds for one in measured["cruise", 16])
    ours_16, theirs_16 = medians["cruise", 16], medians["fastapi", 16]
    ours_1, theirs_1 = medians["cruise", 1], medians["fastapi", 1]
    unit, other = "requests/s", "FastAPI, pydantic"
    wanted = f"wanted: {WANTED_PER_SECOND:,}"
    return [
        BenchmarkRow(NAME, "16 connections", ours_16, unit, wanted, ours_16 / WANTED_PER_SECOND),
        BenchmarkRow(NAME, "16 connections", ours_16, unit, f"{other}: {theirs_16:,.0f}", ours_16 / theirs_16),
        BenchmarkRow(NAME, "1 connection", ours_1, unit, f"{other}: {theirs_1:,.0f}", ours_1 / theirs_1),
        BenchmarkRow(
            NAME, "16 connections, first pods too", first, unit, f"later ones: {ours_16:,.0f}", first / ours_16
        ),
        BenchmarkRow(NAME, "processor time a request, with HTTP and TLS", cpu, "µs"),
    ]


def _warmed_up(server: "WebhookProcess", place: Path) -> float:
    """Send reviews until every workload had its first pod; return the requests of the first second."""
    first = load(server, place, 16, 1).per_second
    for seconds in (SECONDS, 2 * SECONDS, 4 * SECONDS, 8 * SECONDS):
        if load(server, place, 16, seconds).per_second * seconds > 2 * WORKLOADS:
            break
    return first


def _latency(place: Path) -> list[BenchmarkRow]:
    """Return percentiles of the median round at the full rate, and of first pods at an extreme rate."""
    with running("cruise") as server:
        first = _open_loop(server, place, FIRST_RATE)
        _warmed_up(server, place)
        rounds = sorted((_open_loop(server, place, RATE) for _ in range(ROUNDS)), key=lambda found: found[1])
    half, most, longest, stolen = rounds[len(rounds) // 2]
    wanted = f"wanted: {WANTED_P99_MS:g}"
    return [
        BenchmarkRow(NAME, f"{RATE:,}/s: 50th percentile", half, "ms"),
        BenchmarkRow(NAME, f"{RATE:,}/s: 99th percentile", most, "ms", wanted, most / WANTED_P99_MS),
        BenchmarkRow(NAME, f"{RATE:,}/s: longest", longest, "ms"),
        BenchmarkRow(NAME, f"{RATE:,}/s: both cores taken by other processes", stolen, "ms/s"),
        BenchmarkRow(
            NAME, f"{FIRST_RATE:,}/s, first pods: 99th percentile", first[1], "ms", wanted, first[1] / WANTED_P99_MS
        ),
    ]


def _open_loop(server: "WebhookProcess", place: Path, rate: int) -> tuple[float, float, float, float]:
    """Return the 50th and 99th percentile and maximum latency in ms, and the time lost to other processes in ms/s."""
    arguments = [str(server.port), str(place), str(rate), str(SECONDS), "16"]
    command = [sys.executable, "-m", "benchmarks.open_loop", *arguments]
    before = server.waited_seconds()
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    waited = server.waited_seconds() - before
    latencies, stood_still = json.loads(told.stdout)
    ordered = sorted(latency * 1000 for latency in latencies)
    return (
        ordered[len(ordered) // 2],
        ordered[len(ordered) * 99 // 100],
        ordered[-1],
        (stood_still + waited) * 1000 / SECONDS,
    )


def load(server: "WebhookProcess", place: Path, connections: int, seconds: int, path: str = PATH) -> "WebhookLoad":
    """Run wrk; every response must have status 200."""
    script = place.with_suffix(".lua")
    script.write_text(_SCRIPT.format(place=place, path=path))
    shape = ["-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script)]
    command = ["taskset", "-c", str(CLIENT_CORE), "wrk", *shape, f"https://127.0.0.1:{server.port}"]
    before = server.cpu_seconds()
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    result = next(line for line in told.splitlines() if line.startswith("RESULT"))
    requests, microseconds, errors = (int(word) for word in result.split()[1:])
    if errors:
        raise RuntimeError(f"{errors} requests failed:\n{told}")
    return WebhookLoad(requests / microseconds * 1e6, (server.cpu_seconds() - before) / requests * 1e6)


@dataclass(frozen=True, slots=True)
class WebhookLoad:
    """The result of one run of wrk."""

    per_second: float
    cpu_microseconds: float


@dataclass(frozen=True, slots=True)
class WebhookProcess:
    """One running server."""

    port: int
    pid: int

    def cpu_seconds(self) -> float:
        """The processor time so far."""
        words = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def waited_seconds(self) -> float:
        """The time so far in which it was runnable while another process ran."""
        return int(Path(f"/proc/{self.pid}/schedstat").read_text().split()[1]) / 1e9


@contextmanager
def running(kind: Kind, *size: int) -> Iterator[WebhookProcess]:
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.webhook_servers", kind, *map(str, size)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield WebhookProcess(int(process.stdout.readline()), process.pid)
        finally:
            process.stdin.close()
