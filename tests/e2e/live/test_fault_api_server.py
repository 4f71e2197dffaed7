"""API server outages, restarts and throttling: no write is lost or repeated, and cruise recovers."""

import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.controlplane.api import Api, wait_until
from tests.controlplane.control_plane import KUBELET, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.namespaces import own_namespace
from tests.deploy.installing import NAMESPACE, SERVE
from tests.e2e.live.faults import ApiServerProxy
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.stage import LiveStage, database_of
from tests.e2e.live.test_fault_prometheus import FAST, SEVERAL_PASSES, scale, shrunk, staged
from tests.e2e.serve_scene import started


@pytest.fixture
def lonely_stage(control_plane: ControlPlane, embedded_postgres: Path, tmp_path: Path) -> Iterator[LiveStage]:
    """A stage on a separate control plane, which no other test uses."""
    with (
        ControlPlane(audit_level="RequestResponse") as plane,
        # A kubelet's node is given up where it is not heard of for 40 seconds.
        TestKubelet(plane.api(KUBELET.name)) as kubelet,
        own_namespace(plane.api()) as namespace,
        LiveStage(plane, kubelet, namespace, database_of(embedded_postgres), tmp_path) as stage,
    ):
        yield stage


def targets(stage: LiveStage) -> Counter[str]:
    """How often each pod was written to, with success."""
    return Counter(target for _, _, target, code in stage.deeds() if code < 300)


