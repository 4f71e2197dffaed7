"""Postgres gone or slow: no write that could not be recorded, nothing twice, and all goes on by itself."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.controlplane.api import until
from tests.e2e.live.faults import SocketProxy, proxied_database
from tests.e2e.live.stage import Stage
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES, scale, shrunk, staged


@pytest.fixture
def database(stage: Stage) -> Iterator[tuple[str, SocketProxy]]:
    staged(stage)
    with proxied_database(stage.settings("resize")["database_url"]) as (url, proxy):
        yield url, proxy


def test_without_the_database_nothing_is_written_and_afterwards_the_rest_is(
    stage: Stage, database: tuple[str, SocketProxy]
):
    url, proxy = database
    with stage.serving(database_url=url, **FAST) as serving:
        until(lambda: shrunk(stage) == 1, "the first pod is sized")
        proxy.gone = True
        until(lambda: serving.get("/readyz")[0] == 503, "it is told that it is not ready")
        stage.mark()
        scale(stage, 3)
        time.sleep(SEVERAL_PASSES)
        assert stage.deeds() == []
        assert serving.get("/healthz")[0] == 200
        proxy.gone = False
        until(lambda: shrunk(stage) == 3, "the others are sized by themselves", seconds=90)
        until(serving.ready, "it is ready again")
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}


def test_a_slow_database_makes_passes_late_and_a_very_slow_one_stops_writes(
    stage: Stage, database: tuple[str, SocketProxy]
):
    url, proxy = database
    with stage.serving(database_url=url, **FAST):
        until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        proxy.delay_seconds = 0.1
        scale(stage, 2)
        until(lambda: shrunk(stage) == 2, "the second is sized", seconds=120)
        # Whether somebody has paused cruise cannot be known in time any more.
        proxy.delay_seconds = 2.0
        time.sleep(SEVERAL_PASSES)
        scale(stage, 3)
        time.sleep(SEVERAL_PASSES)
        assert shrunk(stage) == 2
        proxy.delay_seconds = 0
        until(lambda: shrunk(stage) == 3, "the third is sized by itself", seconds=120)
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) == {1}
