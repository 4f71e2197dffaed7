"""Workflow pods and pods without requests on a real control plane: the sizes of the next run."""

from tests.controlplane.api import Json, wait_until
from tests.controlplane.manifests import container, pod, pod_template, workload
from tests.e2e.live.custom_kinds import foreign_kinds
from tests.e2e.live.sizes import ObservedSize, limits, requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse

PODS = 100
USE = ContainerUse(cores=0.1, mebibytes=100, peak_cores=0.2, peak_mebibytes=150)
SIZED, AS_SENT = ObservedSize(200, 150), ObservedSize(700, 1024)
STATED = {"cpu": "700m", "memory": "1Gi"}


def start_run(stage: LiveStage, second: int) -> Json:
    """A Workflow as a CronWorkflow creates it."""
    metadata = {"namespace": stage.namespace, "name": f"nightly-{second}"}
    return stage.admin.create({"apiVersion": "argoproj.io/v1", "kind": "Workflow", "metadata": metadata})


def create_pod(stage: LiveStage, run: Json, step: str, number: int) -> Json:
    """A pod of a step, as Argo's controller creates it."""
    name = run["metadata"]["name"]
    one = pod(stage.namespace, f"{name}-{step}-{number}", container(requests=STATED), restartPolicy="Never")
    one["metadata"]["labels"] = {
        "app": step,
        "workflows.argoproj.io/workflow": name,
        "workflows.argoproj.io/completed": "false",
    }
    one["metadata"]["annotations"] = {"workflows.argoproj.io/node-name": f"{name}[0].{step}({number}:item)"}
    owner = {"apiVersion": "argoproj.io/v1", "kind": "Workflow", "name": name, "uid": run["metadata"]["uid"]}
    one["metadata"]["ownerReferences"] = [owner | {"controller": True, "blockOwnerDeletion": True}]
    return stage.admin.create(one)


def test_the_pods_of_a_workflows_second_run_are_created_at_the_sizes_of_the_first(stage: LiveStage):
    stage.node(cpu="200", memory="400Gi")
    with foreign_kinds(stage.admin, {"argoproj.io": ["Workflow"]}):
        first = start_run(stage, 1764300000)
        created = [create_pod(stage, first, "train", number) for number in range(PODS)]
        assert {requests(one) for one in created} == {AS_SENT}
        stage.running(PODS)
        stage.measure({"train": USE})
        stage.once("initial")
        stage.mark()
        with stage.reviewing("full"):
            for one in created:
                stage.admin.delete("pods", stage.namespace, one["metadata"]["name"], grace=0)
            second = start_run(stage, 1764386400)

            def is_sized() -> bool:
                probe = create_pod(stage, second, "train", PODS)
                stage.admin.delete("pods", stage.namespace, probe["metadata"]["name"], grace=0)
                return bool(requests(probe) == SIZED)

            wait_until(is_sized, "a new pod is sized")
            again = [create_pod(stage, second, "train", number) for number in range(PODS)]
            assert {requests(one) for one in again} == {SIZED}
            # Another step of the same workflow has no history.
            assert requests(create_pod(stage, second, "report", 0)) == AS_SENT
        assert {resource for _, resource, *_ in stage.deeds() if resource.startswith("pods")} == set()


def test_a_new_pod_without_requests_gets_them_and_another_class(stage: LiveStage):
    stage.node(cpu="8", memory="32Gi")
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", container())))
    [before] = stage.running(1)
    assert before["status"]["qosClass"] == "BestEffort"
    stage.measure({"web": USE})
    adopt = {"best_effort": "adopt"}
    stage.mark()
    assert list_skipped(stage.once("full", **adopt)) == {before["metadata"]["name"]: "best-effort"}
    assert stage.deeds() == []
    gone = {before["metadata"]["uid"]}
    with stage.reviewing("full", **adopt):

        def look() -> Json | None:
            for one in stage.pods("web"):
                stage.admin.delete("pods", stage.namespace, one["metadata"]["name"], grace=0)
            wait_until(lambda: {one["metadata"]["uid"] for one in stage.pods("web")} - gone, "there is another pod")
            gone.update(one["metadata"]["uid"] for one in stage.pods("web"))
            return next((one for one in stage.pods("web") if requests(one) == SIZED), None)

        wait_until(look, "a new pod is sized")
    [after] = stage.running(1)
    assert (requests(after), limits(after)) == (SIZED, ObservedSize(0, 0))
    assert after["status"]["qosClass"] == "Burstable"


def test_a_container_without_requests_gets_them_in_place_if_another_one_states_some(stage: LiveStage):
    stage.node(cpu="8", memory="32Gi")
    two = (container(requests=STATED), container("proxy"))
    stage.create(workload("Deployment", stage.namespace, "web", pod_template("web", *two)))
    [before] = stage.running(1)
    assert before["status"]["qosClass"] == "Burstable"
    stage.measure({("web", "app"): USE, ("web", "proxy"): ContainerUse(cores=0.3, mebibytes=200)})
    stage.once("resize")
    [after] = stage.running(1)
    stated = {one["name"]: one["resources"].get("requests", {}) for one in after["spec"]["containers"]}
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert set(stated["proxy"]) == {"cpu", "memory"}
    assert after["status"]["qosClass"] == "Burstable"
