"""One identity provider: its document, the way to it, and what its answers say."""

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
from cruise.domain.users import Caller, SignInDenied, SignInRequest
from cruise.errors import UnavailableError

# What is known of an identity provider.


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """One provider, as kube-apiserver's flags of the same names have it.

    `username_prefix` None stands for the issuer and `#` before names of any claim but `email`, `-` for none.
    `redirect_url` is where the provider sends browsers back to: the dashboard's address and `signed-in`.
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


# From the claims of an ID token to a user and groups as kube-apiserver would name them.

# Names of the cluster's own parts, which no provider may give out.
_RESERVED = "system:"
_AUTHENTICATED = "system:authenticated"
_MOST_GROUPS, _LONGEST = 500, 1000


def get_caller_from_claims(claims: Mapping[str, Any], settings: OidcSettings) -> Caller:
    """Return the user of some claims. Raises SignInDenied where they name none that may sign in."""
    claim = settings.username_claim
    stated = claims.get(claim)
    if not isinstance(stated, str) or not stated or len(stated) > _LONGEST or not stated.isprintable():
        raise SignInDenied(f"the ID token has no user name in its claim {claim}: see oidc_username_claim")
    if claim == "email" and claims.get("email_verified", True) is not True:
        raise SignInDenied("the provider has not verified the address in the claim email")
    name = _prefix(settings) + stated
    if name.startswith(_RESERVED):
        raise SignInDenied(f"names that begin with {_RESERVED} are the cluster's own: see oidc_username_prefix")
    groups = (settings.groups_prefix + group for group in _groups(claims.get(settings.groups_claim)))
    # The API server adds the last one to whomever it knows, and roles may be bound to it.
    return Caller(name, "", (*(one for one in groups if not one.startswith(_RESERVED)), _AUTHENTICATED))


def _prefix(settings: OidcSettings) -> str:
    if settings.username_prefix is not None:
        return "" if settings.username_prefix == "-" else settings.username_prefix
    return "" if settings.username_claim == "email" else f"{settings.issuer_url}#"


def _groups(stated: object) -> list[str]:
    named = [stated] if isinstance(stated, str) else stated if isinstance(stated, list) else []
    fit = [one for one in named if isinstance(one, str) and 0 < len(one) <= _LONGEST and one.isprintable()]
    return fit[:_MOST_GROUPS]


_WELL_KNOWN = "/.well-known/openid-configuration"
_ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Signatures by keys that the provider alone has; none by a secret that both have.
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
_SECONDS = 10.0
_LEEWAY_SECONDS = 30
_DOCUMENT_LASTS_SECONDS = 300.0
_LARGEST_BYTES = 1 << 20

DiscoveryDocument = Mapping[str, Any]


class OidcProvider:
    """Sends browsers to a provider and reads what they come back with: authorization code flow with PKCE (S256)."""

    def __init__(self, settings: OidcSettings, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._clock = clock
        self._known: tuple[float, DiscoveryDocument] | None = None

    @property
    def host(self) -> str:
        """The provider's host, by which people know it."""
        return urlsplit(self._settings.issuer_url).netloc

    async def start_sign_in(self) -> SignInRequest:
        """Return a new way to the provider. Raises Unavailable."""
        return await asyncio.to_thread(self._departure)

    async def complete_sign_in(self, departure: SignInRequest, code: str) -> Caller:
        """Return who came back with a code. Raises SignInDenied, Unavailable."""
        return await asyncio.to_thread(self._arrival, departure, code)

    def _departure(self) -> SignInRequest:
        document = self._document()
        state, nonce, verifier = generate_token(43), generate_token(43), generate_token(64)
        with self._session() as session:
            address, _ = session.create_authorization_url(
                document["authorization_endpoint"], state=state, nonce=nonce, code_verifier=verifier
            )
        return SignInRequest(address, state, nonce, verifier)

    def _arrival(self, departure: SignInRequest, code: str) -> Caller:
        document = self._document()
        with self._session() as session:
            try:
                answer = session.fetch_token(
                    document["token_endpoint"], code=code, code_verifier=departure.code_verifier, allow_redirects=False
                )
            except AuthlibBaseError as error:
                raise SignInDenied(f"the provider gave no token for the code: {_code(error.error)}") from None
            except requests.RequestException as error:
                raise self._silent(error) from None
            except ValueError:
                raise SignInDenied("the provider's answer to the code is no JSON") from None
            token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInDenied("the provider's answer has no ID token: is openid among oidc_scopes?")
        return get_caller_from_claims(self._verified(token, document, departure.nonce), self._settings)

    def _verified(self, token: str, document: DiscoveryDocument, nonce: str) -> Mapping[str, Any]:
        """Return the claims of an ID token that the provider made for this sign-in. Raises SignInDenied."""
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
            raise SignInDenied("the ID token is not signed by a key of the provider") from None
        except ExpiredTokenError:
            raise SignInDenied("the ID token has expired: are the clocks of both right?") from None
        except ClaimError as error:
            raise SignInDenied(f"the ID token's claim {error.claim} is not what it has to be") from None
        except (JoseError, ValueError):
            raise SignInDenied("the ID token cannot be verified by the provider's keys") from None
        several = isinstance(claims.get("aud"), list) and len(claims["aud"]) > 1
        if (several or "azp" in claims) and claims.get("azp") != settings.client_id:
            raise SignInDenied("the ID token's claim azp is not what it has to be")
        return claims

    def _document(self) -> DiscoveryDocument:
        """Return what the provider says of itself, kept for some minutes. Raises Unavailable."""
        now = self._clock().timestamp()
        if self._known is not None and now - self._known[0] < _DOCUMENT_LASTS_SECONDS:
            return self._known[1]
        issuer = self._settings.issuer_url
        document = self._fetched(issuer.rstrip("/") + _WELL_KNOWN)
        if document.get("issuer") != issuer:
            raise UnavailableError(
                f"the document of {issuer} is of another issuer: oidc_issuer_url must be written alike"
            )
        for name in _ENDPOINTS:
            if not str(document.get(name, "")).startswith("https://"):
                raise UnavailableError(f"the document of {issuer} has no {name} with https")
        self._known = now, document
        return document

    def _fetched(self, address: str) -> DiscoveryDocument:
        with self._session() as session:
            try:
                answer = session.get(address, withhold_token=True, allow_redirects=False)
                found = answer.json() if answer.status_code == 200 and len(answer.content) <= _LARGEST_BYTES else None
            except requests.JSONDecodeError:
                found = None
            except requests.RequestException as error:
                raise self._silent(error) from None
        if not isinstance(found, dict):
            raise UnavailableError(f"{address} answered {answer.status_code}, and no document of a provider")
        return found

    def _silent(self, error: requests.RequestException) -> UnavailableError:
        untrusted = isinstance(error, requests.exceptions.SSLError)
        why = "its certificate is not trusted: see oidc_ca_file" if untrusted else type(error).__name__
        return UnavailableError(f"the provider {self.host} does not answer: {why}")

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
