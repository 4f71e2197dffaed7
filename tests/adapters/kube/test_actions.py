import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from cruise.adapters.kube.actions import perform_action
from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.domain.actions import ContainerTarget, EvictPod, ReasonCode, ResizePod, TaintNode, UntaintNode
from cruise.domain.cluster import ContainerRole
from cruise.domain.policy import EvictionRanking
from cruise.domain.resources import NO_RESOURCES, ResourceName, StatedResources
from cruise.domain.scheduling import OVERLOADED_TAINT
from cruise.errors import ConflictError, CruiseError, NotFoundError, RefusedError, ThrottledError, UnavailableError
from tests.adapters.kube.relay import Network, run_through_relay
from tests.controlplane.api import Api, ApiError, Json, conditions, wait_until
from tests.controlplane.control_plane import CONTROLLER_MANAGER, ControlPlane
from tests.controlplane.kubelet import TestKubelet
from tests.controlplane.manifests import budget, container, pod

SMALL = {"cpu": "500m", "memory": "256Mi"}
LIMITS = {"cpu": "2", "memory": "1Gi"}
MI = 2**20
OTHER_UID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture(autouse=True)
def node(kubelet: TestKubelet) -> str:
    """One node with 4 cores and 8 GiB."""
    return kubelet.add_node("n1").name


def run(admin: Api, namespace: str, name: str, *containers: Json, **spec: object) -> Json:
    """Make a pod, and wait until it runs."""
    admin.create(pod(namespace, name, *(containers or (container(requests=SMALL, limits=LIMITS),)), **spec))

    def look() -> Json | None:
        found = admin.read("pods", namespace, name)
        return found if conditions(found).get("Ready", {}).get("status") == "True" else None

    return wait_until(look, f"pod {name} runs")


def sizes(
    cpu: int | None = None, memory: int | None = None, cpu_limit: int | None = None, memory_limit: int | None = None
) -> tuple[StatedResources, StatedResources]:
    return (
        StatedResources(cpu, None if memory is None else memory * MI),
        StatedResources(cpu_limit, None if memory_limit is None else memory_limit * MI),
    )


def resize(
    one: Json, *amounts: int | None, uid: str | None = None, name: str = "app", role: ContainerRole = ContainerRole.MAIN
) -> ResizePod:
    requests, limits = sizes(*amounts)
    return ResizePod(
        namespace=one["metadata"]["namespace"],
        pod=one["metadata"]["name"],
        uid=one["metadata"]["uid"] if uid is None else uid,
        node="n1",
        workload=None,
        containers=(ContainerTarget(name, role, requests, limits),),
        growth=NO_RESOURCES,
        reason=ReasonCode.RIGHTSIZED,
    )


def evict(one: Json, uid: str | None = None) -> EvictPod:
    return EvictPod(
        namespace=one["metadata"]["namespace"],
        pod=one["metadata"]["name"],
        uid=one["metadata"]["uid"] if uid is None else uid,
        node="n1",
        workload=None,
        ranking=EvictionRanking.MEDIUM,
        resource=ResourceName.CPU,
        reason=ReasonCode.NODE_OVER_CAPACITY,
    )


async def cause_of(client: KubernetesClient, action: ResizePod | EvictPod) -> str:
    with pytest.raises(RefusedError) as refused:
        await perform_action(client, action)
    assert str(refused.value)
    return refused.value.cause


def spec_of(admin: Api, one: Json, place: str = "containers") -> Mapping[str, Mapping[str, str]]:
    found = admin.read("pods", one["metadata"]["namespace"], one["metadata"]["name"])
    resources: Mapping[str, Mapping[str, str]] = found["spec"][place][0]["resources"]
    return resources


