import json
from pathlib import Path

import pytest

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.cluster import read_cluster_once
from cruise.adapters.kube.discovery import NodeAutoscalerObjects, discover_api, read_node_autoscaler_objects
from cruise.decisions.packing.node_types import add_candidate_nodes
from cruise.domain.autoscalers import NodeAutoscalerKind
from cruise.errors import UnavailableError
from tests.adapters.kube.answering_server import (
    PreparedAnswer,
    ReceivedRequest,
    answer_in_order,
    build_status,
    create_client,
)
from tests.controlplane.api import Api
from tests.controlplane.kubelet import TestKubelet
from tests.e2e.live.custom_kinds import KARPENTER_KINDS, node_pools
from tests.karpenter import claim, pool


async def test_a_server_of_1_36(client: KubernetesClient, kubelet: TestKubelet):
    kubelet.add_node("n1")
    found = await discover_api(client)
    assert found.version == (1, 36)
    assert found.git_version == "v1.36.3"
    assert found.can_resize_pods
    assert found.can_evict_pods
    assert found.pod_level_resize
    assert found.serves("autoscaling/v2/horizontalpodautoscalers", "watch")
    assert found.serves("coordination.k8s.io/v1/leases", "update")
    assert not found.serves("v1/pods/resize", "delete")
    assert not found.serves("v1/nonsense", "get")


async def test_a_node_that_declares_nothing(client: KubernetesClient, kubelet: TestKubelet):
    kubelet.add_node("old", declared_features=())
    assert not (await discover_api(client)).pod_level_resize


def served(**paths: object) -> dict[str, bytes]:
    return {f"/{path.replace('__', '/')}": json.dumps(body).encode() for path, body in paths.items()}


@pytest.mark.parametrize("minor", ["30", "32+", "33"])
async def test_uses_what_a_server_serves_and_not_its_version(tmp_path: Path, minor: str):
    listed = {"resources": [{"name": "pods", "verbs": ["get"]}, {"name": "pods/eviction", "verbs": ["create"]}]}
    answers = served(version={"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"}, api__v1=listed)

    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        path = asked.path.split("?")[0]
        if path == "/api/v1/nodes":
            return build_status(403, "no", reason="Forbidden")
        return PreparedAnswer((answers[path],)) if path in answers else build_status(404)

    async with create_client(tmp_path, respond) as (client, _):
        found = await discover_api(client)
    assert found.version == (1, int(minor.rstrip("+")))
    assert not found.can_resize_pods
    assert found.can_evict_pods
    assert not found.pod_level_resize
    assert not found.serves("autoscaling/v2/horizontalpodautoscalers", "watch")


@pytest.mark.parametrize("body", [b"[]", b'{"major": 1}', b'{"resources": 3, "minor": "x"}', b"{"])
async def test_rejects_a_server_that_is_not_an_api_server(tmp_path: Path, body: bytes):
    async with create_client(tmp_path, answer_in_order(PreparedAnswer((body,)))) as (client, _):
        with pytest.raises(UnavailableError):
            await discover_api(client)


POOLS, CLAIMS = (f"/apis/karpenter.sh/v1/{kind.lower()}s" for kind in KARPENTER_KINDS)


async def test_a_real_server_has_what_karpenter_may_order_and_has_ordered(client, admin: Api):
    assert await read_node_autoscaler_objects(client) == NodeAutoscalerObjects()
    with node_pools(admin):
        created = admin.request("POST", POOLS, pool(limits={"cpu": "9"}))
        admin.request("PUT", f"{POOLS}/default/status", created | {"status": {"resources": {"cpu": "4"}}})
        ordered = claim("default-x7f")
        created = admin.request("POST", CLAIMS, ordered)
        admin.request("PUT", f"{CLAIMS}/default-x7f/status", created | {"status": ordered["status"]})
        found = await read_cluster_once(client, lambda kind, count: None)
    assert found.snapshot.node_autoscaler is NodeAutoscalerKind.KARPENTER
    [one] = found.snapshot.node_pools
    assert (one.name, one.limits, one.used) == ("default", {"cpu": 9000}, {"cpu": 4000})
    assert [machine.allocatable.cpu_millicores for machine in found.snapshot.node_claims] == [4000]
    assert add_candidate_nodes(found.snapshot, None).pools_without_types == ()


def listing(kind: str, *items: object) -> PreparedAnswer:
    document = {"kind": f"{kind}List", "apiVersion": "karpenter.sh/v1", "metadata": {}, "items": items}
    return PreparedAnswer((json.dumps(document).encode(),))


def answered(pools: PreparedAnswer, claims: PreparedAnswer):
    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        return {POOLS: pools, CLAIMS: claims}.get(asked.path, build_status(404))

    return respond


@pytest.mark.parametrize("refusal", [build_status(403, reason="Forbidden"), build_status(404)])
async def test_reads_node_pools_without_permission_for_claims(tmp_path, refusal):
    async with create_client(tmp_path, answered(listing("NodePool", pool()), refusal)) as (client, _):
        found = await read_node_autoscaler_objects(client)
    assert [one.name for one in found.pools] == ["default"]
    assert (found.autoscaler, found.claims) == (NodeAutoscalerKind.KARPENTER, ())


async def test_an_unreadable_node_pool_is_unusable_and_does_not_affect_others(tmp_path):
    unreadable = [pool("a", weight="heavy"), pool("b") | {"metadata": {"name": "b", "labels": 3}}, pool("c")]
    claims = listing("NodeClaim", claim("x") | {"status": {"allocatable": {"cpu": "much"}}}, claim("y"))
    async with create_client(tmp_path, answered(listing("NodePool", *unreadable), claims)) as (client, _):
        found = await read_node_autoscaler_objects(client)
    closed = {one.name: one.unusable_reason for one in found.pools}
    assert closed["c"] == ""
    assert closed["a"].startswith("pool-unreadable: NodePool a: spec.weight: is a text")
    assert closed["b"].startswith("pool-unreadable: NodePool b: metadata.labels: is a whole number")
    assert [one.name for one in found.claims] == ["y"]


async def test_raises_unavailable_for_an_answer_that_is_not_a_list(tmp_path):
    async with create_client(tmp_path, answered(PreparedAnswer((b"[]",)), build_status(404))) as (client, _):
        with pytest.raises(UnavailableError, match="NodePool"):
            await read_node_autoscaler_objects(client)
