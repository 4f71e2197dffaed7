"""An older copy of the database takes over while cruise is stopped: lost records harm no pod."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.api import wait_until
from tests.e2e.live.faults import PrometheusProxy
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage, database_of
from tests.e2e.live.test_fault_killed import FULL, rows
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES
from tests.e2e.live.test_scene_evictions import LARGE, crowded, evicted
from tests.e2e.live.usage import ContainerUse

QUIET, BUSY = ContainerUse(cores=0.05, mebibytes=100), ContainerUse(cores=0.05, mebibytes=400)
# Pods whose names end like those of a StatefulSet.
PARTITION = "[bcd0]"


@pytest.fixture
def proxy(stage: LiveStage) -> Iterator[PrometheusProxy]:
    # A separate node keeps headroom for no other peak.
    node = stage.node(cpu="8", memory="16Gi")
    stage.create(app("StatefulSet", stage.namespace, "db", "300m", "512Mi", node=node))
    stage.running(1)
    with PrometheusProxy(stage.measure({"db": QUIET})) as proxy:
        yield proxy


def copied(stage: LiveStage, server: Path) -> str:
    """A copy of the scene's database as it is now, without connections."""
    [name] = re.findall(r"scene_\w+", stage.settings("resize")["database_url"])
    return database_of(server, name)


def memory(stage: LiveStage) -> int:
    return requests(stage.pod("db")).memory


def figure(serving: RunningProgram, name: str) -> float:
    """A metric without labels, -1 where it is not shown."""
    found = re.findall(rf"^{name} (\S+)$", serving.get("/metrics")[1], re.MULTILINE)
    return float(found[0]) if found else -1


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_peaks_that_an_older_database_never_had_are_read_again_and_nothing_is_cut_meanwhile(
    stage: LiveStage, proxy: PrometheusProxy, embedded_postgres: Path
):
    told = {"prometheus_url": proxy.address, "headroom": "shared-max", **FAST}
    with stage.serving("observe", **told):
        pass
    backup = copied(stage, embedded_postgres)
    with stage.serving(**told) as serving:
        wait_until(lambda: memory(stage) < 200, "it is sized")
        stage.usage.change("db-0", "app", BUSY)
        wait_until(lambda: memory(stage) >= 400, "it has grown")
        epoch = figure(serving, "cruise_database_epoch")
        stage.usage.change("db-0", "app", QUIET)
    # From here on only Prometheus has the peak, and it does not return it.
    proxy.refused = PARTITION
    stage.mark()
    with stage.serving(database_url=backup, **told) as serving:
        wait_until(lambda: figure(serving, "cruise_history_incomplete") == 1, "it knows that something is missing")
        assert figure(serving, "cruise_database_epoch") > epoch
        time.sleep(3 * SEVERAL_PASSES)
        assert memory(stage) >= 400
        assert stage.deeds() == []
        proxy.refused = ""
        began = time.monotonic()
        wait_until(lambda: figure(serving, "cruise_history_incomplete") == 0, "all is read again")
        print(f"all was read again {time.monotonic() - began:.1f} s after Prometheus answered")
        time.sleep(2 * SEVERAL_PASSES)
        assert memory(stage) >= 400
        # This database has no record of the first resize: cruise's own size is not an original size.
        sizes = [json.loads(row["containers"]) for row in rows(backup, "SELECT containers FROM original_size")]
    assert all(one["requests"]["memory_bytes"] == 512 * 2**20 for [one] in sizes)


def test_evictions_that_an_older_database_never_had_count_against_the_hour(stage: LiveStage, embedded_postgres: Path):
    """The judge is the API server's audit log."""
    apps = ("one", "two", "three", "four", "five", "six")
    crowded(stage, "a", *apps)
    stage.running(len(apps))
    for number in range(3):
        stage.node(f"spare-{number}", cpu="2", labels={"crowd": "a"})
    stage.measure(dict.fromkeys(apps, LARGE))
    with stage.serving("observe", **FULL):
        pass
    backup = copied(stage, embedded_postgres)
    stage.mark()
    with stage.serving("full", **FULL):
        wait_until(lambda: len(evicted(stage)) == 2, "the hour's budget is spent")
    with stage.serving("full", database_url=backup, **FULL) as serving:
        wait_until(lambda: figure(serving, "cruise_history_incomplete") == 0, "all is read again")
        wait_until(lambda: "history-incomplete" in serving.get("/metrics")[1], "evictions are held")
        time.sleep(SEVERAL_PASSES)
    assert len(evicted(stage)) == 2
