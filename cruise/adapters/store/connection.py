"""Connections to the database: its address, its errors, and transactions."""

import asyncio
import ipaddress
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from weakref import WeakSet

import asyncpg
from sqlalchemy import Table, TableClause, column, event, table, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.errors import BadInputError, CruiseError, UnavailableError

DRIVER_ERRORS = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

# Classes of SQLSTATE that a retry does not fix: credentials, database, names and permissions, invalid values.
_PERMANENT = ("28", "3D", "42", "22")
_TLS_ERROR = re.compile("rejected SSL upgrade|^root certificate file")


def translate_database_error(error: Exception, place: str) -> CruiseError:
    """Return BadInputError for what the settings must fix, else UnavailableError; `place` names the database."""
    cause = _find_driver_error(error)
    state = getattr(cause, "sqlstate", None) or ""
    # First, because errors of certificates are ValueErrors too.
    if isinstance(cause, ssl.SSLCertVerificationError) or _TLS_ERROR.search(str(cause)):
        return BadInputError(f"Postgres at {place}: {_first_line(cause)}: check sslmode and sslrootcert")
    # The driver raises ValueError for invalid parameters and values.
    if state.startswith(_PERMANENT) or isinstance(cause, ValueError):
        return BadInputError(f"Postgres at {place}: {_first_line(cause)}")
    return UnavailableError(f"Postgres at {place}: {_describe(cause)}")


def _find_driver_error(error: BaseException) -> BaseException:
    """Return the driver's error, because SQLAlchemy's messages contain statements and values."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        return error.orig.__cause__ or error.orig
    return error


def _describe(cause: BaseException) -> str:
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
CLOSE_SECONDS = 2.0
# For a transaction of a few rows, including the wait for a connection.
CONNECTION_TIMEOUT = timedelta(seconds=10)
STATEMENT_TIMEOUT = timedelta(minutes=5)
# A process that stops between two statements keeps its locks, and would block the next leader's writes.
IDLE_TIMEOUT = timedelta(seconds=10)
POOL_SIZE = 5
MIN_SERVER_VERSION = 15
_NEW = "cruise-new"
# The server learns within 15 seconds that a client's machine is gone, if the connection is a TCP one.
_SET_TIMEOUTS = text(
    "SELECT set_config('statement_timeout', :statement, true),"
    " set_config('idle_in_transaction_session_timeout', :idle, true),"
    " set_config('tcp_keepalives_idle', '5', true), set_config('tcp_keepalives_interval', '5', true),"
    " set_config('tcp_keepalives_count', '2', true), set_config('tcp_user_timeout', '15s', true)"
)
# Neither of the server's limits ends a statement whose client is silent: the driver sends a statement in two parts, and
# the rows of a COPY one by one.
_END_HUNG_SESSIONS = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE usename = current_user AND datname = current_database() AND application_name = :application"
    " AND pid <> pg_backend_pid() AND state IN ('active', 'idle in transaction') AND wait_event_type = 'Client'"
    " AND state_change < clock_timestamp() - make_interval(secs => :seconds)"
)
_APPLICATION = "cruise"


def convert_to_dsn(database_url: str) -> str:
    """Convert a URL of SQLAlchemy or libpq to libpq's form, which the driver reads with SSL parameters.

    Raises BadInputError, whose message never contains the password.
    """
    try:
        parts = urlsplit(database_url)
        if parts.port is not None and parts.fragment:
            raise ValueError("the text after # would be lost")
    except ValueError as error:
        # The parser's message may contain the password.
        raise BadInputError(
            "database_url cannot be read: in a user or password, write / as %2F, ? as %3F, # as %23, [ as %5B, ] as %5D"
        ) from error
    if parts.scheme.partition("+")[0] not in ("postgresql", "postgres"):
        instead = f", not with {parts.scheme}://" if parts.scheme else ""
        raise BadInputError(
            f"database_url must begin with postgresql://{instead} "
            "(the form is postgresql://USER:PASSWORD@HOST:PORT/DATABASE)"
        )
    try:
        query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise BadInputError("database_url has parameters after '?' that are not of the form NAME=VALUE") from error
    # SQLAlchemy calls sslmode ssl.
    parameters = [("sslmode" if name == "ssl" else name, value) for name, value in query]
    encoded = urlencode(parameters, quote_via=quote, safe="/:,")
    return urlunsplit(("postgresql", parts.netloc, parts.path, encoded, ""))


def describe_database(dsn: str) -> str:
    """Return host, port and name of a database for messages, without user and password."""
    parts = urlsplit(dsn)
    directory = dict(parse_qsl(parts.query)).get("host", "")
    address = parts.netloc.rpartition("@")[2] or directory or "the default address"
    return f"{address}{parts.path if parts.path != '/' else ''}"


def verifies_server(dsn: str) -> bool:
    """Return whether the server's identity is verified, or the server is on this machine."""
    parts = urlsplit(dsn)
    parameters = dict(parse_qsl(parts.query))
    host = parameters.get("host", parts.hostname or "")
    return host.startswith("/") or _is_loopback(host) or parameters.get("sslmode") == "verify-full"


