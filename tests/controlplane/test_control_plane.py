"""The test control plane: real API server, scheduler and controllers, and a controllable kubelet."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.api import Api, ApiError, Json, by_name, conditions, wait_until
from tests.controlplane.behaviour import KubeletBehaviour, ResizeBehaviour
from tests.controlplane.binaries import programs
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.manifests import WorkloadKind, budget, container, pod, pod_template, workload

SMALL = {"cpu": "500m", "memory": "256Mi"}
GROWN = {"cpu": "800m", "memory": "512Mi"}
LARGE = {"cpu": "3", "memory": "1Gi"}
HOURS = 3600.0


@pytest.fixture(autouse=True)
def node(kubelet: TestKubelet) -> str:
    """One node with 4 cores and 8 GiB."""
    return kubelet.add_node("n1").name


def running(admin: Api, namespace: str, count: int = 1) -> list[Json]:
    """Wait until that many pods are ready, and no others are there."""

    def look() -> list[Json] | None:
        pods = admin.items("pods", namespace)
        ready = [one for one in pods if conditions(one).get("Ready", {}).get("status") == "True"]
        return ready if len(ready) == len(pods) == count else None

    return wait_until(look, f"{count} pods run in {namespace}")


def run(admin: Api, namespace: str, name: str, requests: Json, **more: Any) -> Json:
    """Make a pod, and wait until it runs."""
    admin.create(pod(namespace, name, container(requests=requests), **more))
    return until_pod(admin, namespace, name, lambda one: one["status"]["phase"] == "Running")


def until_pod(admin: Api, namespace: str, name: str, holds) -> Json:
    """Wait until something holds for a pod."""

    def look() -> Json | None:
        found = admin.read("pods", namespace, name)
        return found if holds(found) else None

    return wait_until(look, f"what is expected of pod {name}")


def status_of(one: Json, name: str = "app") -> Json:
    return by_name(one["status"]["containerStatuses"])[name]


def resize(admin: Api, namespace: str, name: str, requests: Json) -> Json:
    return admin.resize(namespace, name, {"app": {"requests": requests}})


def settled(one: Json, requests: Json) -> bool:
    """Return whether a resize is done, as clients must decide it."""
    unfinished = {"PodResizePending", "PodResizeInProgress"} & set(conditions(one))
    seen = one["status"].get("observedGeneration", 0) >= one["metadata"]["generation"]
    return seen and not unfinished and status_of(one)["allocatedResources"] == requests


def test_deployment_is_bound_and_runs(admin: Api, namespace: str):
    admin.create(workload("Deployment", namespace, "web", pod_template("web", container(requests=SMALL)), replicas=3))
    pods = running(admin, namespace, 3)
    assert {one["spec"]["nodeName"] for one in pods} == {"n1"}
    assert {one["metadata"]["ownerReferences"][0]["kind"] for one in pods} == {"ReplicaSet"}
    assert len({one["status"]["podIP"] for one in pods}) == 3
    for one in pods:
        told = status_of(one)
        assert told["allocatedResources"] == told["resources"]["requests"] == SMALL
        assert "startedAt" in told["state"]["running"]
        assert (one["status"]["qosClass"], told["restartCount"]) == ("Burstable", 0)
    wait_until(
        lambda: admin.read("deployments.apps", namespace, "web")["status"].get("readyReplicas") == 3,
        "the Deployment counts its pods as ready",
    )


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet", "Job"])
def test_controllers_of_every_kind_get_their_pods(admin: Api, kubelet: TestKubelet, namespace: str, kind: WorkloadKind):
    admin.create(workload(kind, namespace, "it", pod_template("it", container(requests=SMALL))))
    (one,) = running(admin, namespace)
    assert one["metadata"]["ownerReferences"][0]["kind"] == kind
    if kind == "Job":
        kubelet.finish(namespace, one["metadata"]["name"])
        wait_until(lambda: admin.read("jobs.batch", namespace, "it")["status"].get("succeeded") == 1, "the Job is done")


def test_resize_is_taken_up(admin: Api, namespace: str):
    before = run(admin, namespace, "p", SMALL)
    answer = resize(admin, namespace, "p", GROWN)
    assert answer["metadata"]["generation"] == before["metadata"]["generation"] + 1
    after = until_pod(admin, namespace, "p", lambda one: settled(one, GROWN))
    told = status_of(after)
    assert told["resources"]["requests"] == GROWN
    assert (told["restartCount"], told["containerID"]) == (0, status_of(before)["containerID"])


def test_container_that_must_restart_to_be_resized_does(admin: Api, namespace: str):
    policy = [{"resourceName": "memory", "restartPolicy": "RestartContainer"}]
    admin.create(pod(namespace, "p", container(requests=SMALL, resizePolicy=policy)))
    running(admin, namespace)
    resize(admin, namespace, "p", {"cpu": "600m", "memory": "256Mi"})
    one = until_pod(admin, namespace, "p", lambda one: settled(one, {"cpu": "600m", "memory": "256Mi"}))
    assert status_of(one)["restartCount"] == 0
    resize(admin, namespace, "p", GROWN)
    one = until_pod(admin, namespace, "p", lambda one: settled(one, GROWN))
    assert status_of(one)["restartCount"] == 1


def test_cpu_limit_in_force_is_in_steps_of_the_kernel(admin: Api, namespace: str):
    admin.create(pod(namespace, "p", container(requests=SMALL, limits={"cpu": "1001m"})))
    (one,) = running(admin, namespace)
    assert status_of(one)["resources"]["limits"]["cpu"] == "1010m"


def test_more_than_the_node_has_is_refused(admin: Api, namespace: str):
    run(admin, namespace, "p", SMALL)
    with pytest.raises(ApiError) as refused:
        resize(admin, namespace, "p", {"cpu": "10"})
    assert (refused.value.status, refused.value.causes) == (403, ["NodeCapacity"])
    assert admin.read("pods", namespace, "p")["spec"]["containers"][0]["resources"]["requests"] == SMALL


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"requests": {"cpu": None}}, "resource requests cannot be removed"),
        ({"limits": SMALL}, "Pod QOS Class may not change"),
    ],
)
def test_invalid_resize_is_refused(admin: Api, namespace: str, resources: Json, message: str):
    run(admin, namespace, "p", SMALL)
    with pytest.raises(ApiError, match=message) as refused:
        admin.resize(namespace, "p", {"app": resources})
    assert (refused.value.status, refused.value.reason) == (422, "Invalid")


def test_unschedulable_pod_is_bound_once_it_is_smaller(admin: Api, namespace: str):
    admin.create(pod(namespace, "p", container(requests={"cpu": "5"})))
    until_pod(
        admin, namespace, "p", lambda one: conditions(one).get("PodScheduled", {}).get("reason") == "Unschedulable"
    )
    resize(admin, namespace, "p", {"cpu": "1"})
    one = until_pod(
        admin, namespace, "p", lambda one: settled(one, {"cpu": "1"}) if "nodeName" in one["spec"] else False
    )
    assert one["spec"]["nodeName"] == "n1"


def test_eviction_keeps_to_the_budget(admin: Api, namespace: str):
    admin.create(workload("Deployment", namespace, "web", pod_template("web", container(requests=SMALL)), replicas=2))
    admin.create(budget(namespace, "web", "web", min_available=2))
    first, _ = running(admin, namespace, 2)
    wait_until(
        lambda: "currentHealthy" in admin.read("poddisruptionbudgets.policy", namespace, "web")["status"], "budget"
    )
    name, uid = first["metadata"]["name"], first["metadata"]["uid"]
    with pytest.raises(ApiError) as refused:
        admin.evict(namespace, name, uid)
    assert (refused.value.status, refused.value.causes) == (429, ["DisruptionBudget"])

    admin.patch("poddisruptionbudgets.policy", namespace, "web", {"spec": {"minAvailable": 1}}, kind="merge")
    wait_until(
        lambda: admin.read("poddisruptionbudgets.policy", namespace, "web")["status"]["disruptionsAllowed"] == 1,
        "the budget allows a disruption",
    )
    admin.evict(namespace, name, uid)
    wait_until(lambda: uid not in {one["metadata"]["uid"] for one in running(admin, namespace, 2)}, "it is replaced")


def test_a_restarted_controller_manager_replaces_pods(control_plane: ControlPlane, admin: Api, namespace: str):
    admin.create(workload("Deployment", namespace, "web", pod_template("web", container(requests=SMALL)), replicas=2))
    first, _ = running(admin, namespace, 2)
    control_plane.restart_controller_manager()
    admin.delete("pods", namespace, first["metadata"]["name"], grace=0)
    uid = first["metadata"]["uid"]
    wait_until(lambda: uid not in {one["metadata"]["uid"] for one in running(admin, namespace, 2)}, "it is replaced")


def test_eviction_is_of_one_uid(admin: Api, namespace: str):
    one = run(admin, namespace, "p", SMALL)
    with pytest.raises(ApiError) as refused:
        admin.evict(namespace, "p", "00000000-0000-0000-0000-000000000000")
    assert refused.value.status == 409
    admin.evict(namespace, "p", one["metadata"]["uid"])
    wait_until(lambda: not admin.items("pods", namespace), "it goes")


def test_oom_kill_shows(admin: Api, kubelet: TestKubelet, namespace: str):
    before = run(admin, namespace, "p", SMALL)
    kubelet.oom_kill(namespace, "p", "app", restart_after=HOURS)
    told = status_of(until_pod(admin, namespace, "p", lambda one: "terminated" in status_of(one)["state"]))
    assert (told["state"]["terminated"]["reason"], told["state"]["terminated"]["exitCode"]) == ("OOMKilled", 137)
    assert (told["restartCount"], told["ready"], told["lastState"]) == (0, False, {})
    assert told["state"]["terminated"]["startedAt"] == status_of(before)["state"]["running"]["startedAt"]

    run(admin, namespace, "q", SMALL)
    kubelet.oom_kill(namespace, "q", "app")
    told = status_of(until_pod(admin, namespace, "q", lambda one: status_of(one)["restartCount"] == 1))
    assert (told["lastState"]["terminated"]["reason"], told["lastState"]["terminated"]["exitCode"]) == (
        "OOMKilled",
        137,
    )
    assert "running" in told["state"]


def test_a_resize_is_deferred_until_there_is_free_capacity(admin: Api, namespace: str):
    run(admin, namespace, "small", SMALL)
    run(admin, namespace, "large", LARGE)
    resize(admin, namespace, "small", {"cpu": "2"})
    waiting = until_pod(admin, namespace, "small", lambda one: "PodResizePending" in conditions(one))
    assert conditions(waiting)["PodResizePending"]["reason"] == "Deferred"
    assert "cpu, requested: 2000, used: 3000, capacity: 4000" in conditions(waiting)["PodResizePending"]["message"]
    assert status_of(waiting)["allocatedResources"] == SMALL
    resize(admin, namespace, "large", {"cpu": "1"})
    until_pod(admin, namespace, "small", lambda one: settled(one, {**SMALL, "cpu": "2"}))


@pytest.mark.parametrize("told", [ResizeBehaviour.DEFER, ResizeBehaviour.INFEASIBLE])
def test_a_test_kubelet_defers_a_resize_as_configured(
    admin: Api, kubelet: TestKubelet, namespace: str, told: ResizeBehaviour
):
    run(admin, namespace, "p", SMALL)
    kubelet.behave(KubeletBehaviour(resizing=told), namespace, "p")
    resize(admin, namespace, "p", GROWN)
    one = until_pod(admin, namespace, "p", lambda one: "PodResizePending" in conditions(one))
    condition = conditions(one)["PodResizePending"]
    assert (condition["reason"], condition["observedGeneration"]) == (told.value, one["metadata"]["generation"])
    assert one["status"]["observedGeneration"] == one["metadata"]["generation"]
    assert status_of(one)["allocatedResources"] == SMALL
    kubelet.behave_again()
    until_pod(admin, namespace, "p", lambda one: settled(one, GROWN))


def test_resize_withdrawn_is_pending_no_more(admin: Api, kubelet: TestKubelet, namespace: str):
    run(admin, namespace, "p", SMALL)
    kubelet.behave(KubeletBehaviour(resizing=ResizeBehaviour.DEFER), namespace)
    resize(admin, namespace, "p", GROWN)
    until_pod(admin, namespace, "p", lambda one: "PodResizePending" in conditions(one))
    resize(admin, namespace, "p", SMALL)
    until_pod(admin, namespace, "p", lambda one: settled(one, SMALL))


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [(KubeletBehaviour(actuation_seconds=HOURS), None), (KubeletBehaviour(resizing=ResizeBehaviour.ERROR), "Error")],
    ids=["slow", "failing"],
)
def test_resize_is_allocated_but_not_in_force(
    admin: Api, kubelet: TestKubelet, namespace: str, behaviour: KubeletBehaviour, reason: str | None
):
    kubelet.behave(behaviour, namespace, labels={"app": "p"})
    run(admin, namespace, "p", SMALL)
    resize(admin, namespace, "p", GROWN)
    one = until_pod(admin, namespace, "p", lambda one: "PodResizeInProgress" in conditions(one))
    assert conditions(one)["PodResizeInProgress"].get("reason") == reason
    assert status_of(one)["allocatedResources"] == GROWN
    assert status_of(one)["resources"]["requests"] == SMALL
    kubelet.behave_again()
    done = until_pod(admin, namespace, "p", lambda one: settled(one, GROWN))
    assert status_of(done)["resources"]["requests"] == GROWN


def test_sidecar_and_init_container_show_their_lifecycles(admin: Api, namespace: str):
    sidecar = container("proxy", requests=SMALL, restartPolicy="Always")
    one = pod(namespace, "p", container(requests=SMALL), initContainers=[sidecar, container("setup", requests=GROWN)])
    admin.create(one)
    (one,) = running(admin, namespace)
    told = by_name(one["status"]["initContainerStatuses"])
    assert "running" in told["proxy"]["state"]
    assert told["setup"]["state"]["terminated"]["exitCode"] == 0
    body = {"spec": {"initContainers": [{"name": "proxy", "resources": {"requests": GROWN}}]}}
    admin.patch("pods", namespace, "p", body, subresource="resize")
    until_pod(
        admin,
        namespace,
        "p",
        lambda one: by_name(one["status"]["initContainerStatuses"])["proxy"]["allocatedResources"] == GROWN,
    )


def test_pod_level_resources_are_resized(admin: Api, namespace: str):
    admin.create(pod(namespace, "p", container(), resources={"requests": SMALL}))
    (one,) = running(admin, namespace)
    assert one["status"]["allocatedResources"] == SMALL
    admin.patch("pods", namespace, "p", {"spec": {"resources": {"requests": GROWN}}}, subresource="resize")
    until_pod(admin, namespace, "p", lambda one: one["status"]["resources"]["requests"] == GROWN)


def test_node_without_the_feature_has_its_pods_resized_by_container_only(
    admin: Api, kubelet: TestKubelet, namespace: str
):
    kubelet.add_node("older", kubelet_version="v1.35.1", declared_features=())
    admin.create(pod(namespace, "p", container(), resources={"requests": SMALL}, nodeName="older"))
    running(admin, namespace)
    with pytest.raises(ApiError, match=r"features InPlacePodLevelResourcesVerticalScaling .* not available") as refused:
        admin.patch("pods", namespace, "p", {"spec": {"resources": {"requests": GROWN}}}, subresource="resize")
    assert (refused.value.status, refused.value.causes) == (403, [])


def test_a_terminating_pod_takes_the_configured_time(admin: Api, kubelet: TestKubelet, namespace: str):
    kubelet.behave(KubeletBehaviour(termination_seconds=HOURS), namespace)
    run(admin, namespace, "slow", SMALL, terminationGracePeriodSeconds=7200)
    run(admin, namespace, "quick", SMALL, terminationGracePeriodSeconds=1)
    for name in ("slow", "quick"):
        admin.delete("pods", namespace, name)
    wait_until(lambda: len(admin.items("pods", namespace)) == 1, "one of them goes")
    (left,) = admin.items("pods", namespace)
    assert left["metadata"]["name"] == "slow"
    assert left["metadata"]["deletionTimestamp"]
    assert "running" in status_of(left)["state"]


def test_a_pod_bound_to_a_full_node_is_rejected(admin: Api, namespace: str):
    run(admin, namespace, "first", LARGE)
    admin.create(pod(namespace, "second", container(requests=LARGE), nodeName="n1"))
    one = until_pod(admin, namespace, "second", lambda one: one["status"]["phase"] == "Failed")
    assert one["status"]["reason"] == "OutOfcpu"


def test_node_that_is_not_ready_gets_no_pods(admin: Api, kubelet: TestKubelet, namespace: str):
    kubelet.set_ready("n1", False)
    wait_until(lambda: admin.read("nodes", None, "n1")["spec"].get("taints"), "the node is tainted")
    admin.create(pod(namespace, "p", container(requests=SMALL)))
    until_pod(admin, namespace, "p", lambda one: conditions(one).get("PodScheduled", {}).get("status") == "False")
    kubelet.set_ready("n1", True)
    running(admin, namespace)


def test_audit_log_has_every_write_and_its_outcome(control_plane: ControlPlane, admin: Api, namespace: str):
    run(admin, namespace, "p", SMALL)
    mark = control_plane.audit.mark()
    resize(admin, namespace, "p", GROWN)
    with pytest.raises(ApiError):
        resize(admin, namespace, "p", {"cpu": "10"})
    admin.evict(namespace, "p")
    done = [(one.verb, one.resource, one.target, one.code) for one in control_plane.audit.writes(mark, "admin")]
    assert done == [
        ("patch", "pods/resize", f"{namespace}/p", 200),
        ("patch", "pods/resize", f"{namespace}/p", 403),
        ("create", "pods/eviction", f"{namespace}/p", 201),
    ]
    first, *_ = control_plane.audit.writes(mark, "admin")
    assert first.request_object["spec"]["containers"][0]["resources"]["requests"] == GROWN


def test_service_account_may_do_what_its_role_says(control_plane: ControlPlane, admin: Api, namespace: str):
    run(admin, namespace, "p", SMALL)
    metadata = {"namespace": namespace, "name": "resizer"}
    group = "rbac.authorization.k8s.io"
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    rules = [{"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]}]
    admin.create({"apiVersion": f"{group}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding = {
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "resizer"},
        "subjects": [{"kind": "ServiceAccount", **metadata}],
    }
    admin.create({"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": metadata, **binding})
    account = control_plane.api(token=admin.service_account_token(namespace, "resizer"))

    def allowed() -> bool:
        try:
            return bool(resize(account, namespace, "p", GROWN))
        except ApiError as error:
            # The server may not have read the role yet.
            assert error.status == 403
            return False

    wait_until(allowed, "the ServiceAccount may resize")
    with pytest.raises(ApiError) as refused:
        account.evict(namespace, "p")
    assert refused.value.status == 403


def test_kubeconfig_is_for_kubectl(control_plane: ControlPlane, admin: Api, namespace: str):
    run(admin, namespace, "p", SMALL)
    command = [
        str(programs() / "kubectl"),
        f"--kubeconfig={control_plane.kubeconfig()}",
        "get",
        "pods",
        "-n",
        namespace,
    ]
    done = subprocess.run([*command, "-o", "name"], check=True, capture_output=True, text=True)
    assert done.stdout == "pod/p\n"


def test_a_paused_server_answers_when_it_continues(control_plane: ControlPlane, admin: Api, namespace: str):
    control_plane.pause()
    try:
        state = Path(f"/proc/{control_plane.pids()['kube-apiserver']}/stat").read_text().rpartition(")")[2].split()[0]
    finally:
        control_plane.resume()
    assert state == "T"
    run(admin, namespace, "p", SMALL)


def test_a_killed_server_restarts_with_all_its_state(control_plane: ControlPlane, admin: Api, namespace: str):
    old = run(admin, namespace, "p", SMALL)
    for count in ("1", "2", "3"):
        admin.patch("pods", namespace, "p", {"metadata": {"labels": {"written": count}}})
    control_plane.kill_api_server()
    with pytest.raises(OSError):
        control_plane.api().get("/readyz")
    control_plane.start_api_server()
    assert admin.read("pods", namespace, "p")["metadata"]["uid"] == old["metadata"]["uid"]
    # Who watches on from before that must list anew.
    version = old["metadata"]["resourceVersion"]
    with admin.watch("pods", namespace, resourceVersion=version, timeoutSeconds="30") as watch:
        event = next(iter(watch))
    assert (event["type"], event["object"].get("code")) == ("ERROR", 410)
    # Controllers, scheduler and kubelet have found it again as well.
    admin.create(workload("Deployment", namespace, "web", pod_template("web", container(requests=SMALL))))
    running(admin, namespace, 2)


def test_a_server_that_has_ended_is_started_anew(namespace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Its own, as below."""
    with ControlPlane(tmp_path) as plane:
        before = plane.pids()
        for name in ("kube-apiserver", "kube-scheduler"):
            os.kill(before[name], signal.SIGKILL)
        wait_until(lambda: len(plane.pids()) == 2, "both have ended")
        plane.revive()
        after = plane.pids()
        assert {name for name in after if after[name] != before[name]} == {"kube-apiserver", "kube-scheduler"}
        assert plane.api().items("namespaces")
        plane.revive()
        assert plane.pids() == after
    assert "kube-scheduler has ended and is started anew" in capsys.readouterr().out


