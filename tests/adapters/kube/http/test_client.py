import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cruise import __version__
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from cruise.errors import Conflict, CruiseError, Expired, NotFound, Refused, Throttled, Unavailable
from tests.adapters.kube.answering_server import Answer, Asked, answering, asking, in_turn, kubeconfig, status
from tests.adapters.kube.relay import Network, relayed
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane

HTML = {"Content-Type": "text/html"}
WATCH = {"watch": "true", "resourceVersion": "0"}


async def all_of(lines: AsyncIterator[bytes]) -> list[bytes]:
    return [line async for line in lines]


async def test_an_object_comes_as_the_server_wrote_it(client: KubeClient, admin: Api):
    body = await client.get("/api/v1/namespaces/default")
    assert body.startswith(b'{"kind":"Namespace","apiVersion":"v1"')


async def test_queries_are_sent(client: KubeClient, admin: Api):
    body = await client.get("/api/v1/namespaces", {"fieldSelector": "metadata.name=kube-system", "limit": "500"})
    assert b'"name":"kube-system"' in body
    assert b'"name":"default"' not in body


@pytest.mark.parametrize(
    ("path", "query", "kind"),
    [
        ("/api/v1/namespaces/nowhere", {}, NotFound),
        ("/api/v1/nonsense", {}, NotFound),
        ("/api/v1/pods", {"continue": "nonsense", "limit": "1"}, Refused),
        ("/api/v1/pods", {"labelSelector": "a in"}, Refused),
        ("/api/v1/pods", {"resourceVersion": "99999999", "resourceVersionMatch": "Exact"}, CruiseError),
    ],
)
async def test_reads_that_the_server_refuses(client: KubeClient, path: str, query: dict[str, str], kind: type):
    with pytest.raises(kind):
        await client.get(path, query)


async def test_an_object_that_is_there_already_is_a_conflict(client: KubeClient):
    with pytest.raises(Conflict):
        await client.send("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}})


async def test_a_watch_tells_of_changes_as_they_come(client: KubeClient, admin: Api, namespace: str):
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    seen: list[bytes] = []
    async with client.lines(path, {"watch": "true", "fieldSelector": "metadata.name=one"}) as lines:
        for text in ("a", "b", "c" * 900_000):
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": text}}
            admin.apply({**manifest, "metadata": {"namespace": namespace, "name": "one"}})
            seen.append(await anext(lines))
    assert [line[:16] for line in seen] == [b'{"type":"ADDED",', b'{"type":"MODIFIE', b'{"type":"MODIFIE']
    assert len(seen[-1]) > 900_000


async def test_a_watch_ends_when_the_server_says_so(client: KubeClient):
    async with client.lines("/api/v1/nodes", {**WATCH, "timeoutSeconds": "1"}) as lines:
        assert all(line.startswith(b'{"type":') for line in await all_of(lines))


@pytest.mark.parametrize(("path", "kind"), [("/api/v1/nonsense", NotFound), ("/api/v1/pods", Refused)])
async def test_a_watch_that_the_server_refuses(client: KubeClient, path: str, kind: type):
    with pytest.raises(kind):
        async with client.lines(path, {**WATCH, "labelSelector": "a in"}):
            pass


async def test_every_request_says_who_asks(tmp_path: Path):
    async with asking(tmp_path, in_turn(Answer()), user={"token": "secret"}) as (client, server):
        await client.get("/api")
        await client.send("POST", "/api", {"a": 1}, query={"dryRun": "All"})
        async with client.lines("/api", {"watch": "true"}) as lines:
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
    async with answering(in_turn(Answer())) as (server, url):
        async with connect(KubeSettings(kubeconfig(tmp_path, f"{url}/k8s/clusters/c-1/"))) as client:
            await client.get("/api/v1/pods")
    assert server.asked[0].path == "/k8s/clusters/c-1/api/v1/pods"


async def test_reads_wait_as_long_as_retry_after_says(tmp_path: Path):
    wait = status(429, headers={"Retry-After": "1"})
    async with asking(tmp_path, in_turn(wait, Answer((b'{"a":1}',)))) as (client, server):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.9):
                await client.get("/api")
        assert len(server.asked) == 1
        assert await client.get("/api") == b'{"a":1}'