async def test_a_resize_changes_what_is_stated_and_nothing_else(client: KubernetesClient, admin: Api, namespace: str):
    sidecar = container("proxy", requests=SMALL, restartPolicy="Always")
    one = run(
        admin,
        namespace,
        "p",
        container(requests=SMALL, limits=LIMITS),
        container("other", requests=SMALL),
        initContainers=[sidecar],
    )
    requests, limits = sizes(600, 300, None, 900)
    action = resize(one)
    targets = (
        ContainerTarget("app", ContainerRole.MAIN, requests, limits),
        ContainerTarget("proxy", ContainerRole.SIDECAR, StatedResources(100, None), StatedResources()),
    )
    await perform_action(
        client,
        ResizePod(action.namespace, action.pod, action.uid, "n1", None, targets, NO_RESOURCES, ReasonCode.RIGHTSIZED),
    )
    after = admin.read("pods", namespace, "p")["spec"]
    assert [c["resources"] for c in after["containers"]] == [
        {"requests": {"cpu": "600m", "memory": "300Mi"}, "limits": {"cpu": "2", "memory": "900Mi"}},
        {"requests": SMALL},
    ]
    assert after["initContainers"][0]["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}}


async def test_a_resize_is_tagged_with_cruises_name(
    client: KubernetesClient, admin: Api, namespace: str, control_plane: ControlPlane
):
    one = run(admin, namespace, "p")
    mark = control_plane.audit.mark()
    await perform_action(client, resize(one, 600))
    admin.get("/version")
    [write] = [
        event
        for event in control_plane.audit.writes(mark)
        if event.target == f"{namespace}/p" and event.verb == "patch" and event.resource == "pods/resize"
    ]
    assert write.user_agent.startswith("cruise/")
    assert "fieldManager=cruise" in write.request_uri
    managers = {field["manager"] for field in admin.read("pods", namespace, "p")["metadata"]["managedFields"]}
    assert "cruise" in managers


async def test_a_resize_of_a_pod_that_was_replaced_is_a_conflict_and_changes_nothing(
    client: KubernetesClient, admin: Api, namespace: str
):
    one = run(admin, namespace, "p")
    with pytest.raises(ConflictError, match="uid"):
        await perform_action(client, resize(one, 600, uid=OTHER_UID))
    assert spec_of(admin, one)["requests"] == SMALL


async def test_a_late_resize_of_a_pod_that_another_has_written_since_is_a_conflict(
    client: KubernetesClient, admin: Api, namespace: str
):
    one = run(admin, namespace, "p")
    seen = one["metadata"]["resourceVersion"]
    await perform_action(
        client,
        replace(resize(one, 600), resource_version=admin.read("pods", namespace, "p")["metadata"]["resourceVersion"]),
    )
    with pytest.raises(ConflictError):
        await perform_action(client, replace(resize(one, 300), resource_version=seen))
    assert spec_of(admin, one)["requests"]["cpu"] == "600m"


async def test_a_late_eviction_of_a_pod_that_another_has_written_since_is_a_conflict(
    client: KubernetesClient, admin: Api, namespace: str
):
    one = run(admin, namespace, "p")
    seen = admin.read("pods", namespace, "p")["metadata"]["resourceVersion"]
    await perform_action(client, replace(resize(one, 600), resource_version=seen))
    with pytest.raises(ConflictError):
        await perform_action(client, replace(evict(one), resource_version=seen))
    assert "deletionTimestamp" not in admin.read("pods", namespace, "p")["metadata"]


async def test_an_eviction_at_the_present_version_is_allowed_by_a_budget(
    client: KubernetesClient, admin: Api, namespace: str
):
    """The server notes the disruption in the pod's status first, which makes another version of it."""
    one = run(admin, namespace, "p")
    admin.create(budget(namespace, "keep", "p", 0))
    wait_until(
        lambda: admin.read("poddisruptionbudgets.policy", namespace, "keep")["status"].get("disruptionsAllowed"),
        "the budget allows it",
    )
    seen = admin.read("pods", namespace, "p")["metadata"]["resourceVersion"]
    await perform_action(client, replace(evict(one), resource_version=seen))
    wait_until(lambda: not admin.items("pods", namespace), "the pod is deleted")


async def test_a_resize_of_a_deleted_pod_is_not_found(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    admin.delete("pods", namespace, "p", grace=0)
    with pytest.raises(NotFoundError):
        await perform_action(client, resize(one, 600))


@pytest.mark.parametrize(
    ("amounts", "cause"),
    [
        ((2000, 1024, 2000, 1024), "QosClassChange"),
        ((9000, 256, 9000, 1024), "NodeCapacity"),
        ((3000,), "RequestAboveLimit"),
        ((-1,), "FieldValueInvalid"),
    ],
)
async def test_refused_sizes(
    client: KubernetesClient, admin: Api, namespace: str, amounts: tuple[int, ...], cause: str
):
    one = run(admin, namespace, "p")
    before = spec_of(admin, one)
    assert await cause_of(client, resize(one, *amounts)) == cause
    assert spec_of(admin, one) == before


async def test_a_best_effort_pod_gets_no_requests(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p", container())
    assert await cause_of(client, resize(one, 100)) == "QosClassChange"


async def test_repeats_a_resize_if_its_answer_is_lost(
    admin: Api, namespace: str, control_plane: ControlPlane, tmp_path: Path
):
    one = run(admin, namespace, "p")
    mark = control_plane.audit.mark()
    async with (
        run_through_relay(control_plane, tmp_path) as (relay, kubeconfig),
        connect_to_kubernetes(KubernetesSettings(kubeconfig)) as far,
        asyncio.TaskGroup() as group,
    ):
        await far.get("/version")
        relay.become(Network.DEAF)
        writing = group.create_task(perform_action(far, resize(one, 600)))
        await asyncio.to_thread(wait_until, lambda: spec_of(admin, one)["requests"]["cpu"] == "600m", "it has arrived")
        relay.become(Network.DOWN)
        relay.become(Network.UP)
        await writing
    patches = [event for event in control_plane.audit.writes(mark) if event.resource == "pods/resize"]
    assert [(event.target, event.code) for event in patches] == [(f"{namespace}/p", 200)] * 2


async def test_an_eviction_whose_answer_is_lost_is_not_sent_again(
    admin: Api, namespace: str, control_plane: ControlPlane, tmp_path: Path
):
    one = run(admin, namespace, "p")
    mark = control_plane.audit.mark()
    async with (
        run_through_relay(control_plane, tmp_path) as (relay, kubeconfig),
        connect_to_kubernetes(KubernetesSettings(kubeconfig)) as far,
    ):
        await far.get("/version")
        relay.become(Network.DEAF)
        evicting = asyncio.ensure_future(perform_action(far, evict(one)))
        await asyncio.to_thread(wait_until, lambda: not admin.items("pods", namespace), "the pod is deleted")
        relay.become(Network.DOWN)
        relay.become(Network.UP)
        with pytest.raises(UnavailableError):
            await evicting
    assert [event.code for event in control_plane.audit.writes(mark) if event.resource == "pods/eviction"] == [201]


async def test_a_removed_limit_is_refused(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    path = f"/api/v1/namespaces/{namespace}/pods/p/resize"
    body = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": None}}}]}}
    with pytest.raises(RefusedError) as refused:
        await client.send("PATCH", path, body, content_type="application/strategic-merge-patch+json")
    assert refused.value.cause == "ResourceRemoved"
    assert spec_of(admin, one)["limits"] == LIMITS


async def test_a_stale_resource_version_is_a_conflict(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    await perform_action(client, resize(one, 600))
    path = f"/api/v1/namespaces/{namespace}/pods/p/resize"
    body = {
        "metadata": {"resourceVersion": one["metadata"]["resourceVersion"]},
        "spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "700m"}}}]},
    }
    with pytest.raises(ConflictError):
        await client.send("PATCH", path, body, content_type="application/strategic-merge-patch+json")
    assert spec_of(admin, one)["requests"]["cpu"] == "600m"


async def test_a_container_that_the_pod_does_not_have_is_refused(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    assert await cause_of(client, resize(one, 100, name="nobody")) == "ContainerSet"


async def test_pods_of_kinds_that_are_never_resized(client: KubernetesClient, admin: Api, namespace: str):
    mirrored = pod(namespace, "static", container(requests=SMALL), nodeName="n1")
    mirrored["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "abc"}
    static = admin.create(mirrored)
    windows = admin.create(pod(namespace, "windows", container(requests=SMALL), os={"name": "windows"}))
    assert await cause_of(client, resize(static, 100)) == "StaticPod"
    assert await cause_of(client, resize(windows, 100)) == "UnsupportedPlatform"


async def test_a_pod_on_a_windows_node_is_refused(
    client: KubernetesClient, admin: Api, kubelet: TestKubelet, namespace: str
):
    kubelet.add_node("w1", labels={"kubernetes.io/os": "windows"})
    one = run(admin, namespace, "p", nodeName="w1")
    assert await cause_of(client, resize(one, 100)) == "UnsupportedPlatform"


async def test_a_pod_whose_kubelet_reports_no_resources_is_refused(
    client: KubernetesClient, admin: Api, namespace: str
):
    registered = admin.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"old-{namespace}"}})
    try:
        one = admin.create(pod(namespace, "p", container(requests=SMALL), nodeName=registered["metadata"]["name"]))
        reported = {
            "name": "app",
            "image": "app:1",
            "imageID": "",
            "restartCount": 0,
            "ready": True,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        status = {"status": {"phase": "Running", "containerStatuses": [reported]}}
        admin.patch("pods", namespace, "p", status, subresource="status")
        assert await cause_of(client, resize(one, 100)) == "NodeWithoutResize"
    finally:
        admin.delete("nodes", None, registered["metadata"]["name"])


async def test_init_containers_are_resized_where_the_node_declares_it_and_else_refused(
    client: KubernetesClient, admin: Api, kubelet: TestKubelet, namespace: str
):
    kubelet.add_node("older", kubelet_version="v1.35.1", declared_features=())
    init = container("setup", requests=SMALL)
    new = run(admin, namespace, "new", container(requests=SMALL), initContainers=[init], nodeName="n1")
    old = run(admin, namespace, "old", container(requests=SMALL), initContainers=[init], nodeName="older")
    await perform_action(client, resize(new, 600, name="setup", role=ContainerRole.SIDECAR))
    assert spec_of(admin, new, "initContainers")["requests"]["cpu"] == "600m"
    cause = await cause_of(client, resize(old, 600, name="setup", role=ContainerRole.SIDECAR))
    assert cause == "NodeWithoutFeature"


@pytest.mark.parametrize(
    ("limit", "amounts"),
    [
        ({"type": "Container", "max": {"cpu": "1500m"}}, (600, None, 1800, None)),
        ({"type": "Container", "min": {"cpu": "400m"}}, (300,)),
        ({"type": "Container", "maxLimitRequestRatio": {"memory": "4"}}, (None, 64)),
        ({"type": "Pod", "max": {"memory": "1Gi"}}, (None, None, None, 1500)),
    ],
)
async def test_limit_ranges_refuse(
    client: KubernetesClient, admin: Api, namespace: str, limit: Json, amounts: tuple[int | None, ...]
):
    one = run(admin, namespace, "p")
    metadata = {"namespace": namespace, "name": "bounds"}
    admin.create({"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata, "spec": {"limits": [limit]}})
    # The server reads LimitRanges from a cache: a resize that it still accepts is reverted.
    before = sizes(500, 256, 2000, 1024)

    async def refused() -> str | None:
        try:
            await perform_action(client, resize(one, *amounts))
        except RefusedError as error:
            return error.cause
        undo = resize(one)
        target = ContainerTarget("app", ContainerRole.MAIN, *before)
        await perform_action(
            client, ResizePod(undo.namespace, undo.pod, undo.uid, "n1", None, (target,), NO_RESOURCES, undo.reason)
        )
        return None

    deadline = time.monotonic() + 30
    cause = await refused()
    while cause is None and time.monotonic() < deadline:
        cause = await refused()
    assert cause == "LimitRange"


async def test_a_quota_refuses(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    metadata = {"namespace": namespace, "name": "quota"}
    spec = {"hard": {"requests.cpu": "1"}}
    admin.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec})
    wait_until(
        lambda: (admin.read("resourcequotas", namespace, "quota").get("status") or {}).get("used"),
        "the quota is counted",
    )
    assert await cause_of(client, resize(one, 1500)) == "QuotaExceeded"
    await perform_action(client, resize(one, 900))
    assert spec_of(admin, one)["requests"]["cpu"] == "900m"


async def test_an_account_without_the_right_is_refused(control_plane: ControlPlane, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "poor"}})
    kubeconfig = control_plane.kubeconfig(f"poor-{namespace}", admin.service_account_token(namespace, "poor"))
    async with connect_to_kubernetes(KubernetesSettings(kubeconfig)) as poor:
        assert await cause_of(poor, resize(one, 600)) == "Forbidden"
        assert await cause_of(poor, evict(one)) == "Forbidden"


async def test_distinguishes_a_denial_by_an_admission_policy(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]}
    policy = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": namespace},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false", "message": "not today"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    binding = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": {
            "policyName": namespace,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    admin.create(policy)
    admin.create(binding)
    try:
        deadline = time.monotonic() + 30
        cause, cpu = "", 500
        # A policy holds only once the server has compiled it.
        while not cause and time.monotonic() < deadline:
            cpu += 1
            try:
                await perform_action(client, resize(one, cpu))
            except RefusedError as error:
                cause = error.cause
        assert cause == "AdmissionDenied"
    finally:
        admin.delete("validatingadmissionpolicybindings.admissionregistration.k8s.io", None, namespace)
        admin.delete("validatingadmissionpolicies.admissionregistration.k8s.io", None, namespace)


async def test_a_webhook_that_does_not_answer_throttles_only_its_pods(
    client: KubernetesClient, admin: Api, namespace: str
):
    one = run(admin, namespace, "p")
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/resize"]}
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": namespace},
        "webhooks": [
            {
                "name": "away.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "failurePolicy": "Fail",
            }
        ],
    }
    admin.create(configuration)
    try:
        deadline = time.monotonic() + 30
        error: CruiseError | None = None
        cpu = 500
        while error is None and time.monotonic() < deadline:
            cpu += 1
            try:
                await perform_action(client, resize(one, cpu))
            except CruiseError as raised:
                error = raised
        assert isinstance(error, ThrottledError)
        assert error.cause == "WebhookFailed"
    finally:
        admin.delete("validatingwebhookconfigurations.admissionregistration.k8s.io", None, namespace)


async def test_an_eviction_deletes_the_pod(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    await perform_action(client, evict(one))
    wait_until(lambda: not admin.items("pods", namespace), "the pod is deleted")


async def test_an_eviction_of_a_pod_that_was_replaced_is_a_conflict(
    client: KubernetesClient, admin: Api, namespace: str
):
    one = run(admin, namespace, "p")
    with pytest.raises(ConflictError):
        await perform_action(client, evict(one, uid=OTHER_UID))
    assert "deletionTimestamp" not in admin.read("pods", namespace, "p")["metadata"]


async def test_an_eviction_of_a_deleted_pod_is_not_found(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    admin.delete("pods", namespace, "p", grace=0)
    with pytest.raises(NotFoundError):
        await perform_action(client, evict(one))


async def test_throttles_an_eviction_that_a_budget_forbids_at_present(
    client: KubernetesClient, admin: Api, namespace: str
):
    one = run(admin, namespace, "p")
    admin.create(budget(namespace, "keep", "p", 1))
    wait_until(
        lambda: admin.read("poddisruptionbudgets.policy", namespace, "keep")["status"].get("currentHealthy"),
        "the budget counts its pods",
    )
    with pytest.raises(ThrottledError, match="disruption budget") as throttled:
        await perform_action(client, evict(one))
    assert throttled.value.cause == "DisruptionBudget"
    assert throttled.value.retry_after_seconds is None


async def test_throttles_an_eviction_if_the_budget_has_no_status_yet(
    client: KubernetesClient, admin: Api, namespace: str, control_plane: ControlPlane
):
    one = run(admin, namespace, "p")
    # Returns once every thread has stopped: a signal alone lets them go on for a while on a busy machine.
    control_plane.pause(CONTROLLER_MANAGER)
    try:
        admin.create(budget(namespace, "keep", "p", 0))
        with pytest.raises(ThrottledError) as throttled:
            await perform_action(client, evict(one))
    finally:
        control_plane.resume(CONTROLLER_MANAGER)
    assert throttled.value.cause == "DisruptionBudget"
    assert throttled.value.retry_after_seconds == 10


async def test_two_budgets_make_a_pod_unevictable(client: KubernetesClient, admin: Api, namespace: str):
    one = run(admin, namespace, "p")
    for name in ("keep", "keep-too"):
        admin.create(budget(namespace, name, "p", 0))
    wait_until(
        lambda: all(b["status"].get("expectedPods") for b in admin.items("poddisruptionbudgets.policy", namespace)),
        "both budgets count their pods",
    )
    assert await cause_of(client, evict(one)) == "MultipleDisruptionBudgets"
    assert "deletionTimestamp" not in admin.read("pods", namespace, "p")["metadata"]


def taints(admin: Api, node: str) -> list[tuple[str, str]]:
    found = admin.read("nodes", None, node)["spec"].get("taints") or []
    return sorted((taint["key"], taint["effect"]) for taint in found)


OURS = (OVERLOADED_TAINT.key, OVERLOADED_TAINT.effect.value)


async def test_adds_and_removes_only_cruises_taint(client: KubernetesClient, admin: Api, node: str):
    other = {"key": "dedicated", "value": "db", "effect": "PreferNoSchedule"}
    admin.patch("nodes", None, node, {"spec": {"taints": [other]}}, "merge")
    for _ in range(2):
        await perform_action(client, TaintNode(node, ReasonCode.OVERLOADED))
        assert taints(admin, node) == [OURS, ("dedicated", "PreferNoSchedule")]
    for _ in range(2):
        await perform_action(client, UntaintNode(node, ReasonCode.LOAD_NORMAL))
        assert taints(admin, node) == [("dedicated", "PreferNoSchedule")]
    admin.patch("nodes", None, node, {"spec": {"taints": None}}, "merge")
    await perform_action(client, TaintNode(node, ReasonCode.OVERLOADED))
    await perform_action(client, UntaintNode(node, ReasonCode.LOAD_NORMAL))
    assert taints(admin, node) == []


def added_by_another(admin: Api, node: str, key: str) -> bool:
    """Add a taint with a precondition; return whether no other client wrote meanwhile."""
    found = admin.read("nodes", None, node)
    patch = {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "spec": {"taints": [*(found["spec"].get("taints") or []), {"key": key, "effect": "PreferNoSchedule"}]},
    }
    try:
        admin.patch("nodes", None, node, patch, "merge")
    except ApiError as error:
        assert error.status == 409, error
        return False
    return True


async def test_a_taint_that_others_change_meanwhile_is_never_lost(client: KubernetesClient, admin: Api, node: str):
    keys = {f"other-{number:02}" for number in range(15)}

    async def others() -> None:
        for key in sorted(keys):
            while not await asyncio.to_thread(added_by_another, admin, node, key):
                pass

    async def ours() -> None:
        for _ in range(15):
            for action in (TaintNode(node, ReasonCode.OVERLOADED), UntaintNode(node, ReasonCode.LOAD_NORMAL)):
                with suppress(ConflictError):
                    await perform_action(client, action)

    await asyncio.gather(others(), ours())
    await perform_action(client, TaintNode(node, ReasonCode.OVERLOADED))
    assert {key for key, _ in taints(admin, node)} == {OVERLOADED_TAINT.key, *keys}


async def test_reports_a_missing_node(client: KubernetesClient, admin: Api):
    with pytest.raises(NotFoundError):
        await perform_action(client, TaintNode("nowhere", ReasonCode.OVERLOADED))
