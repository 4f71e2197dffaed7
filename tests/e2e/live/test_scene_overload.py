"""The overload taint is added and removed with hysteresis, and other taints are not changed."""

import json

from tests.controlplane.api import wait_until
from tests.e2e.live import programs
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

OWN = {"key": "cruise.io/overloaded", "value": "true", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/reserved", "value": "batch", "effect": "PreferNoSchedule"}
OFTEN = {"pass_interval": "1h", "max_age": "1h", "node_load_interval": "1s"}


def taints(stage: LiveStage, node: str) -> list[dict[str, str]]:
    """A node's taints, without when they were put on."""
    found = stage.admin.read("nodes", None, node)["spec"].get("taints") or []
    return [{key: one[key] for key in ("key", "value", "effect") if key in one} for one in found]


def test_a_node_is_tainted_while_it_is_overloaded(stage: LiveStage):
    busy, calm = stage.node("busy"), stage.node("calm")
    stage.admin.patch("nodes", None, busy, {"spec": {"taints": [FOREIGN]}}, kind="merge")
    stage.create(app("Deployment", stage.namespace, "web", "100m", "128Mi"))
    stage.running(1)
    stage.measure({"web": ContainerUse(cores=0.1, mebibytes=100)})
    stage.usage.loads.update({busy: 5.0, calm: 2.0})
    stage.mark()
    with stage.serving("full", **OFTEN) as serving:
        wait_until(lambda: OWN in taints(stage, busy), "the busy node is tainted")
        assert FOREIGN in taints(stage, busy)
        # Between the two thresholds nothing changes; four cores at 0.95.
        passes = seen(serving.get("/metrics")[1])
        stage.usage.loads[busy] = 3.8
        wait_until(lambda: seen(serving.get("/metrics")[1]) >= passes + 6, "more readings")
        assert OWN in taints(stage, busy)
        stage.usage.loads[busy] = 2.0
        wait_until(lambda: OWN not in taints(stage, busy), "the taint is gone")
        # Without readings nothing changes either.
        assert taints(stage, busy) == [FOREIGN]
        stage.usage.loads[busy] = 5.0
        wait_until(lambda: OWN in taints(stage, busy), "it is tainted again")
    # The process that ended has no successor.
    assert taints(stage, busy) == [FOREIGN]
    assert taints(stage, calm) == []
    written = [(resource, target, code) for _, resource, target, code in stage.deeds() if resource == "nodes"]
    assert written == [("nodes", busy, 200)] * 4


def test_mode_resize_taints_nothing(stage: LiveStage):
    busy = stage.node("busy")
    stage.create(app("Deployment", stage.namespace, "web", "100m", "128Mi"))
    stage.running(1)
    stage.measure({"web": ContainerUse(cores=0.1, mebibytes=100)})
    stage.usage.loads[busy] = 9.0
    with stage.serving("resize", **OFTEN) as serving:
        wait_until(lambda: seen(serving.get("/metrics")[1]) >= 4, "several readings")
        assert taints(stage, busy) == []


def test_few_nodes_are_tainted_and_every_taint_is_removed(stage: LiveStage):
    nodes = [stage.node(f"n{number}") for number in range(10)]
    stage.create(app("Deployment", stage.namespace, "web", "100m", "128Mi"))
    stage.running(1)
    stage.measure({"web": ContainerUse(cores=0.1, mebibytes=100)})
    # Of four cores each; four nodes of ten are overloaded.
    calm = dict.fromkeys(nodes, 1.0)
    busy = calm | {node: 5.0 + number for number, node in enumerate(nodes[:4])}
    most = max(1, len(stage.admin.items("nodes")) // 5)
    heaviest = set(nodes[4 - most : 4])

    def tainted() -> set[str]:
        return {node for node in nodes if OWN in taints(stage, node)}

    stage.usage.loads.update(busy)
    stage.mark()
    with stage.serving("full", **OFTEN) as serving:
        wait_until(lambda: tainted() == heaviest, "the most loaded are tainted")
        looked = seen(serving.get("/metrics")[1])
        wait_until(lambda: seen(serving.get("/metrics")[1]) >= looked + 2, "more readings")
        assert tainted() == heaviest
        stage.command("pause", mode="full")
        stage.usage.loads.update(calm)
        wait_until(lambda: not tainted(), "the taints come off while paused")
        stage.usage.loads.update(dict.fromkeys(nodes, 50.0))
        stage.command("resume", mode="full")
        wait_until(
            lambda: 'reason="too-many-at-once"} 1' in serving.get("/metrics")[1], "all nodes seem to be overloaded"
        )
        assert tainted() == set()
        stage.usage.loads.update(busy)
        wait_until(lambda: tainted() == heaviest, "they are tainted again")
        serving.kill()
    written = [target for _, resource, target, _ in stage.deeds() if resource == "nodes"]
    assert sorted(written) == sorted([*heaviest] * 3)

    stage.mark()
    with stage.serving("observe", **OFTEN) as serving:
        remedy = f"kubectl taint nodes {' '.join(sorted(heaviest))} cruise.io/overloaded:NoSchedule-"
        wait_until(lambda: json.loads(serving.get("/api/v1/status")[1])["nodeLoad"], "the loads are read")
        wait_until(
            lambda: json.loads(serving.get("/api/v1/status")[1])["nodeLoad"]["remedy"] == remedy, "the status tells"
        )
        looked = seen(serving.get("/metrics")[1])
        wait_until(lambda: seen(serving.get("/metrics")[1]) >= looked + 2, "more readings")
        checked = stage.command("check", "--format", "json", mode="observe")
        assert remedy in {one["fix"] for one in json.loads(checked.out)["items"]}
    # It is rejected once for each, and retried after an hour.
    refusals = [(target, code) for _, resource, target, code in stage.deeds() if resource == "nodes"]
    assert len(refusals) <= len(heaviest)
    assert {code for _, code in refusals} == {403}

    # The mode is lowered, and the rights are still there.
    stage.mark()
    with programs.run_serve({**stage.settings("full", **OFTEN), "mode": "observe"}, stage._directory):
        wait_until(lambda: not tainted(), "no taint outlives the mode")
    assert {(resource, code) for _, resource, _, code in stage.deeds()} == {("nodes", 200)}


def seen(metrics: str) -> int:
    """How many times node load was read."""
    for line in metrics.splitlines():
        if line.startswith("cruise_job_runs_total") and "node load" in line:
            return int(float(line.rpartition(" ")[2]))
    return 0
