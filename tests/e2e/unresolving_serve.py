"""`cruise serve` on a host without DNS for as long as the file given as argument exists."""

import socket
import sys
from pathlib import Path
from typing import Any

from aiohttp.resolver import DefaultResolver

from cruise.cli import main

_resolve = DefaultResolver.resolve


async def _resolve_or_fail(resolver: Any, *arguments: Any, **more: Any) -> Any:
    if Path(sys.argv[1]).exists():
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
    return await _resolve(resolver, *arguments, **more)


DefaultResolver.resolve = _resolve_or_fail  # type: ignore[method-assign, assignment]
sys.exit(main(["serve"]))
