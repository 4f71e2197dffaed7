"""Client authentication: with a configured CA, only reviews from clients with its certificate are answered."""

import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from cruise.adapters.webhook_tls.certificates import (
    accept_client_certificates,
    create_server_context_without_certificate,
    make_key_pair,
    set_served_certificate,
)
from cruise.app.http_server import serve_http
from cruise.errors import BadInputError
from cruise.interfaces.http.health import create_health_app
from cruise.interfaces.webhook import AllowedCallers, create_webhook_app
from cruise.runtime.admission_reviewer import UNKNOWN_CALLER
from tests.admission_reviews import decode_response, encode_review, get_patch, make_review, make_reviewer
from tests.builders import make_pod_json
from tests.client_certificates import ClientAuthority

REVIEW = encode_review(make_review(make_pod_json(name="", node=None)))


@asynccontextmanager
async def serving(authority, *names):
    context = create_server_context_without_certificate()
    set_served_certificate(context, make_key_pair(["localhost"], datetime.now(UTC), timedelta(hours=1))[0])  # noqa: TID251
    accept_client_certificates(context, authority.file)
    reviewer = make_reviewer()
    app = create_health_app(
        lambda: [], lambda: b"", create_webhook_app(reviewer, callers=AllowedCallers(frozenset(names)))
    )
    async with serve_http(app, "127.0.0.1", 0, tls=context) as port:
        yield reviewer, f"https://127.0.0.1:{port}"


def client(certificate=None):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate is not None:
        context.load_cert_chain(certificate.certificate, certificate.key)
    return httpx.AsyncClient(verify=context)


@pytest.mark.parametrize(
    ("names", "shown", "status"),
    [
        ((), "kube-apiserver", 200),
        ((), None, 403),
        (("kube-apiserver",), "kube-apiserver", 200),
        (("kube-apiserver",), "tenant", 403),
        (("kube-apiserver",), None, 403),
    ],
)
async def test_reviews_are_answered_to_the_api_server(tmp_path, names, shown, status):
    authority = ClientAuthority(tmp_path)
    certificate = authority.client(shown) if shown is not None else None
    async with serving(authority, *names) as (reviewer, address), client(certificate) as asking:
        answered = await asking.post(f"{address}/mutate", content=REVIEW)
        assert answered.status_code == status
        if status == 200:
            assert get_patch(decode_response(answered.content))
        else:
            assert reviewer.counts.answers == {UNKNOWN_CALLER: 1}
        # Probes show no certificate.
        assert (await asking.get(f"{address}/readyz")).status_code == 200


async def test_a_certificate_of_another_authority_ends_the_handshake(tmp_path):
    stranger = ClientAuthority(tmp_path, "others").client("kube-apiserver")
    async with serving(ClientAuthority(tmp_path)) as (reviewer, address), client(stranger) as asking:
        with pytest.raises(httpx.TransportError):
            await asking.post(f"{address}/mutate", content=REVIEW)
        assert not reviewer.counts.answers


@pytest.mark.parametrize(("content", "words"), [(None, "No such file"), (b"", "PEM"), (b"no certificate", "PEM")])
def test_an_invalid_authority_is_refused_in_one_line(tmp_path, content, words):
    file = tmp_path / "ca.crt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadInputError, match=words) as refused:
        accept_client_certificates(create_server_context_without_certificate(), file)
    assert str(file) in str(refused.value)
