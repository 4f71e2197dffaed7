"""New pods are sized by the webhook, which has the least privileges."""

import time

from cruise.domain.annotations import ORIGINAL_RESOURCES
from tests.controlplane.api import Json, wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.programs import RunningProgram
from tests.e2e.live.sizes import ObservedSize, limits, requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import MINUTE, ContainerUse

USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2, peak_mebibytes=150)
SIZED, AS_SENT = ObservedSize(200, 150), ObservedSize(700, 1024)
# The API server takes up a new configuration within a second or so.


def known(stage: LiveStage) -> Json:
    """A workload with known usage; returns its pod."""
    stage.node(cpu="8", memory="32Gi")
    stage.create(app("Deployment", stage.namespace, "web", "700m", "1Gi", {"cpu": "1", "memory": "1Gi"}))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.once("initial")
    stage.mark()
    return pod


def successor(stage: LiveStage) -> Json:
    """Delete the pod, and wait for the one that its ReplicaSet makes."""
    gone = {one["metadata"]["uid"] for one in stage.pods("web")}
    for one in stage.pods("web"):
        stage.admin.delete("pods", stage.namespace, one["metadata"]["name"], grace=0)

    def look() -> Json | None:
        return next((one for one in stage.pods("web") if one["metadata"]["uid"] not in gone), None)

    return wait_until(look, "there is another pod")


def test_a_new_pod_asks_for_its_workloads_peak_and_without_cruise_for_what_was_sent(stage: LiveStage):
    before = known(stage)
    assert requests(before) == AS_SENT
    with stage.reviewing() as webhook:
        sized = wait_until(lambda: find(successor(stage), SIZED), "a new pod is sized")
        # A CPU limit is taken away, and the memory limit is twice what it has ever used.
        assert limits(sized) == ObservedSize(0, 300)
        assert ORIGINAL_RESOURCES in sized["metadata"]["annotations"]
        status, metrics = webhook.get("/metrics")
        assert status == 200
        assert "cruise_" in metrics
        webhook.kill()
    # The webhook does not answer, and pods are created anyway.
    assert requests(successor(stage)) == AS_SENT
    assert set(stage.writes()) == {("patch", "mutatingwebhookconfigurations", "cruise", 200)}


def test_the_first_pod_of_a_deployment_that_is_made_anew_is_sized(stage: LiveStage):
    """It reaches the webhook a moment before its Deployment and its ReplicaSet reach the webhook's watches."""
    known(stage)
    with stage.reviewing():
        wait_until(lambda: find(successor(stage), SIZED), "a new pod is sized")
        for _ in range(3):
            gone = {one["metadata"]["uid"] for one in stage.pods("web")}
            stage.admin.delete("deployments.apps", stage.namespace, "web", grace=0)
            wait_until(lambda: not stage.pods("web"), "its pods are gone")
            # Until the watches have shown that there is no such Deployment any more.
            time.sleep(2)
            stage.create(app("Deployment", stage.namespace, "web", "700m", "1Gi", {"cpu": "1", "memory": "1Gi"}))
            first = wait_until(lambda: next(iter(stage.pods("web")), None), "it has a pod")
            assert first["metadata"]["uid"] not in gone
            assert requests(first) == SIZED


def test_in_mode_observe_the_webhook_changes_no_pod(stage: LiveStage):
    known(stage)
    with stage.reviewing("observe") as webhook:
        wait_until(lambda: successor(stage) and asked(webhook) > 2, "it is asked about new pods")
        assert requests(successor(stage)) == AS_SENT


