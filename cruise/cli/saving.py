"""Reports in files: the whole file or none of it."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from cruise.errors import BadInput, Unavailable


def save(path: Path, pieces: Iterable[bytes], option: str) -> None:
    """Write a file that an option named; a device or a pipe takes it as it comes. Raises BadInput, Unavailable."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as device:
                device.writelines(pieces)
            return
        target = path.resolve()
        unfinished = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with unfinished.open("wb") as file:
                file.writelines(pieces)
            unfinished.replace(target)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        kind = Unavailable if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO) else BadInput
        raise kind(f"{option}: {path} cannot be written: {error.strerror}") from error


def require_writable(path: Path, option: str) -> None:
    """Raise BadInput at once where a file could not be written after a long run."""
    directory = path.resolve().parent
    if path.is_dir():
        raise BadInput(f"{option}: {path} cannot be written: {os.strerror(errno.EISDIR)}")
    if not directory.is_dir():
        raise BadInput(f"{option}: {path} cannot be written: {os.strerror(errno.ENOENT)}")
    if not os.access(path if path.exists() else directory, os.W_OK):
        raise BadInput(f"{option}: {path} cannot be written: {os.strerror(errno.EACCES)}")
