"""A certificate in files: mounted by others, or kept there by cruise itself."""

import os
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from cruise.adapters.webhook_tls.keeping import FILES, KEY, NEXT_KEY, Kept
from cruise.errors import BadInput, Conflict

_LARGEST_FILE = 1 << 20


class TlsDirectory:
    """The files tls.crt, tls.key and ca.crt of one directory, which is made when something is to be kept."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory.expanduser().absolute()
        self.name = str(self._directory)

    async def read(self) -> Kept:
        files = {name: text for name in FILES if (text := self._read(name))}
        return Kept(files, _version(files))

    async def write(self, files: Mapping[str, bytes], version: str) -> None:
        if (await self.read()).version != version:
            raise Conflict(f"{self.name} was written to by another")
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name in FILES:
                if name in files:
                    self._replace(name, files[name])
                else:
                    (self._directory / name).unlink(missing_ok=True)
        except OSError as error:
            raise BadInput(
                f"{self.name}: no certificate can be kept there ({error.strerror}); "
                "put tls.crt and tls.key there, or set tls_dir to a directory that this user may write to"
            ) from error

    def _read(self, name: str) -> bytes:
        path = self._directory / name
        try:
            with path.open("rb") as file:
                return file.read(_LARGEST_FILE)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise BadInput(f"{path} cannot be read: {error.strerror}") from error

    def _replace(self, name: str, text: bytes) -> None:
        """Write a file so that a reader sees the old text or the new one; a key only for its owner."""
        descriptor, draft = tempfile.mkstemp(dir=self._directory, prefix=f".{name}-")
        with os.fdopen(descriptor, "wb") as file:
            file.write(text)
            if name not in (KEY, NEXT_KEY):
                os.fchmod(file.fileno(), 0o644)
        Path(draft).replace(self._directory / name)


def _version(files: Mapping[str, bytes]) -> str:
    digest = sha256()
    for name in FILES:
        digest.update(b"%d:" % len(files.get(name, b"")) + files.get(name, b""))
    return digest.hexdigest()