def test_replacement_pods_are_created_on_other_nodes_with_their_target(stage: LiveStage):
    full = stage.node("full", cpu="2")
    apps = ("one", "two", "three")
    for name in apps:
        stage.create(app("Deployment", stage.namespace, name, "300m", "128Mi"))
    before = {one["metadata"]["uid"]: one for one in stage.running(3)}
    roomy = stage.node("roomy", cpu="2")
    stage.measure(dict.fromkeys(apps, ContainerUse(cores=0.9, mebibytes=100)))
    # The usage of the workloads must be known before the first of them is deleted.
    stage.once("initial")
    with stage.reviewing("full"):
        stage.once("full")

        def look() -> Json | None:
            fresh = [one for one in stage.pods() if one["metadata"]["uid"] not in before]
            return next((one for one in fresh if one["spec"].get("nodeName")), None)

        replaced = wait_until(look, "the evicted pod is replaced")
        assert requests(replaced) == ObservedSize(900, 100)
        assert {one["spec"]["nodeName"] for one in before.values()} == {full}
        assert replaced["spec"]["nodeName"] == roomy


def test_no_pod_is_evicted_from_the_only_node(stage: LiveStage):
    """Who went would come back asking for what it needs, find no room, and wait."""
    stage.node(cpu="2")
    apps = ("one", "two", "three")
    for name in apps:
        stage.create(app("Deployment", stage.namespace, name, "300m", "128Mi"))
    before = stage.running(3)
    stage.measure(dict.fromkeys(apps, ContainerUse(cores=0.9, mebibytes=100)))
    stage.once("initial")
    stage.mark()
    with stage.reviewing("full"):
        for _ in range(2):
            stage.once("full")
    assert {resource for _, resource, *_ in stage.deeds() if resource.startswith("pods")} <= {"pods/resize"}
    left = stage.pods()
    assert [one["metadata"]["uid"] for one in left] == [one["metadata"]["uid"] for one in before]
    # They share what the node has.
    cpus = [requests(one).cpu for one in left]
    assert (len(cpus), min(cpus), sum(cpus) <= 2000) == (3, 666, True)


def test_a_pod_of_a_larger_template_gets_what_that_states_until_its_own_use_is_known(stage: LiveStage):
    stage.node(cpu="16", memory="64Gi")
    stage.create(app("Deployment", stage.namespace, "web", "1", "2Gi", {"memory": "2Gi"}))
    stage.running(1)
    stage.measure({"web": ContainerUse(cores=0.4, mebibytes=1000)})
    # The Deployment is a few seconds old, and what is read first is what was used until half an hour ago.
    age = {"new_workload_age": "2s", "max_age": "2h"}
    stage.once("initial", prometheus_scrape_delay="35m", **age)
    with stage.reviewing(**age):
        wait_until(lambda: find(successor(stage), ObservedSize(400, 1000)), "the old revision is sized")
        stage.admin.apply(app("Deployment", stage.namespace, "web", "2", "6Gi", {"memory": "6Gi"}))
        stated = wait_until(lambda: placed(stage, other_than=ObservedSize(400, 1000)), "it is rolled out")
        assert requests(stated) == ObservedSize(2000, 6 * 1024)
        assert limits(stated).memory == 6 * 1024
        large = ContainerUse(cores=1.5, mebibytes=5000)
        half_an_hour_ago = stage.usage.began - 30 * MINUTE
        stage.usage.add(stated["metadata"]["name"], "app", large, stated["spec"]["nodeName"], half_an_hour_ago)
        stage.told()
        stage.once("initial", prometheus_scrape_delay="0s", **age)
        wait_until(lambda: find(successor(stage), ObservedSize(1500, 5000)), "its own use is known")


def placed(stage: LiveStage, other_than: ObservedSize) -> Json | None:
    """A pod of web that has a node and another size."""
    found = [one for one in stage.pods("web") if one["spec"].get("nodeName") and requests(one) != other_than]
    return found[0] if found else None


def asked(webhook: RunningProgram) -> int:
    """How many reviews it has answered."""
    _, metrics = webhook.get("/metrics")
    lines = [line for line in metrics.splitlines() if line.startswith("cruise_webhook_reviews_total")]
    return sum(int(float(line.rpartition(" ")[2])) for line in lines)


def find(pod: Json, size: ObservedSize) -> Json | None:
    """The pod, if it requests that much."""
    return pod if requests(pod) == size else None
