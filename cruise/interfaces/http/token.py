"""The token that writes through the API need."""

from hmac import compare_digest
from pathlib import Path

from cruise.errors import Unavailable

_LONGEST_BYTES = 4096


class ApiToken:
    """The content of a file, read again when the file changes, as a mounted secret does."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._token = b""

    def matches(self, presented: str) -> bool:
        """Compare in constant time; headers come with each byte as a character.

        Raises Unavailable where the file cannot be read or holds nothing.
        """
        return compare_digest(presented.encode("latin-1", "replace"), self._current())

    def _current(self) -> bytes:
        try:
            status = self._path.stat()
            seen = (status.st_mtime_ns, status.st_ino, status.st_size)
            if seen != self._seen:
                with self._path.open("rb") as file:
                    self._token = file.read(_LONGEST_BYTES).strip()
                self._seen = seen
        except OSError as error:
            raise Unavailable(f"api_token_file {self._path} cannot be read: {error.strerror}") from error
        if not self._token:
            raise Unavailable(f"api_token_file {self._path} is empty")
        return self._token
