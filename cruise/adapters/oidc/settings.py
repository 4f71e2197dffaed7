"""What is known of an identity provider."""

from dataclasses import dataclass
from pathlib import Path


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
