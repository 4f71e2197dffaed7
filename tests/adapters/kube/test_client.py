import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cruise import __version__
from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.errors import (
    ConflictError,
    CruiseError,
    ExpiredVersionError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)
from tests.adapters.kube.answering_server import (
    PreparedAnswer,
    ReceivedRequest,
    answer_in_order,
    build_status,
    create_client,
    kubeconfig,
    run_answering_server,
)
from tests.adapters.kube.relay import Network, run_through_relay
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane

HTML = {"Content-Type": "text/html"}
WATCH = {"watch": "true", "resourceVersion": "0"}


async def all_of(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


async def test_an_object_is_returned_as_the_server_wrote_it(client: KubernetesClient, admin: Api):
    body = await client.get("/api/v1/namespaces/default")
    assert body.startswith(b'{"kind":"Namespace","apiVersion":"v1"')


async def test_queries_are_sent(client: KubernetesClient, admin: Api):
    body = await client.get("/api/v1/namespaces", {"fieldSelector": "metadata.name=kube-system", "limit": "500"})
    assert b'"name":"kube-system"' in body
    assert b'"name":"default"' not in body


@pytest.mark.parametrize(
    ("path", "query", "kind"),
    [
        ("/api/v1/namespaces/nowhere", {}, NotFoundError),
        ("/api/v1/nonsense", {}, NotFoundError),
        ("/api/v1/pods", {"continue": "nonsense", "limit": "1"}, RefusedError),
        ("/api/v1/pods", {"labelSelector": "a in"}, RefusedError),
        ("/api/v1/pods", {"resourceVersion": "99999999", "resourceVersionMatch": "Exact"}, CruiseError),
    ],
)
async def test_reads_that_the_server_rejects(client: KubernetesClient, path: str, query: dict[str, str], kind: type):
    with pytest.raises(kind):
        await client.get(path, query)


async def test_an_object_that_is_there_already_is_a_conflict(client: KubernetesClient):
    with pytest.raises(ConflictError):
        await client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})


