"""Postgres over TLS: sslmode=verify-full rejects the certificate of another server."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.store.connection import Database, convert_to_dsn, verifies_server
from cruise.adapters.webhook_tls.certificates import make_key_pair
from cruise.errors import BadInputError
from tests.postgres_servers import DebianServer, change

NOW = datetime.now(UTC)  # noqa: TID251 - certificates are of the real time


@dataclass(frozen=True, slots=True)
class Trusted:
    """A server with a certificate for `localhost`, the CA that issued it, and another CA."""

    server: DebianServer
    authority: Path
    other: Path

    def url(self, host: str, authority: Path | None, mode: str = "verify-full") -> str:
        root = f"&sslrootcert={authority}" if authority else ""
        return f"{self.server.url.replace('127.0.0.1', host)}?sslmode={mode}{root}"


@pytest.fixture
def trusted(debian_postgres: DebianServer, tmp_path: Path) -> Iterator[Trusted]:
    pair, authority = make_key_pair(["localhost"], NOW, timedelta(days=1))
    _, other = make_key_pair(["localhost"], NOW, timedelta(days=1))
    for name, text in (("ca.crt", authority), ("other.crt", other)):
        (tmp_path / name).write_bytes(text)
    owner = (debian_postgres.directory / "data").stat()
    for name, text in (("server.crt", pair.certificate), ("server.key", pair.key)):
        file = debian_postgres.directory / "data" / name
        file.write_bytes(text)
        os.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(0o600)
    change(debian_postgres.url, "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()")
    yield Trusted(debian_postgres, tmp_path / "ca.crt", tmp_path / "other.crt")
    change(debian_postgres.url, "ALTER SYSTEM RESET ssl", "SELECT pg_reload_conf()")


async def encrypted(url: str) -> bool:
    """Connect, and tell whether the connection is encrypted."""
    database = Database(convert_to_dsn(url))
    try:
        async with database.transaction() as connection:
            found = await connection.exec_driver_sql("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()")
            return bool(found.scalar())
    finally:
        await database.close()


async def test_the_server_that_is_meant_is_connected_to(trusted: Trusted):
    assert await encrypted(trusted.url("localhost", trusted.authority))


@pytest.mark.parametrize(
    ("host", "which", "says"),
    [
        ("localhost", "other", "certificate verify failed"),
        ("127.0.0.1", "authority", "certificate is not valid for '127.0.0.1'"),
        ("localhost", None, "sslrootcert"),
    ],
    ids=["another CA", "another name", "no CA"],
)
async def test_any_other_server_is_refused_in_one_line(
    trusted: Trusted, host: str, which: str | None, says: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadInputError) as refused:
        await encrypted(trusted.url(host, getattr(trusted, which) if which else None))
    assert says in str(refused.value)
    assert "sslmode" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "verified"),
    [
        ("postgresql://u@db.example.com/c?sslmode=verify-full", True),
        ("postgresql://u@db.example.com/c?sslmode=verify-ca", False),
        ("postgresql://u@db.example.com/c?sslmode=require", False),
        ("postgresql://u@db.example.com/c", False),
        ("postgresql://u@10.0.0.1/c", False),
        ("postgresql://u@127.0.0.1/c", True),
        ("postgresql://u@[::1]/c", True),
        ("postgresql://u@localhost/c", True),
        ("postgresql://u@/c?host=/run/postgresql", True),
        ("postgresql://u@/c?host=db.example.com", False),
    ],
)
def test_reports_which_urls_do_not_verify_the_server(url: str, verified: bool):
    assert verifies_server(url) is verified
