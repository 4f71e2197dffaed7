"""Postgres servers for tests: the embedded one, and Debian's over TCP with a password."""

import asyncio
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
import pytest

from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.errors import CruiseError

PASSWORD = "pass word/1"
DATABASE_SQL = Path(__file__).parents[1] / "deploy" / "database.sql"


@contextmanager
def open_directory() -> Iterator[Path]:
    """A directory that other users may enter: pytest's own is closed to them, and Postgres does not run as root."""
    path = Path(tempfile.mkdtemp(prefix="cruise-", dir="/tmp"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def embedded_server() -> Iterator[Path]:
    """The data directory of an embedded server that runs for as long as this lasts; skips where none can."""
    with open_directory() as data_dir:
        server = EmbeddedPostgres(data_dir)
        try:
            server.start()
        except CruiseError as error:
            pytest.skip(f"no embedded Postgres on this machine: {error}")
        try:
            yield data_dir
        finally:
            server.release()


@dataclass(frozen=True, slots=True)
class DebianServer:
    """A server of Debian's packages; `start` and `stop` may follow each other."""

    programs: Path
    directory: Path
    port: int

    @property
    def url(self) -> str:
        """The URL of its only database, password included."""
        return (
            f"postgresql://postgres:{PASSWORD.replace(' ', '%20').replace('/', '%2F')}@127.0.0.1:{self.port}/postgres"
        )

    def start(self) -> None:
        """Start and wait until it answers."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.directory} -c fsync=off"
        self._run("pg_ctl", "-D", str(self.directory / "data"), "-w", "-l", "/dev/null", "-o", options, "start")

    def stop(self) -> None:
        """Stop, and close all connections."""
        self._run("pg_ctl", "-D", str(self.directory / "data"), "-m", "immediate", "-w", "stop")

    @contextmanager
    def away(self) -> Iterator[Callable[[], None]]:
        """Stop it for as long as a `with` lasts, or until what this yields is called."""
        started = False

        def come_back() -> None:
            nonlocal started
            if not started:
                self.start()
                started = True

        self.stop()
        try:
            yield come_back
        finally:
            come_back()

    def initialise(self) -> None:
        """Make the cluster, with password authentication everywhere."""
        password_file = self.directory / "password"
        password_file.write_text(PASSWORD)
        password_file.chmod(0o644)
        arguments = ("-A", "scram-sha-256", f"--pwfile={password_file}", "-U", "postgres", "-E", "UTF8", "--no-sync")
        self._run("initdb", "-D", str(self.directory / "data"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        as_user = _account() if os.geteuid() == 0 else None
        command: Sequence[str] = [str(self.programs / program), *arguments]
        user = {"user": as_user.pw_uid, "group": as_user.pw_gid, "extra_groups": ()} if as_user else {}
        subprocess.run(command, check=True, capture_output=True, cwd="/", **user)  # type: ignore[call-overload]


def _account() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


@contextmanager
def debian_server() -> Iterator[DebianServer]:
    """A running server of Debian's packages; skips where they are not installed."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if not installed:
        pytest.skip("no Debian PostgreSQL on this machine (apt install postgresql)")
    with open_directory() as directory:
        if os.geteuid() == 0:
            os.chown(directory, _account().pw_uid, _account().pw_gid)
        server = DebianServer(installed[-1].parent, directory, free_port())
        server.initialise()
        server.start()
        try:
            yield server
        finally:
            server.stop()


@dataclass(frozen=True, slots=True)
class LeastRoles:
    """The URLs of a database as deploy/database.sql leaves it, by role; nothing is in it yet."""

    administrator: str
    owner: str
    serve: str
    webhook: str


@contextmanager
def least_roles(server: DebianServer) -> Iterator[LeastRoles]:
    """A database with the three roles of deploy/database.sql; they go with it."""
    name, password = f"roles_{secrets.token_hex(4)}", secrets.token_hex(8)
    roles = [f"cruise_{one}" for one in ("owner", "serve", "webhook")]
    administrator = server.url.removesuffix("postgres") + name
    change(server.url, f"CREATE DATABASE {name}")
    change(administrator, DATABASE_SQL.read_text(), *(f"ALTER ROLE {role} PASSWORD '{password}'" for role in roles))
    try:
        yield LeastRoles(
            administrator, *(f"postgresql://{role}:{password}@127.0.0.1:{server.port}/{name}" for role in roles)
        )
    finally:
        change(server.url, f"DROP DATABASE {name} WITH (FORCE)", f"DROP ROLE {', '.join(roles)}")


def dsn_below(data_dir: Path) -> str:
    """Where the embedded server of a data directory listens."""
    return f"postgresql://postgres@/postgres?host={data_dir}/postgres"


def emptied(dsn: str) -> None:
    """Drop what is in a database."""
    change(dsn, "DROP SCHEMA public CASCADE", "CREATE SCHEMA public", "GRANT USAGE ON SCHEMA public TO public")


def change(dsn: str, *statements: str) -> None:
    """Carry statements out, each by itself."""

    async def carry_out() -> None:
        connection = await asyncpg.connect(dsn)
        for statement in statements:
            await connection.execute(statement)
        await connection.close()

    # Session fixtures are created in the loop of the first test that uses them.
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(carry_out())).result()


def free_port() -> int:
    """An unused TCP port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
