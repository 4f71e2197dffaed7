"""SIGTERM while something else fails: the process ends within the grace period that the chart gives it."""

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.controlplane.api import wait_until
from tests.e2e.live.faults import ApiServerProxy, FaultAnswers, PrometheusProxy, SocketProxy, proxied_database
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse
from tests.e2e.serve_scene import started

GRACE_SECONDS = 30

Fault = Callable[[PrometheusProxy, SocketProxy, ApiServerProxy], None]


def database_silent(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    database.fail_over()


def database_gone(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    database.gone = True


def database_slow(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    database.delay_seconds = 10


def api_server_slow(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    api.delay_seconds = 60


def storm(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    api.storm = True


def answers_lost(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    api.unanswered = "/resize"


def prometheus_slow(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    prometheus.delay_seconds = 60


def prometheus_gone(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    prometheus.answers = FaultAnswers.NONE


def all_at_once(prometheus: PrometheusProxy, database: SocketProxy, api: ApiServerProxy) -> None:
    for fault in (database_silent, database_slow, api_server_slow, prometheus_slow):
        fault(prometheus, database, api)


FAULTS = [
    database_gone,
    database_slow,
    api_server_slow,
    storm,
    answers_lost,
    prometheus_slow,
    prometheus_gone,
]


@pytest.mark.parametrize("leads", [True, False], ids=["leading", "starting"])
@pytest.mark.parametrize(
    "fault",
    [database_silent, all_at_once, *(pytest.param(fault, marks=pytest.mark.long) for fault in FAULTS)],
    ids=lambda one: one.__name__,
)
def test_the_process_ends_in_time(stage: LiveStage, tmp_path: Path, fault: Fault, leads: bool):
    stage.create(app("Deployment", stage.namespace, "web", "300m", "512Mi", replicas=4, node=stage.node(cpu="8")))
    stage.running(4)
    stage.measure({"web": ContainerUse(cores=0.05, mebibytes=60)})
    with ExitStack() as stack:
        prometheus = stack.enter_context(PrometheusProxy(stage.settings("resize")["prometheus_url"]))
        settings = stage.settings(
            "resize", pass_interval="2s", node_load_interval="2s", prometheus_url=prometheus.address
        )
        api = stack.enter_context(ApiServerProxy(stage.plane.address, stage.plane.ca_file))
        stack.callback(api.released.set)
        settings["kubeconfig"] = str(api.kubeconfig(Path(settings["kubeconfig"])))
        settings["database_url"], database = stack.enter_context(proxied_database(settings["database_url"]))
        if not leads:
            fault(prometheus, database, api)
        running = stack.enter_context(started(settings, tmp_path))
        if leads:
            wait_until(lambda: "cruise_leader 1" in running.get("/metrics")[1], "it leads")
            fault(prometheus, database, api)
        else:
            wait_until(lambda: running.get("/healthz")[0] == 200, "it is alive")
        # Long enough that a request is on its way.
        time.sleep(1)
        began = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(GRACE_SECONDS) == 0
        print(f"{fault.__name__}: ended after {time.monotonic() - began:.1f} s")
        assert "Traceback" not in running.log
