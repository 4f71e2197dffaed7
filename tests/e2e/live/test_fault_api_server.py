"""The API server gone, forgetful or overrun: no write is lost or done twice, and all goes on by itself."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.api import Json, until
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.deploy.installing import NAMESPACE, SERVE
from tests.e2e.live.stage import Stage, database_of
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES, scale, shrunk, staged

GONE_SECONDS = 60


@pytest.fixture
def own_stage(control_plane: ControlPlane, postgres: Path, tmp_path: Path) -> Iterator[Stage]:
    """A stage on a control plane of its own, which other tests do not miss; without one there is no shared one either."""
    with (
        ControlPlane(audit_level="RequestResponse") as plane,
        # A kubelet's node is given up where it is not heard of for 40 seconds.
        TestKubelet(plane.api(KUBELET.name)) as kubelet,
        own_namespace(plane.api()) as namespace,
        Stage(plane, kubelet, namespace, database_of(postgres), tmp_path) as stage,
    ):
        yield stage


def targets(stage: Stage) -> Counter[str]:
    """How often each pod was written to, with success."""
    return Counter(target for _, _, target, code in stage.deeds() if code < 300)


def test_an_api_server_that_is_away_for_a_minute_and_has_forgotten_its_watches(own_stage: Stage):
    stage = own_stage
    staged(stage)
    with stage.serving(**FAST) as serving:
        until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        stage.plane.kill_api_server()
        until(lambda: serving.get("/readyz")[0] == 503, "it is told that it is not ready", seconds=GONE_SECONDS)
        time.sleep(GONE_SECONDS)
        assert serving.get("/healthz")[0] == 200
        # The new process answers old watches with 410.
        stage.plane.start_api_server()
        scale(stage, 3)
        until(lambda: shrunk(stage) == 3, "the others are sized by themselves", seconds=120)
        until(serving.ready, "it is ready again")
    assert set(targets(stage).values()) == {1}


def flow_control(level: str) -> list[Json]:
    """Have the API server answer 429 to everything that cruise asks for."""
    api_version = "flowcontrol.apiserver.k8s.io/v1"
    limited = {"nominalConcurrencyShares": 0, "limitResponse": {"type": "Reject"}, "lendablePercent": 0}
    subject = {"kind": "ServiceAccount", "serviceAccount": {"namespace": NAMESPACE, "name": SERVE}}
    rule = {
        "subjects": [subject],
        "resourceRules": [
            {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": True}
        ],
    }
    return [
        {
            "apiVersion": api_version,
            "kind": "PriorityLevelConfiguration",
            "metadata": {"name": level},
            "spec": {"type": "Limited", "limited": limited},
        },
        {
            "apiVersion": api_version,
            "kind": "FlowSchema",
            "metadata": {"name": level},
            "spec": {
                "matchingPrecedence": 1,
                "priorityLevelConfiguration": {"name": level},
                "distinguisherMethod": {"type": "ByUser"},
                "rules": [rule],
            },
        },
    ]


def test_a_storm_of_429_is_waited_out(own_stage: Stage):
    stage = own_stage
    staged(stage)
    with stage.serving(**FAST) as serving:
        until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.create(*flow_control("storm"))
        until(lambda: any(one.code == 429 for one in stage.events()), "the storm has begun")
        stage.mark()
        scale(stage, 3)
        time.sleep(3 * SEVERAL_PASSES)
        assert targets(stage) == Counter()
        refused = [one for one in stage.events() if one.code == 429]
        # It goes on to ask, and not in a hurry.
        assert 1 <= len(refused) <= 20 * 3 * SEVERAL_PASSES
        assert serving.get("/healthz")[0] == 200
        stage.admin.delete("flowschemas.flowcontrol.apiserver.k8s.io", None, "storm")
        until(lambda: shrunk(stage) == 3, "the others are sized by themselves", seconds=120)
    assert set(targets(stage).values()) == {1}
