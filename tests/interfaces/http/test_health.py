"""Liveness, readiness and metrics in front of another application."""

import httpx
import pytest

from cruise.interfaces.http.health import AsgiApp, Receive, Scope, Send, create_health_app, send_response


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    await send_response(scope, send, 202, b"inner")


def client(app: AsgiApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://cruise")


@pytest.fixture
def reasons():
    return []


@pytest.fixture
async def asked(reasons):
    async with client(create_health_app(lambda: reasons, lambda: b"cruise_leader 1\n", inner)) as session:
        yield session


async def test_a_process_that_answers_is_alive_whatever_it_lacks(asked, reasons):
    reasons.append("the store is gone")
    assert ((await asked.get("/healthz")).status_code, (await asked.get("/healthz")).text) == (200, "ok\n")


async def test_ready_means_that_nothing_is_missing(asked, reasons):
    assert (await asked.get("/readyz")).status_code == 200
    reasons += ["the cluster was never\nlisted", "the store is gone"]
    unready = await asked.get("/readyz")
    assert (unready.status_code, unready.text) == (503, "the cluster was never listed\nthe store is gone\n")


async def test_metrics_are_plain_text(asked):
    answered = await asked.get("/metrics")
    assert answered.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert answered.text == "cruise_leader 1\n"


async def test_only_reading_is_answered(asked):
    head = await asked.head("/metrics")
    assert (head.status_code, head.text, head.headers["content-length"]) == (200, "", "16")
    refused = await asked.post("/healthz")
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/healthz/", "/metricsx", "/api/v1/status"])
async def test_all_else_is_the_inner_application_s(asked, path):
    answered = await asked.get(path)
    assert (answered.status_code, answered.text) == (202, "inner")