async def test_a_watch_reports_changes(client: KubernetesClient, admin: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    seen: list[bytes] = []
    async with client.stream_lines(path, {"watch": "true", "fieldSelector": "metadata.name=one"}) as lines:
        for text in ("a", "b", "c" * 900_000):
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": text}}
            admin.apply({**manifest, "metadata": {"namespace": namespace, "name": "one"}})
            seen.append(await anext(lines))
    assert [line[:16] for line in seen] == [b'{"type":"ADDED",', b'{"type":"MODIFIE', b'{"type":"MODIFIE']
    assert len(seen[-1]) > 900_000


async def test_a_watch_ends_when_the_server_says_so(client: KubernetesClient):
    async with client.stream_lines("/api/v1/nodes", {**WATCH, "timeoutSeconds": "1"}) as lines:
        assert all(line.startswith(b'{"type":') for line in await all_of(lines))


@pytest.mark.parametrize(("path", "kind"), [("/api/v1/nonsense", NotFoundError), ("/api/v1/pods", RefusedError)])
async def test_a_watch_that_the_server_rejects(client: KubernetesClient, path: str, kind: type):
    with pytest.raises(kind):
        async with client.stream_lines(path, {**WATCH, "labelSelector": "a in"}):
            pass


async def test_every_request_has_a_user_agent(tmp_path: Path):
    async with create_client(tmp_path, answer_in_order(PreparedAnswer()), user={"token": "secret"}) as (client, server):
        await client.get("/api")
        await client.send("POST", "/api", {"a": 1}, query={"dryRun": "All"})
        async with client.stream_lines("/api", {"watch": "true"}) as lines:
            await all_of(lines)
    for asked in server.asked:
        assert asked.headers["user-agent"] == f"cruise/{__version__}"
        assert asked.headers["authorization"] == "Bearer secret"
        assert asked.headers["accept"] == "application/json"
    read, write, watch = server.asked
    assert (read.method, read.path) == ("GET", "/api")
    assert (write.method, write.path, write.document) == ("POST", "/api?dryRun=All&fieldManager=cruise", {"a": 1})
    assert write.headers["content-type"] == "application/json"
    assert watch.path == "/api?watch=true"


async def test_a_server_below_a_path_is_asked_below_it(tmp_path: Path):
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (server, url):
        async with connect_to_kubernetes(
            KubernetesSettings(kubeconfig(tmp_path, f"{url}/k8s/clusters/c-1/"))
        ) as client:
            await client.get("/api/v1/pods")
    assert server.asked[0].path == "/k8s/clusters/c-1/api/v1/pods"


async def test_reads_wait_as_long_as_retry_after_says(tmp_path: Path):
    answered_at: list[float] = []
    answers = answer_in_order(build_status(429, headers={"Retry-After": "1"}), PreparedAnswer((b'{"a":1}',)))

    def answer(request: ReceivedRequest) -> PreparedAnswer:
        answered_at.append(time.monotonic())
        return answers(request)

    async with create_client(tmp_path, answer) as (client, _):
        assert await client.get("/api") == b'{"a":1}'
    first, second = answered_at
    assert second - first >= 1


async def test_reads_end_after_a_few_attempts(tmp_path: Path):
    async with create_client(tmp_path, answer_in_order(build_status(429, headers={"Retry-After": "0"}))) as (
        client,
        server,
    ):
        with pytest.raises(ThrottledError):
            await client.get("/api")
    assert len(server.asked) == 4


async def test_throttled_writes_raise_at_once(tmp_path: Path):
    async with create_client(tmp_path, answer_in_order(build_status(429, headers={"Retry-After": "7"}))) as (
        client,
        server,
    ):
        with pytest.raises(ThrottledError) as throttled:
            await client.send("PATCH", "/api", {})
    assert throttled.value.retry_after_seconds == 7
    assert len(server.asked) == 1


async def test_a_failure_with_a_code_of_success_is_a_failure(tmp_path: Path):
    failure = build_status(500, "This pod has more than one PodDisruptionBudget, which …")
    async with create_client(tmp_path, answer_in_order(PreparedAnswer(failure.pieces, 201))) as (client, _):
        with pytest.raises(RefusedError) as refused:
            await client.send("POST", "/api", {})
    assert refused.value.cause == "MultipleDisruptionBudgets"


LOST = [
    pytest.param(PreparedAnswer(silent=True), id="hangs up"),
    pytest.param(PreparedAnswer((b'{"kind":',), length=100), id="breaks off"),
    pytest.param(PreparedAnswer((b'{"kind":',), length=None, end=False), id="breaks off in chunks"),
]


@pytest.mark.parametrize("lost", LOST)
async def test_a_write_whose_answer_is_lost_is_not_repeated(tmp_path: Path, lost: PreparedAnswer):
    async with create_client(tmp_path, answer_in_order(lost, PreparedAnswer())) as (client, server):
        with pytest.raises(UnavailableError):
            await client.send("POST", "/api", {})
    assert len(server.asked) == 1


@pytest.mark.parametrize("lost", LOST)
async def test_a_write_whose_answer_is_lost_on_a_kept_connection_is_not_repeated(tmp_path: Path, lost: PreparedAnswer):
    async with create_client(tmp_path, answer_in_order(PreparedAnswer(), lost, PreparedAnswer())) as (client, server):
        await client.send("POST", "/first", {})
        with pytest.raises(UnavailableError):
            await client.send("PATCH", "/second", {})
    assert [asked.path.split("?")[0] for asked in server.asked] == ["/first", "/second"]


@pytest.mark.parametrize("lost", LOST)
async def test_repeats_an_idempotent_request(tmp_path: Path, lost: PreparedAnswer):
    async with create_client(tmp_path, answer_in_order(lost, PreparedAnswer((b'{"a":1}',)))) as (client, server):
        assert await client.send("PATCH", "/api", {}, repeatable=True) == b'{"a":1}'
        assert await client.get("/api") == b'{"a":1}'
    assert len(server.asked) == 3


@pytest.mark.parametrize("lost", LOST)
async def test_a_read_whose_answers_are_all_lost_is_unavailable(tmp_path: Path, lost: PreparedAnswer):
    async with create_client(tmp_path, answer_in_order(lost)) as (client, _):
        with pytest.raises(UnavailableError):
            await client.get("/api")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (build_status(503, headers={"Retry-After": "1"}), UnavailableError),
        (build_status(500), UnavailableError),
        (build_status(504), UnavailableError),
        (build_status(410, reason="Expired"), ExpiredVersionError),
        (PreparedAnswer((b"<html>Sign in</html>",), headers=HTML), UnavailableError),
        (PreparedAnswer((b"<html>Bad gateway</html>",), 502, HTML), UnavailableError),
        (PreparedAnswer((b"",), 302, {"Location": "https://login.example.com"}), UnavailableError),
        (PreparedAnswer((b"not found",), 404, {"Content-Type": "text/plain"}), NotFoundError),
    ],
)
async def test_answers_of_troubled_servers_and_of_those_in_between(tmp_path: Path, answer: PreparedAnswer, kind: type):
    async with create_client(tmp_path, answer_in_order(answer)) as (client, _):
        with pytest.raises(kind) as error:
            await client.get("/api/v1/pods")
        assert "\n" not in str(error.value)
        with pytest.raises(kind):
            await client.send("PATCH", "/api/v1/pods", {})
        with pytest.raises(kind):
            async with client.stream_lines("/api/v1/pods", {}) as lines:
                await all_of(lines)


