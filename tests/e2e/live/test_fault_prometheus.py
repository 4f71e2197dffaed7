"""Prometheus is down, incomplete or stale: no pod is changed, and cruise recovers."""

import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.controlplane.api import wait_until
from tests.e2e.live.faults import FaultAnswers, PrometheusProxy
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

FAST = {"pass_interval": "1s", "node_load_interval": "1s"}
# Without peaks, so that a pod's size does not depend on how many share the headroom.
USE = ContainerUse(cores=0.05, mebibytes=60)
SEVERAL_PASSES = 4


def staged(stage: LiveStage) -> str:
    """A workload whose pod requests far too much; returns Prometheus' address."""
    node = stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", stage.namespace, "web", "300m", "512Mi", node=node))
    stage.running(1)
    address = stage.measure({"web": USE})
    stage.mark()
    return address


def scale(stage: LiveStage, replicas: int) -> None:
    """Start more pods: they request too much as well, and the workload's statistics apply to them."""
    stage.admin.patch("deployments.apps", stage.namespace, "web", {"spec": {"replicas": replicas}})
    stage.running(replicas)


def shrunk(stage: LiveStage) -> int:
    return sum(requests(one).cpu < 300 for one in stage.pods("web"))


@pytest.fixture
def proxy(stage: LiveStage) -> Iterator[PrometheusProxy]:
    with PrometheusProxy(staged(stage)) as proxy:
        yield proxy


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "fault",
    # Half an answer is the one that nothing but its contents gives away.
    [
        pytest.param(FaultAnswers.NONE, marks=pytest.mark.long),
        pytest.param(FaultAnswers.CUT, marks=pytest.mark.long),
        FaultAnswers.HALF_OF_THE_SERIES,
    ],
    ids=lambda one: one.name,
)
def test_statistics_that_grow_old_change_nothing_until_there_are_new_ones(
    stage: LiveStage, proxy: PrometheusProxy, fault: FaultAnswers
):
    with stage.serving(prometheus_url=proxy.address, max_age="2m", **FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        proxy.answers = fault
        wait_until(lambda: "stale-statistics" in serving.get("/api/v1/nodes")[1], "what is known is too old")
        stage.mark()
        scale(stage, 3)
        time.sleep(SEVERAL_PASSES)
        assert stage.deeds() == []
        assert serving.get("/healthz")[0] == 200
        proxy.answers = FaultAnswers.WHOLE
        began = time.monotonic()
        wait_until(lambda: shrunk(stage) == 3, "the others are sized by themselves")
        print(f"{fault.name}: all sized {time.monotonic() - began:.1f} s after it was over")
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}


def test_a_history_without_anything_new_is_no_ground_to_act_on(stage: LiveStage, proxy: PrometheusProxy):
    proxy.answers, proxy.age_seconds = FaultAnswers.OLD, 1800
    with stage.serving(prometheus_url=proxy.address, **FAST) as serving:
        wait_until(lambda: "-statistics" in serving.get("/api/v1/nodes")[1], "the pod is held")
        time.sleep(SEVERAL_PASSES)
    assert stage.deeds() == []
    assert shrunk(stage) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_slow_prometheus_changes_nothing_and_passes_resume_once_it_is_fast(stage: LiveStage, proxy: PrometheusProxy):
    with stage.serving(prometheus_url=proxy.address, **FAST) as serving:
        wait_until(lambda: shrunk(stage) == 1, "the first pod is sized")
        # Longer than a query may take.
        proxy.delay_seconds = 40
        wait_until(lambda: serving.get("/readyz")[0] == 503, "it says that its statistics do not come")
        stage.mark()
        scale(stage, 3)
        time.sleep(3 * SEVERAL_PASSES)
        # The workload's statistics are young enough for its new pods; nothing else is changed.
        assert {(verb, resource) for verb, resource, *_ in stage.deeds()} <= {("patch", "pods/resize")}
        assert serving.get("/healthz")[0] == 200
        proxy.delay_seconds = 0
        began = time.monotonic()
        wait_until(serving.ready, "it is ready again")
        wait_until(lambda: shrunk(stage) == 3, "all are sized by themselves")
        print(f"ready and all sized {time.monotonic() - began:.1f} s after Prometheus was fast again")
    assert set(Counter(target for _, _, target, _ in stage.deeds()).values()) <= {1}