async def test_reads_are_asked_again_once_the_wait_is_over(tmp_path: Path):
    wait = status(429, headers={"Retry-After": "1"})
    async with asking(tmp_path, in_turn(wait, Answer((b'{"a":1}',)))) as (client, server):
        assert await client.get("/api") == b'{"a":1}'
    assert len(server.asked) == 2


async def test_reads_give_up_after_a_few_times(tmp_path: Path):
    async with asking(tmp_path, in_turn(status(429, headers={"Retry-After": "0"}))) as (client, server):
        with pytest.raises(Throttled):
            await client.get("/api")
    assert len(server.asked) == 4


async def test_throttled_writes_raise_at_once(tmp_path: Path):
    async with asking(tmp_path, in_turn(status(429, headers={"Retry-After": "7"}))) as (client, server):
        with pytest.raises(Throttled) as throttled:
            await client.send("PATCH", "/api", {})
    assert throttled.value.retry_after_seconds == 7
    assert len(server.asked) == 1


async def test_a_failure_with_a_code_of_success_is_a_failure(tmp_path: Path):
    failure = status(500, "This pod has more than one PodDisruptionBudget, which …")
    async with asking(tmp_path, in_turn(Answer(failure.pieces, 201))) as (client, _):
        with pytest.raises(Refused) as refused:
            await client.send("POST", "/api", {})
    assert refused.value.cause == "MultipleDisruptionBudgets"


LOST = [
    pytest.param(Answer(silent=True), id="hangs up"),
    pytest.param(Answer((b'{"kind":',), length=100), id="breaks off"),
    pytest.param(Answer((b'{"kind":',), length=None, end=False), id="breaks off in chunks"),
]


@pytest.mark.parametrize("lost", LOST)
async def test_a_write_whose_answer_is_lost_is_not_repeated(tmp_path: Path, lost: Answer):
    async with asking(tmp_path, in_turn(lost, Answer())) as (client, server):
        with pytest.raises(Unavailable):
            await client.send("POST", "/api", {})
    assert len(server.asked) == 1


@pytest.mark.parametrize("lost", LOST)
async def test_a_write_whose_answer_is_lost_on_a_kept_connection_is_not_repeated(tmp_path: Path, lost: Answer):
    async with asking(tmp_path, in_turn(Answer(), lost, Answer())) as (client, server):
        await client.send("POST", "/first", {})
        with pytest.raises(Unavailable):
            await client.send("PATCH", "/second", {})
    assert [asked.path.split("?")[0] for asked in server.asked] == ["/first", "/second"]


@pytest.mark.parametrize("lost", LOST)
async def test_what_may_be_repeated_is_sent_once_more(tmp_path: Path, lost: Answer):
    async with asking(tmp_path, in_turn(lost, Answer((b'{"a":1}',)))) as (client, server):
        assert await client.send("PATCH", "/api", {}, repeatable=True) == b'{"a":1}'
        assert await client.get("/api") == b'{"a":1}'
    assert len(server.asked) == 3


