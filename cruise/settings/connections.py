"""Settings of connections and servers: API server, source of usage, Prometheus, database, HTTP API, webhook."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from cruise.adapters.kubelets.client import KubeletAccessMode, KubeletMetricsPath
from cruise.adapters.prometheus.settings import CloudProvider
from cruise.kube_json.admission_review import ReviewLimits
from cruise.settings.value_types import (
    ADDRESS,
    API_AUTHENTICATION_CHOICE,
    FLAG,
    HEADERS,
    HOSTS,
    HTTP_TLS_CHOICE,
    KUBELET_ACCESS_CHOICE,
    KUBELET_ENDPOINT_CHOICE,
    NAME,
    NAME_OR_NONE,
    NAMES,
    NAMESPACE,
    NAMESPACES,
    PATH,
    PROMETHEUS_IDENTITY_CHOICE,
    SECRET,
    TEXT,
    URL,
    USAGE_SOURCE_CHOICE,
    ApiAuthentication,
    HttpTlsChoice,
    UsageSourceChoice,
    ValueType,
    create_count_type,
    create_duration_type,
    create_matchers_type,
    create_positive_type,
    create_setting,
)

_TIMEOUT = create_duration_type("1h", "30s")
_WAIT = create_duration_type("1h", "10s", minimum=timedelta(0))
_STEP = create_duration_type("10m", "60s", minimum=timedelta(seconds=5))
_LEASE = create_duration_type("5m", "15s", minimum=timedelta(seconds=2))

# Where Prometheus usually runs, and where only administrators create Services.
MONITORING_NAMESPACES = frozenset(
    {
        "cattle-monitoring-system",
        "kube-system",
        "monitoring",
        "observability",
        "openshift-monitoring",
        "prometheus",
        "victoria-metrics",
    }
)


@dataclass(frozen=True)
class KubernetesOptions:
    """Kubernetes."""

    kubeconfig: Path | None = create_setting(PATH, None)
    """Unset: the pod's service account, else `~/.kube/config`."""
    kube_context: str | None = create_setting(ValueType("a context", "prod", TEXT.read), None)
    """The context of the kubeconfig; unset: its current one."""
    namespace: str | None = create_setting(NAMESPACE, None)
    """The namespace where cruise runs and has its Lease; unset: that of its pod."""
    kube_requests_per_second: float = create_setting(create_positive_type("100"), 100.0)
    """The maximum of requests to the API server, on average."""
    kube_burst: int = create_setting(create_count_type("200", minimum=1), 200)
    """The maximum of requests in a burst."""
    kube_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=30))
    """How long one request to the API server may take."""
    lease_duration: timedelta = create_setting(_LEASE, timedelta(seconds=15))
    """How long the next leader waits for one that stopped without releasing the Lease; a leader stops writing after two
    thirds of it without a renewal."""
    shutdown_grace_period: timedelta = create_setting(_WAIT, timedelta(seconds=10))
    """How long writes in progress may take to finish when the process is stopped."""


@dataclass(frozen=True)
class UsageSourceOptions:
    """Source of usage."""

    usage_source: UsageSourceChoice = create_setting(USAGE_SOURCE_CHOICE, UsageSourceChoice.AUTO)
    """`auto` is Prometheus if `prometheus_url` is set, else the kubelets if no Prometheus is found and the right to
    read them is granted: [without Prometheus](../operating.md#without-prometheus)."""
    kubelet_access: KubeletAccessMode = create_setting(KUBELET_ACCESS_CHOICE, KubeletAccessMode.DIRECT)
    """`direct` reads kubelets at their nodes' InternalIP with the right to `nodes/metrics`. `node-proxy` uses the API
    server's proxy with the right to `nodes/proxy`, which without `deploy/policies.yaml` is nearly root on every
    node."""
    kubelet_endpoint: KubeletMetricsPath = create_setting(KUBELET_ENDPOINT_CHOICE, KubeletMetricsPath.CADVISOR)
    """`resource` has a small part of what `cadvisor` reports, without pressure: for thousands of nodes."""
    kubelet_ca_file: Path | None = create_setting(PATH, None)
    """The CA of kubelets' certificates; unset: the cluster's own."""
    kubelet_insecure_tls: bool = create_setting(FLAG, False)
    """Do not verify kubelets. Any program that answers at a node's address then gets cruise's token, and its figures
    are trusted."""
    kubelet_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=10))
    """How long one kubelet may take to answer completely."""
    kubelet_concurrency: int = create_setting(create_count_type("16", minimum=1), 16)
    """How many kubelets are read at a time."""
    kubelet_max_bytes: int = create_setting(create_count_type("33554432", minimum=1 << 16), 32 << 20)
    """The maximum size of one answer."""
    kubelet_cross_check_nodes: int = create_setting(create_count_type("2"), 2)
    """How many kubelets are read at each pass, different ones each time, to verify Prometheus; only if the right to
    read them is granted. `0`: none."""


