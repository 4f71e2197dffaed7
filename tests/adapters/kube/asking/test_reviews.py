"""Callers as an API server judges them, and how seldom it is asked."""

import asyncio
import json
from pathlib import Path

import pytest

from cruise.adapters.kube.asking.reviews import KubeReviews
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.callers import Caller, PathAccess, PodAccess
from cruise.errors import Throttled, Unavailable
from tests.adapters.kube.answering_server import Answer, Asked, asking, status
from tests.controlplane.api import Api

ANN = Caller("ann", "uid-1", ("dev", "system:authenticated"), (("scope", ("a", "b")),))
TOKEN = "a-token-of-some-length"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def respond(asked: Asked) -> Answer:
    """Know one token, and let its user see one namespace."""
    spec = asked.document["spec"]
    if "tokenreviews" in asked.path:
        user = {"username": ANN.name, "uid": ANN.uid, "groups": ANN.groups, "extra": dict(ANN.extra)}
        found = {"authenticated": True, "user": user} if spec["token"] == TOKEN else {"error": "unknown"}
    else:
        found = {"allowed": spec.get("resourceAttributes", {}).get("namespace") == "shop", "reason": "some"}
    return Answer((json.dumps({"status": found}).encode(),))


async def test_what_is_asked_is_what_roles_state(tmp_path: Path):
    async with asking(tmp_path, respond) as (client, server):
        reviews = KubeReviews(client, Clock())
        assert await reviews.caller(TOKEN) == ANN
        assert await reviews.allows(ANN, PodAccess("shop"))
        assert not await reviews.allows(ANN, PathAccess("put", "/api/v1/pause"))
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
    async with asking(tmp_path, respond) as (client, server):
        reviews = KubeReviews(client, clock)
        for at, asked in ((0.0, 1), (9.9, 1), (10.0, 2), (19.9, 2)):
            clock.now = at
            assert await reviews.caller(TOKEN) == ANN
            assert len(server.asked) == asked
        # Those that are not accepted as well: guessing costs the API server little.
        for _ in range(5):
            assert await reviews.caller("another-token-of-some-length") is None
        assert len(server.asked) == 3


@pytest.mark.parametrize("token", ["", "short", "x" * 15, "x" * 16_385, "größe" * 10])
async def test_what_is_no_token_is_not_asked_about(tmp_path: Path, token: str):
    async with asking(tmp_path, respond) as (client, server):
        assert await KubeReviews(client, Clock()).caller(token) is None
        assert server.asked == []


async def test_many_tokens_at_a_time_are_refused_and_few_are_kept(tmp_path: Path):
    async with asking(tmp_path, respond) as (client, server):
        reviews = KubeReviews(client, Clock())
        tokens = [f"token-number-{number:08d}" for number in range(400)]
        answers = await asyncio.gather(*map(reviews.caller, tokens), return_exceptions=True)
        refused = [one for one in answers if isinstance(one, Throttled)]
        assert len(refused) == 400 - 72
        assert answers.count(None) == 72 == len(server.asked)
        assert server.connections <= 8
        assert await reviews.caller(TOKEN) == ANN


async def test_the_same_question_is_asked_once_at_a_time(tmp_path: Path):
    async with asking(tmp_path, respond) as (client, server):
        reviews = KubeReviews(client, Clock())
        assert await asyncio.gather(*(reviews.caller(TOKEN) for _ in range(50))) == [ANN] * 50
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(403, f"may not: {TOKEN}"), "apply deploy/rbac/observe.yaml, or the chart, anew"),
        (status(500, "broken"), "broken"),
    ],
)
async def test_where_nobody_judges_nobody_is_let_in_and_the_token_is_not_told(tmp_path: Path, answer, said):
    async with asking(tmp_path, lambda asked: answer) as (client, _):
        with pytest.raises(Unavailable, match=said) as refused:
            await KubeReviews(client, Clock()).caller(TOKEN)
        assert TOKEN not in str(refused.value)


async def test_an_api_server_knows_its_accounts(client: KubeClient, admin: Api, namespace: str):
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "some"}})
    reviews = KubeReviews(client, Clock())
    found = await reviews.caller(admin.service_account_token(namespace, "some"))
    assert found is not None
    assert found.name == f"system:serviceaccount:{namespace}:some"
    assert await reviews.caller("no-token-of-this-server") is None
    assert not await reviews.allows(found, PodAccess(namespace))
    assert await reviews.allows(Caller("root", groups=("system:masters",)), PathAccess("put", "/api/v1/pause"))
