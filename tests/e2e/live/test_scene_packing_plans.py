"""Random plans executed to the end on a real control plane."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.controlplane.api import SHORTEST_PAUSE, Json, wait_until
from tests.controlplane.manifests import budget
from tests.e2e.live import programs
from tests.e2e.live.forking import ForkedProcess, fork_process
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

CORES = 4000
SETTINGS = {"max_evictions_per_node": "9", "max_evictions_per_hour": "500"}


@dataclass(frozen=True)
class Cell:
    """Separate nodes with applications under budgets, and one pod that is pending until some of them have moved."""

    number: int
    nodes: tuple[str, ...]
    apps: tuple[str, ...]

    @property
    def big(self) -> str:
        """The application that waits."""
        return f"big{self.number}"


def living(stage: LiveStage, name: str) -> list[Json]:
    return [one for one in stage.pods(name) if not one["metadata"].get("deletionTimestamp")]


def node_of(pod: Json) -> str | None:
    found: str | None = pod["spec"].get("nodeName")
    return found


def workload(stage: LiveStage, cell: int, name: str, millicores: int, replicas: int) -> Json:
    selector = {"cell": f"{stage.namespace}-{cell}"}
    return app("Deployment", stage.namespace, name, f"{millicores}m", "64Mi", replicas=replicas, nodeSelector=selector)


def built(stage: LiveStage, number: int, draw: random.Random) -> tuple[Cell, int]:
    """A cell, and the requests of a pod that fits there once one or two others have moved, and not before."""
    while True:
        labels = {"cell": f"{stage.namespace}-{number}"}
        count = draw.choice((2, 3, 3))
        nodes = tuple(stage.node(f"{number}-{node}", cpu="4", labels=labels) for node in range(count))
        names = tuple(f"app{number}-{at}" for at in range(draw.choice((2, 3))))
        replicas = [draw.choice((2, 2, 3)) for _ in names]
        for name, many in zip(names, replicas, strict=True):
            stage.create(workload(stage, number, name, draw.randrange(300, 1100, 50), many))
            stage.create(budget(stage.namespace, name, name, min_available=many - 1))
        cell = Cell(number, nodes, names)
        for name, many in zip(names, replicas, strict=True):
            stage.running(many, name)
        size = needed(stage, cell, draw)
        if size is not None:
            for name in names:
                _budgeted(stage, name)
            return cell, size
        cleared(stage, cell)


def _budgeted(stage: LiveStage, name: str) -> None:
    def look() -> Any:
        return stage.admin.read("poddisruptionbudgets.policy", stage.namespace, name)["status"].get(
            "disruptionsAllowed"
        )

    wait_until(look, f"the budget of {name} allows one")


def needed(stage: LiveStage, cell: Cell, draw: random.Random) -> int | None:
    """The size of a pod that fits on one of the nodes when one or two pods of it move, and on none before."""
    pods = [pod for name in cell.apps for pod in living(stage, name)]
    free = {node: CORES - sum(requests(pod).cpu for pod in pods if node_of(pod) == node) for node in cell.nodes}
    target = draw.choice(cell.nodes)
    others = {node: room for node, room in free.items() if node != target}
    size = free[target]
    gone: set[str] = set()
    for pod in (pod for pod in pods if node_of(pod) == target):
        owner = pod["metadata"]["labels"]["app"]
        place = next((node for node, room in others.items() if room >= requests(pod).cpu), None)
        # Each budget allows one.
        if place is not None and owner not in gone and len(gone) < 2:
            others[place] -= requests(pod).cpu
            size += requests(pod).cpu
            gone.add(owner)
    return size if size > max(free.values()) else None


def cleared(stage: LiveStage, cell: Cell) -> None:
    """Take a cell away again."""
    for name in (*cell.apps, cell.big):
        for resource in ("deployments.apps", "poddisruptionbudgets.policy"):
            if any(one["metadata"]["name"] == name for one in stage.admin.items(resource, stage.namespace)):
                stage.admin.delete(resource, stage.namespace, name)
    wait_until(lambda: not any(stage.pods(name) for name in (*cell.apps, cell.big)), "the cell is empty")
    for node in cell.nodes:
        if any(one["metadata"]["name"] == node for one in stage.admin.items("nodes")):
            stage.kubelet.remove_node(node)


def evictions(stage: LiveStage) -> list[int]:
    """The responses to all evictions that cruise requested."""
    return [code for _, resource, _, code in stage.deeds() if resource == "pods/eviction"]


def begun(stage: LiveStage, directory: Any, settings: dict[str, str]) -> ForkedProcess:
    """A `cruise serve --once` in the middle of a plan: it has evicted a pod."""
    before = len(evictions(stage))
    said = directory / "said"
    with said.open("wb") as out:
        arguments = ["serve", "--once", "--format", "json"]
        process = fork_process(arguments, programs.environment(settings, directory), out, out)
    # A plan of one move is soon over.
    wait_until(
        lambda: len(evictions(stage)) > before or process.poll() is not None,
        "somebody is evicted",
        seconds=180,
        longest_pause=SHORTEST_PAUSE,
    )
    assert process.poll() is None, f"it ended before anybody was evicted: {said.read_text()[-3000:]}"
    return process


@pytest.mark.timeout(900)
def test_plans_are_carried_out_though_cruise_is_killed_and_a_node_vanishes(
    stage: LiveStage, tmp_path, warm_solver: bool, run_long: bool
):
    assert warm_solver
    rounds = 20 if run_long else 4
    killed, vanished = rounds // 3, rounds * 2 // 3
    draw = random.Random(20)
    stage.measure({"nobody": ContainerUse(cores=0.1, mebibytes=10)})
    stage.mark()
    finished, elsewhere = 0, 0
    # While one cell is packed the next one is built, without the pod that is to wait there.
    with stage.reviewing("full"), ThreadPoolExecutor(1) as aside:
        coming = aside.submit(built, stage, 0, draw)
        for number in range(rounds):
            cell, size = coming.result()
            stage.create(workload(stage, number, cell.big, size, 1))
            stage.pending(cell.big)
            if number + 1 < rounds:
                coming = aside.submit(built, stage, number + 1, draw)
            if number == killed:
                begun(stage, tmp_path, stage.settings("full", **SETTINGS)).kill()
                many = len(evictions(stage))
            elif number == vanished:
                process = begun(stage, tmp_path, stage.settings("full", **SETTINGS))
                stage.kubelet.remove_node(cell.nodes[0])
                assert process.wait(180) == 0
                aside.submit(cleared, stage, cell)
                continue
            said = stage.once("full", **SETTINGS)["packing"]
            assert said is not None and said["plan"] is not None, (number, said)
            plan = said["plan"]
            assert plan["phase"] == "finished", (number, plan)
            if number == killed:
                # The one that was begun was brought to its end: what it had evicted is not evicted again.
                assert len(evictions(stage)) - many < len(plan["moves"])
            [big] = living(stage, cell.big)
            assert node_of(big) is not None, (number, plan)
            finished += 1
            elsewhere += node_of(big) != plan["placed"][0]["node"]
            aside.submit(cleared, stage, cell)
    assert finished == rounds - 1
    # An exhausted budget is waited for, without requests.
    assert set(evictions(stage)) == {201}
    # No pod was deleted or bound except by the responsible components; the webhook keeps its own configuration.
    touched = {(verb, resource) for verb, resource, *_ in stage.deeds()}
    assert touched == {("create", "pods/eviction"), ("patch", "mutatingwebhookconfigurations")}
    assert elsewhere <= 1
