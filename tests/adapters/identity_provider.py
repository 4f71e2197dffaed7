"""An OpenID Connect provider for tests."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from cruise.adapters.oidc import OidcSettings
from cruise.adapters.webhook_tls.certificates import (
    create_server_context_without_certificate,
    make_key_pair,
    set_served_certificate,
)
from cruise.app.process import get_current_time

REDIRECT = "https://cruise/signed-in"


@dataclass
class LocalIdentityProvider:
    """Signs in the user of `claims`; the other fields are faults.

    `said` has every token, code and verifier that was sent, none of which may be logged.
    """

    ca_file: Path
    address: str = ""
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    signing: RSAKey | None = None
    claims: dict[str, Any] = field(default_factory=lambda: {"sub": "ann", "groups": ["team"]})
    document: dict[str, Any] = field(default_factory=dict)
    token_error: str = ""
    id_token: str | None = None
    text: str = ""  # replaces the document
    said: list[str] = field(default_factory=list)
    asked: dict[str, dict[str, str]] = field(default_factory=dict)

    def settings(self, **more: Any) -> OidcSettings:
        return replace(OidcSettings(self.address, "cruise", REDIRECT, ca_file=self.ca_file), **more)

    async def well_known(self, request: web.Request) -> web.Response:
        endpoints = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
        found = {"issuer": self.address, **{name: self.address + path for name, path in endpoints.items()}}
        return web.json_response(text=self.text) if self.text else web.json_response(found | self.document)

    async def keys(self, request: web.Request) -> web.Response:
        return web.json_response(KeySet([self.key]).as_dict(private=False))

    def authorize(self, query: dict[str, str]) -> str:
        """The redirect of a browser after the user has consented."""
        code = secrets.token_urlsafe(24)
        self.asked[code] = query
        self.said.append(code)
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    async def door(self, request: web.Request) -> web.Response:
        """The provider's own page, on which the user consents."""
        back = escape(self.authorize(dict(request.query)))
        page = f'<!doctype html><title>Sign in</title><link rel="icon" href="data:,"><a href="{back}">Yes, I am</a>'
        return web.Response(text=page, content_type="text/html")

    async def token(self, request: web.Request) -> web.Response:
        sent = await request.post()
        asked = self.asked.pop(str(sent["code"]), None)
        verifier = str(sent["code_verifier"])
        self.said += [verifier, request.headers.get("Authorization", verifier)]
        if self.token_error or asked is None or create_s256_code_challenge(verifier) != asked["code_challenge"]:
            return web.json_response({"error": self.token_error or "invalid_grant"}, status=400)
        now = int(get_current_time().timestamp())
        claims = {"iss": self.address, "aud": "cruise", "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        made = {name: value for name, value in (claims | self.claims).items() if value is not None}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, made, self.signing or self.key)
        self.said += [token, token.split(".")[2], "an-access-token"]
        answer = {"access_token": "an-access-token", "token_type": "Bearer", "id_token": self.id_token or token}
        return web.json_response({name: value for name, value in answer.items() if value != "none"})


@asynccontextmanager
async def run_identity_provider(directory: Path) -> AsyncIterator[LocalIdentityProvider]:
    """Run a provider on this machine."""
    names = ("localhost", "127.0.0.1")
    pair, authority = make_key_pair(names, get_current_time().replace(microsecond=0), timedelta(days=1))
    context = create_server_context_without_certificate()
    set_served_certificate(context, pair)
    ca_file = directory / "ca.crt"
    ca_file.write_bytes(authority)
    one = LocalIdentityProvider(ca_file)
    app = web.Application()
    app.router.add_get("/.well-known/openid-configuration", one.well_known)
    app.router.add_get("/authorize", one.door)
    app.router.add_get("/keys", one.keys)
    app.router.add_post("/token", one.token)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    one.address = f"https://127.0.0.1:{port}"
    try:
        yield one
    finally:
        await runner.cleanup()
