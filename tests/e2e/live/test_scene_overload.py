"""The overload taint: put on and taken off with hysteresis, and nobody else's is touched."""

from tests.controlplane.api import until
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import Stage
from tests.e2e.live.usage import Use

OWN = {"key": "cruise.io/overloaded", "value": "true", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/reserved", "value": "batch", "effect": "PreferNoSchedule"}
OFTEN = {"pass_interval": "1h", "node_load_interval": "1s"}


def taints(stage: Stage, node: str) -> list[dict[str, str]]:
    """A node's taints, without when they were put on."""
    found = stage.admin.read("nodes", None, node)["spec"].get("taints") or []
    return [{key: one[key] for key in ("key", "value", "effect") if key in one} for one in found]


def test_a_node_is_tainted_while_it_is_overloaded(stage: Stage):
    busy, calm = stage.node("busy"), stage.node("calm")
    stage.admin.patch("nodes", None, busy, {"spec": {"taints": [FOREIGN]}}, kind="merge")
    stage.create(app("Deployment", stage.namespace, "web", "100m", "128Mi"))
    stage.running(1)
    stage.measure({"web": Use(cores=0.1, mebibytes=100)})
    stage.usage.loads.update({busy: 5.0, calm: 2.0})
    stage.mark()
    with stage.serving("full", **OFTEN) as serving:
        until(lambda: OWN in taints(stage, busy), "the busy node is tainted")
        assert FOREIGN in taints(stage, busy)
        # Between the two thresholds nothing changes; four cores at 0.95.
        passes = seen(serving.get("/metrics")[1])
        stage.usage.loads[busy] = 3.8
        until(lambda: seen(serving.get("/metrics")[1]) >= passes + 6, "more readings")
        assert OWN in taints(stage, busy)
        stage.usage.loads[busy] = 2.0
        until(lambda: OWN not in taints(stage, busy), "the taint is gone")
        # Without readings nothing changes either.
        assert taints(stage, busy) == [FOREIGN]
    assert taints(stage, calm) == []
    written = [(resource, target, code) for _, resource, target, code in stage.deeds() if resource == "nodes"]
    assert written == [("nodes", busy, 200), ("nodes", busy, 200)]


def test_mode_resize_taints_nothing(stage: Stage):
    busy = stage.node("busy")
    stage.create(app("Deployment", stage.namespace, "web", "100m", "128Mi"))
    stage.running(1)
    stage.measure({"web": Use(cores=0.1, mebibytes=100)})
    stage.usage.loads[busy] = 9.0
    with stage.serving("resize", **OFTEN) as serving:
        until(lambda: seen(serving.get("/metrics")[1]) >= 4, "several readings")
        assert taints(stage, busy) == []


def seen(metrics: str) -> int:
    """How many times node load was read."""
    for line in metrics.splitlines():
        if line.startswith("cruise_job_runs_total") and "node load" in line:
            return int(float(line.rpartition(" ")[2]))
    return 0
