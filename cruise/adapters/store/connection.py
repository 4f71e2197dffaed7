"""Connections: where the database is, how to reach it, and one transaction at a time."""

import asyncio
import ipaddress
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.failures import DRIVER_ERRORS, translated
from cruise.errors import BadInput

CONNECT_SECONDS = 10.0
PING_SECONDS = 2.0
# For a transaction of a few rows, the wait for a connection included.
SHORT = timedelta(seconds=10)
STATEMENT_TIMEOUT = timedelta(minutes=5)
POOL_SIZE = 5
OLDEST_SERVER = 15
_NEW = "cruise-new"


def dsn_of(database_url: str) -> str:
    """Turn a URL in SQLAlchemy's or libpq's form into libpq's, which the driver reads whole, SSL parameters included.

    Raises BadInput; its message never shows the password.
    """
    try:
        parts = urlsplit(database_url)
        if parts.port is not None and parts.fragment:
            raise ValueError("what follows a # would be lost")
    except ValueError as error:
        # What the parser says would quote the password that it took for a port or a host.
        raise BadInput(
            "database_url cannot be read: in a user or password, write / as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D"
        ) from error
    if parts.scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise BadInput(
            f"database_url must begin with postgresql://, not with {parts.scheme or 'nothing'}:// "
            "(the form is postgresql://USER:PASSWORD@HOST:PORT/DATABASE)"
        )
    try:
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadInput("database_url has parameters after '?' that are not NAME=VALUE") from error
    # SQLAlchemy's name for the driver's own parameter.
    parameters = [("sslmode" if name == "ssl" else name, value) for name, value in query]
    encoded = urlencode(parameters, quote_via=quote, safe="/:,")
    return urlunsplit(("postgresql", parts.netloc, parts.path, encoded, ""))


def place_of(dsn: str) -> str:
    """Name the database of a DSN for people: host, port and name, no user and no password."""
    parts = urlsplit(dsn)
    directory = dict(parse_qsl(parts.query)).get("host", "")
    address = parts.netloc.rpartition("@")[2] or directory or "the default address"
    return f"{address}{parts.path if parts.path != '/' else ''}"


def verifies(dsn: str) -> bool:
    """Tell whether the server is verified to be the one that is meant, or is on this machine."""
    parts = urlsplit(dsn)
    parameters = dict(parse_qsl(parts.query))
    host = parameters.get("host", parts.hostname or "")
    return host.startswith("/") or _is_loopback(host) or parameters.get("sslmode") == "verify-full"


class Database:
    """One Postgres database: hands out transactions, and reconnects by itself when one was lost.

    With `server`, the embedded one, it is started again when it is found dead. No statement takes longer than
    `statement_timeout`, the wait for locks included, and no transaction stays open for as long without one.

    A connection is asked for a sign of life before it is handed out. Where one gives none within `PING_SECONDS`, or a
    transaction is not over in time, all connections are dropped at once, those in use included: after a failover that
    nobody announced, each of them would hold a transaction for as long as its statements may take.
    """

    def __init__(
        self, dsn: str, server: EmbeddedPostgres | None = None, statement_timeout: timedelta = STATEMENT_TIMEOUT
    ) -> None:
        self._dsn = dsn
        self._server = server
        self._statement_timeout = statement_timeout
        self.place = str(server.data_dir) if server else place_of(dsn)
        self._engine = create_async_engine(
            "postgresql+asyncpg://",
            async_creator=self._connect,
            pool_size=POOL_SIZE,
        )
        self._connections: WeakSet[Any] = WeakSet()
        event.listen(self._engine.sync_engine, "connect", _is_new)
        event.listen(self._engine.sync_engine, "checkout", self._ping)

    @asynccontextmanager
    async def transaction(self, longest: timedelta | None = None) -> AsyncIterator[AsyncConnection]:
        """One transaction: committed at the end, rolled back by any exception. Raises BadInput, Unavailable.

        It is given up after `longest`, its wait for a connection included.
        """
        try:
            async with (
                asyncio.timeout(None if longest is None else longest.total_seconds()),
                self._engine.begin() as connection,
            ):
                yield connection
        except DRIVER_ERRORS as error:
            if isinstance(error, TimeoutError):
                self._drop_connections()
            raise translated(error, self.place) from error

    async def start_server(self) -> None:
        """Start the embedded server, where there is one. Raises BadInput, Unavailable."""
        if self._server is not None:
            await _to_its_end(self._server.start)

    async def check(self, oldest: int = OLDEST_SERVER) -> None:
        """See that the server answers and is of no version before `oldest`. Raises BadInput, Unavailable."""
        async with self.transaction() as connection:
            number = await connection.scalar(text("SELECT current_setting('server_version_num')::int"))
        major = int(number or 0) // 10_000
        if major < oldest:
            raise BadInput(f"Postgres at {self.place} is version {major}: cruise needs {oldest} or newer")

    async def close(self) -> None:
        """Close every connection, and leave the embedded server to its other users or stop it."""
        try:
            await self._engine.dispose()
        finally:
            if self._server is not None:
                await _to_its_end(self._server.release)

    def _ping(self, adapted: Any, record: Any, proxy: object) -> None:  # noqa: ANN401 - SQLAlchemy's own
        """See that a connection that was idle is alive, else replace all. Called by the pool, which tries again."""
        if record.info.pop(_NEW, False):
            return
        try:
            adapted.run_async(lambda connection: connection.execute("SELECT 1", timeout=PING_SECONDS))
        except (*DRIVER_ERRORS, asyncpg.InternalClientError) as error:
            # The last is a connection that was left in the middle of a statement, by a server that was killed.
            if isinstance(error, TimeoutError):
                self._drop_connections()
            raise InvalidatePoolError from error

    def _drop_connections(self) -> None:
        """Abort every connection without a word to the server; what they were used for fails at once."""
        for connection in list(self._connections):
            connection.terminate()

    async def _connect(self) -> Any:  # noqa: ANN401 - the driver has no types
        if self._server is None:
            return await self._connect_once()
        try:
            return await self._connect_once()
        except (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError):
            await self.start_server()
            return await self._connect_once()

    async def _connect_once(self) -> Any:  # noqa: ANN401 - the driver has no types
        milliseconds = str(int(self._statement_timeout.total_seconds() * 1000))
        connection = await asyncpg.connect(
            self._dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=self._statement_timeout.total_seconds(),
            # The server's own watch, which holds for a client that hangs as well.
            server_settings={
                "application_name": "cruise",
                "statement_timeout": milliseconds,
                "idle_in_transaction_session_timeout": milliseconds,
            },
        )
        self._connections.add(connection)
        return connection


def _is_new(adapted: object, record: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
    """Note that a connection was just made, and needs no sign of life."""
    record.info[_NEW] = True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")


async def driver_in_transaction(connection: AsyncConnection) -> Any:  # noqa: ANN401 - the driver has no types
    """Return asyncpg's own connection for COPY and plain fetches, inside the transaction of `connection`."""
    # SQLAlchemy begins the transaction with its first statement, and what the driver runs does not count as one.
    await connection.execute(text("SELECT 1"))
    raw = await connection.get_raw_connection()
    return raw.driver_connection


async def _to_its_end(step: Callable[[], None]) -> None:
    """Run a blocking step in a thread; a cancellation waits for it, so that no server is left half-started."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await running
        raise
