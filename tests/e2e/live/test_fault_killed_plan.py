"""cruise is killed during packing plans: no step is lost or repeated, and every plan finishes."""

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.controlplane.api import SHORTEST_PAUSE, wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.test_fault_killed import intents_by_pod, rows, rows_by_pod, writes_by_pod
from tests.e2e.live.test_scene_packing_budgets import Scene, set_up, waiting
from tests.e2e.live.usage import ContainerUse
from tests.e2e.serve_scene import started
from tests.tiers import Seeds

# Pods that have to move in each plan, one after the other.
MOVES, CPU_MILLICORES = 3, 800
KILLS = 30
# The next leader may continue a plan for as long as a pass interval.
INTERVAL_SECONDS = 40
FINISHED = "SELECT id FROM packing_plan WHERE phase = 'finished'"
UNDER_WAY = "SELECT id FROM packing_plan WHERE phase = 'in-progress'"


def settings(evictions: int) -> dict[str, str]:
    """The budgets of node and workload are those of one plan."""
    return {
        "pass_interval": f"{INTERVAL_SECONDS}s",
        "lease_duration": "4s",
        "max_evictions_per_node": str(MOVES),
        "max_evictions_per_workload": str(MOVES),
        "max_evictions_per_hour": str(evictions),
    }


def built(stage: LiveStage, number: int) -> Scene:
    """Pods that fill a node, an empty one, and a pod that fits nowhere until all of them have moved."""
    scene = Scene(number, MOVES, CPU_MILLICORES, together=True, bound="max_evictions_per_node", allowed=MOVES)
    full, _ = set_up(stage, scene)
    size = f"{MOVES * CPU_MILLICORES}m"
    stage.create(app("Deployment", stage.namespace, scene.late, size, "64Mi", replicas=1, node=full))
    waiting(stage, scene, 1)
    return scene


@contextmanager
def building(stage: LiveStage) -> Iterator[Iterator[Future[Scene]]]:
    """Build the next scene while cruise works on the one before."""
    with ThreadPoolExecutor(1) as aside:
        yield (aside.submit(built, stage, number) for number in range(10 * KILLS))


def evicted(stage: LiveStage) -> Counter[tuple[str, str]]:
    return Counter({key: count for key, count in writes_by_pod(stage).items() if key[0] == "evict"})


def judge(stage: LiveStage, database: str, most: int) -> int:
    """Compare the API server's audit log with the database; return how many intents are open."""
    # Read before the rows, as what is under way may be recorded meanwhile.
    written, begun, recorded = writes_by_pod(stage), intents_by_pod(database), rows_by_pod(database)
    assert {key: count for key, count in (written - recorded - begun).items() if count > 0} == {}
    gone = evicted(stage)
    assert set(gone.values()) <= {1}, "a pod was evicted twice"
    assert gone.total() <= most, "the hour's budget was passed"
    # The pods of an app are all on one node and have one owner.
    by_app = Counter(pod.rsplit("-", 2)[0] for _, pod in gone)
    assert max(by_app.values(), default=0) <= MOVES, "the budget of a node and of a workload was passed"
    return sum(begun.values())


@pytest.mark.long
@pytest.mark.timeout(5400)
@pytest.mark.usefixtures("warm_solver")
def test_killed_in_the_middle_of_packing_plans(stage: LiveStage, tmp_path: Path, seeds: Seeds):
    moments = [random.Random(seed) for seed in seeds(KILLS, fewest=3)]
    most = MOVES * len(moments)
    stage.measure({"nobody": ContainerUse(cores=0.1, mebibytes=10)})
    stage.mark()
    told = stage.settings("full", **settings(most))
    database = told["database_url"]
    open_at_kills, plans_at_kills = list[int](), list[str]()
    with stage.reviewing("full"), building(stage) as scenes:
        coming = next(scenes)
        for number, moment in enumerate(moments):
            if not rows(database, UNDER_WAY):
                coming.result()
                coming = next(scenes)
            plans_at_kills += killed_in_a_plan(stage, told, tmp_path, moment, is_writing=bool(number % 2))
            # What was sent before may be done a moment later.
            time.sleep(1)
            open_at_kills.append(judge(stage, database, most))
        coming.result()
        # A running leader continues the unfinished plan, and the next plan finishes.
        with started(told, tmp_path):
            wait_until(lambda: rows(database, FINISHED), "a plan is finished", seconds=300)
        # The last leader finds the hour's budget spent by all that was done until now, and waits in vain.
        most = evicted(stage).total()
        with started({**told, **settings(most)}, tmp_path):
            wait_until(lambda: not rows(database, UNDER_WAY), "every plan has ended")
            wait_until(lambda: not rows(database, "SELECT 1 FROM intent"), "no write is without an outcome")
            time.sleep(2 * INTERVAL_SECONDS)
    judge(stage, database, most)
    done = rows_by_pod(database, "done")
    assert done - writes_by_pod(stage) == Counter()
    phases = Counter(row["phase"] for row in rows(database, "SELECT phase FROM packing_plan"))
    print(
        f"{len(moments)} kills in {len(set(plans_at_kills))} plans, intents open at each: {open_at_kills}; "
        f"{evicted(stage).total()} evictions of {most}; plans: {dict(phases)}"
    )
    assert phases.keys() <= {"finished", "dropped", "advisory"}


def killed_in_a_plan(
    stage: LiveStage, told: Mapping[str, str], directory: Path, moment: random.Random, *, is_writing: bool
) -> list[str]:
    """Run cruise until a plan is in progress, and kill it at any moment of the next seconds, or right after a write."""
    with started(told, directory) as running:
        wait_until(
            lambda: '"leading"' in running.log and rows(told["database_url"], UNDER_WAY),
            "a plan is in progress",
            seconds=180,
            longest_pause=SHORTEST_PAUSE,
        )
        found = [row["id"] for row in rows(told["database_url"], UNDER_WAY)]
        before = len(stage.deeds())
        if is_writing:
            with suppress(AssertionError):
                wait_until(lambda: len(stage.deeds()) > before, "it writes", 15, longest_pause=SHORTEST_PAUSE)
        time.sleep(moment.uniform(0, 0.1 if is_writing else 8))
        running.kill()
    return found
