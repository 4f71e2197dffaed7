"""From the claims of an ID token to a user and groups as kube-apiserver would name them."""

from collections.abc import Mapping
from typing import Any

from cruise.adapters.oidc.settings import OidcSettings
from cruise.domain.callers import Caller
from cruise.domain.sign_in import SignInRefused

# Names of the cluster's own parts, which no provider may give out.
_RESERVED = "system:"
_AUTHENTICATED = "system:authenticated"
_MOST_GROUPS, _LONGEST = 500, 1000


def caller_of(claims: Mapping[str, Any], settings: OidcSettings) -> Caller:
    """Return the user of some claims. Raises SignInRefused where they name none that may sign in."""
    claim = settings.username_claim
    stated = claims.get(claim)
    if not isinstance(stated, str) or not stated or len(stated) > _LONGEST or not stated.isprintable():
        raise SignInRefused(f"the ID token has no user name in its claim {claim}: see oidc_username_claim")
    if claim == "email" and claims.get("email_verified", True) is not True:
        raise SignInRefused("the provider has not verified the address in the claim email")
    name = _prefix(settings) + stated
    if name.startswith(_RESERVED):
        raise SignInRefused(f"names that begin with {_RESERVED} are the cluster's own: see oidc_username_prefix")
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
