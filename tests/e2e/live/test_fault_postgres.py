"""Postgres is down or slow: no unrecorded write, none repeated, and cruise recovers."""

import json
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.controlplane.api import wait_until
from tests.e2e import serve_scene
from tests.e2e.live.faults import SocketProxy, proxied_database
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_fault_killed import intents_by_pod, rows, rows_by_pod, writes_by_pod
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES, scale, shrunk, staged
from tests.postgres_servers import change, dsn_below, open_directory


@pytest.fixture
def database(stage: LiveStage) -> Iterator[tuple[str, SocketProxy]]:
    staged(stage)
    with proxied_database(stage.settings("resize")["database_url"]) as (url, proxy):
        yield url, proxy


def test_without_the_database_nothing_is_written_and_afterwards_the_rest_is(
    stage: LiveStage, database: tuple[str, SocketProxy]
):
    url, proxy = database
    with stage.serving(database_url=url, **FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        proxy.gone = True
        wait_until(lambda: serving.get("/readyz")[0] == 503, "it is told that it is not ready")
        stage.mark()
        scale(stage, 3)
        time.sleep(SEVERAL_PASSES)
        assert stage.deeds() == []
        assert serving.get("/healthz")[0] == 200
        proxy.gone = False
        wait_until(lambda: shrunk(stage) == 3, "the others are sized by themselves")
        wait_until(serving.ready, "it is ready again")
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}


def test_a_slow_database_makes_passes_late_and_a_very_slow_one_stops_writes(
    stage: LiveStage, database: tuple[str, SocketProxy]
):
    url, proxy = database
    with stage.serving(database_url=url, **FAST):
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        proxy.delay_seconds = 0.1
        scale(stage, 2)
        wait_until(lambda: shrunk(stage) == 2, "the second is sized")
        # Whether cruise is paused can no longer be read in time.
        proxy.delay_seconds = 2.0
        time.sleep(SEVERAL_PASSES)
        scale(stage, 3)
        time.sleep(SEVERAL_PASSES)
        assert shrunk(stage) == 2
        proxy.delay_seconds = 0
        wait_until(lambda: shrunk(stage) == 3, "the third is sized by itself")
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}


def test_passes_continue_after_an_unannounced_failover(stage: LiveStage, database: tuple[str, SocketProxy]):
    url, proxy = database
    with stage.serving(database_url=url, **FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        before, began = ended(serving), time.monotonic()
        # Every connection of the pool is dead from now on, and none is closed.
        proxy.fail_over()
        wait_until(lambda: all(ended(serving)[name] > count for name, count in before.items()), "each pass ends")
        print(f"every kind of pass ended {time.monotonic() - began:.1f} s after the failover")
        scale(stage, 2)
        wait_until(lambda: shrunk(stage) == 2, "the second is sized")
        wait_until(serving.ready, "it is ready again")
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}


def ended(serving: RunningProgram) -> dict[str, int]:
    """How many passes of each kind ended well; none where it cannot answer now."""
    code, body = serving.get("/api/v1/status")
    jobs = json.loads(body)["jobs"] if code == 200 else []
    kinds = ("statistics", "node pass", "node load")
    return {kind: sum(job["runs"] - job["failures"] for job in jobs if job["name"] == kind) for kind in kinds}


def test_a_leader_with_a_slow_database_writes_nothing_old_and_lets_another_lead(
    stage: LiveStage, database: tuple[str, SocketProxy], tmp_path: Path
):
    url, proxy = database
    with serve_scene.serving(stage, tmp_path, "slow", database_url=url, max_decision_age="5s") as slow:
        wait_until(lambda: slow.leads() and shrunk(stage) == 1, "the one with the slow database leads and sizes")
        with serve_scene.serving(stage, tmp_path, "sound") as sound:
            assert not sound.leads()
            stage.mark()
            # As with the fault that was seen: a quarter of a second for each round trip.
            proxy.delay_seconds = 0.25
            began = time.monotonic()
            scale(stage, 3)
            wait_until(lambda: "gave up the lead" in slow.running.get("/readyz")[1], "it says that it gave up")
            wait_until(sound.leads, "the other one leads")
            print(f"the other one leads {time.monotonic() - began:.1f} s after the database became slow")
            wait_until(lambda: shrunk(stage) == 3, "it sizes the others")
            print(f"all is sized {time.monotonic() - began:.1f} s after the database became slow")
            assert "cruise_leadership_released_total 1.0" in slow.running.get("/metrics")[1]
            assert serve_scene.list_user_actions(stage, slow) == []
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}


