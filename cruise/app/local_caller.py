"""Who runs a command that goes to the database itself."""

import getpass
import os
import socket


def local_caller() -> str:
    """Return the user and the machine, as far as they have names."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # A container's user mostly has none.
        user = f"user {os.getuid()}"
    return f"{user} at {socket.gethostname()}"
