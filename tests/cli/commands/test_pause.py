"""`cruise pause` and `cruise resume`: in a real store, and through the API."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from cruise.adapters.store.postgres import open_store
from cruise.cli import main
from cruise.domain.users import UserAction, UserActionKind
from tests.interfaces.http.api_scene import TOKEN, ApiScene, make_busy_scene
from tests.postgres_servers import dsn_below, emptied


@contextmanager
def served(scene: ApiScene) -> Iterator[str]:
    """Serve a scene's API on its own port."""

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            answered = asyncio.run(self.ask())
            self.send_response_only(answered.status_code)
            self.send_header("Content-Length", str(len(answered.content)))
            self.end_headers()
            self.wfile.write(answered.content)

        async def ask(self) -> httpx.Response:
            transport = httpx.ASGITransport(scene.app())
            async with httpx.AsyncClient(transport=transport, base_url="http://cruise") as client:
                return await client.request(self.command, self.path, headers=dict(self.headers))

        do_GET = do_PUT = do_DELETE = handle_any

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with serving(Handler) as url:
        yield url


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def data_dir(embedded_postgres):
    emptied(dsn_below(embedded_postgres))
    asyncio.run(paused_in(embedded_postgres))
    return embedded_postgres


@pytest.fixture
def stored(data_dir, monkeypatch):
    monkeypatch.setenv("CRUISE_DATA_DIR", str(data_dir))
    monkeypatch.setenv("COLUMNS", "80")
    return data_dir


async def paused_in(directory) -> bool:
    async with open_store(None, directory, print) as store:
        return await store.is_paused()


async def interventions_in(directory) -> Sequence[UserAction]:
    async with open_store(None, directory, print) as store:
        return await store.read_user_actions(datetime.min.replace(tzinfo=UTC))


def refused(capsys, *arguments: str, code: int = 2) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("cruise: ")
    assert err.count("\n") == 1
    return str(err)


