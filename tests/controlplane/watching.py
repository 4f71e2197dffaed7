"""A watch on an API server that another thread can end."""

import http.client
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import msgspec


class ApiWatch:
    """The events of an open watch, as `{"type": …, "object": …}`.

    Iterating ends with the watch. Raises OSError or http.client.HTTPException where it breaks, as it does when another
    thread calls `stop`.
    """

    def __init__(
        self, connection: http.client.HTTPConnection, wire: socket.socket, answer: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._socket = wire
        self._answer = answer

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield events as they come."""
        # An idle watch is no broken one: the server ends it in its own time.
        self._socket.settimeout(None)
        for line in self._answer:
            yield msgspec.json.decode(line)

    def stop(self) -> None:
        """End the watch for its iterating thread."""
        try:
            # Below TLS, whose own shutdown is not for two threads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            # It has ended by itself.
            return

    def close(self) -> None:
        """Drop the connection."""
        self._answer.close()
        self._connection.close()

    def __enter__(self) -> "ApiWatch":
        """Return the watch itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop the connection."""
        self.close()
