"""Scripts, styles and pictures: cruise's own, and those of packages, which a checkout without npm has not."""

from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, HTTPException, Response

_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
# A name holds what is in the file, so that it may be kept for good.
_FOR_GOOD = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


@cache
def asset_names() -> Mapping[str, str]:
    """Return the path below the top by a file's name, for those that are there."""
    return {name: f"static/{digest}/{name}" for name, (digest, _) in _assets().items()}


@cache
def _assets() -> Mapping[str, tuple[str, bytes]]:
    here = Path(__file__).parent
    found = {}
    for file in sorted([*(here / "static").glob("*"), *(here / "vendor").glob("*")]):
        if file.suffix in _TYPES:
            content = file.read_bytes()
            found[file.name] = (sha256(content).hexdigest()[:12], content)
    return found


def asset_routes() -> APIRouter:
    """Return the routes under /static."""
    routes = APIRouter(prefix="/static", include_in_schema=False)

    @routes.get("/{digest}/{name}")
    async def asset(digest: str, name: str) -> Response:
        """Return a file whose content has this digest."""
        known, content = _assets().get(name, ("", b""))
        if known != digest or not known:
            raise HTTPException(404, "there is no such file")
        return Response(content, media_type=_TYPES[Path(name).suffix], headers=_FOR_GOOD)

    return routes
