"""Failures of the driver and of SQLAlchemy as cruise's errors."""

import re
import socket
import ssl

import asyncpg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cruise.errors import BadInput, CruiseError, Unavailable

DRIVER_ERRORS = (SQLAlchemyError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

# What waiting does not heal, by class of SQLSTATE: credentials, database, names and rights, values that do not fit.
_FOR_GOOD = ("28", "3D", "42", "22")
_OF_TLS = re.compile("rejected SSL upgrade|^root certificate file")


def translated(error: Exception, place: str) -> CruiseError:
    """Return BadInput for what the settings must mend, Unavailable for the rest; `place` names the database."""
    cause = _driver_error(error)
    state = getattr(cause, "sqlstate", None) or ""
    # Before the next: what the library says of certificates are ValueErrors too.
    if isinstance(cause, ssl.SSLCertVerificationError) or _OF_TLS.search(str(cause)):
        return BadInput(f"Postgres at {place}: {_first_line(cause)}: check sslmode and sslrootcert")
    # The driver's own refusals of parameters and of values are ValueErrors.
    if state.startswith(_FOR_GOOD) or isinstance(cause, ValueError):
        return BadInput(f"Postgres at {place}: {_first_line(cause)}")
    return Unavailable(f"Postgres at {place}: {_reason(cause)}")


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
