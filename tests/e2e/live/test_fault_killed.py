"""cruise is killed during a write: no write is forgotten, and no budget is spent twice."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import asyncpg
import pytest

from tests.controlplane.api import wait_until
from tests.e2e.live.faults import ApiServerProxy
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES
from tests.e2e.live.test_scene_evictions import LARGE, crowded, evicted
from tests.e2e.live.usage import ContainerUse
from tests.e2e.serve_scene import started
from tests.tiers import Seeds

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


def test_an_eviction_whose_process_is_killed_is_on_record_and_counts_against_the_hour(stage: LiveStage):
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
                wait_until(lambda: proxy.lost, "an eviction is done of which nobody gets the answer")
                serving.kill()
            proxy.released.set()
        assert len(evicted(stage)) == round_
        # Its row was there before it was sent.
        assert len(rows(database, "SELECT 1 FROM intent WHERE kind = 'evict'")) == 1
    with stage.serving("full", **FULL):
        wait_until(lambda: not rows(database, "SELECT 1 FROM intent"), "what was left open was looked up")
        time.sleep(SEVERAL_PASSES)
    done = evicted(stage)
    assert [code for _, code in done] == [201, 201]
    audited = rows(database, "SELECT pod, result FROM audit WHERE kind = 'evict' AND result = 'done' ORDER BY at")
    assert [(row["pod"], row["result"]) for row in audited] == [(name, "done") for name, _ in done]


PLACES = ("one", "two", "three")
EVICTIONS = 5


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_killed_at_random_moments_no_write_is_without_its_row_and_no_budget_is_passed(
    stage: LiveStage, tmp_path: Path, seeds: Seeds
):
    """kill -9 again and again while resizes, evictions and a packing plan are under way; the audit log is the judge."""
    staged_for_kills(stage)
    database = stage.settings("full")["database_url"]
    told = stage.settings("full", **KILLED)
    open_at_kills = []
    for seed in seeds(30, fewest=3):
        killed_at(stage, told, tmp_path, random.Random(seed), is_writing=bool(seed % 2))
        # What was sent before may be done a moment later.
        time.sleep(1)
        written, recorded, begun = writes_by_pod(stage), rows_by_pod(database), intents_by_pod(database)
        assert {key: count for key, count in (written - recorded - begun).items() if count > 0} == {}
        assert sum(count for (kind, _), count in written.items() if kind == "evict") <= EVICTIONS
        open_at_kills.append(sum(begun.values()))
        renew(stage, seed)
    with stage.serving("full", **KILLED):
        wait_until(lambda: not rows(database, "SELECT 1 FROM intent"), "what was left open was looked up")
        time.sleep(SEVERAL_PASSES)
    written, recorded, done = writes_by_pod(stage), rows_by_pod(database), rows_by_pod(database, "done")
    print(
        f"kills: {len(open_at_kills)}, intents open at each: {open_at_kills}, writes: {sum(written.values())}, "
        f"of these evictions: {sum(count for (kind, _), count in written.items() if kind == 'evict')}"
    )
    assert written - recorded == Counter()
    assert done - written == Counter()
    assert sum(count for (kind, _), count in written.items() if kind == "evict") <= EVICTIONS
    assert any(open_at_kills), "no kill met a write under way"


def killed_at(
    stage: LiveStage, told: Mapping[str, str], directory: Path, moment: random.Random, *, is_writing: bool
) -> None:
    """Run cruise and kill it: at any moment after it began to lead, or soon after its first write, if there is any."""
    before = len(stage.deeds())
    with started(told, directory) as running:
        wait_until(lambda: '"leading"' in running.log, "it leads", longest_pause=0.05)
        if is_writing:
            with suppress(AssertionError):
                wait_until(lambda: len(stage.deeds()) > before, "it writes", 20, longest_pause=0.05)
        time.sleep(moment.uniform(0, 2 if is_writing else 9))
        running.kill()


# A plan of some twenty writes takes two seconds.
KILLED = {
    **FAST,
    "lease_duration": "4s",
    "kube_requests_per_second": "10",
    "kube_burst": "10",
    "max_evictions_per_hour": str(EVICTIONS),
}


def staged_for_kills(stage: LiveStage) -> None:
    """A workload whose pods request too much, and nodes whose pods use more than the capacity."""
    large = stage.node("large", cpu="32", memory="64Gi")
    stage.create(app("Deployment", stage.namespace, "web", "300m", "512Mi", replicas=24, node=large))
    for place in PLACES:
        crowded(stage, place, *(f"{place}-{number}" for number in range(4)))
        for number in range(2):
            stage.node(f"{place}-spare-{number}", cpu="2", labels={"crowd": place})
    stage.running(24 + 4 * len(PLACES))
    large_ones = {f"{place}-{number}": LARGE for place in PLACES for number in range(4)}
    stage.measure({"web": ContainerUse(cores=0.05, mebibytes=60), **large_ones})
    stage.mark()


def renew(stage: LiveStage, seed: int) -> None:
    """Replace most pods that were sized: their successors request too much again."""
    pods = [pod["metadata"]["name"] for pod in stage.pods("web")]
    for name in random.Random(seed).sample(pods, 20):
        stage.admin.delete("pods", stage.namespace, name, grace=0)
    stage.running(24, "web")


def writes_by_pod(stage: LiveStage) -> Counter[tuple[str, str]]:
    """How often each pod was resized and evicted, by the API server's audit log."""
    kinds = {"pods/resize": "resize", "pods/eviction": "evict"}
    return Counter(
        (kinds[resource], target.partition("/")[2])
        for _, resource, target, code in stage.deeds()
        if resource in kinds and code < 300
    )


def rows_by_pod(database: str, *verdicts: str) -> Counter[tuple[str, str]]:
    """How many lines the audit has of writes to each pod that were done, or whose answer was not seen."""
    wanted = ", ".join(f"'{one}'" for one in verdicts or ("done", "failed"))
    found = rows(database, f"SELECT kind, pod, occurrences FROM audit WHERE pod IS NOT NULL AND result IN ({wanted})")
    return Counter([(row["kind"], row["pod"]) for row in found for _ in range(row["occurrences"])])


def intents_by_pod(database: str) -> Counter[tuple[str, str]]:
    found = rows(database, "SELECT kind, pod FROM intent WHERE pod IS NOT NULL")
    return Counter((row["kind"], row["pod"]) for row in found)
