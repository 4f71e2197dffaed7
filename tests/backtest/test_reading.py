"""A Prometheus that holds days of a recording gives back that recording, and is never asked for too much at once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.backtest.loading import load_trace
from cruise.backtest.reading import SETTLE_SECONDS, read_recording
from cruise.backtest.recording import Recording
from tests.bench.recordings import make_recording
from tests.cadvisor import RECORDED
from tests.prometheus_server import make_blocks, running_prometheus
from tests.recorded_metrics import write_metrics

DAYS = 14
STEP = 300
# Prometheus itself refuses what would take more; settings that do not keep to theirs would be found out.
MOST_SAMPLES = 20_000


@dataclass(frozen=True)
class Server:
    """A server, what fills it, and the log of its queries."""

    url: str
    recording: Recording
    query_log: Path

    @property
    def settings(self) -> PrometheusSettings:
        return PrometheusSettings(self.url, step_seconds=self.recording.step_seconds)

    @property
    def end(self) -> datetime:
        recorded = len(self.recording.cpu_millicores) - 1
        return datetime.fromtimestamp(
            self.recording.start + recorded * self.recording.step_seconds + SETTLE_SECONDS, UTC
        )


def recorded() -> Recording:
    """Two weeks of a real trace where there is one, with some made-up containers that come and go."""
    made = make_recording(12, DAYS, STEP, seed=4)
    if not (RECORDED / "bitbrains-a").is_dir():
        return made
    real = load_trace(RECORDED / "bitbrains-a")
    rows = len(made.cpu_millicores)
    return replace(
        made,
        containers=(*made.containers, *real.containers[:8]),
        cpu_millicores=np.hstack([made.cpu_millicores, real.cpu_millicores[:rows, :8]]),
        memory_bytes=np.hstack([made.memory_bytes, real.memory_bytes[:rows, :8]]),
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    place = tmp_path_factory.mktemp("recording")
    recording = recorded()
    make_blocks(lambda path: write_metrics(recording, path), place / "blocks")
    log = place / "queries.log"
    arguments = (f"--query.max-samples={MOST_SAMPLES}",)
    config = f"global:\n  scrape_interval: 1h\n  query_log_file: {log}\n"
    with running_prometheus(place / "blocks", arguments, config) as url:
        yield Server(url, recording, log)


def without_steps_after_gaps(cpu: np.ndarray) -> np.ndarray:
    """What counters can tell: the first step after a gap has no use, as its counter's start was not seen."""
    known = cpu.copy()
    gone = np.isnan(cpu)
    seen = np.logical_or.accumulate(~gone, axis=0)
    known[1:][gone[:-1] & seen[:-1]] = np.nan
    return known


def order_of(read: Recording, recording: Recording) -> list[int]:
    place = {(one.namespace, one.pod): column for column, one in enumerate(read.containers)}
    return [place[one.namespace, one.pod] for one in recording.containers]


@pytest.mark.parametrize("samples", [MOST_SAMPLES, 5000, 700])
def test_reads_back_what_filled_it_and_never_asks_for_more_than_is_allowed(server: Server, samples: int) -> None:
    before = len(queries(server))
    shares: list[float] = []
    settings = replace(server.settings, max_samples_per_query=samples)
    read = read_recording(settings, DAYS, server.end, on_progress=shares.append)
    recording = server.recording
    order = order_of(read, recording)
    assert (read.start, read.step_seconds, read.has_memory) == (recording.start, STEP, True)
    assert [read.containers[column] for column in order] == list(recording.containers)
    # Counters are written to the millisecond: 1 ms in 300 s is 0.0033 millicores; float32 holds 7 digits.
    expected = without_steps_after_gaps(recording.cpu_millicores)
    np.testing.assert_allclose(read.cpu_millicores[:, order], expected, rtol=1e-6, atol=0.0067)
    np.testing.assert_array_equal(read.memory_bytes[:, order], recording.memory_bytes)
    assert shares[-1] == 1
    assert all(one <= other for one, other in pairwise(shares))
    costs = [query["stats"]["samples"]["totalQueryableSamples"] for query in queries(server)[before:]]
    assert len(costs) > DAYS
    assert 0 < max(costs) <= samples


def queries(server: Server) -> list[dict]:
    if not server.query_log.exists():
        return []
    return [json.loads(line) for line in server.query_log.read_text().splitlines()]
