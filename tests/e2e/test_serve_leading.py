"""Two `cruise serve` on a real control plane: one writes, and the other takes over when it stops."""

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.adapters.kube.relay import Network
from tests.controlplane.api import SHORTEST_PAUSE
from tests.controlplane.audit import AuditEvent
from tests.e2e.live.manifests import app
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse
from tests.e2e.serve_scene import (
    all_sized,
    create_scene,
    disconnect,
    has_single_leader,
    list_resized,
    list_user_actions,
    resizes,
    serving,
    serving_with,
    wait_until_true,
    writes_of,
)

# So slow that a plan can be interrupted: one for 40 pods takes over half a minute.
SLOWLY = {"kube_requests_per_second": "2", "kube_burst": "2"}


def test_one_writes_and_a_killed_one_is_followed(stage: LiveStage, tmp_path: Path):
    [*pods] = create_scene(stage, replicas=6)
    with serving(stage, tmp_path, "a") as a, serving(stage, tmp_path, "b") as b:
        leader, other = has_single_leader([a, b])
        all_sized(stage, 6)
        assert {event.resource for event in list_user_actions(stage, leader)} == {"pods/resize"}
        assert writes_of(stage, other) == []
        assert other.running.ready()
        assert not other.leads()

        leader.running.kill()
        wait_until_true(other.leads, "the other one leads")
        [victim] = [pod["metadata"]["name"] for pod in pods[:1]]
        stage.mark()
        stage.kubelet.oom_kill(stage.namespace, victim, "app")
        wait_until_true(lambda: list_user_actions(stage, other), "the new leader reacts to a kill")
        assert {event.target for event in list_user_actions(stage, other)} == {f"{stage.namespace}/{victim}"}


def test_a_polite_end_hands_over_at_once(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=2)
    # Longer than the test waits: the other one leads only if the Lease is released.
    lease = {"lease_duration": "5m"}
    with serving(stage, tmp_path, "a", **lease) as a, serving(stage, tmp_path, "b", **lease) as b:
        leader, other = has_single_leader([a, b])
        leader.running.process.send_signal(signal.SIGTERM)
        assert leader.running.process.wait(30) == 0
        wait_until_true(other.leads, "the other one leads")
        all_sized(stage, 2)


@pytest.mark.parametrize("end", [pytest.param(signal.SIGKILL, marks=pytest.mark.long), signal.SIGTERM])
def test_in_the_middle_of_a_plan_nothing_is_done_twice_and_nothing_lost(
    stage: LiveStage, tmp_path: Path, end: signal.Signals
):
    create_scene(stage, replicas=40, cpu="32")
    # The first pass is made half an interval after the statistics, and takes far longer than the other one's start.
    with serving(stage, tmp_path, "a", pass_interval="8s", **SLOWLY) as leader:
        wait_until_true(leader.leads, "the first one leads")
        with serving(stage, tmp_path, "b") as other:
            wait_until_true(lambda: list_resized(stage) >= 5, "the plan is under way")
            began = time.monotonic()
            leader.running.process.send_signal(end)
            leader.running.process.wait(30)
            assert list_resized(stage) < 40, "the plan was over before it could be interrupted"
            wait_until_true(other.leads, "the other one leads")
            led = time.monotonic() - began
            all_sized(stage, 40)
            print(
                f"{end.name}: the other one led after {led:.1f} s, all was sized after {time.monotonic() - began:.1f} s"
            )
            assert list_user_actions(stage, other) != []
    times = Counter(event.target for event in resizes(stage))
    assert len(times) == 40
    assert set(times.values()) == {1}


