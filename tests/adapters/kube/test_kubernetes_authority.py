"""Authentication and authorization of callers by a real API server, and how often it is queried."""

import asyncio
import json
from pathlib import Path

import pytest

from cruise.adapters.kube.access import KubernetesAuthority
from cruise.adapters.kube.client import KubernetesClient
from cruise.domain.users import Caller, PathAccess, PodAccess
from cruise.errors import ThrottledError, UnavailableError
from tests.adapters.kube.answering_server import PreparedAnswer, ReceivedRequest, build_status, create_client
from tests.controlplane.api import Api

ANN = Caller("ann", "uid-1", ("dev", "system:authenticated"), (("scope", ("a", "b")),))
TOKEN = "a-token-of-some-length"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def respond(asked: ReceivedRequest) -> PreparedAnswer:
    """Know one token, and let its user see one namespace."""
    spec = asked.document["spec"]
    if "tokenreviews" in asked.path:
        user = {"username": ANN.name, "uid": ANN.uid, "groups": ANN.groups, "extra": dict(ANN.extra)}
        found = {"authenticated": True, "user": user} if spec["token"] == TOKEN else {"error": "unknown"}
    else:
        found = {"allowed": spec.get("resourceAttributes", {}).get("namespace") == "shop", "reason": "some"}
    return PreparedAnswer((json.dumps({"status": found}).encode(),))


async def test_checks_the_access_that_roles_grant(tmp_path: Path):
    async with create_client(tmp_path, respond) as (client, server):
        reviews = KubernetesAuthority(client, Clock())
        assert await reviews.authenticate(TOKEN) == ANN
        assert await reviews.authorize(ANN, PodAccess("shop"))
        assert not await reviews.authorize(ANN, PathAccess("put", "/api/v1/pause"))
        spec = [one.document["spec"] for one in server.asked]
        who = {"user": "ann", "uid": "uid-1", "groups": ["dev", "system:authenticated"], "extra": {"scope": ["a", "b"]}}
        pods = {"verb": "get", "group": "", "version": "v1", "resource": "pods", "namespace": "shop"}
        assert spec == [
            {"token": TOKEN},
            {**who, "resourceAttributes": pods},
            {**who, "nonResourceAttributes": {"verb": "put", "path": "/api/v1/pause"}},
        ]


async def test_an_answer_is_kept_for_ten_seconds(tmp_path: Path):
    clock = Clock()
    async with create_client(tmp_path, respond) as (client, server):
        reviews = KubernetesAuthority(client, clock)
        for at, asked in ((0.0, 1), (9.9, 1), (10.0, 2), (19.9, 2)):
            clock.now = at
            assert await reviews.authenticate(TOKEN) == ANN
            assert len(server.asked) == asked
        # Those that are not accepted as well: guessing costs the API server little.
        for _ in range(5):
            assert await reviews.authenticate("another-token-of-some-length") is None
        assert len(server.asked) == 3


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "x" * 16_385, "größe" * 10])
async def test_does_not_review_an_invalid_token(tmp_path: Path, token: str):
    async with create_client(tmp_path, respond) as (client, server):
        assert await KubernetesAuthority(client, Clock()).authenticate(token) is None
        assert server.asked == []


async def test_limits_parallel_token_reviews_and_cached_answers(tmp_path: Path):
    async with create_client(tmp_path, respond) as (client, server):
        reviews = KubernetesAuthority(client, Clock())
        tokens = [f"token-number-{number:08d}" for number in range(400)]
        answers = await asyncio.gather(*map(reviews.authenticate, tokens), return_exceptions=True)
        refused = [one for one in answers if isinstance(one, ThrottledError)]
        assert len(refused) == 400 - 72
        assert answers.count(None) == 72 == len(server.asked)
        assert server.connections <= 8
        assert await reviews.authenticate(TOKEN) == ANN


async def test_sends_equal_reviews_once(tmp_path: Path):
    async with create_client(tmp_path, respond) as (client, server):
        reviews = KubernetesAuthority(client, Clock())
        assert await asyncio.gather(*(reviews.authenticate(TOKEN) for _ in range(50))) == [ANN] * 50
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (build_status(403, f"may not: {TOKEN}"), "apply deploy/rbac/observe.yaml or the chart again"),
        (build_status(500, "broken"), "broken"),
    ],
)
async def test_rejects_everyone_without_the_permission_to_review(tmp_path: Path, answer, said):
    async with create_client(tmp_path, lambda asked: answer) as (client, _):
        with pytest.raises(UnavailableError, match=said) as refused:
            await KubernetesAuthority(client, Clock()).authenticate(TOKEN)
        assert TOKEN not in str(refused.value)


async def test_an_api_server_knows_its_accounts(client: KubernetesClient, admin: Api, namespace: str):
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "some"}})
    reviews = KubernetesAuthority(client, Clock())
    found = await reviews.authenticate(admin.service_account_token(namespace, "some"))
    assert found is not None
    assert found.name == f"system:serviceaccount:{namespace}:some"
    assert await reviews.authenticate("no-token-of-this-server") is None
    assert not await reviews.authorize(found, PodAccess(namespace))
    assert await reviews.authorize(Caller("root", groups=("system:masters",)), PathAccess("put", "/api/v1/pause"))
