"""Preflight reads from a real API server, and from servers that lack a kind or give unusual answers."""

import base64
import json

import pytest

from cruise.adapters.kube.discovery import read_own_user_name, read_webhook_registration
from cruise.errors import RefusedError, UnavailableError
from tests.adapters.kube.answering_server import PreparedAnswer, build_status, create_client


async def test_a_real_server_returns_the_user_and_not_found(client):
    assert await read_own_user_name(client) == "admin"
    assert await read_webhook_registration(client, "no-such-webhook") is None


def answer(document: object) -> PreparedAnswer:
    return PreparedAnswer((json.dumps(document).encode(),))


async def test_servers_without_a_kind_have_none_of_it(tmp_path):
    async with create_client(
        tmp_path, lambda asked: build_status(404, "the server could not find the requested resource")
    ) as (
        client,
        _,
    ):
        assert await read_own_user_name(client) is None
        assert await read_webhook_registration(client, "cruise") is None


async def test_reads_every_webhook_of_a_registration(tmp_path):
    def webhook(bundle: bytes | None, policy: str) -> object:
        config = {} if bundle is None else {"caBundle": base64.b64encode(bundle).decode()}
        return {"name": "w", "clientConfig": config, "failurePolicy": policy}

    webhooks = [webhook(b"one", "Ignore"), webhook(None, "Fail")]
    async with create_client(tmp_path, lambda asked: answer({"webhooks": webhooks})) as (client, _):
        found = await read_webhook_registration(client, "cruise")
    assert found is not None
    assert (found.ca_bundles, found.fails_open) == ((b"one", b""), False)


UNREADABLE = [
    (read_own_user_name, 7, "cannot be read"),
    (lambda client: read_webhook_registration(client, "cruise"), {"webhooks": 1}, "cannot be read"),
    (
        lambda client: read_webhook_registration(client, "cruise"),
        {"webhooks": [{"clientConfig": {"caBundle": "*"}}]},
        "not base64",
    ),
]


@pytest.mark.parametrize(("question", "document", "expected"), UNREADABLE)
async def test_raises_unavailable_for_unreadable_documents(tmp_path, question, document, expected):
    async with create_client(tmp_path, lambda asked: answer(document)) as (client, _):
        with pytest.raises(UnavailableError, match=expected):
            await question(client)


async def test_a_rejection_remains_a_rejection(tmp_path):
    async with create_client(tmp_path, lambda asked: build_status(403, "forbidden", reason="Forbidden")) as (client, _):
        for question in (read_own_user_name(client), read_webhook_registration(client, "cruise")):
            with pytest.raises(RefusedError):
                await question
