"""Pod-level resources on a real API server: it accepts what cruise writes, and its rejections are expected."""

from dataclasses import replace
from random import Random

import msgspec
import pytest

from cruise.adapters.kube.responses import create_error
from cruise.decisions.admission.admission import MutatePod, compute_admitted_resources, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import Node, Pod, WorkloadRef
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.policy import Mode, Policy
from cruise.errors import RefusedError
from cruise.kube_json.object_errors import convert_to_struct
from cruise.kube_json.objects.node import decode_node
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.patches import apply_patch_in_place, build_pod_patch, build_resize_patch
from cruise.kube_json.wire.object_json import NodeObject
from tests.builders import NOW, TRACKING, make_snapshot, make_table
from tests.controlplane.api import PATCH_TYPES, Api, ApiError, Json, wait_until
from tests.controlplane.kubelet import TestKubelet
from tests.pod_level_pods import draw_pod_spec, draw_statistics

FULL = Policy(mode=Mode.FULL, rules=TRACKING)
PODS, DRAWS = 25, 16


def manifest(namespace: str, name: str, spec: Json) -> Json:
    metadata = {"namespace": namespace, "name": name}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def owned(document: Json) -> Pod:
    """The pod as if a Deployment had created it, long ago."""
    pod = replace(decode_pod(document), workload=WorkloadRef("Deployment", "web"), created_at=None)
    return replace(pod, owner_kind="ReplicaSet", owner_name="web-1")


def send_dry(admin: Api, pod: Pod, patch: Json) -> Json:
    path = f"{admin.path('pods', pod.namespace, pod.name, 'resize')}?dryRun=All"
    answer: Json = admin.request("PATCH", path, patch, PATCH_TYPES["strategic"])
    return answer


def read_node(admin: Api, name: str) -> Node:
    return decode_node(convert_to_struct(admin.read("nodes", None, name), NodeObject))


def test_server_accepts_every_resize_of_random_pods(admin: Api, kubelet: TestKubelet, namespace: str):
    kubelet.add_node("n1", cpu="400", memory="800Gi")
    for seed in range(PODS):
        admin.create(manifest(namespace, f"p-{seed}", draw_pod_spec(Random(seed))))

    def look() -> list[Json] | None:
        pods = admin.items("pods", namespace)
        return pods if all(one["status"]["phase"] == "Running" for one in pods) else None

    documents, node = wait_until(look, "all pods run"), read_node(admin, "n1")
    sent = grown = within = 0
    for seed in range(DRAWS):
        for document in documents:
            pod = owned(document)
            table = make_table(*draw_statistics(Random(seed), pod))
            [plan] = decide_node_plans(make_snapshot([pod], nodes=[node]), table, FULL, NOW)
            for resize in plan.resize:
                answer = send_dry(admin, pod, build_resize_patch(resize))
                wanted = {one.container: (one.requests, one.limits) for one in resize.containers}
                got = {part.name: (part.requests, part.limits) for part in owned(answer).resizable_parts}
                assert wanted == {name: got[name] for name in wanted}, (seed, pod.name)
                sent, grown, within = sent + 1, grown + resize.needs_capacity, within + (len(resize.containers) > 1)
    assert sent > PODS * DRAWS / 2, sent
    assert grown and within
    print(f"\n{sent} resizes accepted, {grown} of them grow, {within} with containers of their own sizes")


def test_server_creates_every_pod_that_admission_sizes(admin: Api, kubelet: TestKubelet, namespace: str):
    kubelet.add_node("n1")
    node, sized = read_node(admin, "n1"), 0
    for seed in range(PODS * 8):
        random = Random(seed)
        path = f"{admin.path('pods', namespace)}?dryRun=All"
        created = admin.request("POST", path, manifest(namespace, f"p-{seed}", draw_pod_spec(random)))
        pod = replace(owned(created), node=None)
        table = make_table(*draw_statistics(random, pod))
        eligibility, nodes = Eligibility(make_snapshot([], nodes=[node]), table, {}, FULL, NOW), NodeIndex([node])
        decision = decide_admission(pod, eligibility, table, nodes, (), FULL)
        if isinstance(decision, MutatePod):
            after = compute_admitted_resources(pod, decision).apply_to(pod, {})
            submitted = manifest(namespace, f"p-{seed}", created["spec"])
            apply_patch_in_place(submitted, build_pod_patch(submitted, pod, after))
            got = owned(admin.request("POST", path, submitted))
            assert [(one.requests, one.limits) for one in got.resizable_parts] == [
                (one.requests, one.limits) for one in after.resizable_parts
            ], seed
            assert got.qos is pod.qos
            sized += 1
    assert sized > PODS * 4
    print(f"\n{sized} pods created as admission sizes them")


def test_kubelet_without_the_feature_is_skipped_and_would_refuse(admin: Api, kubelet: TestKubelet, namespace: str):
    kubelet.add_node("older", kubelet_version="v1.35.1", declared_features=())
    resources = {"requests": {"cpu": "500m", "memory": "256Mi"}}
    app = {"name": "app", "image": "example.com/app:1"}
    admin.create(manifest(namespace, "p", {"containers": [app], "resources": resources, "nodeName": "older"}))
    document = wait_until(
        lambda: (one := admin.read("pods", namespace, "p"))["status"]["phase"] == "Running" and one, "the pod runs"
    )
    pod, node = owned(document), read_node(admin, "older")
    table = make_table(*draw_statistics(Random(1), pod))
    [plan] = decide_node_plans(make_snapshot([pod], nodes=[node]), table, FULL, NOW)
    assert [one.reason for one in plan.skipped] == [ReasonCode.POD_LEVEL_RESOURCES]
    newer = replace(node, kubelet_version=(1, 36), declared_features=None)
    [plan] = decide_node_plans(make_snapshot([pod], nodes=[newer]), table, FULL, NOW)
    [resize] = plan.resize
    with pytest.raises(ApiError) as refused:
        send_dry(admin, pod, build_resize_patch(resize))
    found = create_error(refused.value.status, msgspec.json.encode(refused.value.body), "PATCH")
    assert isinstance(found, RefusedError)
    assert found.cause == "NodeWithoutFeature"


def test_scheduler_counts_the_pods_own_requests(admin: Api, kubelet: TestKubelet, namespace: str):
    kubelet.add_node("n1", cpu="4", memory="8Gi")
    app = {"name": "app", "image": "example.com/app:1", "resources": {"requests": {"cpu": "100m"}}}
    whole = {"requests": {"cpu": "3"}}
    for name in ("first", "second"):
        admin.create(manifest(namespace, name, {"containers": [app], "resources": whole}))

    def bound() -> list[Json] | None:
        pods = [one for one in admin.items("pods", namespace) if one["status"]["phase"] == "Running"]
        return pods or None

    [document] = wait_until(bound, "one of both is bound")
    pod = owned(document)
    assert count_pod_requests(pod).cpu_millicores == 3000
    patch = {"spec": {"resources": {"requests": {"cpu": "500m"}}}}
    admin.patch("pods", namespace, pod.name, patch, subresource="resize")
    wait_until(lambda: len(bound() or ()) == 2, "the smaller pod leaves capacity for the other")
