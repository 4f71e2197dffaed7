"""Plans that need one to five evictions from one node, each within its budgets."""

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.controlplane.api import Json, conditions, wait_until
from tests.controlplane.manifests import budget
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

BUDGETS = ("max_evictions_per_node", "max_evictions_per_workload")
PLANS = 50


@dataclass(frozen=True)
class Scene:
    """`count` pods fill a node, and all have to go elsewhere for what waits: as many pods as large, or one.

    In one round `allowed` of them may be evicted, by `bound`: one of cruise's budgets, or a PodDisruptionBudget.
    """

    number: int
    count: int
    millicores: int
    together: bool
    bound: str
    allowed: int

    @property
    def small(self) -> str:
        """The application that is evicted."""
        return f"small{self.number}"

    @property
    def late(self) -> str:
        """The application that waits."""
        return f"late{self.number}"

    @property
    def goes(self) -> int:
        """In how many plans all of it is done."""
        return -(-self.count // self.allowed)


def drawn(number: int, draw: random.Random) -> Scene:
    """A scene in which what waits can be placed, at once or pod by pod."""
    count, together = draw.randint(1, 5), draw.random() < 0.5
    allowed = count if together else draw.randint(1, count)
    return Scene(number, count, draw.randrange(400, 1000, 50), together, draw.choice((*BUDGETS, "pdb")), allowed)


def set_up(stage: LiveStage, scene: Scene) -> tuple[str, str]:
    """The full node, and the one with capacity for the evicted pods; nothing is pending yet."""
    labels, size = {"cell": f"{stage.namespace}-{scene.number}"}, f"{scene.millicores}m"
    cpu = f"{scene.count * scene.millicores}m"
    full = stage.node(f"{scene.number}-full", cpu=cpu, labels=labels)
    small = app(
        "Deployment", stage.namespace, scene.small, size, "64Mi", replicas=scene.count, nodeSelector=dict(labels)
    )
    stage.create(small)
    if scene.bound == "pdb":
        stage.create(budget(stage.namespace, scene.small, scene.small, min_available=scene.count - scene.allowed))
    stage.running(scene.count, scene.small)
    return full, stage.node(f"{scene.number}-free", cpu=cpu, labels=labels)


def wait_for_budgets(stage: LiveStage, scene: Scene) -> None:
    """Wait until every moved pod is ready again, and its PodDisruptionBudget counts it."""
    stage.running(scene.count, scene.small)
    if scene.bound == "pdb":
        wait_until(
            lambda: (
                stage.admin.read("poddisruptionbudgets.policy", stage.namespace, scene.small)["status"].get(
                    "disruptionsAllowed"
                )
                == scene.allowed
            ),
            f"the budget of {scene.small} allows {scene.allowed}",
        )


def waiting(stage: LiveStage, scene: Scene, many: int) -> None:
    """Until so many pods cannot be scheduled."""

    def look() -> bool:
        told = [conditions(one).get("PodScheduled", {}).get("reason") for one in stage.pods(scene.late)]
        return told.count("Unschedulable") == many

    wait_until(look, f"{many} of {scene.late} cannot be scheduled")


def cleared(stage: LiveStage, scene: Scene, nodes: tuple[str, str]) -> None:
    """Take a scene away again."""
    for name in (scene.small, scene.late):
        stage.admin.delete("deployments.apps", stage.namespace, name)
    if scene.bound == "pdb":
        stage.admin.delete("poddisruptionbudgets.policy", stage.namespace, scene.small)
    wait_until(lambda: not stage.pods(scene.small) and not stage.pods(scene.late), "the cell is empty")
    for node in nodes:
        stage.kubelet.remove_node(node)


def settings(scene: Scene) -> dict[str, str]:
    """One budget binds, the others do not."""
    allowed = {name: str(scene.allowed if name == scene.bound else 9) for name in BUDGETS}
    return {**allowed, "max_evictions_per_hour": "500", "packing_time_limit": "60s"}


def carried_out(stage: LiveStage, scene: Scene, full: str) -> int:
    """Pack until nothing waits, and judge each plan by what the one before promised; returns how many there were."""
    promised: list[Json] | None = None
    late, plans = 1 if scene.together else scene.count, 0
    while True:
        stage.mark()
        said = stage.once("full", **settings(scene))["packing"]
        plan = said and said["plan"]
        assert plan and (plan["phase"], plan["detail"]) == ("finished", ""), (scene, said)
        plans += 1
        evicted = [
            (one.target, one.code) for one in stage.events() if (one.verb, one.resource) == ("create", "pods/eviction")
        ]
        # Each pod that the plan names is evicted once, and the pending pods are bound in their places.
        assert sorted(evicted) == sorted((f"{one['namespace']}/{one['pod']}", 201) for one in plan["moves"]), scene
        assert {one["from"] for one in plan["moves"]} == {full}, (scene, plan)
        placed = len(plan["placed"])
        assert placed == (1 if scene.together else len(evicted)), (scene, plan)
        late -= placed
        # Of equal pending pods kube-scheduler may take any.
        bound = [one["spec"].get("nodeName") for one in stage.pods(scene.late)]
        assert (bound.count(None), set(bound) - {None}) == (late, {full}), (scene, bound)
        goes = [] if plan["remainingRounds"] is None else plan["remainingRounds"]["rounds"]
        if promised is not None:
            assert (promised[0]["placed"], promised[0]["evictions"]) == (placed, len(evicted)), (scene, plan)
            assert goes == promised[1:], (scene, plan)
        if not goes:
            assert late == 0, (scene, plan)
            return plans
        promised = goes
        wait_for_budgets(stage, scene)


@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("warm_solver")
def test_every_plan_is_finished_in_the_rounds_that_it_states(stage: LiveStage, run_long: bool):
    draw = random.Random(16)
    first = [Scene(0, 3, 800, together=False, bound=BUDGETS[0], allowed=2)]
    plans = wanted = 0
    stage.measure({"nobody": ContainerUse(cores=0.1, mebibytes=10)})
    with stage.reviewing("full"), ThreadPoolExecutor(1) as aside:
        while plans < (PLANS if run_long else 2):
            scene = first.pop() if first else drawn(wanted, draw)
            nodes = set_up(stage, scene)
            wait_for_budgets(stage, scene)
            size = scene.millicores * (scene.count if scene.together else 1)
            many = 1 if scene.together else scene.count
            stage.create(
                app("Deployment", stage.namespace, scene.late, f"{size}m", "64Mi", replicas=many, node=nodes[0])
            )
            waiting(stage, scene, many)
            done = carried_out(stage, scene, nodes[0])
            assert done == scene.goes, scene
            plans, wanted = plans + done, wanted + 1
            print(f"{scene}: {done} plans, {plans} in all")
            aside.submit(cleared, stage, scene, nodes)
