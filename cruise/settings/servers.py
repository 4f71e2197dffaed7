"""Settings of the servers: API and dashboard, webhook, and limits of both."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cruise.kube_json.admission_review import ReviewLimits
from cruise.settings.value_types import (
    ADDRESS,
    API_AUTHENTICATION_CHOICE,
    FLAG,
    HOSTS,
    HTTP_TLS_CHOICE,
    NAMES,
    PATH,
    TEXT,
    URL,
    ApiAuthentication,
    HttpTlsChoice,
    ValueType,
    create_count_type,
    create_duration_type,
    create_setting,
)


def _read_https(value: object) -> str:
    text = str(URL.read(value))
    if not text.startswith("https://"):
        raise ValueError
    return text


_LIMITS = ReviewLimits()
_HTTPS = ValueType("an address with https", "https://idp.example.com", _read_https)
_TIMEOUT = create_duration_type("1h", "30s")
_BUDGET = create_duration_type("30s", "1s")


@dataclass(frozen=True)
class ApiOptions:
    """API and dashboard."""

    http_address: str = create_setting(ADDRESS, "127.0.0.1:8080")
    """Where `serve` listens, for dashboard, API, health and metrics. An address that other machines reach needs
    authentication."""
    api_authentication: ApiAuthentication = create_setting(API_AUTHENTICATION_CHOICE, ApiAuthentication.TOKEN)
    """`token`: one token in a file. `kubernetes`: callers present a token of the cluster, and RBAC says what they may
    do."""
    api_token_file: Path | None = create_setting(PATH, None)
    """A file with a token of at least 32 characters: required on the loopback for writes, on other addresses for
    everything."""
    api_concurrent_requests_per_caller: int = create_setting(create_count_type("16", minimum=1), 16)
    """How many requests of one caller are answered at a time."""
    oidc_issuer_url: str | None = create_setting(_HTTPS, None)
    """The identity provider for signing in to the dashboard, as in its discovery document; with `api_authentication:
    kubernetes`."""
    oidc_client_id: str | None = create_setting(ValueType("a client", "cruise", TEXT.read), None)
    """The client id of cruise, which must be the audience of ID tokens."""
    oidc_client_secret_file: Path | None = create_setting(PATH, None)
    """A file with the client's secret. Unset: a public client with PKCE only."""
    oidc_redirect_url: str | None = create_setting(_HTTPS, None)
    """Where the provider sends browsers back to: the dashboard's address and `signed-in`."""
    oidc_username_claim: str = create_setting(ValueType("a claim", "email", TEXT.read), "sub")
    """The claim with the user's name, as kube-apiserver's flag of that name."""
    oidc_username_prefix: str | None = create_setting(ValueType("a prefix", "oidc:", TEXT.read), None)
    """The prefix of user names. Unset: the issuer and `#`, and nothing before an `email`, as in kube-apiserver; `-` for
    nothing."""
    oidc_groups_claim: str = create_setting(ValueType("a claim", "groups", TEXT.read), "groups")
    """The claim with the user's groups."""
    oidc_groups_prefix: str = create_setting(ValueType("a prefix", "oidc:", TEXT.read), "")
    """The prefix of groups."""
    oidc_scopes: str = create_setting(ValueType("scopes", "openid email groups", TEXT.read), "openid")
    """The requested scopes, separated by blanks."""
    oidc_ca_file: Path | None = create_setting(PATH, None)
    """The CA of the provider's certificate, if the system does not have it."""
    metrics_allow_anonymous: bool = create_setting(FLAG, False)
    """Serve `/metrics` without a token."""
    http_tls: HttpTlsChoice = create_setting(HTTP_TLS_CHOICE, HttpTlsChoice.AUTO)
    """`auto` serves TLS if other machines reach `http_address`."""
    http_tls_dir: Path | None = create_setting(PATH, None)
    """Your own `tls.crt` and `tls.key`, read again when they change."""
    http_allowed_hosts: frozenset[str] = create_setting(HOSTS, frozenset())
    """Further host names of `serve`, such as an Ingress'."""


@dataclass(frozen=True)
class WebhookOptions:
    """Webhook."""

    webhook_address: str = create_setting(ADDRESS, "0.0.0.0:8443")
    """Where the webhook listens."""
    tls_dir: Path | None = create_setting(PATH, None)
    """Its `tls.crt`, `tls.key` and `ca.crt`. Unset: created and renewed automatically."""
    webhook_service: str = create_setting(ValueType("a Service's name", "cruise-webhook", TEXT.read), "cruise-webhook")
    """The Service through which the API server calls it."""
    webhook_configuration: str = create_setting(ValueType("a configuration's name", "cruise", TEXT.read), "cruise")
    """The MutatingWebhookConfiguration that gets its CA."""
    webhook_client_ca_file: Path | None = create_setting(PATH, None)
    """The CA of the API server's client certificate. Unset: reviews of any client are answered."""
    webhook_client_names: frozenset[str] = create_setting(NAMES, frozenset())
    """The accepted common names. Empty: all that the CA signed."""
    webhook_max_review_bytes: int = create_setting(create_count_type("1048576", minimum=1 << 16), _LIMITS.review_bytes)
    """Larger reviews are allowed unchanged."""
    webhook_max_json_elements: int = create_setting(create_count_type("10000", minimum=100), _LIMITS.json_elements)
    """Reviews with more elements in lists and objects are allowed unchanged."""
    webhook_max_containers: int = create_setting(create_count_type("100", minimum=1), _LIMITS.containers)
    """Pods with more containers are allowed unchanged."""
    webhook_max_affinity_terms: int = create_setting(create_count_type("1000"), _LIMITS.terms)
    """Pods with more affinity terms, expressions and values are allowed unchanged."""
    webhook_max_annotations: int = create_setting(create_count_type("1000"), _LIMITS.annotations)
    """Pods with more annotations and labels are allowed unchanged."""
    webhook_max_tolerations: int = create_setting(create_count_type("200"), _LIMITS.tolerations)
    """Pods with more tolerations are allowed unchanged."""
    webhook_time_budget: timedelta = create_setting(_BUDGET, timedelta(seconds=1))
    """Reviews that take longer are allowed unchanged; below the webhook's `timeoutSeconds`."""


@dataclass(frozen=True)
class ListenerOptions:
    """Listeners of serve and webhook."""

    http_max_connections: int = create_setting(create_count_type("512", minimum=1), 512)
    """Connections at a time, including handshakes in progress."""
    http_max_header_bytes: int = create_setting(create_count_type("32768", minimum=1024), 32 << 10)
    """The maximum size of a request's header."""
    http_max_headers: int = create_setting(create_count_type("100", minimum=10), 100)
    """The maximum number of a request's header fields."""
    http_max_body_bytes: int = create_setting(create_count_type("33554432", minimum=1 << 16), 32 << 20)
    """The maximum size of all unfinished bodies together."""
    http_handshake_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=5))
    """How long a TLS handshake may take."""
    http_header_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=10))
    """How long the header of a request may take."""
    http_body_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=10))
    """How long a body may take."""
    http_idle_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=120))
    """How long an idle connection is kept; above the API server's 90 s."""