def test_an_api_server_that_was_away_and_has_forgotten_its_watches(stage: LiveStage):
    staged(stage)
    with stage.serving(**FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        stage.plane.kill_api_server()
        wait_until(lambda: not leads(serving), "it knows that it has lost the Lease")
        assert serving.get("/healthz")[0] == 200
        back_again(stage, serving)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_api_server_that_was_away_for_minutes(lonely_stage: LiveStage):
    stage = lonely_stage
    staged(stage)
    with stage.serving(**FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.mark()
        stage.plane.kill_api_server()
        wait_until(lambda: serving.get("/readyz")[0] == 503, "it is told that it is not ready")
        # After a minute Kubernetes has given up the node, and its own controllers take longer to find their way back.
        time.sleep(60)
        assert serving.get("/healthz")[0] == 200
        back_again(stage, serving)


def leads(serving: RunningProgram) -> bool:
    return bool(json.loads(serving.get("/api/v1/status")[1])["leader"])


def back_again(stage: LiveStage, serving: RunningProgram) -> None:
    """Start the API server anew: it answers old watches with 410. What was there to do is done, once."""
    stage.plane.start_api_server()
    stage.admin.patch("deployments.apps", stage.namespace, "web", {"spec": {"replicas": 3}})
    recovered(stage, serving, "the API server was back")


def test_a_storm_of_429_is_waited_out(stage: LiveStage):
    staged(stage)
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(Path(stage.settings("resize")["kubeconfig"]))
        with stage.serving(kubeconfig=str(kubeconfig), **FAST) as serving:
            wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
            began, proxy.storm = time.monotonic(), True
            # What was under way has been answered.
            wait_until(lambda: proxy.refused, "the storm has begun")
            stage.mark()
            scale(stage, 3)
            time.sleep(3 * SEVERAL_PASSES)
            # It keeps retrying, with a backoff.
            assert 1 <= proxy.refused <= (time.monotonic() - began) * 5
            assert stage.writes() == []
            assert serving.get("/healthz")[0] == 200
            proxy.storm = False
            wait_until(lambda: shrunk(stage) == 3, "the others are sized by themselves")
    assert set(targets(stage).values()) == {1}


@pytest.mark.long
@pytest.mark.timeout(900)
def test_an_api_server_that_takes_a_minute_to_answer(stage: LiveStage):
    staged(stage)
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(Path(stage.settings("resize")["kubeconfig"]))
        with stage.serving(kubeconfig=str(kubeconfig), **FAST) as serving:
            wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
            proxy.delay_seconds = 60
            wait_until(lambda: not leads(serving), "it knows that it has lost the Lease")
            stage.mark()
            scale(stage, 3)
            # What was sent before arrives a minute later, and is refused or as good as it was.
            time.sleep(75)
            assert {target for _, _, target, code in stage.deeds() if code < 300} == set()
            assert serving.get("/healthz")[0] == 200
            proxy.delay_seconds = 0
            recovered(stage, serving, "the API server was fast again")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_token_that_has_expired_is_read_again(stage: LiveStage):
    """The token is bound to a Pod; without it the API server refuses the token as it does one that has expired."""
    staged(stage)
    settings = stage.settings("resize")
    kubeconfig = Path(settings["kubeconfig"])
    good = kubeconfig.read_text()
    kubeconfig.write_text(good.replace(token_in(good), bound_token(stage.admin)))
    with stage.serving(kubeconfig=str(kubeconfig), **FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        stage.admin.delete("pods", NAMESPACE, BOUND_TO, grace=0)
        wait_until(lambda: not leads(serving), "it knows that it has lost the Lease")
        stage.mark()
        scale(stage, 3)
        time.sleep(2 * SEVERAL_PASSES)
        assert {target for _, _, target, code in stage.deeds() if code < 300} == set()
        assert serving.get("/healthz")[0] == 200
        kubeconfig.write_text(good)
        recovered(stage, serving, "there was a new token")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_names_that_cannot_be_resolved_are_waited_for(stage: LiveStage, tmp_path: Path):
    staged(stage)
    unresolved = tmp_path / "unresolved"
    unresolved.touch()
    settings = stage.settings("resize", **FAST)
    settings["prometheus_url"] = settings["prometheus_url"].replace("127.0.0.1", "localhost")
    with ApiServerProxy(stage.plane.address, stage.plane.ca_file) as proxy:
        kubeconfig = proxy.kubeconfig(Path(settings["kubeconfig"]))
        kubeconfig.write_text(kubeconfig.read_text().replace("127.0.0.1", "localhost"))
        with started(settings, tmp_path, ("tests.e2e.unresolving_serve", str(unresolved))) as serving:
            wait_until(lambda: serving.get("/healthz")[0] == 200, "it runs")
            time.sleep(SEVERAL_PASSES)
            assert "the host name localhost is not known" in serving.log
            assert serving.get("/readyz")[0] == 503
            unresolved.unlink()
            wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
            unresolved.touch()
            # Connections that are there need no name, and answers of DNS are kept for ten seconds.
            time.sleep(12)
            proxy.cut()
            wait_until(lambda: not leads(serving), "it knows that it has lost the Lease")
            stage.mark()
            scale(stage, 3)
            time.sleep(2 * SEVERAL_PASSES)
            assert stage.deeds() == []
            unresolved.unlink()
            recovered(stage, serving, "names were resolved again")


BOUND_TO = "cruise-serve-0"


def recovered(stage: LiveStage, serving: RunningProgram, since: str) -> None:
    """Wait until all is as it should be; each pod is written to once."""
    began = time.monotonic()
    wait_until(lambda: shrunk(stage) == 3, "the others are sized by themselves")
    print(f"all sized {time.monotonic() - began:.1f} s after {since}")
    wait_until(serving.ready, "it is ready again")
    assert set(targets(stage).values()) == {1}


def token_in(kubeconfig: str) -> str:
    [token] = re.findall(r"[\w-]{20,}\.[\w-]{20,}\.[\w-]{20,}", kubeconfig)
    return str(token)


def bound_token(admin: Api) -> str:
    """A token of cruise-serve that is good for as long as a Pod of its is there."""
    admin.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": BOUND_TO, "namespace": NAMESPACE},
            "spec": {
                "serviceAccountName": SERVE,
                "nodeSelector": {"no": "node"},
                "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
                "containers": [
                    {
                        "name": "app",
                        "image": "example.com/app",
                        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        }
    )
    uid = admin.read("pods", NAMESPACE, BOUND_TO)["metadata"]["uid"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": BOUND_TO, "uid": uid}
    spec = {"boundObjectRef": bound, "expirationSeconds": 3600}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    told = admin.request("POST", admin.path("serviceaccounts", NAMESPACE, SERVE, "token"), body)
    return str(told["status"]["token"])
