"""Reading a recording from a Prometheus with several days of data, with limited query sizes."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from benchmarks.recordings import make_recording
from cruise.adapters.prometheus.recording import DAY
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.backtest.backtest import backtest_policies
from cruise.backtest.recordings.prometheus import SCRAPE_DELAY_SECONDS, read_recording
from cruise.backtest.recordings.recording import UsageRecording, load_trace
from cruise.backtest.replay.policy import ReplayOptions
from cruise.domain.resources import MEBIBYTE, Resources
from cruise.errors import BadInputError
from tests.builders import make_container, make_pod, make_snapshot
from tests.cadvisor import RECORDED
from tests.prometheus_server import make_blocks, running_prometheus
from tests.recorded_metrics import HASH, owned_by_a_replica_set, write_metrics

DAYS = 14
STEP = 300
# Prometheus itself rejects larger queries, so a reader that exceeds its settings fails.
MOST_SAMPLES = 20_000


@dataclass(frozen=True)
class Server:
    """A server, what fills it, and the log of its queries."""

    url: str
    recording: UsageRecording
    query_log: Path

    @property
    def settings(self) -> PrometheusSettings:
        return PrometheusSettings(self.url, step_seconds=self.recording.step_seconds)

    @property
    def end(self) -> datetime:
        recorded = len(self.recording.cpu_millicores) - 1
        return datetime.fromtimestamp(
            self.recording.start + recorded * self.recording.step_seconds + SCRAPE_DELAY_SECONDS, UTC
        )


def recorded() -> UsageRecording:
    """Two weeks of a real trace if there is one, with some generated containers that start and end."""
    made = make_recording(12, DAYS, STEP, seed=0)
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


def order_of(read: UsageRecording, recording: UsageRecording) -> list[int]:
    place = {(one.namespace, one.pod): column for column, one in enumerate(read.containers)}
    return [place[one.namespace, one.pod] for one in recording.containers]


@pytest.mark.parametrize("samples", [MOST_SAMPLES, 5000, 700])
def test_reads_the_recording_back_within_the_sample_limit(server: Server, samples: int) -> None:
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


def test_a_replay_of_it_ends_as_a_replay_of_what_filled_it(server: Server) -> None:
    """The tolerance: slack to 0.001, rates to 1 %; the rest is the same."""
    rows = 4 * DAY // STEP
    read = read_recording(server.settings, DAYS, server.end)
    names_of = [(one.namespace, one.pod) for one in server.recording.containers]
    order = sorted(range(len(names_of)), key=names_of.__getitem__)
    filled = replace(
        server.recording,
        containers=read.containers,
        cpu_millicores=server.recording.cpu_millicores[:rows, order],
        memory_bytes=server.recording.memory_bytes[:rows, order],
    )
    read = replace(read, cpu_millicores=read.cpu_millicores[:rows], memory_bytes=read.memory_bytes[:rows])
    names = ["as-requested", "cruisekube", "cruise"]
    one, other = (backtest_policies(recording, names, ReplayOptions()).policies for recording in (filled, read))
    for name in names:
        for resource in ("cpu", "memory"):
            ends = [getattr(scores[name], resource) for scores in (one, other)]
            assert ends[0].relative_slack == pytest.approx(ends[1].relative_slack, abs=0.001)
            assert ends[0].starved_share == pytest.approx(ends[1].starved_share, abs=0.001)
        assert other[name].oom_per_1000_container_days == one[name].oom_per_1000_container_days
        assert other[name].evictions_per_1000_pod_days == one[name].evictions_per_1000_pod_days
        assert other[name].resizes_per_container_day == pytest.approx(one[name].resizes_per_container_day, rel=0.01)
        assert (other[name].nodes_mean, other[name].nodes_peak) == (one[name].nodes_mean, one[name].nodes_peak)


def test_a_server_with_fewer_days_is_reported(server: Server) -> None:
    said: list[str] = []
    read = read_recording(server.settings, DAYS + 3, server.end, add_note=said.append)
    assert said == ["the server has 14.0 of the 17 days that were requested"]
    assert (read.start, read.days) == (server.recording.start, DAYS)
    # The last day alone: containers that left earlier are not in it.
    last = read_recording(server.settings, 1, server.end)
    assert len(last.containers) < len(read.containers)
    assert last.days == 1
    assert not np.isnan(np.fmax.reduce(last.cpu_millicores, axis=0)).any()


def test_missing_series_are_reported_in_one_line(server: Server) -> None:
    nothing = datetime.fromtimestamp(server.recording.start - 30 * DAY, UTC)
    with pytest.raises(
        BadInputError, match=r"has no container_cpu_usage_seconds_total of containers in the last 2 days: see"
    ):
        read_recording(server.settings, 2, nothing)
    with pytest.raises(
        BadInputError, match=r"most counters do not change in \d\d% of the steps of 60 s, .* set prometheus_step"
    ):
        read_recording(replace(server.settings, step_seconds=60, plausible=False), 2, server.end)
    with pytest.raises(
        BadInputError, match="prometheus_step is 7200 s: a step must divide an hour, and divide the 300 s"
    ):
        read_recording(replace(server.settings, step_seconds=7200), 2, server.end)


def test_growth_between_rare_scrapes_is_spread_over_the_steps_between(server: Server) -> None:
    by_minute = read_recording(replace(server.settings, step_seconds=60), 1, server.end)
    by_scrape = read_recording(server.settings, 1, server.end)
    assert by_minute.step_seconds == 60 and by_scrape.step_seconds == 300
    one, other = (np.nanmax(read.cpu_millicores, axis=0) for read in (by_minute, by_scrape))
    np.testing.assert_allclose(one, other, rtol=1e-4)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> UsageRecording:
    """A day of eight containers in the way that pods of Deployments are called."""
    made = make_recording(8, 1, 60, seed=1)
    endings = ("b2cdf", "ghjkl", "mnpqr", "stvwx", "z2456", "789bc", "dfghj", "klmnp")
    containers = [
        replace(one, pod=f"{owned_by_a_replica_set(one)}-{ending}")
        for one, ending in zip(made.containers, endings, strict=True)
    ]
    return replace(made, containers=containers)


@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_kube_state_metrics_provide_owners_and_requests(small: UsageRecording, tmp_path: Path, prefix: str) -> None:
    make_blocks(lambda path: write_metrics(small, path, prefix=prefix), tmp_path / "blocks")
    with running_prometheus(tmp_path / "blocks") as url:
        server = Server(url, small, tmp_path / "none")
        read = read_recording(server.settings, 1, server.end)
    assert sorted(read.containers, key=str) == sorted(small.containers, key=str)


@pytest.fixture(scope="module")
def alone(small: UsageRecording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without kube-state-metrics."""
    place = tmp_path_factory.mktemp("alone")
    make_blocks(lambda path: write_metrics(small, path, kube_state=False), place / "blocks")
    with running_prometheus(place / "blocks") as url:
        yield Server(url, small, place / "none")


