"""How `cruise serve` starts with missing dependencies, and how it ends."""

import re
import signal
from pathlib import Path
from threading import Event

from cruise.app.serve.leadership import LEASE_NAME
from tests.controlplane.api import wait_until
from tests.deploy.installing import NAMESPACE
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.stage import LiveStage
from tests.e2e.serve_scene import all_sized, create_scene, serving, started, wait_until_true, writes_of
from tests.http_server import HttpAnswer, ReceivedHttpRequest, answering
from tests.postgres_servers import DebianServer, emptied

NOTHING = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


def unready(running: RunningProgram, why: str) -> None:
    """Wait until it is alive and reports why it is not ready."""
    wait_until_true(lambda: running.get("/healthz")[0] == 200, "it is alive")

    def look() -> bool:
        code, body = running.get("/readyz")
        return code == 503 and why in body

    wait_until(look, f"it says that it is {why}")


def test_it_waits_for_its_database_and_reports_it_once(stage: LiveStage, tmp_path: Path, debian_postgres: DebianServer):
    create_scene(stage, replicas=1)
    emptied(debian_postgres.url)
    settings = stage.settings("resize", database_url=debian_postgres.url, pass_interval="4s")
    with debian_postgres.away() as come_back, started(settings, tmp_path) as running:
        unready(running, "waiting for the database")
        assert running.get("/api/v1/status")[0] == 200
        come_back()
        all_sized(stage, 1)
        assert running.ready()
        told = [line for line in running.log.splitlines() if "waiting: Postgres" in line]
        assert 1 <= len(told) <= 2
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0


def test_a_signal_ends_it_while_it_waits(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    settings = stage.settings("resize", database_url="postgresql://cruise@127.0.0.1:9/cruise")
    with started(settings, tmp_path) as running:
        unready(running, "waiting for the database")
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(30) == 0
    assert stage.writes() == []


def test_a_prometheus_that_starts_later_is_read_from_then_on(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    settings = stage.settings("resize", prometheus_url="http://127.0.0.1:9", pass_interval="4s")
    with started(settings, tmp_path) as running:
        unready(running, "waiting for the statistics")
        wait_until_true(lambda: '"statistics"' in running.log, "the failure is told")
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(30) == 0
        dropped = [line for line in running.log.splitlines() if "job failed" in line and '"statistics"' in line]
        assert len(dropped) == 1
    with serving(stage, tmp_path, "later"):
        all_sized(stage, 1)


def test_observing_takes_no_lease_and_writes_nothing(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=2)
    with serving(stage, tmp_path, "observer", mode="observe") as server:
        wait_until_true(lambda: server.status()["lastPassAt"] is not None, "a pass was made")
        assert server.leads()
        assert server.running.log.count("no election") == 1
        # The first pass does not wait for usage, since it writes nothing in any case.
        wait_until_true(lambda: 'result="observed"' in server.running.get("/metrics")[1], "a size was decided on")
        assert writes_of(stage, server) == []


def test_the_owner_of_a_pod_is_informed_by_an_event(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    with serving(stage, tmp_path, "telling"):
        all_sized(stage, 1)

        def told() -> list[str]:
            events = stage.admin.items("events", stage.namespace)
            return [event["message"] for event in events if event["source"].get("component") == "cruise"]

        [message] = wait_until(told, "an event is there")
        assert re.search(r"cpu 400m -> 10\dm", message)


def test_its_log_is_one_object_a_line_without_secrets(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    with serving(stage, tmp_path, "logging", log_format="json") as server:
        all_sized(stage, 1)
        lines = server.running.log.splitlines()
        assert lines
        assert all(line.startswith('{"timestamp": ') for line in lines)
        kubeconfig = Path(server.settings["kubeconfig"]).read_text()
        token = max(re.findall(r"[\w.-]+", kubeconfig), key=len)
        assert token not in server.running.log


def test_an_end_does_not_wait_for_a_prometheus_that_hangs(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=1)
    asked: list[str] = []
    over = Event()

    def hang(request: ReceivedHttpRequest) -> HttpAnswer:
        asked.append(request.path.rpartition("/")[2])
        if asked[-1] != "query_range":
            # What is looked up before usage is read is not there.
            return HttpAnswer(body=NOTHING)
        over.wait(60)
        return HttpAnswer(503)

    with answering(hang) as address:
        settings = stage.settings("resize", prometheus_url=address, shutdown_grace_period="2s")
        with started(settings, tmp_path) as running:
            wait_until_true(lambda: "query_range" in asked, "Prometheus is asked")
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(30) == 0
            assert "jobs did not end in time" in running.log
        over.set()
    lease = stage.admin.read("leases.coordination.k8s.io", NAMESPACE, LEASE_NAME)
    assert not lease["spec"].get("holderIdentity")