def test_a_leader_that_is_stopped_within_a_transaction_does_not_block_the_next(
    stage: LiveStage, database: tuple[str, SocketProxy], tmp_path: Path
):
    url, proxy = database
    server = stage.settings("resize")["database_url"]
    with serve_scene.serving(stage, tmp_path, "stopped", database_url=url) as leader:
        wait_until(lambda: leader.leads() and shrunk(stage) == 1, "the first one leads and sizes")
        with serve_scene.serving(stage, tmp_path, "next") as other:
            # Each answer takes so long that most of the time a transaction is open, and waits for its client.
            proxy.delay_seconds = 0.1
            wait_until(lambda: stop_with_lock(leader.running, server), "it is stopped with the row of the epoch locked")
            began = time.monotonic()
            stage.mark()
            wait_until(other.leads, "the other one leads")
            scale(stage, 3)
            wait_until(lambda: shrunk(stage) == 3, "the other one sizes the rest")
            print(f"all is sized {time.monotonic() - began:.1f} s after the stop")
            proxy.delay_seconds = 0
            leader.running.process.send_signal(signal.SIGCONT)
            wait_until(leader.running.ready, "the former leader is ready again")
            assert serve_scene.list_user_actions(stage, leader) == []


_HOLDS_EPOCH = """
SELECT 1 FROM pg_locks AS held JOIN pg_stat_activity AS client USING (pid)
WHERE held.relation = 'database_history'::regclass AND held.mode = 'RowExclusiveLock' AND held.granted
  AND client.state = 'idle in transaction'
"""


def stop_with_lock(program: RunningProgram, database_url: str) -> bool:
    """Stop a process; let it continue unless it left a transaction open that other writers wait for."""
    if not rows(database_url, _HOLDS_EPOCH):
        return False
    program.process.send_signal(signal.SIGSTOP)
    # What was on its way when it stopped has arrived.
    time.sleep(0.5)
    if rows(database_url, _HOLDS_EPOCH):
        return True
    program.process.send_signal(signal.SIGCONT)
    return False


@pytest.mark.long
@pytest.mark.parametrize("fault", ["read-only", "no connection left"])
def test_a_database_that_takes_no_writes_or_no_connections_holds_all_writes(
    stage: LiveStage, embedded_postgres: Path, fault: str
):
    staged(stage)
    # A limit does not hold for a superuser.
    url = stage.settings("resize")["database_url"]
    [name] = re.findall(r"scene_\w+", url)
    server = dsn_below(embedded_postgres)
    change(server, f"CREATE ROLE role_{name} LOGIN", f"ALTER DATABASE {name} OWNER TO role_{name}")
    own = url.replace("//postgres@", f"//role_{name}@")
    broken, mended = {
        "read-only": ("SET default_transaction_read_only = on", "RESET default_transaction_read_only"),
        "no connection left": ("CONNECTION LIMIT 0", "CONNECTION LIMIT -1"),
    }[fault]
    drop = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
    with stage.serving(database_url=own, **FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        change(server, f"ALTER DATABASE {name} {broken}", drop)
        stage.mark()
        scale(stage, 3)
        time.sleep(2 * SEVERAL_PASSES)
        assert stage.deeds() == []
        assert serving.get("/healthz")[0] == 200
        change(server, f"ALTER DATABASE {name} {mended}", drop)
        began = time.monotonic()
        wait_until(lambda: shrunk(stage) == 3, "the others are sized by themselves")
        print(f"{fault}: all sized {time.monotonic() - began:.1f} s after it was over")
        wait_until(serving.ready, "it is ready again")
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}


@pytest.fixture
def small_disk(embedded_postgres: Path) -> Iterator[Path]:
    """A file system of 24 MiB on which the embedded server may keep tables."""
    with open_directory() as directory:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", directory], check=False, capture_output=True
        )
        if mounted.returncode:
            pytest.skip("no file system can be mounted here (root alone may)")
        try:
            (directory / "tables").mkdir()
            shutil.chown(directory / "tables", (embedded_postgres / "postgres").stat().st_uid)
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", directory], check=True)


@pytest.mark.long
def test_a_full_disk_leaves_no_write_without_its_row(stage: LiveStage, embedded_postgres: Path, small_disk: Path):
    staged(stage)
    server, name = dsn_below(embedded_postgres), f"full_{secrets.token_hex(4)}"
    change(
        server,
        f"CREATE TABLESPACE {name} LOCATION '{small_disk / 'tables'}'",
        f"CREATE DATABASE {name} TABLESPACE {name}",
    )
    url = server.replace("/postgres?", f"/{name}?")
    try:
        with stage.serving(database_url=url, **FAST) as serving:
            wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
            filler = small_disk / "filler"
            with suppress(OSError), filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            wait_until(lambda: "could not extend" in serving.log, "the database finds its disk full")
            scale(stage, 3)
            time.sleep(2 * SEVERAL_PASSES)
            assert writes_by_pod(stage) - rows_by_pod(url) - intents_by_pod(url) == Counter()
            assert serving.get("/healthz")[0] == 200
            filler.unlink()
            began = time.monotonic()
            wait_until(serving.ready, "it is ready again")
            wait_until(lambda: shrunk(stage) == 3, "the others are sized by themselves")
            print(f"ready and all sized {time.monotonic() - began:.1f} s after there was room again")
        assert writes_by_pod(stage) - rows_by_pod(url) == Counter()
        assert set(writes_by_pod(stage).values()) == {1}
    finally:
        change(server, f"DROP DATABASE {name} WITH (FORCE)", f"DROP TABLESPACE {name}")
