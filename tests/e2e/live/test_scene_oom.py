"""OOM kills: memory grows in place at once, and no kill is handled twice."""

from datetime import UTC, datetime

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import container, pod_template
from tests.e2e.live.manifests import app, next_run, run_of_cron_job
from tests.e2e.live.sizes import ObservedSize, limits, requests, statuses_of
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

# One node pass at the start, and none that could interfere afterwards.
CALM = {"pass_interval": "1h", "max_age": "1h"}
USE = ContainerUse(cores=0.1, mebibytes=120)


def settled(stage: LiveStage, memory: str = "128Mi") -> Json:
    """A pod that has what it uses, at least as a node pass sees it."""
    stage.node()
    stage.create(app("Deployment", stage.namespace, "web", "100m", memory, {"memory": "256Mi"}))
    [pod] = stage.running(1)
    stage.measure({"web": USE})
    stage.once()
    pod = stage.resized(pod["metadata"]["name"])
    stage.mark()
    return pod


def killed(stage: LiveStage, times: int) -> Json:
    """Let the container be killed, and wait until its pod's status shows it."""
    name = stage.pod("web")["metadata"]["name"]
    # Statuses have whole seconds, so two kills within one second cannot be distinguished.
    began = int(datetime.now(UTC).timestamp())  # noqa: TID251  the kubelet's clock
    wait_until(lambda: int(datetime.now(UTC).timestamp()) > began, "the next second")  # noqa: TID251
    stage.kubelet.oom_kill(stage.namespace, name, "app")

    def look() -> Json | None:
        pod = stage.pod("web")
        return pod if statuses_of(pod)["app"]["restartCount"] == times else None

    return wait_until(look, "the kill shows")


def seconds_to_react(stage: LiveStage) -> float:
    """The time from the kubelet's report of the kill to cruise's resize, by the API server's clock."""
    events = stage.plane.audit.events(verbs={"patch"})
    told = [
        one
        for one in events
        if one.resource == "pods/status"
        and one.object_ref.namespace == stage.namespace
        and "OOMKilled" in str(one.request_object)
    ]
    [asked] = [one for one in stage.events() if one.resource == "pods/resize"]
    return (at(asked.request_received_timestamp) - at(told[0].request_received_timestamp)).total_seconds()


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


def test_a_killed_container_grows_in_place_and_is_then_unchanged(stage: LiveStage):
    before = settled(stage)
    with stage.serving(**CALM) as serving:
        killed(stage, 1)
        wait_until(stage.deeds, "cruise has done something")
        # The rules allow five seconds.
        assert seconds_to_react(stage) < 5
        grown = stage.resized(before["metadata"]["name"])
        assert grown["metadata"]["uid"] == before["metadata"]["uid"]
        # Half as much again as was seen, and as the limit that was reached.
        assert requests(grown).memory == 180
        assert 2 * limits(grown).memory >= 3 * limits(before).memory
        assert requests(grown).cpu == requests(before).cpu
        # A second kill in the cool-down is remembered, and nothing is done.
        killed(stage, 2)
        wait_until(lambda: "cooldown" in serving.log, "the second kill is seen")
        assert len(stage.deeds()) == 1
    # A new process reads the same statuses again: the second kill is in one, the first one's reaction in the store.
    with stage.serving(**CALM):
        again = stage.pod("web")
        assert ObservedSize(*requests(again)) == requests(grown)
        assert len(stage.deeds()) == 1


def test_an_oom_record_is_kept_after_the_pod_is_gone(stage: LiveStage):
    before = settled(stage)
    with stage.serving(**CALM) as serving:
        killed(stage, 1)
        wait_until(lambda: "out of memory" in serving.log, "cruise has grown it")
        stage.resized(before["metadata"]["name"])
    stage.mark()
    stage.once()
    after = stage.resized(before["metadata"]["name"])
    # The next node pass does not take back what the kill has taught.
    assert 2 * limits(after).memory >= 3 * limits(before).memory


def test_the_next_pod_of_a_killed_cron_job_is_created_larger(stage: LiveStage):
    stage.node()
    one = container(requests={"cpu": "100m", "memory": "128Mi"}, limits={"memory": "256Mi"})
    template = pod_template("report", one, terminationGracePeriodSeconds=1)
    cron_job = run_of_cron_job(stage.admin, stage.namespace, "report", template)
    [pod] = stage.running(1)
    stage.measure({"report": USE})
    stage.once("initial")
    assert requests(pod).memory == 128
    with stage.serving("initial", **CALM) as serving:
        # A shell that outlives the killed process ends with another exit code.
        stage.kubelet.kill_container(stage.namespace, pod["metadata"]["name"], "app", "OOMKilled", 1)
        wait_until(lambda: "out of memory" in serving.log, "the kill is seen")
        found = stage.command("scan", "--format", "json", mode="initial").json
        risks = [(risk["workload"], risk["kind"], risk["limitBytes"]) for risk in found["atRisk"]]
        assert ("CronJob/report", "oom-killed", 256 << 20) in risks
        status, outcomes = serving.get("/api/v1/audit")
        assert status == 200
        assert pod["metadata"]["name"] in outcomes
    earlier = {one["metadata"]["uid"] for one in stage.pods("report")}

    def larger() -> Json | None:
        """Another run's pod, once the API server calls the webhook."""
        number = 29000000 + len(stage.pods("report"))
        next_run(stage.admin, cron_job, number)
        made = wait_until(
            lambda: [one for one in stage.pods("report") if one["metadata"]["uid"] not in earlier], "a pod"
        )
        earlier.update(one["metadata"]["uid"] for one in made)
        # Half as much again as was seen, and twice that for the limit.
        return next((one for one in made if requests(one).memory == 180 and limits(one).memory == 360), None)

    with stage.reviewing():
        wait_until(larger, "the next run's pod is created larger")