async def test_a_slow_answer_is_not_waited_for(tmp_path: Path):
    slow = PreparedAnswer((b'{"a":', b"1}"), pause_seconds=0.4)
    async with create_client(tmp_path, answer_in_order(slow), timeout_seconds=0.5) as (client, server):
        with pytest.raises(UnavailableError, match=r"within 0\.5 s"):
            await client.send("POST", "/api", {}, repeatable=True)
    assert len(server.asked) == 1


async def test_reports_a_server_that_does_not_listen(tmp_path: Path):
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (_, url):
        place = kubeconfig(tmp_path, url)
    async with connect_to_kubernetes(KubernetesSettings(place)) as client:
        with pytest.raises(UnavailableError, match=r"cannot be reached at 127\.0\.0\.1:\d+: Connection refused"):
            await client.get("/version")
        with pytest.raises(UnavailableError, match="cannot be reached"):
            await client.send("POST", "/version", {})
        with pytest.raises(UnavailableError, match="cannot be reached"):
            async with client.stream_lines("/version", {}):
                pass


async def test_an_unknown_host_name(tmp_path: Path):
    async with connect_to_kubernetes(
        KubernetesSettings(kubeconfig(tmp_path, "https://nowhere.invalid:6443"))
    ) as client:
        with pytest.raises(UnavailableError, match=r"the host name nowhere\.invalid is not known"):
            await client.get("/version")


async def test_lines_are_complete_however_the_bytes_are_split(tmp_path: Path):
    pieces = (b'{"a":', b"1}\n", b'{"b":2}\n{"c"', b":3}\n\n", b"x" * 300_000, b"y\n")
    chunked = PreparedAnswer(pieces, length=None, pause_seconds=0.01)
    async with create_client(tmp_path, answer_in_order(chunked)) as (client, _):
        async with client.stream_lines("/api", {}) as lines:
            assert await all_of(lines) == [b'{"a":1}', b'{"b":2}', b'{"c":3}', b"x" * 300_000 + b"y"]


@pytest.mark.parametrize("end", [True, False])
async def test_ignores_a_line_that_is_incomplete(tmp_path: Path, end: bool):
    broken = PreparedAnswer((b'{"a":1}\n{"b":', b"2"), length=None, end=end)
    async with create_client(tmp_path, answer_in_order(broken)) as (client, _):
        told: list[bytes] = []
        with pytest.raises(UnavailableError):
            async with client.stream_lines("/api", {}) as lines:
                async for line in lines:
                    told.append(line)
    assert told == [b'{"a":1}']


async def test_ends_a_watch_without_bytes(tmp_path: Path):
    slow = PreparedAnswer((b'{"a":1}\n', b'{"b":2}\n', b'{"c":3}\n'), length=None, pause_seconds=0.6)
    async with create_client(tmp_path, answer_in_order(slow)) as (client, _):
        with pytest.raises(UnavailableError, match=r"within 0\.2 s"):
            async with client.stream_lines("/api", {}, idle_timeout_seconds=0.2) as lines:
                await all_of(lines)
        async with client.stream_lines("/api", {}, idle_timeout_seconds=5) as lines:
            assert len(await all_of(lines)) == 3


async def test_requests_are_rate_limited_and_watches_do_not_count(tmp_path: Path):
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (server, url):
        settings = KubernetesSettings(kubeconfig(tmp_path, url), requests_per_second=0.001, burst=5)
        async with connect_to_kubernetes(settings) as client:
            for _ in range(10):
                async with client.stream_lines("/watch", {}) as lines:
                    await all_of(lines)
            await asyncio.gather(*(client.get("/api") for _ in range(5)))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.send("PATCH", "/api", {})
            async with client.stream_lines("/watch", {}) as lines:
                await all_of(lines)
    assert [asked.path for asked in server.asked] == ["/watch"] * 10 + ["/api"] * 5 + ["/watch"]


