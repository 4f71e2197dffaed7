"""One token for whoever has it: the content of a file, which may do everything."""

from hmac import compare_digest
from pathlib import Path

from cruise.domain.callers import Access, Caller
from cruise.errors import BadInput, Unavailable

SHORTEST_TOKEN = 32
_LONGEST_TOKEN_BYTES = 4096
HOLDER = Caller("api_token_file")


class StaticToken:
    """Implements `gate.Authority`; the file is read again when it changes, as a mounted secret does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""

    def check(self) -> None:
        """Raise BadInput for a file that cannot serve."""
        if not self._path.is_file():
            raise BadInput(f"api_token_file {self._path} is not there; write a token into it, or leave it unset")
        try:
            self._current()
        except Unavailable as error:
            raise BadInput(f"{error}; write a random one, e.g. openssl rand -hex 32 > {self._path}") from error

    async def caller(self, token: str) -> Caller | None:
        """Compare in constant time; headers come with each byte as a character. Raises Unavailable."""
        return HOLDER if compare_digest(token.encode("latin-1", "replace"), self._current()) else None

    async def allows(self, caller: Caller, access: Access) -> bool:
        """Allow everything."""
        return True

    def _current(self) -> bytes:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                with self._path.open("rb") as file:
                    self._token = file.read(_LONGEST_TOKEN_BYTES).strip()
                self._seen = seen
        except OSError as error:
            raise Unavailable(f"api_token_file {self._path} cannot be read: {error.strerror}") from error
        if len(self._token) < SHORTEST_TOKEN:
            raise Unavailable(
                f"api_token_file {self._path} holds {len(self._token)} bytes, and a token has at least {SHORTEST_TOKEN}"
            )
        return self._token