def test_the_flag_is_set_in_the_database_of_this_machine(capsys, stored):
    assert main(["pause"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"Paused, in the embedded Postgres under {stored} on this machine." in said
    assert "stops within a second; requests that the API server has already received" in said
    assert asyncio.run(paused_in(stored)) is True
    assert main(["pause"]) == 0
    assert "Nothing changed: already paused" in capsys.readouterr().out
    assert main(["resume", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["paused"], document["wasPaused"]) == (False, True)
    assert asyncio.run(paused_in(stored)) is False
    *_, first, second, last = reversed(asyncio.run(interventions_in(stored)))
    assert [one.kind for one in (first, second, last)] == [
        UserActionKind.PAUSE,
        UserActionKind.PAUSE,
        UserActionKind.RESUME,
    ]
    assert last.caller.endswith(f" at {socket.gethostname()}")


async def paused_workloads_in(directory) -> list[str]:
    async with open_store(None, directory, print) as store:
        return [f"{namespace} {workload}" for namespace, workload in await store.read_paused_workloads()]


WEB = ["--namespace", "shop", "--workload", "Deployment/web"]


def test_one_workload_is_paused_and_resumed_in_the_database_and_through_the_api(
    capsys, stored, scene, token, monkeypatch
):
    assert main(["pause", *WEB]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Paused Deployment/web of namespace shop, in the embedded Postgres" in said
    assert asyncio.run(paused_workloads_in(stored)) == ["shop Deployment/web"]
    assert asyncio.run(paused_in(stored)) is False
    assert main(["pause", *WEB]) == 0
    assert "Nothing changed: already paused" in capsys.readouterr().out
    assert main(["resume", *WEB, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["wasPaused"], document["namespace"], document["workload"]) == (True, "shop", "Deployment/web")
    assert asyncio.run(paused_workloads_in(stored)) == []
    last = asyncio.run(interventions_in(stored))[0]
    assert (last.kind, last.namespace, str(last.workload)) == (UserActionKind.RESUME_WORKLOAD, "shop", "Deployment/web")
    monkeypatch.setenv("CRUISE_API_TOKEN_FILE", str(token))
    with served(scene) as url:
        for paused in (True, False):
            assert main(["pause" if paused else "resume", *WEB, "--server", url]) == 0
            assert bool(asyncio.run(scene.store.read_paused_workloads())) is paused
        assert "answered 404" in refused(capsys, "pause", *WEB[:-1], "Deployment/wib", "--server", url)


def test_a_workload_has_a_namespace_and_a_kind(capsys, stored):
    assert "--namespace needs --workload" in refused(capsys, "pause", "--namespace", "shop")
    assert "--workload needs --namespace" in refused(capsys, "resume", "--workload", "Deployment/web")
    assert "is not KIND/NAME" in refused(capsys, "pause", "--namespace", "shop", "--workload", "web")


def test_no_database_is_created(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("CRUISE_DATA_DIR", str(tmp_path / "nothing"))
    said = refused(capsys, "pause")
    assert "no database of cruise under" in said
    assert "database_url" in said and "--server" in said
    assert not (tmp_path / "nothing").exists()


def test_a_missing_database_is_reported_without_waiting(capsys, monkeypatch):
    monkeypatch.setenv("CRUISE_DATABASE_URL", "postgresql://cruise:s3cret@127.0.0.1:1/cruise")
    said = refused(capsys, "pause", code=1)
    assert "Postgres at 127.0.0.1:1/cruise: nothing listens there" in said
    assert "s3cret" not in said


@pytest.fixture
def token(tmp_path):
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture
def scene(token):
    return asyncio.run(make_busy_scene(token))


def test_a_pause_reaches_a_server_on_another_machine(capsys, scene, token, monkeypatch):
    with served(scene) as url:
        assert main(["pause", "--server", f"{url}/", "--token-file", str(token)]) == 0
        assert asyncio.run(scene.store.is_paused()) is True
        assert f"Paused, in {url}." in capsys.readouterr().out
        monkeypatch.setenv("CRUISE_API_TOKEN_FILE", str(token))
        assert main(["resume", "--server", url]) == 0
        assert asyncio.run(scene.store.is_paused()) is False


def test_a_server_s_error_is_one_line(capsys, scene, tmp_path, token):
    (tmp_path / "wrong").write_text("wrong")
    (tmp_path / "empty").write_text("")
    with served(scene) as url:
        assert "answered 401" in refused(capsys, "pause", "--server", url, "--token-file", str(tmp_path / "wrong"))
        assert "needs its token" in refused(capsys, "pause", "--server", url)
        assert "answered 404" in refused(capsys, "pause", "--server", f"{url}/x", "--token-file", str(token))
        empty = refused(capsys, "pause", "--server", url, "--token-file", str(tmp_path / "empty"))
        assert "contains no token" in empty
    scene.authority = None
    with served(scene) as url:
        said = refused(capsys, "pause", "--server", url, "--token-file", str(token))
        assert "set api_token_file" in said
    gone = refused(capsys, "pause", "--server", "http://127.0.0.1:1", "--token-file", str(token), code=1)
    assert "cannot be reached" in gone
    assert asyncio.run(scene.store.is_paused()) is False


@pytest.mark.parametrize("server", ["cruise.example.org", "ftp://x", "http://", "http://x?y=1", ""])
def test_what_is_no_address_is_rejected(capsys, server, token):
    said = refused(capsys, "pause", "--server", server, "--token-file", str(token))
    assert "is not a URL" in said


def test_a_token_without_a_server_is_rejected(capsys, token):
    assert "--token-file needs --server" in refused(capsys, "pause", "--token-file", str(token))


ANSWERS = {
    "web page": (200, b"<html>sign in</html>", "did not answer as cruise's API does"),
    "another API": (200, b'{"paused":"yes"}', "did not answer as cruise's API does"),
    "nested text": (200, b"[" * 100_000, "did not answer as cruise's API does"),
    "nothing": (200, b"", "did not answer as cruise's API does"),
    "redirect": (302, b"", "answered 302"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_server_that_is_not_cruise_is_reported_from_one(capsys, token, name):
    status, body, expected = ANSWERS[name]
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append(self.path)
            self.send_response_only(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with serving(Handler) as url:
        assert expected in refused(capsys, "pause", "--server", url, "--token-file", str(token))
    assert seen == ["/api/v1/pause"]


def test_a_server_without_the_tls_that_was_requested_is_rejected(capsys, token):
    class Plain(BaseHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    with serving(Plain) as url:
        said = refused(capsys, "pause", "--server", url.replace("http", "https"), "--token-file", str(token))
    assert "TLS failed" in said
