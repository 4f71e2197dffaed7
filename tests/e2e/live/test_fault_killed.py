"""cruise killed with a write under way: nothing is forgotten, and no budget is spent twice."""

import asyncio
import time
from pathlib import Path

import asyncpg

from tests.controlplane.api import until
from tests.e2e.live.faults import ApiServerProxy
from tests.e2e.live.stage import Stage
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES
from tests.e2e.live.test_scene_evictions import LARGE, crowded, evicted

APPS = ("one", "two", "three", "four", "five", "six")
FULL = {**FAST, "max_evictions_per_hour": "2"}


def rows(database_url: str, query: str) -> list[asyncpg.Record]:
    async def read() -> list[asyncpg.Record]:
        connection = await asyncpg.connect(database_url)
        try:
            return list(await connection.fetch(query))
        finally:
            await connection.close()

    return asyncio.run(read())


def test_an_eviction_whose_process_is_killed_is_on_record_and_counts_against_the_hour(stage: Stage):
    """The judge is the API server's audit log: each round kills cruise right after its eviction was done."""
    crowded(stage, "a", *APPS)
    stage.running(len(APPS))
    for number in range(3):
        stage.node(f"spare-{number}", cpu="2", labels={"crowd": "a"})
    stage.measure(dict.fromkeys(APPS, LARGE))
    stage.mark()
    database = stage.settings("full")["database_url"]
    for round_ in (1, 2):
        with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
            kubeconfig = proxy.kubeconfig(Path(stage.settings("full")["kubeconfig"]))
            proxy.unanswered = "/eviction"
            with stage.serving("full", kubeconfig=str(kubeconfig), **FULL) as serving:
                until(lambda: proxy.lost, "an eviction is done of which nobody gets the answer", seconds=120)
                serving.kill()
            proxy.released.set()
        assert len(evicted(stage)) == round_
        # Its row was there before it was sent.
        assert len(rows(database, "SELECT 1 FROM intent WHERE kind = 'evict'")) == 1
    with stage.serving("full", **FULL):
        until(lambda: not rows(database, "SELECT 1 FROM intent"), "what was left open was looked up", seconds=60)
        time.sleep(SEVERAL_PASSES)
    done = evicted(stage)
    assert [code for _, code in done] == [201, 201]
    audited = rows(database, "SELECT pod, verdict FROM outcome WHERE kind = 'evict' AND verdict = 'done' ORDER BY at")
    assert [(row["pod"], row["verdict"]) for row in audited] == [(name, "done") for name, _ in done]
