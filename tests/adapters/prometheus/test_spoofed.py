"""A real Prometheus with honored labels, to which a pod exposed series of another pod's container."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cruise.adapters.prometheus.probe import probe_prometheus
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.decisions.preflight.usage import check_series_and_samples
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.preflight import CheckLevel
from cruise.domain.usage import Statistic
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_node, make_pod, make_snapshot
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

END = 1_767_268_200
START = END - 3 * 3600
SINCE = END - 25 * 60
MEBIBYTE = 1 << 20
KUBELET = {"job": "kubelet", "metrics_path": "/metrics/cadvisor"}


@dataclass(frozen=True)
class Series:
    """One container's counter and gauge under some labels: a constant use, scraped at an offset from the minute."""

    pod: str
    labels: dict[str, str]
    cores: float
    mebibytes: float
    since: int = START
    offset: float = 7.0
    counted: float = 5000.0
    id: str = "/kubepods/one"

    def lines(self, metric: str) -> Iterator[str]:
        core = self.labels.get("cpu", "")
        if not metric.endswith("total") and core not in ("", "cpu00"):
            return
        named = {"namespace": "shop", "pod": self.pod, "container": "app", "id": self.id, "node": "n1", **self.labels}
        if not metric.endswith("total"):
            named.pop("cpu", None)
        labels = ",".join(f'{name}="{value}"' for name, value in sorted(named.items()))
        at = self.since + self.offset
        while at <= END:
            counted = self.counted + self.cores * (at - self.since)
            value = counted if metric.endswith("total") else self.mebibytes * MEBIBYTE
            yield f"{metric}{{{labels}}} {value:.3f} {at:.3f}\n"
            at += 30


def write(series: list[Series], path: Path) -> None:
    with path.open("w") as file:
        for name, kind, suffix in (
            ("container_cpu_usage_seconds", "counter", "_total"),
            ("container_memory_working_set_bytes", "gauge", ""),
        ):
            file.write(f"# TYPE {name} {kind}\n")
            for one in series:
                file.writelines(one.lines(name + suffix))
        file.write("# EOF\n")


# A nested control group, and a container that is reported per core.
WITHIN = [
    Series("nested-1", KUBELET, 0.06, 40, id="/kubepods/one/docker/4f1", counted=90.0),
    Series("nested-1", KUBELET, 0.03, 20, SINCE, id="/kubepods/one/system.slice/sshd.service", counted=0.0),
    *(Series("cores-1", {**KUBELET, "cpu": f"cpu{core:02}"}, 0.025, 100) for core in range(4)),
]
VICTIM = [
    Series(f"{pod}-1", KUBELET, 0.1, 100) for pod in ("other", "job", "labels", "id", "replica", "memory", "nested")
]
SPOOFED = [
    # In a separate job.
    Series("job-1", {"job": "payments"}, 7.5, 4000, SINCE),
    # By cAdvisor's job and path, with something that distinguishes the series.
    Series("labels-1", {**KUBELET, "version": "2"}, 7.5, 4000, SINCE),
    # As a container that was restarted.
    Series("id-1", KUBELET, 7.5, 100, SINCE, counted=0.0, id="/kubepods/two"),
    # Memory alone.
    Series("memory-1", {**KUBELET, "version": "2"}, 0.1, 4000, START, offset=9.0),
]
REPLICA = Series("replica-1", {**KUBELET, "prometheus_replica": "b"}, 0.1, 100, START, offset=22.0)


PODS = {one.pod for one in (*VICTIM, *WITHIN)}


def snapshot() -> ClusterSnapshot:
    node = replace(make_node("n1", 16_000, 65_536), cpu_capacity_millicores=16_000)
    pods = [make_pod(pod, workload=f"Deployment/{pod[:-2]}") for pod in PODS]
    return make_snapshot(sorted(pods, key=lambda pod: pod.name), [node])


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    blocks = tmp_path_factory.mktemp("spoofed") / "blocks"
    make_blocks(lambda path: write([*VICTIM, *WITHIN, *SPOOFED, REPLICA], path), blocks)
    with running_prometheus(blocks) as address:
        yield address


async def statistics(address: str, *, minutes_apart: int = 5) -> dict[str, Statistic]:
    """Statistics at the end of an hour of passes, by pod."""
    known = PrometheusSettings(address, selects_exporters=True)
    at = END - 3600
    source = PrometheusUsageSource(known, lambda: float(at))
    state, store, policy = UsageState(), InMemoryStore(), Policy()
    try:
        while at <= END:
            now = datetime.fromtimestamp(at + 30, UTC)
            table = await run_usage_pass(ReadOnlyCluster(snapshot()), source, store, state, policy, now)
            at += 60 * minutes_apart
    finally:
        source.close()
    return {key.pod: table.get_row(row) for key, row in table.row_of_container.items()}


@pytest.mark.parametrize("minutes_apart", [5, 1, 60])
async def test_every_container_has_true_statistics_or_is_skipped(prometheus: str, minutes_apart: int) -> None:
    known = await statistics(prometheus, minutes_apart=minutes_apart)
    assert known.keys() == PODS
    for pod, statistic in known.items():
        held = statistic.rejected_percent > 10
        assert held == (pod in ("labels-1", "id-1", "memory-1")), (pod, statistic)
        figures = (statistic.cpu_base_millicores, statistic.cpu_peak_millicores)
        mebibytes = (statistic.memory_base_bytes / MEBIBYTE, statistic.memory_peak_bytes / MEBIBYTE)
        for figure in (*figures, *mebibytes):
            # What is held may be known of less, and never of more.
            assert figure <= 110, (pod, statistic)
            assert held or figure >= 90, (pod, statistic)


def test_check_says_which_exporters_are_not_read_and_which_samples_cannot_be_true(prometheus: str) -> None:
    at = datetime.fromtimestamp(END, UTC)
    facts = probe_prometheus(PrometheusSettings(prometheus, selects_exporters=True), snapshot(), at)
    items = {one.name: one for one in check_series_and_samples(facts, snapshot(), at)}
    assert items.keys() == {"exporters", "plausible"}
    assert {one.level for one in items.values()} == {CheckLevel.WARN}
    assert items["exporters"].finding == (
        'containers are read from job="kubelet",metrics_path="/metrics/cadvisor"; '
        'not from job="payments",metrics_path="" (such as shop/job-1/app)'
    )
    assert items["plausible"].finding.startswith("samples of 3 containers are implausible: ")
    assert " series-disagree, such as shop/" in items["plausible"].finding
