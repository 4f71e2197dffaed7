"""Secrets at the edge: tokens from files, which the process list does not show, and addresses without a password."""

import re
from pathlib import Path

from cruise.errors import BadInput

# User and password in an address.
_USER_INFO = re.compile(r"(?<=://)[^/@\s]*@")


def without_credentials(text: str) -> str:
    """Take user and password out of every address in a text."""
    return _USER_INFO.sub("", text)


def read_token(path: Path, name: str) -> str:
    """Return the token in a file without the white space around it; `name` says what the file is.

    Raises BadInput, which never quotes what the file holds.
    """
    try:
        token = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise BadInput(f"{name} {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{name} {path} holds no token: byte {error.start} is not ASCII") from error
    if not token or not token.isprintable():
        raise BadInput(f"{name} {path} holds no token: a token is one line of printable characters")
    return token
