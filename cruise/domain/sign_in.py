"""Signing in by an identity provider: what has to be remembered between leaving for it and coming back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Departure:
    """A browser on its way to the provider: where to, and what only the one that left can come back with."""

    address: str
    state: str
    nonce: str
    code_verifier: str


class SignInRefused(Exception):
    """Somebody is not signed in; the message says why in one line, and quotes no token."""
