import json
from pathlib import Path

import pytest

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.discovery import discover_api
from cruise.errors import UnavailableError
from tests.adapters.kube.answering_server import (
    PreparedAnswer,
    ReceivedRequest,
    answer_in_order,
    build_status,
    create_client,
)
from tests.controlplane.kubelet import TestKubelet


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
