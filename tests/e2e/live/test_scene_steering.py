"""User actions while cruise runs: pause, resume, revert."""

from datetime import UTC, datetime, timedelta

from tests.controlplane.api import wait_until
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import ObservedSize, limits, requests
from tests.e2e.live.stage import LiveStage
from tests.e2e.live.usage import ContainerUse

COUNT = 20
USE = ContainerUse(cores=0.05, mebibytes=60, peak_cores=0.08, peak_mebibytes=80)
# Reading a pod anew and resizing it are two requests: a plan over all takes 20 seconds.
SLOWLY = {"pass_interval": "2s", "kube_requests_per_second": "2", "kube_burst": "1"}
SECOND = timedelta(seconds=1)


def staged(stage: LiveStage) -> None:
    """A workload whose pods all request far too much."""
    node = stage.node(cpu="8", memory="16Gi")
    stage.create(app("Deployment", stage.namespace, "web", "300m", "512Mi", node=node, replicas=COUNT))
    stage.running(COUNT)
    stage.measure({"web": USE})
    stage.mark()


def shrunk(stage: LiveStage) -> int:
    return sum(requests(one).cpu < 300 for one in stage.pods("web"))


def test_a_pause_stops_writes_within_a_second_in_the_middle_of_a_plan(stage: LiveStage):
    staged(stage)
    with stage.serving(**SLOWLY):
        wait_until(lambda: shrunk(stage) >= 3, "the plan has begun")
        assert stage.command("pause").code == 0
        paused_at = datetime.now(UTC)  # noqa: TID251  when the command has ended
        left = COUNT - shrunk(stage)
        assert left > 2, "the plan was over too soon"
        # Two passes begin and end meanwhile.
        wait_until(lambda: datetime.now(UTC) > paused_at + timedelta(seconds=5), "time passes")  # noqa: TID251
        late = [
            one.target
            for one in stage.events()
            if one.resource == "pods/resize"
            and datetime.fromisoformat(one.request_received_timestamp) > paused_at + SECOND
        ]
        assert late == []
        assert shrunk(stage) < COUNT
        assert stage.command("resume").code == 0
        wait_until(lambda: shrunk(stage) == COUNT, "the rest is done")
    # Each was resized once.
    targets = [target for _, resource, target, _ in stage.deeds() if resource == "pods/resize"]
    assert sorted(targets) == sorted(f"{stage.namespace}/{one['metadata']['name']}" for one in stage.pods("web"))
    assert {code for *_, code in stage.deeds()} == {200}


def test_a_revert_restores_the_original_requests_without_evictions(stage: LiveStage):
    staged(stage)
    uids = {one["metadata"]["uid"] for one in stage.pods("web")}
    stage.once()
    assert shrunk(stage) == COUNT
    stage.mark()
    ended = stage.command("revert", "--yes")
    assert ended.code == 0, ended.err
    pods = [stage.resized(one["metadata"]["name"]) for one in stage.pods("web")]
    assert {requests(one) for one in pods} == {ObservedSize(300, 512)}
    assert {one["metadata"]["uid"] for one in pods} == uids
    assert {(verb, resource, code) for verb, resource, _, code in stage.deeds()} == {("patch", "pods/resize", 200)}
    # Limits cannot be removed again; they restrict no container.
    assert all(limits(one).memory == 0 or limits(one).memory >= 512 for one in pods)


def test_reverted_pods_are_not_sized_again_because_cruise_is_paused(stage: LiveStage):
    staged(stage)
    stage.once()
    assert stage.command("pause").code == 0
    assert stage.command("revert", "--yes").code == 0
    assert shrunk(stage) == 0
    stage.mark()
    stage.once()
    assert stage.deeds() == []
