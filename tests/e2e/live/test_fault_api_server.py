"""The API server gone, forgetful or overrun: no write is lost or done twice, and all goes on by itself."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.api import until
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.e2e.live.faults import ApiServerProxy
from tests.e2e.live.programs import Running
from tests.e2e.live.stage import Stage, database_of
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES, scale, shrunk, staged


@pytest.fixture
def lonely_stage(control_plane: ControlPlane, embedded_postgres: Path, tmp_path: Path) -> Iterator[Stage]:
    """A stage on a control plane of its own, which no other test misses."""
    with (
        ControlPlane(audit_level="RequestResponse") as plane,
        # A kubelet's node is given up where it is not heard of for 40 seconds.
        TestKubelet(plane.api(KUBELET.name)) as kubelet,
        own_namespace(plane.api()) as namespace,
        Stage(plane, kubelet, namespace, database_of(embedded_postgres), tmp_path) as stage,
    ):
        yield stage


def targets(stage: Stage) -> Counter[str]:
    """How often each pod was written to, with success."""
    return Counter(target for _, _, target, code in stage.deeds() if code < 300)


def test_an_api_server_that_was_away_and_has_forgotten_its_watches(stage: Stage):
    staged(stage)
    with stage.serving(**FAST) as serving:
        until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        stage.plane.kill_api_server()
        until(lambda: not leads(serving), "it knows that it has lost the Lease")
        assert serving.get("/healthz")[0] == 200
        back_again(stage, serving)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_api_server_that_was_away_for_minutes(lonely_stage: Stage):
    stage = lonely_stage
    staged(stage)
    with stage.serving(**FAST) as serving:
        until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        stage.plane.kill_api_server()
        until(lambda: serving.get("/readyz")[0] == 503, "it is told that it is not ready", seconds=120)
        # After a minute Kubernetes has given up the node, and its own controllers take longer to find their way back.
        time.sleep(60)
        assert serving.get("/healthz")[0] == 200
        back_again(stage, serving)


def leads(serving: Running) -> bool:
    return bool(json.loads(serving.get("/api/v1/status")[1])["leader"])


def back_again(stage: Stage, serving: Running) -> None:
    """Start the API server anew: it answers old watches with 410. What was there to do is done, once."""
    stage.plane.start_api_server()
    stage.admin.patch("deployments.apps", stage.namespace, "web", {"spec": {"replicas": 3}})
    until(lambda: shrunk(stage) == 3, "the others are sized by themselves", seconds=240)
    until(serving.ready, "it is ready again")
    assert set(targets(stage).values()) == {1}


def test_a_storm_of_429_is_waited_out(stage: Stage):
    staged(stage)
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(Path(stage.settings("resize")["kubeconfig"]))
        with stage.serving(kubeconfig=str(kubeconfig), **FAST) as serving:
            until(lambda: shrunk(stage) == 1, "the first pod is sized")
            proxy.storm = True
            # What was under way has been answered.
            until(lambda: proxy.refused, "the storm has begun")
            stage.mark()
            scale(stage, 3)
            time.sleep(3 * SEVERAL_PASSES)
            assert stage.writes() == []
            # It goes on to ask, and not in a hurry.
            assert 1 <= proxy.refused <= 3 * SEVERAL_PASSES * 5
            assert serving.get("/healthz")[0] == 200
            proxy.storm = False
            until(lambda: shrunk(stage) == 3, "the others are sized by themselves", seconds=120)
    assert set(targets(stage).values()) == {1}
