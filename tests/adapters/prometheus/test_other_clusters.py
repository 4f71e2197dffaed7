"""A real Prometheus with series of several clusters that have equal namespace, workload, node and pod names.

Each scene has a label of its own, so that one server serves all; cruise selects it as users select a tenant.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from cruise.adapters.prometheus.probe import probe_prometheus
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.cli.inputs.usage import read_prometheus_usage
from cruise.decisions.preflight.usage import check_series_and_samples
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Policy
from cruise.domain.preflight import CheckLevel, ClusterSeriesFacts
from cruise.domain.usage import PeakKey, SampleRejectionReason, Statistic
from cruise.runtime.usage.usage_pass import run_usage_pass
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore
from tests.builders import make_node, make_pod, make_snapshot
from tests.prometheus_server import make_blocks, running_prometheus
from tests.shown_cluster import ReadOnlyCluster

END = 1_767_268_200
HOUR = 3600
START = END - 30 * HOUR
MEBIBYTE = 1 << 20
OURS = "aaaaaaaa-1111-4111-8111-00000000000"
THEIRS = "bbbbbbbb-2222-4222-8222-00000000000"


@dataclass(frozen=True)
class Series:
    """A container's counter and gauge between two times: a constant use, scraped once a minute."""

    pod: str
    uid: str
    cores: float
    mebibytes: float
    labels: dict[str, str]
    since: int = START
    until: int = END
    offset: int = 7

    def lines(self, scene: str, metric: str) -> Iterator[str]:
        named = {"namespace": "shop", "pod": self.pod, "container": "app", "node": "n1", "job": "kubelet"}
        if self.uid:
            named["id"] = f"/kubepods/burstable/pod{self.uid}/c0ffee"
        labels = ",".join(
            f'{name}="{value}"' for name, value in sorted({**named, **self.labels, "scene": scene}.items())
        )
        for at in range(self.since + self.offset, self.until, 60):
            counted = 5000.0 + self.cores * (at - self.since)
            value = counted if metric.endswith("total") else self.mebibytes * MEBIBYTE
            yield f"{metric}{{{labels}}} {value:.3f} {at}\n"


# A pod of Deployment web, one that it had at this hour yesterday, and the only pod of StatefulSet db.
LIVE, FORMER, SAME_NAME = "web-7d9f8b6c5d-bcdfg", "web-7d9f8b6c5d-xxzz2", "db-0"
LIVE_OF_THEIRS, FORMER_OF_THEIRS = "web-7d9f8b6c5d-kkmm4", "web-7d9f8b6c5d-qqrr5"


def ours(labels: dict[str, str], offset: int = 7, uids: bool = True) -> list[Series]:
    uid = OURS if uids else ""
    return [
        Series(LIVE, uid and f"{uid}1", 0.1, 200, labels, offset=offset),
        Series(FORMER, uid and f"{uid}2", 0.3, 300, labels, END - 26 * HOUR, END - 22 * HOUR, offset),
        Series(SAME_NAME, uid and f"{uid}3", 0.1, 200, labels, offset=offset),
    ]


def theirs(labels: dict[str, str], until: int = END, offset: int = 31, uids: bool = True) -> list[Series]:
    uid = THEIRS if uids else ""
    return [
        Series(LIVE_OF_THEIRS, uid and f"{uid}1", 4, 6800, labels, until=until, offset=offset),
        Series(FORMER_OF_THEIRS, uid and f"{uid}2", 4, 6800, labels, END - 26 * HOUR, END - 22 * HOUR, offset),
        Series(SAME_NAME, uid and f"{uid}3", 4, 6800, labels, until=until, offset=offset),
    ]


def renamed(series: Sequence[Series], at: int, label: str, before: str) -> list[Series]:
    """The same series under another value of a label until a time."""
    return [
        part
        for one in series
        for part in (
            replace(one, labels={**one.labels, label: before}, until=min(one.until, at)),
            replace(one, since=max(one.since, at)),
        )
        if part.since < part.until
    ]


