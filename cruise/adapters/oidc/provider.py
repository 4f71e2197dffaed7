"""One identity provider: its document, the way to it, and what its answers say."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import KeySet

from cruise.adapters.oidc.claims import caller_of
from cruise.adapters.oidc.settings import OidcSettings
from cruise.adapters.secrets import read_token
from cruise.domain.callers import Caller
from cruise.domain.sign_in import Departure, SignInRefused
from cruise.errors import Unavailable

_WELL_KNOWN = "/.well-known/openid-configuration"
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Signatures by keys that the provider alone has; none by a secret that both have.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_SECONDS = 10.0
_LEEWAY_SECONDS = 30
_DOCUMENT_LASTS_SECONDS = 300.0
_LARGEST_BYTES = 1 << 20

Document = Mapping[str, Any]


class OidcProvider:
    """Sends browsers to a provider and reads what they come back with: authorization code flow with PKCE (S256)."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._clock = clock
        self._known: tuple[float, Document] | None = None

    @property
    def host(self) -> str:
        """The provider's host, by which people know it."""
        return urlsplit(self._settings.issuer_url).netloc

    async def departure(self) -> Departure:
        """Return a new way to the provider. Raises Unavailable."""
        return await asyncio.to_thread(self._departure)

    async def arrival(self, departure: Departure, code: str) -> Caller:
        """Return who came back with a code. Raises SignInRefused, Unavailable."""
        return await asyncio.to_thread(self._arrival, departure, code)

    def _departure(self) -> Departure:
        document = self._document()
        state, nonce, verifier = generate_token(43), generate_token(43), generate_token(64)
        with self._session() as session:
            address, _ = session.create_authorization_url(
                document["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return Departure(address, state, nonce, verifier)

    def _arrival(self, departure: Departure, code: str) -> Caller:
        document = self._document()
        with self._session() as session:
            try:
                answer = session.fetch_token(
                    document["token_endpoint"], code=code, code_verifier=departure.code_verifier, allow_redirects=False
                )
            except AuthlibBaseError as error:
                raise SignInRefused(f"the provider gave no token for the code: {_code(error.error)}") from None
            except requests.RequestException as error:
                raise self._silent(error) from None
            except ValueError:
                raise SignInRefused("the provider's answer to the code is no JSON") from None
            token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInRefused("the provider's answer has no ID token: is openid among oidc_scopes?")
        return caller_of(self._verified(token, document, departure.nonce), self._settings)

    def _verified(self, token: str, document: Document, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that the provider made for this sign-in. Raises SignInRefused."""
        settings = self._settings
        try:
            keys = KeySet.import_key_set(self._fetched(document["jwks_uri"]))  # type: ignore[arg-type]
            claims = jwt.decode(token, keys, algorithms=_ALGORITHMS).claims
            jwt.JWTClaimsRegistry(
                now=int(self._clock().timestamp()),
                leeway=_LEEWAY_SECONDS,
                iss={"essential": True, "value": settings.issuer_url},
                aud={"essential": True, "value": settings.client_id},
                nonce={"essential": True, "value": nonce},
                exp={"essential": True},
                iat={"essential": True},
            ).validate(claims)
        except BadSignatureError:
            raise SignInRefused("the ID token is not signed by a key of the provider") from None
        except ExpiredTokenError:
            raise SignInRefused("the ID token has expired: are the clocks of both right?") from None
        except ClaimError as error:
            raise SignInRefused(f"the ID token's claim {error.claim} is not what it has to be") from None
        except (JoseError, ValueError):
            raise SignInRefused("the ID token cannot be verified by the provider's keys") from None
        several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if (several or "azp" in claims) and claims.get("azp") != settings.client_id:
            raise SignInRefused("the ID token's claim azp is not what it has to be")
        return claims

    def _document(self) -> Document:
        """Return what the provider says of itself, kept for some minutes. Raises Unavailable."""
        now = self._clock().timestamp()
        if self._known is not None and now - self._known[0] < _DOCUMENT_LASTS_SECONDS:
            return self._known[1]
        issuer = self._settings.issuer_url
        document = self._fetched(issuer.rstrip("/") + _WELL_KNOWN)
        if document.get("issuer") != issuer:
            raise Unavailable(f"the document of {issuer} is of another issuer: oidc_issuer_url must be written alike")
        for name in _ENDPOINTS:
            if not str(document.get(name, "")).startswith("https://"):
                raise Unavailable(f"the document of {issuer} has no {name} with https")
        self._known = now, document
        return document

    def _fetched(self, address: str) -> Document:
        with self._session() as session:
            try:
                answer = session.get(address, withhold_token=True, allow_redirects=False)
                found = answer.json() if answer.status_code == 200 and len(answer.content) <= _LARGEST_BYTES else None
            except requests.JSONDecodeError:
                found = None
            except requests.RequestException as error:
                raise self._silent(error) from None
        if not isinstance(found, dict):
            raise Unavailable(f"{address} answered {answer.status_code}, and no document of a provider")
        return found

    def _silent(self, error: requests.RequestException) -> Unavailable:
        untrusted = isinstance(error, requests.exceptions.SSLError)
        why = "its certificate is not trusted: see oidc_ca_file" if untrusted else type(error).__name__
        return Unavailable(f"the provider {self.host} does not answer: {why}")

    def _session(self) -> OAuth2Session:
        settings = self._settings
        secret = None
        if settings.client_secret_file is not None:
            secret = read_token(settings.client_secret_file, "oidc_client_secret_file")
        session = OAuth2Session(
            client_id=settings.client_id,
            client_secret=secret,
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            scope=" ".join(settings.scopes),
            redirect_uri=settings.redirect_url,
            code_challenge_method="S256",
            default_timeout=_SECONDS,
        )
        # Neither proxies' credentials nor a .netrc of this machine are for the provider.
        session.trust_env = False
        session.verify = str(settings.ca_file) if settings.ca_file is not None else True
        return session


def _code(text: object) -> str:
    """Return an error code as RFC 6749 has it, so that nothing else gets into a line."""
    found = str(text)
    return found if len(found) <= 60 and found.replace("_", "").isalnum() and found.isascii() else "an unknown error"