def test_without_requests_nothing_can_be_compared(alone: Server) -> None:
    with pytest.raises(
        BadInputError, match=r"what the 8 containers .* request is not known.*let it scrape kube-state-metrics"
    ):
        read_recording(alone.settings, 1, alone.end)
    with pytest.raises(BadInputError, match=r"request is not known.*is the server that of this cluster\?"):
        read_recording(alone.settings, 1, alone.end, make_snapshot([make_pod("other")]))


def test_the_present_cluster_has_the_requests_of_removed_pods(alone: Server) -> None:
    first = alone.recording.containers[0]
    now = make_pod(
        f"{first.workload.name}-{HASH}-zzzzz",
        namespace=first.namespace,
        workload=first.workload,
        containers=[make_container(first.container, 700, 512)],
    )
    said: list[str] = []
    read = read_recording(alone.settings, 1, alone.end, make_snapshot([now]), add_note=said.append)
    replicas = [one for one in alone.recording.containers if one.workload == first.workload]
    assert 0 < len(replicas) < 8
    assert [(one.pod, one.workload) for one in read.containers] == sorted((one.pod, one.workload) for one in replicas)
    assert {one.requests for one in read.containers} == {Resources(700, 512 * MEBIBYTE)}
    assert said[0].startswith(f"left out: {8 - len(replicas)} of 8 containers: they request nothing")


def queries(server: Server) -> list[dict]:
    if not server.query_log.exists():
        return []
    return [json.loads(line) for line in server.query_log.read_text().splitlines()]