async def test_after_a_wait_for_its_turn_an_urgent_write_is_sent_at_once(tmp_path: Path):
    async with run_answering_server(answer_in_order(PreparedAnswer())) as (server, url):
        settings = KubernetesSettings(kubeconfig(tmp_path, url), requests_per_second=0.001, burst=1)
        async with connect_to_kubernetes(settings) as client:
            await client.wait_for_turn()
            await client.send("PATCH", "/first", {}, urgent=True)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.wait_for_turn()
    assert [asked.path.split("?")[0] for asked in server.asked] == ["/first"]


async def test_a_guarded_client_reads_always_and_writes_only_while_it_may(tmp_path: Path):
    allowed = [True, False]
    async with create_client(tmp_path, answer_in_order(PreparedAnswer())) as (client, server):
        guarded = client.with_write_guard(lambda: allowed.pop(0))
        await guarded.send("PATCH", "/first", {})
        with pytest.raises(UnavailableError, match="not sent"):
            await guarded.send("PATCH", "/second", {})
        await guarded.get("/third")
        await client.send("PATCH", "/fourth", {})
    assert [asked.path.split("?")[0] for asked in server.asked] == ["/first", "/third", "/fourth"]


async def test_reads_rejected_credentials_again_once(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old\n")

    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        return PreparedAnswer() if asked.headers["authorization"] == "Bearer new" else build_status(401, "Unauthorized")

    async with create_client(tmp_path, respond, user={"tokenFile": str(token)}) as (client, server):
        with pytest.raises(RefusedError) as refused:
            await client.get("/api")
        assert refused.value.cause == "Unauthorized"
        token.write_text("new\n")
        # Credentials that were just read are not read again: a plugin may be behind them.
        await asyncio.sleep(1.1)
        await client.get("/api")
        await client.send("POST", "/api", {})
        async with client.stream_lines("/api", {}) as lines:
            await all_of(lines)
    sent = [asked.headers["authorization"] for asked in server.asked]
    assert sent == ["Bearer old", "Bearer old", "Bearer old", "Bearer new", "Bearer new", "Bearer new"]


async def test_many_that_are_refused_at_once_read_credentials_once(tmp_path: Path):
    counter = tmp_path / "calls"
    plugin = tmp_path / "plugin"
    credential = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    plugin.write_text(f"#!/bin/sh\necho x >> {counter}\nprintf '{credential}' $(wc -l < {counter})\n")
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}

    def respond(asked: ReceivedRequest) -> PreparedAnswer:
        return PreparedAnswer() if asked.headers["authorization"] == "Bearer 2" else build_status(401, "Unauthorized")

    async with create_client(tmp_path, respond, user) as (client, server):
        await asyncio.sleep(1.1)
        await asyncio.gather(*(client.get("/api") for _ in range(20)))
    assert counter.read_text().count("x") == 2
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer 1", "Bearer 2"}


async def test_uses_new_connections_after_a_restart_of_the_server(
    client: KubernetesClient, control_plane: ControlPlane
):
    await asyncio.gather(*(client.get("/version") for _ in range(10)))
    await asyncio.to_thread(control_plane.restart)
    answers = await asyncio.gather(*(client.get("/version") for _ in range(10)))
    assert len(answers) == 10


async def test_a_paused_server_is_unavailable_and_then_answers_again(control_plane: ControlPlane):
    async with connect_to_kubernetes(KubernetesSettings(control_plane.kubeconfig(), timeout_seconds=1)) as client:
        await client.get("/version")
        control_plane.pause()
        try:
            with pytest.raises(UnavailableError, match="did not answer within 1 s"):
                await client.get("/version")
        finally:
            control_plane.resume()
        for attempt in itertools.count():
            try:
                assert b"gitVersion" in await client.get("/version")
                break
            except UnavailableError:
                assert attempt < 10


async def test_recovers_from_a_broken_network(control_plane: ControlPlane, tmp_path: Path):
    async with (
        run_through_relay(control_plane, tmp_path) as (relay, place),
        connect_to_kubernetes(KubernetesSettings(place)) as client,
    ):
        with pytest.raises(UnavailableError):
            async with client.stream_lines("/api/v1/namespaces", {"watch": "true"}) as lines:
                assert await anext(lines)
                relay.become(Network.DOWN)
                await all_of(lines)
        relay.become(Network.UP)
        assert b"gitVersion" in await client.get("/version")