def test_an_api_server_that_stops_immediately_ends_no_other_server(namespace: str, tmp_path: Path):
    """Its own, since the worker's control plane has been there for long; `namespace` skips where there can be none."""
    with ControlPlane(tmp_path) as plane:
        plane.restart()
        # Not by deleting the ServiceAccount that is there: its controller may never have seen it, and misses nothing
        # where it lists them again only after that. A namespace that is new lacks one in any case.
        plane.api().create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}})
        wait_until(lambda: plane.alive() and plane.api().items("serviceaccounts", "later"), "the controllers go on")
        assert len(plane.pids()) == 4


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_servers_end_with_their_parent_process(paused: bool, tmp_path: Path):
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from tests.controlplane.control_plane import ControlPlane\n"
        "with ControlPlane(Path(sys.argv[1])) as plane:\n"
        "    if sys.argv[2] == 'True':\n"
        "        plane.pause()\n"
        "    print(*plane.pids().values(), flush=True)\n"
        "    time.sleep(3600)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(paused)]
    root = Path(__file__).parents[2]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root, start_new_session=True)
    assert starter.stdout is not None
    pids = starter.stdout.readline().split()
    starter.send_signal(signal.SIGKILL)
    starter.communicate()
    assert len(pids) == 4
    wait_until(lambda: not any(alive(int(pid)) for pid in pids), "every server has ended")


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended may wait for its parent to hear of it."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (ProcessLookupError, FileNotFoundError):
        return False