@dataclass(frozen=True)
class PrometheusOptions:
    """Prometheus."""

    prometheus_url: str | None = create_setting(URL, None)
    """Where usage is read from. `serve` needs it, or reads the kubelets; `scan`, `check` and `explain` find it by the
    labels of its Service."""
    prometheus_namespaces: frozenset[str] = create_setting(NAMESPACES, MONITORING_NAMESPACES)
    """Namespaces where Prometheus is searched, in addition to cruise's own: anyone who may create Services there can
    forge usage. Setting it replaces the default."""
    prometheus_token_file: Path | None = create_setting(PATH, None)
    """A file with a bearer token, read again when it changes; sent only to `prometheus_url`."""
    prometheus_user: str | None = create_setting(TEXT, None)
    """The user for basic authentication."""
    prometheus_password: str | None = create_setting(SECRET, None)
    """Its password; better in a file."""
    prometheus_password_file: Path | None = create_setting(PATH, None)
    """A file with its password."""
    prometheus_identity: CloudProvider | None = create_setting(PROMETHEUS_IDENTITY_CHOICE, None)
    """The provider of a managed Prometheus, whose credentials are found as its own tools find them: requests are signed
    for `aws`, and carry an access token for `google` and `azure`. See [managed
    Prometheus](../operating.md#managed-prometheus)."""
    prometheus_aws_region: str | None = create_setting(ValueType("a region", "eu-west-1", TEXT.read), None)
    """The region of a workspace of AWS. Unset: the one in `prometheus_url`."""
    prometheus_headers: Mapping[str, str] | None = create_setting(HEADERS, None)
    """Headers of every request, such as a tenant's."""
    prometheus_ca_file: Path | None = create_setting(PATH, None)
    """The CA of the server's certificate."""
    prometheus_insecure_tls: bool = create_setting(FLAG, False)
    """Accept any certificate."""
    prometheus_matchers: str = create_setting(create_matchers_type('cluster="prod"'), "")
    """Added to every selector, if one server stores several clusters."""
    prometheus_cadvisor_matchers: str = create_setting(create_matchers_type('job="kubelet"'), "")
    """Select the series of containers; empty: those of the exporters that report most of the running pods."""
    prometheus_node_load_matchers: str = create_setting(create_matchers_type('job="node-exporter"'), "")
    """Select the series of node exporters; empty: one exporter a node, of the jobs that report most nodes."""
    prometheus_kube_state_matchers: str = create_setting(create_matchers_type('job="kube-state-metrics"'), "")
    """Select the series of kube-state-metrics, for backtests."""
    prometheus_namespace_label: str = create_setting(NAME, "namespace")
    """The label with a container's namespace."""
    prometheus_pod_label: str = create_setting(NAME, "pod")
    """The label with its pod."""
    prometheus_container_label: str = create_setting(NAME, "container")
    """The label with its name."""
    prometheus_id_label: str = create_setting(NAME_OR_NONE, "id")
    """The label that distinguishes a container from the same one restarted."""
    prometheus_node_label: str = create_setting(NAME_OR_NONE, "node")
    """The label with its node."""
    prometheus_node_load_label: str = create_setting(NAME_OR_NONE, "node")
    """The label with the node of a load average."""
    prometheus_cpu_metric: str = create_setting(NAME, "container_cpu_usage_seconds_total")
    """The counter of CPU seconds."""
    prometheus_cpu_pressure_metric: str = create_setting(NAME, "container_pressure_cpu_waiting_seconds_total")
    """The counter of seconds in which a container waited for CPU."""
    prometheus_memory_metric: str = create_setting(NAME, "container_memory_working_set_bytes")
    """The working set."""
    prometheus_node_load_metric: str = create_setting(NAME, "node_load1")
    """The load average."""
    prometheus_step: timedelta = create_setting(_STEP, timedelta(minutes=1))
    """The interval between samples."""
    prometheus_scrape_delay: timedelta | None = create_setting(_WAIT, None)
    """How late samples are read. Unset: measured, from 30 s to 5.5 minutes."""
    prometheus_timeout: timedelta = create_setting(_TIMEOUT, timedelta(seconds=30))
    """How long one query may take."""
    prometheus_concurrency: int = create_setting(create_count_type("4", minimum=1), 4)
    """How many queries run at a time."""
    prometheus_max_series_per_query: int = create_setting(create_count_type("20000", minimum=1), 20_000)
    """The maximum of series that one query requests."""
    prometheus_max_samples_per_query: int = create_setting(create_count_type("1000000", minimum=1), 1_000_000)
    """The maximum of samples that one query requests; below the server's own limit."""
    prometheus_allow_partial_response: bool = create_setting(FLAG, False)
    """Accept answers that the server calls incomplete."""


@dataclass(frozen=True)
class DatabaseOptions:
    """Database."""

    database_url: str | None = create_setting(
        ValueType("a database's address", "postgresql://cruise@db:5432/cruise", TEXT.read, secret=True), None
    )
    """The Postgres, 15 to 18, that serve and webhook share. Unset: an embedded one, which is enough for mode
    `observe`."""
    database_statement_timeout: timedelta = create_setting(_TIMEOUT, timedelta(minutes=5))
    """How long one statement may take, including its wait for locks."""
    data_dir: Path | None = create_setting(PATH, None)
    """Where the embedded Postgres keeps its data. Unset: `/var/lib/cruise` for root, else `~/.local/state/cruise`."""


def _read_https(value: object) -> str:
    text = str(URL.read(value))
    if not text.startswith("https://"):
        raise ValueError
    return text


_LIMITS = ReviewLimits()
_HTTPS = ValueType("an address with https", "https://idp.example.com", _read_https)
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