@pytest.mark.parametrize("lost", LOST)
async def test_a_read_whose_answers_are_all_lost_is_unavailable(tmp_path: Path, lost: Answer):
    async with asking(tmp_path, in_turn(lost)) as (client, _):
        with pytest.raises(Unavailable):
            await client.get("/api")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (status(503, headers={"Retry-After": "1"}), Unavailable),
        (status(500), Unavailable),
        (status(504), Unavailable),
        (status(410, reason="Expired"), Expired),
        (Answer((b"<html>Sign in</html>",), headers=HTML), Unavailable),
        (Answer((b"<html>Bad gateway</html>",), 502, HTML), Unavailable),
        (Answer((b"",), 302, {"Location": "https://login.example.com"}), Unavailable),
        (Answer((b"not found",), 404, {"Content-Type": "text/plain"}), NotFound),
    ],
)
async def test_answers_of_troubled_servers_and_of_those_in_between(tmp_path: Path, answer: Answer, kind: type):
    async with asking(tmp_path, in_turn(answer)) as (client, _):
        with pytest.raises(kind) as error:
            await client.get("/api/v1/pods")
        assert "\n" not in str(error.value)
        with pytest.raises(kind):
            await client.send("PATCH", "/api/v1/pods", {})
        with pytest.raises(kind):
            async with client.lines("/api/v1/pods", {}) as lines:
                await all_of(lines)


async def test_a_slow_answer_is_not_waited_for(tmp_path: Path):
    slow = Answer((b'{"a":', b"1}"), pause_seconds=0.4)
    async with asking(tmp_path, in_turn(slow), timeout_seconds=0.5) as (client, server):
        with pytest.raises(Unavailable, match=r"within 0\.5 s"):
            await client.send("POST", "/api", {}, repeatable=True)
    assert len(server.asked) == 1


async def test_nobody_there(tmp_path: Path):
    async with answering(in_turn(Answer())) as (_, url):
        place = kubeconfig(tmp_path, url)
    async with connect(KubeSettings(place)) as client:
        with pytest.raises(Unavailable, match=r"cannot be reached at 127\.0\.0\.1:\d+: Connection refused"):
            await client.get("/version")
        with pytest.raises(Unavailable, match="cannot be reached"):
            await client.send("POST", "/version", {})
        with pytest.raises(Unavailable, match="cannot be reached"):
            async with client.lines("/version", {}):
                pass


async def test_a_name_that_nobody_has(tmp_path: Path):
    async with connect(KubeSettings(kubeconfig(tmp_path, "https://nowhere.invalid:6443"))) as client:
        with pytest.raises(Unavailable, match=r"the host name nowhere\.invalid is not known"):
            await client.get("/version")


async def test_lines_are_whole_however_the_bytes_come(tmp_path: Path):
    pieces = (b'{"a":', b"1}\n", b'{"b":2}\n{"c"', b":3}\n\n", b"x" * 300_000, b"y\n")
    chunked = Answer(pieces, length=None, pause_seconds=0.01)
    async with asking(tmp_path, in_turn(chunked)) as (client, _):
        async with client.lines("/api", {}) as lines:
            assert await all_of(lines) == [b'{"a":1}', b'{"b":2}', b'{"c":3}', b"x" * 300_000 + b"y"]


@pytest.mark.parametrize("end", [True, False])
async def test_a_line_that_breaks_off_is_never_told(tmp_path: Path, end: bool):
    broken = Answer((b'{"a":1}\n{"b":', b"2"), length=None, end=end)
    async with asking(tmp_path, in_turn(broken)) as (client, _):
        told: list[bytes] = []
        with pytest.raises(Unavailable):
            async with client.lines("/api", {}) as lines:
                async for line in lines:
                    told.append(line)
    assert told == [b'{"a":1}']


async def test_a_watch_that_falls_silent_is_given_up(tmp_path: Path):
    slow = Answer((b'{"a":1}\n', b'{"b":2}\n', b'{"c":3}\n'), length=None, pause_seconds=0.6)
    async with asking(tmp_path, in_turn(slow)) as (client, _):
        with pytest.raises(Unavailable, match=r"within 0\.2 s"):
            async with client.lines("/api", {}, silence_seconds=0.2) as lines:
                await all_of(lines)
        async with client.lines("/api", {}, silence_seconds=5) as lines:
            assert len(await all_of(lines)) == 3