class Database:
    """A Postgres database: provides transactions, and reconnects after a lost connection.

    An embedded `server` is started again if it died. The server aborts a statement that takes longer than
    `statement_timeout`, waits for locks included, and a transaction whose client sends nothing for its idle timeout.

    Nothing outlives a transaction on the server: neither settings nor prepared statements. A pooler such as PgBouncer
    may carry out each transaction of a connection on another one of the server, which it shares with other processes.

    An idle connection is pinged before use. If the ping takes longer than `PING_SECONDS`, or a transaction times out,
    all connections are dropped, also those in use: after a silent failover, each would block a transaction until the
    statement timeout.
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
            connect_args={"prepared_statement_cache_size": 0, "prepared_statement_name_func": lambda: ""},
        )
        self._connections: WeakSet[Any] = WeakSet()
        event.listen(self._engine.sync_engine, "connect", _mark_new)
        event.listen(self._engine.sync_engine, "checkout", self._ping)

    @asynccontextmanager
    async def transaction(
        self, timeout: timedelta | None = None, idle_timeout: timedelta = IDLE_TIMEOUT
    ) -> AsyncIterator[AsyncConnection]:
        """Run one transaction: committed at the end, rolled back after an exception.

        `timeout` includes the wait for a connection. Raises BadInputError and UnavailableError.
        """
        limits = {
            "statement": _to_milliseconds(min(timeout or self._statement_timeout, self._statement_timeout)),
            "idle": _to_milliseconds(idle_timeout),
        }
        try:
            async with (
                asyncio.timeout(None if timeout is None else timeout.total_seconds()),
                self._engine.begin() as connection,
            ):
                # Limits of the server also apply if this client hangs.
                await connection.execute(_SET_TIMEOUTS, limits)
                yield connection
        except DRIVER_ERRORS as error:
            if isinstance(error, TimeoutError):
                self._drop_connections()
            raise translate_database_error(error, self.location) from error

    async def start_server(self) -> None:
        """Start the embedded server, if there is one. Raises BadInputError and UnavailableError."""
        if self._server is not None:
            await _run_uncancelled(self._server.start)

    async def check(self, min_version: int = MIN_SERVER_VERSION) -> None:
        """Check that the server answers and is at least `min_version`. Raises BadInputError and UnavailableError."""
        async with self.transaction() as connection:
            number = await connection.scalar(text("SELECT current_setting('server_version_num')::int"))
        major = int(number or 0) // 10_000
        if major < min_version:
            raise BadInputError(f"Postgres at {self.location} is version {major}: cruise needs {min_version} or newer")

    async def close(self) -> None:
        """Close all connections, and release the embedded server."""
        try:
            # A dead connection that stays open would be waited for as long as a statement may take.
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._engine.dispose()
        except TimeoutError:
            self._drop_connections()
        finally:
            if self._server is not None:
                await _run_uncancelled(self._server.release)

    def _ping(self, adapted: Any, record: Any, proxy: object) -> None:  # noqa: ANN401 - SQLAlchemy's own
        """Check that an idle connection works, else replace all. The pool calls it and retries."""
        if record.info.pop(_NEW, False):
            return
        try:
            adapted.run_async(lambda connection: connection.execute("SELECT 1", timeout=PING_SECONDS))
        except (*DRIVER_ERRORS, asyncpg.InternalClientError) as error:
            # InternalClientError: a killed server left the connection within a statement.
            if isinstance(error, TimeoutError):
                self._drop_connections()
            raise InvalidatePoolError from error

    def _drop_connections(self) -> None:
        """Abort all connections without a message to the server; their users fail immediately."""
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
        connection = await asyncpg.connect(
            self._dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=self._statement_timeout.total_seconds(),
            statement_cache_size=0,
            server_settings={"application_name": _APPLICATION},
        )
        self._connections.add(connection)
        return connection


def _to_milliseconds(duration: timedelta) -> str:
    return str(int(duration.total_seconds() * 1000))


def _mark_new(adapted: object, record: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
    """Mark a new connection, which needs no ping."""
    record.info[_NEW] = True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("", "localhost")


async def end_hung_sessions(connection: AsyncConnection, silent: timedelta = IDLE_TIMEOUT) -> int:
    """End this user's sessions whose client has been silent within a transaction for so long; return their number.

    A process that is stopped there keeps its locks until it continues.
    """
    found = await connection.execute(
        _END_HUNG_SESSIONS, {"application": _APPLICATION, "seconds": silent.total_seconds()}
    )
    return len(found.all())


async def get_driver_connection(connection: AsyncConnection) -> Any:  # noqa: ANN401 - the driver has no types
    """Return the connection of asyncpg for COPY and plain fetches in the transaction of `connection`."""
    raw = await connection.get_raw_connection()
    return raw.driver_connection


async def copy_incoming(
    connection: AsyncConnection, target: Table, names: Sequence[str], records: Iterable[tuple[object, ...]]
) -> TableClause:
    """Copy records to a temporary table of the transaction with these columns of a table, and return it."""
    incoming = table(f"incoming_{target.name}", *(column(name) for name in names))
    await connection.execute(
        text(f"CREATE TEMPORARY TABLE {incoming.name} (LIKE {target.name} INCLUDING DEFAULTS) ON COMMIT DROP")
    )
    driver = await get_driver_connection(connection)
    await driver.copy_records_to_table(incoming.name, columns=names, records=records)
    return incoming


async def _run_uncancelled(step: Callable[[], None]) -> None:
    """Run a blocking step in a thread; a cancellation waits for it, so that no server is left half started."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        await asyncio.shield(running)
    except asyncio.CancelledError:
        await running
        raise
