"""`cruise explain` from a real store."""

import asyncio
import json
from datetime import datetime, timedelta

import numpy as np
import pytest

from cruise.adapters.store.postgres import open_store
from cruise.cli import main
from cruise.decisions.oom import build_oom_record
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, ResizePod
from cruise.domain.cluster import OomKill
from cruise.domain.resources import Resources
from cruise.domain.usage import HourlyPeaks, PartitionProgress, PeakKey, UsageUpdate
from tests.builders import (
    NOW,
    make_list_json,
    make_node_json,
    make_pod_json,
    make_ref,
    make_replica_set_json,
    make_statistic,
    make_table,
)
from tests.postgres_servers import dsn_below, emptied

POD = "web-7d9f8b6c5d-x2x4z"
WEB = make_ref("Deployment/web")
AT = ["--now", NOW.isoformat()]


async def fill(data_dir) -> None:
    """Leave what a controller would have left."""
    key = PeakKey("shop", str(WEB), "app", "")
    hour = int(NOW.timestamp()) // 3600 - 2
    peaks = HourlyPeaks([key], np.array([hour]), np.array([440.0]), np.array([2.0**27]))
    resize = ResizePod("shop", POD, "uid", "n1", WEB, (), Resources(), ReasonCode.RIGHTSIZED)
    kill = OomKill("shop", POD, "uid", "app", WEB, "", "n1", NOW - timedelta(hours=3), 256 << 20, None)
    async with open_store(None, data_dir, print) as store:
        await store.write_statistics(make_table(make_statistic(pod=POD)))
        await store.record_usage(UsageUpdate("p", PartitionProgress(1, 2), peaks, None))
        await store.record_outcomes(
            [Outcome(NOW - timedelta(minutes=5), resize, ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY)]
        )
        await store.record_oom_kill(build_oom_record(kill, None))
        await store.write_workload_pause("shop", WEB, NOW)


@pytest.fixture(scope="module")
def data_dir(embedded_postgres):
    emptied(dsn_below(embedded_postgres))
    asyncio.run(fill(embedded_postgres))
    return embedded_postgres


@pytest.fixture(autouse=True)
def stored(data_dir, monkeypatch):
    monkeypatch.setenv("CRUISE_DATA_DIR", str(data_dir))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")


@pytest.fixture
def snapshot(tmp_path):
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(make_list_json(make_node_json(), make_pod_json(POD), make_replica_set_json())))
    return ["--snapshot", str(path)]


def test_the_database_alone_shows_statistics_and_history(capsys):
    assert main(["explain", f"shop/{POD}", *AT]) == 0
    out = capsys.readouterr().out
    assert "app: base 50m and 64Mi, peak 200m and 100Mi, updated just now" in out
    assert "5m ago  resize  skipped  its node does not have the capacity for a larger size yet" in out
    assert "limit 256Mi" in out
    assert "up to 440m" in out


def test_a_snapshot_adds_the_pause_of_the_workload(capsys, snapshot):
    assert main(["explain", f"shop/{POD}", *snapshot, *AT]) == 0
    out = capsys.readouterr().out
    assert "pause of Deployment/web" in out
    assert "skipped: mode-observe" in out
    assert "5m ago  resize  skipped" in out


def test_a_snapshot_adds_the_steps_of_a_workload_that_is_not_paused(capsys, snapshot, data_dir):
    async def pause(since: datetime | None) -> None:
        async with open_store(None, data_dir, print) as store:
            await store.write_workload_pause("shop", WEB, since)

    asyncio.run(pause(None))
    try:
        assert main(["explain", f"shop/{POD}", *snapshot, *AT]) == 0
    finally:
        asyncio.run(pause(NOW))
    out = capsys.readouterr().out
    assert "pause of" not in out
    assert "max(0, peak 200m − base 50m) = 150m" in out
    assert "5m ago  resize  skipped" in out


def test_the_document_has_the_history(capsys, snapshot):
    assert main(["explain", f"shop/{POD}", *snapshot, *AT, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["history"]["outcomes"][0]["reason"] == "waiting-for-capacity"
    assert document["history"]["oomKills"][0]["memoryLimitBytes"] == 256 << 20
    assert main(["explain", f"shop/{POD}", *AT, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["statistics"][0]["cpuBaseMillicores"] == 50


def test_a_pod_that_the_database_does_not_know_is_rejected(capsys):
    assert main(["explain", "shop/stranger", *AT]) == 2
    assert capsys.readouterr().err == ("cruise: the database has no pod shop/stranger; add --snapshot to explain why\n")