async def test_requests_come_no_faster_than_agreed_and_watches_do_not_count(tmp_path: Path):
    async with answering(in_turn(Answer())) as (server, url):
        settings = KubeSettings(kubeconfig(tmp_path, url), requests_per_second=0.001, burst=5)
        async with connect(settings) as client:
            for _ in range(10):
                async with client.lines("/watch", {}) as lines:
                    await all_of(lines)
            await asyncio.gather(*(client.get("/api") for _ in range(5)))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.3):
                    await client.send("PATCH", "/api", {})
            async with client.lines("/watch", {}) as lines:
                await all_of(lines)
    assert [asked.path for asked in server.asked] == ["/watch"] * 10 + ["/api"] * 5 + ["/watch"]


async def test_a_guarded_client_reads_always_and_writes_only_while_it_may(tmp_path: Path):
    allowed = [True, False]
    async with asking(tmp_path, in_turn(Answer())) as (client, server):
        guarded = client.guarded(lambda: allowed.pop(0))
        await guarded.send("PATCH", "/first", {})
        with pytest.raises(Unavailable, match="not sent"):
            await guarded.send("PATCH", "/second", {})
        await guarded.get("/third")
        await client.send("PATCH", "/fourth", {})
    assert [asked.path.split("?")[0] for asked in server.asked] == ["/first", "/third", "/fourth"]


async def test_credentials_that_are_not_accepted_are_read_anew_once(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("old\n")

    def respond(asked: Asked) -> Answer:
        return Answer() if asked.headers["authorization"] == "Bearer new" else status(401, "Unauthorized")

    async with asking(tmp_path, respond, user={"tokenFile": str(token)}) as (client, server):
        with pytest.raises(Refused) as refused:
            await client.get("/api")
        assert refused.value.cause == "Unauthorized"
        token.write_text("new\n")
        # Credentials that were just read are not read again: a plugin may be behind them.
        await asyncio.sleep(1.1)
        await client.get("/api")
        await client.send("POST", "/api", {})
        async with client.lines("/api", {}) as lines:
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

    def respond(asked: Asked) -> Answer:
        return Answer() if asked.headers["authorization"] == "Bearer 2" else status(401, "Unauthorized")

    async with asking(tmp_path, respond, user) as (client, server):
        await asyncio.sleep(1.1)
        await asyncio.gather(*(client.get("/api") for _ in range(20)))
    assert counter.read_text().count("x") == 2
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer 1", "Bearer 2"}


async def test_a_server_that_was_started_anew_is_asked_on_new_connections(
    client: KubeClient, control_plane: ControlPlane
):
    await asyncio.gather(*(client.get("/version") for _ in range(10)))
    await asyncio.to_thread(control_plane.restart)
    answers = await asyncio.gather(*(client.get("/version") for _ in range(10)))
    assert len(answers) == 10


async def test_a_paused_server_is_unavailable_and_then_answers_again(control_plane: ControlPlane):
    async with connect(KubeSettings(control_plane.kubeconfig(), timeout_seconds=1)) as client:
        await client.get("/version")
        control_plane.pause()
        try:
            with pytest.raises(Unavailable, match="did not answer within 1 s"):
                await client.get("/version")
        finally:
            control_plane.resume()
        for attempt in itertools.count():
            try:
                assert b"gitVersion" in await client.get("/version")
                break
            except Unavailable:
                assert attempt < 10


async def test_a_network_that_breaks_in_the_middle_of_a_watch(control_plane: ControlPlane, tmp_path: Path):
    async with relayed(control_plane, tmp_path) as (relay, place), connect(KubeSettings(place)) as client:
        with pytest.raises(Unavailable):
            async with client.lines("/api/v1/namespaces", {"watch": "true"}) as lines:
                assert await anext(lines)
                relay.become(Network.DOWN)
                await all_of(lines)
        relay.become(Network.UP)
        assert b"gitVersion" in await client.get("/version")
