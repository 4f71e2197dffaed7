"""Sign-in with an OpenID Connect provider."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from authlib.common.errors import AuthlibBaseError
from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.errors import BadSignatureError, ClaimError, ExpiredTokenError, JoseError
from joserfc.jwk import KeySet

from cruise.adapters.api_client import read_token_file
from cruise.domain.users import Caller, SignInDeniedError, SignInRequest
from cruise.errors import UNPARSABLE_ERRORS, UnavailableError


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """The settings of a provider, like kube-apiserver's flags of the same names.

    Without `username_prefix`, names of any claim except `email` get the issuer and `#` as prefix; `-` is no prefix.
    `redirect_url` is where the provider sends browsers back: the dashboard's URL and `signed-in`.
    """

    issuer_url: str
    client_id: str
    redirect_url: str
    client_secret_file: Path | None = None
    username_claim: str = "sub"
    username_prefix: str | None = None
    groups_claim: str = "groups"
    groups_prefix: str = ""
    scopes: tuple[str, ...] = ("openid",)
    ca_file: Path | None = None


# The prefix of Kubernetes' own names, which no provider may use.
_RESERVED = "system:"
_AUTHENTICATED = "system:authenticated"
_MAX_GROUPS, _MAX_NAME_LENGTH = 500, 1000


def get_caller_from_claims(claims: Mapping[str, Any], settings: OidcSettings) -> Caller:
    """Return the user of the claims, named as kube-apiserver would. Raises SignInDeniedError."""
    claim = settings.username_claim
    value = claims.get(claim)
    if not isinstance(value, str) or not value or len(value) > _MAX_NAME_LENGTH or not value.isprintable():
        raise SignInDeniedError(f"the ID token has no user name in its claim {claim}: see oidc_username_claim")
    if claim == "email" and claims.get("email_verified", True) is not True:
        raise SignInDeniedError("the provider has not verified the address in the claim email")
    name = _get_username_prefix(settings) + value
    if name.startswith(_RESERVED):
        raise SignInDeniedError(
            f"names that start with {_RESERVED} are reserved for Kubernetes: see oidc_username_prefix"
        )
    groups = (settings.groups_prefix + group for group in _read_groups(claims.get(settings.groups_claim)))
    # The API server adds this group to every authenticated user, and roles may be bound to it.
    return Caller(name, "", (*(one for one in groups if not one.startswith(_RESERVED)), _AUTHENTICATED))


def _get_username_prefix(settings: OidcSettings) -> str:
    if settings.username_prefix is not None:
        return "" if settings.username_prefix == "-" else settings.username_prefix
    return "" if settings.username_claim == "email" else f"{settings.issuer_url}#"


def _read_groups(claim: object) -> list[str]:
    groups = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    valid = [one for one in groups if isinstance(one, str) and 0 < len(one) <= _MAX_NAME_LENGTH and one.isprintable()]
    return valid[:_MAX_GROUPS]


_WELL_KNOWN = "/.well-known/openid-configuration"
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Only signatures with keys that the provider alone has.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_TIMEOUT_SECONDS = 10.0
_LEEWAY_SECONDS = 30
_DOCUMENT_CACHE_SECONDS = 300.0
_MAX_ANSWER_BYTES = 1 << 20

DiscoveryDocument = Mapping[str, Any]


class OidcProvider:
    """Signs users in by the authorization code flow with PKCE (S256)."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._clock = clock
        self._cached: tuple[float, DiscoveryDocument] | None = None

    @property
    def host(self) -> str:
        """The provider's host, for display."""
        return urlsplit(self._settings.issuer_url).netloc

    async def start_sign_in(self) -> SignInRequest:
        """Return a new sign-in request. Raises UnavailableError."""
        return await asyncio.to_thread(self._create_request)

    async def complete_sign_in(self, request: SignInRequest, code: str) -> Caller:
        """Return the user for a code. Raises SignInDeniedError and UnavailableError."""
        return await asyncio.to_thread(self._exchange_code, request, code)

    def _create_request(self) -> SignInRequest:
        document = self._get_document()
        state, nonce, verifier = generate_token(43), generate_token(43), generate_token(64)
        with self._session() as session:
            address, _ = session.create_authorization_url(
                document["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return SignInRequest(address, state, nonce, verifier)

    def _exchange_code(self, request: SignInRequest, code: str) -> Caller:
        document = self._get_document()
        with self._session() as session:
            try:
                answer = session.fetch_token(
                    document["token_endpoint"], code=code, code_verifier=request.code_verifier, allow_redirects=False
                )
            except AuthlibBaseError as error:
                raise SignInDeniedError(
                    f"the provider gave no token for the code: {_format_error_code(error.error)}"
                ) from None
            except requests.RequestException as error:
                raise self._create_error(error) from None
            except ValueError:
                raise SignInDeniedError("the provider's answer to the code is not JSON") from None
            token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInDeniedError("the provider's answer has no ID token: oidc_scopes must contain openid")
        return get_caller_from_claims(self._verify(token, document, request.nonce), self._settings)

    def _verify(self, token: str, document: DiscoveryDocument, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that the provider issued for this sign-in. Raises SignInDeniedError."""
        settings = self._settings
        try:
            keys = KeySet.import_key_set(self._fetch(document["jwks_uri"]))  # type: ignore[arg-type]
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
            raise SignInDeniedError("the ID token is not signed by a key of the provider") from None
        except ExpiredTokenError:
            raise SignInDeniedError("the ID token has expired: check the clocks of both") from None
        except ClaimError as error:
            raise SignInDeniedError(f"the ID token's claim {error.claim} does not have the expected value") from None
        except (JoseError, ValueError):
            raise SignInDeniedError("the ID token cannot be verified by the provider's keys") from None
        has_audiences = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if (has_audiences or "azp" in claims) and claims.get("azp") != settings.client_id:
            raise SignInDeniedError("the ID token's claim azp does not have the expected value")
        return claims

    def _get_document(self) -> DiscoveryDocument:
        """Return the provider's discovery document, cached for some minutes. Raises UnavailableError."""
        now = self._clock().timestamp()
        if self._cached is not None and now - self._cached[0] < _DOCUMENT_CACHE_SECONDS:
            return self._cached[1]
        issuer = self._settings.issuer_url
        document = self._fetch(issuer.rstrip("/") + _WELL_KNOWN)
        if document.get("issuer") != issuer:
            raise UnavailableError(
                f"the document of {issuer} is of another issuer: oidc_issuer_url must match it exactly"
            )
        for name in _ENDPOINTS:
            if not str(document.get(name, "")).startswith("https://"):
                raise UnavailableError(f"the document of {issuer} has no {name} with https")
        self._cached = now, document
        return document

    def _fetch(self, address: str) -> DiscoveryDocument:
        with self._session() as session:
            try:
                answer = session.get(address, withhold_token=True, allow_redirects=False)
                found = (
                    answer.json() if answer.status_code == 200 and len(answer.content) <= _MAX_ANSWER_BYTES else None
                )
            except requests.JSONDecodeError:
                found = None
            except requests.RequestException as error:
                raise self._create_error(error) from None
            except UNPARSABLE_ERRORS:
                found = None
        if not isinstance(found, dict):
            raise UnavailableError(f"{address} answered {answer.status_code} without a discovery document")
        return found

    def _create_error(self, error: requests.RequestException) -> UnavailableError:
        is_untrusted = isinstance(error, requests.exceptions.SSLError)
        reason = "its certificate is not trusted: see oidc_ca_file" if is_untrusted else type(error).__name__
        return UnavailableError(f"the provider {self.host} does not answer: {reason}")

    def _session(self) -> OAuth2Session:
        settings = self._settings
        secret = None
        if settings.client_secret_file is not None:
            secret = read_token_file(settings.client_secret_file, "oidc_client_secret_file")
        session = OAuth2Session(
            client_id=settings.client_id,
            client_secret=secret,
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            scope=" ".join(settings.scopes),
            redirect_uri=settings.redirect_url,
            code_challenge_method="S256",
            default_timeout=_TIMEOUT_SECONDS,
        )
        # No credentials from the environment or a .netrc file.
        session.trust_env = False
        session.verify = str(settings.ca_file) if settings.ca_file is not None else True
        return session


def _format_error_code(text: object) -> str:
    """Return an error code of RFC 6749, so that no other text gets into a message."""
    found = str(text)
    return found if len(found) <= 60 and found.replace("_", "").isalnum() and found.isascii() else "an unknown error"