@pytest.mark.parametrize("end", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)])
def test_no_pod_is_evicted_twice_or_in_vain_when_the_leader_changes(
    stage: LiveStage, tmp_path: Path, end: signal.Signals
):
    places = ("one", "two", "three", "four", "five", "six")
    names = [f"{place}-{number}" for place in places for number in range(3)]
    for place in places:
        stage.node(place, cpu="2", labels={"place": place})
        selector = {"scene": stage.namespace, "place": place}
        for number in range(3):
            # Three that use 900m each, where there is room for two of them.
            name = f"{place}-{number}"
            stage.create(app("Deployment", stage.namespace, name, "300m", "128Mi", nodeSelector=selector))
    stage.running(len(names))
    for node in {pod["spec"]["nodeName"] for pod in stage.pods()}:
        # Without the webhook a replacement pod would request as little as before, and use the capacity again.
        stage.admin.patch("nodes", None, node, {"spec": {"unschedulable": True}})
    for place in places:
        stage.node(f"{place}-spare", cpu="2", labels={"place": place})
    stage.measure(dict.fromkeys(names, ContainerUse(cores=0.9, mebibytes=100)))
    # Evictions wait for the second pass, an interval and a half after the statistics: the other one is there by then.
    with serving(stage, tmp_path, "a", mode="full", pass_interval="10s", **SLOWLY) as leader:
        wait_until_true(leader.leads, "the first one leads")
        with serving(stage, tmp_path, "b", mode="full") as other:
            wait_until_true(lambda: evictions(stage), "the first pod is evicted")
            leader.running.process.send_signal(end)
            leader.running.process.wait(30)
            assert len(evictions(stage)) < len(places), "the plan was over before it could be interrupted"
            wait_until_true(lambda: len(evictions(stage)) == len(places), "one of each node is evicted")
            made = other.status()["lastPassAt"]
            wait_until_true(lambda: other.status()["lastPassAt"] != made, "one more pass is made")
    times = Counter(event.object_ref.name.partition("-")[0] for event in evictions(stage))
    assert times == dict.fromkeys(places, 1)


def evictions(stage: LiveStage) -> list[AuditEvent]:
    return [event for event in stage.events() if event.resource == "pods/eviction" and event.code == 201]


def test_a_leader_that_was_stopped_for_a_while_does_not_write_after_it(stage: LiveStage, tmp_path: Path):
    create_scene(stage, replicas=40, cpu="32")
    # On a busy machine the other one must not lose a shorter Lease by itself.
    lease = {"lease_duration": "15s"}
    with serving(stage, tmp_path, "a", **SLOWLY, **lease) as a, serving(stage, tmp_path, "b", **lease) as b:
        leader, other = has_single_leader([a, b])
        wait_until_true(lambda: list_resized(stage) >= 5 or leader is b, "the plan is under way")
        leader.running.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        wait_until_true(other.leads, "the other one leads")
        led = time.monotonic() - began
        all_sized(stage, 40)
        print(f"stopped: the other one led after {led:.1f} s, all was sized after {time.monotonic() - began:.1f} s")
        stage.mark()
        leader.running.process.send_signal(signal.SIGCONT)
        wait_until_true(lambda: not leader.leads(), "the former leader knows")
        # After a long stop its view of the cluster is too old at first, and its interrupted pass too long.
        wait_until_true(leader.running.ready, "the former leader is ready again")
        assert list_user_actions(stage, leader) == []
        assert other.leads()
    assert max(Counter(event.target for event in resizes(stage)).values(), default=0) <= 1


@pytest.mark.parametrize("network", [pytest.param(Network.DOWN, marks=pytest.mark.long), Network.SILENT])
def test_a_leader_that_is_cut_off_stops_before_the_other_leads(stage: LiveStage, tmp_path: Path, network: Network):
    create_scene(stage, replicas=40, cpu="32")
    settings = stage.settings("resize", pass_interval="4s", **SLOWLY)
    with (
        disconnect(stage, settings) as (become, relayed),
        serving_with(relayed, tmp_path, "a") as a,
    ):
        wait_until_true(a.leads, "the first one leads")
        with serving(stage, tmp_path, "b") as b:
            wait_until_true(lambda: list_resized(stage) >= 5, "the plan is under way")
            become(network)

            def taken_over() -> bool:
                leading = b.leads()
                # Queried in this order: the first answer was still valid when the second was read.
                assert not (leading and a.leads()), "two lead at once"
                return leading

            wait_until_true(taken_over, "the other one leads", longest_pause=SHORTEST_PAUSE)
            all_sized(stage, 40)
            assert a.running.process.poll() is None
            stage.mark()
            become(Network.UP)
            wait_until_true(lambda: a.running.get("/readyz")[0] == 200, "the first one can see again")
            assert not a.leads()
            assert b.leads()
            if network is Network.DOWN:
                assert list_user_actions(stage, a) == []
    assert list_resized(stage) == 40
