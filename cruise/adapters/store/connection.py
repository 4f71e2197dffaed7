"""Connections: where the database is, how to reach it, and one transaction at a time."""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

import asyncpg
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.errors import BadInputError, CruiseError, UnavailableError

# Failures of the driver and of SQLAlchemy as cruise's errors.

DRIVER_ERRORS = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

# What waiting does not heal, by class of SQLSTATE: credentials, database, names and rights, values that do not fit.
_FOR_GOOD = ("28", "3D", "42", "22")
_OF_TLS = re.compile("rejected SSL upgrade|^root certificate file")


def translate_database_error(error: Exception, place: str) -> CruiseError:
    """Return BadInputError for what the settings must mend, Unavailable for the rest; `place` names the database."""
    cause = _driver_error(error)
    state = getattr(cause, "sqlstate", None) or ""
    # Before the next: what the library says of certificates are ValueErrors too.
    if isinstance(cause, ssl.SSLCertVerificationError) or _OF_TLS.search(str(cause)):
        return BadInputError(f"Postgres at {place}: {_first_line(cause)}: check sslmode and sslrootcert")
    # The driver's own refusals of parameters and of values are ValueErrors.
    if state.startswith(_FOR_GOOD) or isinstance(cause, ValueError):
        return BadInputError(f"Postgres at {place}: {_first_line(cause)}")
    return UnavailableError(f"Postgres at {place}: {_reason(cause)}")


def _driver_error(error: BaseException) -> BaseException:
    """Return the driver's own error below SQLAlchemy's wrappings, whose text would carry statements and values."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def _reason(cause: BaseException) -> str:
    if isinstance(cause, socket.gaierror):
        return "the host name is not known"
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, ConnectionRefusedError | FileNotFoundError) or "Connect call failed" in str(cause):
        return "nothing listens there"
    return _first_line(cause)


def _first_line(cause: BaseException) -> str:
    lines = str(cause).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(cause).__name__


CONNECT_SECONDS = 10.0
PING_SECONDS = 2.0
# For a transaction of a few rows, the wait for a connection included.
CONNECTION_TIMEOUT = timedelta(seconds=10)
STATEMENT_TIMEOUT = timedelta(minutes=5)
POOL_SIZE = 5
MIN_SERVER_VERSION = 15
_NEW = "cruise-new"


def convert_to_dsn(database_url: str) -> str:
    """Turn a URL in SQLAlchemy's or libpq's form into libpq's, which the driver reads whole, SSL parameters included.

    Raises BadInputError; its message never shows the password.
    """
    try:
        parts = urlsplit(database_url)
        if parts.port is not None and parts.fragment:
            raise ValueError("what follows a # would be lost")
    except ValueError as error:
        # What the parser says would quote the password that it took for a port or a host.
        raise BadInputError(
            "database_url cannot be read: in a user or password, write / as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D"
        ) from error
    if parts.scheme.partition("+")[0] not in ("postgresql", "postgres"):
        raise BadInputError(
            f"database_url must begin with postgresql://, not with {parts.scheme or 'nothing'}:// "
            "(the form is postgresql://USER:PASSWORD@HOST:PORT/DATABASE)"
        )
    try:
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadInputError("database_url has parameters after '?' that are not NAME=VALUE") from error
    # SQLAlchemy's name for the driver's own parameter.
    parameters = [("sslmode" if name == "ssl" else name, value) for name, value in query]
    encoded = urlencode(parameters, quote_via=quote, safe="/:,")
    return urlunsplit(("postgresql", parts.netloc, parts.path, encoded, ""))


def describe_database(dsn: str) -> str:
    """Name the database of a DSN for people: host, port and name, no user and no password."""
    parts = urlsplit(dsn)
    directory = dict(parse_qsl(parts.query)).get("host", "")
    address = parts.netloc.rpartition("@")[2] or directory or "the default address"
    return f"{address}{parts.path if parts.path != '/' else ''}"


def verifies_server(dsn: str) -> bool:
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
        self.location = str(server.data_dir) if server else describe_database(dsn)
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
        """One transaction: committed at the end, rolled back by any exception. Raises BadInputError, Unavailable.

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
            raise translate_database_error(error, self.location) from error

    async def start_server(self) -> None:
        """Start the embedded server, where there is one. Raises BadInputError, Unavailable."""
        if self._server is not None:
            await _to_its_end(self._server.start)

    async def check(self, oldest: int = MIN_SERVER_VERSION) -> None:
        """See that the server answers and is of no version before `oldest`. Raises BadInputError, Unavailable."""
        async with self.transaction() as connection:
            number = await connection.scalar(text("SELECT current_setting('server_version_num')::int"))
        major = int(number or 0) // 10_000
        if major < oldest:
            raise BadInputError(f"Postgres at {self.location} is version {major}: cruise needs {oldest} or newer")

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


async def get_driver_connection(connection: AsyncConnection) -> Any:  # noqa: ANN401 - the driver has no types
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
