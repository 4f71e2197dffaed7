"""`cruise serve` on a host that resolves no names for as long as the file exists that is given as argument."""

import socket
import sys
from pathlib import Path
from typing import Any

from cruise.cli import main

_resolve = socket.getaddrinfo


def _resolve_or_fail(host: Any, *arguments: Any, **more: Any) -> Any:
    if Path(sys.argv[1]).exists():
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return _resolve(host, *arguments, **more)


socket.getaddrinfo = _resolve_or_fail
sys.exit(main(["serve"]))
