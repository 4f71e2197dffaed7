import json
from pathlib import Path

import pytest

from cruise.adapters.kube.asking.discovery import discover
from cruise.adapters.kube.http.client import KubeClient
from cruise.errors import Unavailable
from tests.adapters.kube.answering_server import Answer, Asked, asking, in_turn, status
from tests.controlplane.kubelet import TestKubelet


async def test_a_server_of_1_36(client: KubeClient, kubelet: TestKubelet):
    kubelet.add_node("n1")
    found = await discover(client)
    assert found.version == (1, 36)
    assert found.git_version == "v1.36.3"
    assert found.resizes_pods
    assert found.evicts_pods
    assert found.pod_level_resize
    assert found.serves("autoscaling/v2/horizontalpodautoscalers", "watch")
    assert found.serves("coordination.k8s.io/v1/leases", "update")
    assert not found.serves("v1/pods/resize", "delete")
    assert not found.serves("v1/nonsense", "get")


async def test_a_node_that_declares_nothing(client: KubeClient, kubelet: TestKubelet):
    kubelet.add_node("old", declared_features=())
    assert not (await discover(client)).pod_level_resize


def served(**paths: object) -> dict[str, bytes]:
    return {f"/{path.replace('__', '/')}": json.dumps(body).encode() for path, body in paths.items()}


@pytest.mark.parametrize("minor", ["30", "32+", "33"])
async def test_what_an_older_server_serves_counts_not_what_it_is_called(tmp_path: Path, minor: str):
    listed = {"resources": [{"name": "pods", "verbs": ["get"]}, {"name": "pods/eviction", "verbs": ["create"]}]}
    answers = served(version={"major": "1", "minor": minor, "gitVersion": f"v1.{minor}"}, api__v1=listed)

    def respond(asked: Asked) -> Answer:
        path = asked.path.split("?")[0]
        if path == "/api/v1/nodes":
            return status(403, "no", reason="Forbidden")
        return Answer((answers[path],)) if path in answers else status(404)

    async with asking(tmp_path, respond) as (client, _):
        found = await discover(client)
    assert found.version == (1, int(minor.rstrip("+")))
    assert not found.resizes_pods
    assert found.evicts_pods
    assert not found.pod_level_resize
    assert not found.serves("autoscaling/v2/horizontalpodautoscalers", "watch")


@pytest.mark.parametrize("body", [b"[]", b'{"major": 1}', b'{"resources": 3, "minor": "x"}', b"{"])
async def test_what_is_no_api_server(tmp_path: Path, body: bytes):
    async with asking(tmp_path, in_turn(Answer((body,)))) as (client, _):
        with pytest.raises(Unavailable):
            await discover(client)