PROD, STAGE = {"cluster": "prod"}, {"cluster": "stage"}
PAIR = [{"prometheus_replica": "prometheus-k8s-0"}, {"prometheus_replica": "prometheus-k8s-1"}]
SCENES: dict[str, list[Series]] = {
    "cluster": [*ours(PROD), *theirs(STAGE)],
    "k8s-cluster": [*ours({"k8s_cluster": "prod"}), *theirs({"k8s_cluster": "stage"})],
    "own-label": [*ours({"env": "live", "zone": "a"}), *theirs({"env": "test", "zone": "a"})],
    "ours-unlabelled": [*ours({}), *theirs(STAGE)],
    "theirs-unlabelled": [*ours(PROD), *theirs({})],
    "without-uids": [*ours(PROD, uids=False), *theirs(STAGE, uids=False)],
    "pairs": [
        one
        for place, replica in enumerate(PAIR)
        for one in (*ours(PROD | replica, 7 + 15 * place), *theirs(STAGE | replica, offset=3 + 15 * place))
    ],
    "three": [
        *ours({"cluster": "a", "tenant": "x"}),
        *theirs({"cluster": "b"}),
        *theirs({"cluster": "a", "tenant": "y"}),
    ],
    "gone-by-now": [*ours(PROD), *theirs(STAGE, until=END - 3 * HOUR)],
    "renamed": [*renamed(ours(PROD), END - 10 * HOUR, "cluster", "production"), *theirs(STAGE)],
    "joins": [*ours(PROD), *(replace(one, since=END - HOUR) for one in theirs(STAGE) if one.until == END)],
    # Nothing else is there.
    "one": ours({}),
    "one-pair": [one for place, replica in enumerate(PAIR) for one in ours(replica, 7 + 15 * place)],
    "one-labelled": ours(PROD),
    "one-renamed": renamed(ours(PROD), END - 10 * HOUR, "cluster", "production"),
    # No label distinguishes them.
    "unlabelled": [*ours({}), *theirs({})],
    "unlabelled-pair": [
        one
        for place, replica in enumerate(PAIR)
        for one in (*ours(replica, 7 + 15 * place), *theirs(replica, offset=3 + 15 * place))
    ],
    "unlabelled-without-uids": [*ours({}, uids=False), *theirs({"node": "n2"}, uids=False)[:2]],
    "same-labels": [*ours(PROD), *theirs(PROD)],
    "only-theirs": theirs(STAGE)[:2],
}
SELECTED = {
    "cluster": 'cluster="prod"',
    "k8s-cluster": 'k8s_cluster="prod"',
    "own-label": 'env="live"',
    "ours-unlabelled": 'cluster=""',
    "theirs-unlabelled": 'cluster="prod"',
    "without-uids": 'cluster="prod"',
    "pairs": 'cluster="prod"',
    "three": 'cluster="a",tenant="x"',
    "gone-by-now": 'cluster="prod"',
    "joins": 'cluster="prod"',
    "renamed": 'cluster=~"prod|production"',
    "one": "",
    "one-pair": "",
    # Whatever else the server receives is left out.
    "one-labelled": 'cluster="prod"',
    "one-renamed": 'cluster=~"prod|production"',
}
ALONE_NOW = {"gone-by-now", "one", "one-pair", "one-labelled", "one-renamed"}
NOT_TOLD_APART = sorted(SCENES.keys() - SELECTED.keys())


def write(path: Path) -> None:
    with path.open("w") as file:
        for name, kind, suffix in (
            ("container_cpu_usage_seconds", "counter", "_total"),
            ("container_memory_working_set_bytes", "gauge", ""),
        ):
            file.write(f"# TYPE {name} {kind}\n")
            for scene, series in SCENES.items():
                for one in series:
                    file.writelines(one.lines(scene, name + suffix))
        file.write("# EOF\n")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    blocks = tmp_path_factory.mktemp("clusters") / "blocks"
    make_blocks(write, blocks)
    with running_prometheus(blocks) as address:
        yield address


def snapshot() -> ClusterSnapshot:
    node = replace(make_node("n1", 16_000, 65_536), cpu_capacity_millicores=16_000)
    created = datetime.fromtimestamp(START, UTC) - timedelta(days=1)
    pods = [
        make_pod(LIVE, uid=f"{OURS}1", workload="Deployment/web", created_at=created),
        make_pod(SAME_NAME, uid=f"{OURS}3", workload="StatefulSet/db", identity="0", created_at=created),
    ]
    return make_snapshot(pods, [node])


def known(address: str, scene: str) -> PrometheusSettings:
    return PrometheusSettings(address, matchers=f'scene="{scene}"', selects_exporters=True)


async def look(address: str, scene: str) -> tuple[dict[str, Statistic], ClusterSeriesFacts, UsageState]:
    """Statistics of the two workloads, what was found out of clusters, and what was refused."""
    source, state = PrometheusUsageSource(known(address, scene), lambda: float(END)), UsageState()
    try:
        now = datetime.fromtimestamp(END + 30, UTC)
        table = await run_usage_pass(ReadOnlyCluster(snapshot()), source, InMemoryStore(), state, Policy(), now)
        facts = source.cluster
    finally:
        source.close()
    rows = {
        workload: table.get_row(row)
        for workload, identity in (("Deployment/web", ""), ("StatefulSet/db", "0"))
        if (row := table.row_of_workload.get(PeakKey("shop", workload, "app", identity))) is not None
    }
    return rows, facts, state


def mebibytes(statistic: Statistic) -> float:
    return statistic.memory_7d_max_bytes / MEBIBYTE


@pytest.mark.parametrize("scene", sorted(SELECTED))
async def test_only_series_of_this_cluster_are_read_and_its_former_pods_count(prometheus: str, scene: str) -> None:
    rows, facts, state = await look(prometheus, scene)
    assert facts.distinguishes_clusters, facts
    assert facts.matchers == SELECTED[scene], facts
    assert (90 <= rows["StatefulSet/db"].cpu_peak_millicores <= 110, mebibytes(rows["StatefulSet/db"])) == (True, 200)
    assert (270 <= rows["Deployment/web"].cpu_peak_millicores <= 330, mebibytes(rows["Deployment/web"])) == (True, 300)
    assert not any(row.rejected_percent for row in rows.values())
    lived = bool(facts.matchers) and scene not in ALONE_NOW
    assert (state.rejections.counts[SampleRejectionReason.OTHER_CLUSTER] > 0) == lived
    assert bool(facts.example) == lived


@pytest.mark.parametrize("scene", NOT_TOLD_APART)
async def test_without_a_label_only_pods_that_were_seen_count(prometheus: str, scene: str) -> None:
    rows, facts, state = await look(prometheus, scene)
    assert not facts.distinguishes_clusters
    assert f"shop/{LIVE_OF_THEIRS}" in facts.unknown_pods
    assert state.rejections.counts[SampleRejectionReason.OTHER_CLUSTER] > 0
    if scene == "only-theirs":
        assert not rows
        return
    for row in rows.values():
        assert (90 <= row.cpu_peak_millicores <= 110, mebibytes(row)) == (True, 200)
        assert not row.rejected_percent


@pytest.mark.parametrize("scene", sorted(SCENES))
def test_check_says_which_clusters_a_server_has(prometheus: str, scene: str) -> None:
    at = datetime.fromtimestamp(END, UTC)
    facts = probe_prometheus(known(prometheus, scene), snapshot(), at)
    items = {one.name: one for one in check_series_and_samples(facts, snapshot(), at)}
    if scene not in SELECTED:
        assert items["clusters"].level is CheckLevel.WARN
        assert (
            "no label distinguishes them: only pods that were seen in this cluster count" in items["clusters"].finding
        )
        assert "prometheus_matchers" in items["clusters"].fix
    elif SELECTED[scene] and not scene.startswith("one"):
        assert items["clusters"].level is CheckLevel.OK
        assert items["clusters"].finding.startswith(f"series of this cluster have {SELECTED[scene]}; ")
    else:
        assert "clusters" not in items


def test_logs_once_which_series_are_ignored_or_uncertain(prometheus: str) -> None:
    def said(scene: str) -> list[tuple[str, str]]:
        source = PrometheusUsageSource(known(prometheus, scene), lambda: float(END))
        try:
            with capture_logs() as logs:
                for _ in range(2):
                    asyncio.run(source.list_partitions(snapshot()))
        finally:
            source.close()
        return [(line["log_level"], line["event"]) for line in logs]

    assert said("cluster") == [("info", "series of other clusters are ignored")]
    [(level, line)] = said("same-labels")
    assert level == "warning"
    assert "may be of another cluster" in line and "prometheus_matchers" in line


def test_commands_report_the_selected_series(prometheus: str, capsys: pytest.CaptureFixture[str]) -> None:
    def words(scene: str) -> tuple[str, str]:
        at = datetime.fromtimestamp(END + 30, UTC)
        _, _, source = read_prometheus_usage(snapshot(), known(prometheus, scene), "30h", at, Policy())
        return source, " ".join(capsys.readouterr().err.split())

    source, warning = words("cluster")
    assert source.endswith(f" with {SELECTED['cluster']}")
    assert not warning
    source, warning = words("same-labels")
    assert source.endswith(", which also has other clusters' series without a distinct label")
    assert "no label distinguishes them: only pods that were seen in this cluster count" in warning
    assert "prometheus_matchers" in warning


async def test_continues_to_count_pods_that_were_seen_and_no_others(prometheus: str) -> None:
    """Passes of half an hour in which a pod of ours ends: it is remembered, and theirs stay out."""
    now, before = [float(END - 1800)], snapshot()
    source, state, store = (
        PrometheusUsageSource(known(prometheus, "unlabelled"), lambda: now[0]),
        UsageState(),
        InMemoryStore(),
    )
    cluster = ReadOnlyCluster(before)
    try:
        while now[0] <= END:
            at = datetime.fromtimestamp(now[0] + 30, UTC)
            table = await run_usage_pass(cluster, source, store, state, Policy(), at)
            assert not source.cluster.distinguishes_clusters
            assert await source.read_node_loads(int(now[0])) == {}
            if now[0] == END - 900:
                cluster.shown = replace(before, pods=before.pods[:1], workloads={**before.workloads})
            now[0] += 300
    finally:
        source.close()
    assert all(row.memory_7d_max_bytes == 200 * MEBIBYTE for row in map(table.get_row, range(len(table.keys))))
    assert state.rejections.counts[SampleRejectionReason.OTHER_CLUSTER] > 0


async def test_ignores_a_cluster_that_is_added_later(prometheus: str) -> None:
    source = PrometheusUsageSource(known(prometheus, "joins"), lambda: float(END - 2 * HOUR))
    try:
        await source.list_partitions(snapshot())
        assert (source.cluster.matchers, source.cluster.other_clusters) == ('cluster="prod"', ())
        block, _ = await source.read("pods-ending-bcd0", END - 1800, END - 600, None)
        assert {key.pod for key in block.keys} == {SAME_NAME}
        assert set(block.memory_bytes[0].tolist()) == {200.0 * MEBIBYTE}
    finally:
        source.close()
