"""Every setting with its default; below `app` and `cli` only the frozen values made from them are known."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cruise.adapters.kubelets.settings import Access, Endpoint
from cruise.domain.notices import Topic
from cruise.domain.policy import (
    PROTECTED_NAMESPACES,
    AdmissionSize,
    Consolidation,
    MemoryLimits,
    Mode,
    NodeAutoscaling,
    OomReaction,
    Policy,
)
from cruise.domain.prices import BacktestPrices
from cruise.domain.rules import Rules
from cruise.errors import BadInput
from cruise.kube_json.review_bounds import ReviewBounds
from cruise.settings import choices, forms
from cruise.settings.choices import ApiAuthentication, HttpTls, NotifyFormat, PublishedVpas, UsageFrom
from cruise.settings.forms import Form

if TYPE_CHECKING:
    from cruise.adapters.kube.http.connecting import KubeSettings
    from cruise.adapters.kubelets.settings import KubeletSettings
    from cruise.adapters.oidc.settings import OidcSettings
    from cruise.adapters.prometheus.settings import PrometheusSettings

_POLICY = Policy()
_PRICES = BacktestPrices()
_BOUNDS = ReviewBounds()


def _setting(form: Form, default: object) -> Any:  # noqa: ANN401 - the type is stated at the field
    return field(default=default, repr=not form.secret, metadata={"form": form})


def _https(value: object) -> str:
    text = str(forms.URL.read(value))
    if not text.startswith("https://"):
        raise ValueError
    return text


_HTTPS = Form("an address with https", "https://idp.example.com", _https)
_TIMEOUT = forms.duration("1h", "30s")
_PASS = forms.duration("1d")
_PAUSE = forms.duration("366d", least=timedelta(0))
_WAIT = forms.duration("1h", "10s", least=timedelta(0))
_NOTIFY_INTERVAL = forms.duration("1d", "1m", least=timedelta(seconds=5))
_STEP = forms.duration("10m", "60s", least=timedelta(seconds=5))
_LEASE = forms.duration("5m", "15s", least=timedelta(seconds=2))
_BUDGET = forms.duration("30s", "1s")
_DAYS = forms.duration("30d")
_WRITES = forms.number("a number from 1 to 300", "6", lambda found: 1 <= found <= 300)
_LOG_FORMAT = forms.choice("a log format", [(name, name) for name in ("auto", "json", "text")])
_LOG_LEVEL = forms.choice("a log level", [(name, name) for name in ("debug", "info", "warning", "error")])


# Where the usual installations put it, and where nobody but an administrator creates Services.
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


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings, resolved; None where nothing is set and the default depends on the machine.

    Keys of Prometheus, but for its URL and credentials, mean the same as their fields of `PrometheusSettings`, and keys
    that `Policy` has too mean the same as there.
    """

    kubeconfig: Path | None = _setting(forms.PATH, None)
    kube_context: str | None = _setting(Form("a context", "prod", forms.TEXT.read), None)
    kube_requests_per_second: float = _setting(forms.positive("100"), 100.0)
    kube_burst: int = _setting(forms.count("200", least=1), 200)
    kube_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=30))
    namespace: str | None = _setting(forms.NAMESPACE, None)
    usage_source: UsageFrom = _setting(choices.USAGE_SOURCE, UsageFrom.AUTO)
    kubelet_access: Access = _setting(choices.KUBELET_ACCESS, Access.DIRECT)
    kubelet_endpoint: Endpoint = _setting(choices.KUBELET_ENDPOINT, Endpoint.CADVISOR)
    kubelet_ca_file: Path | None = _setting(forms.PATH, None)
    kubelet_insecure_tls: bool = _setting(forms.FLAG, False)
    kubelet_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    kubelet_concurrency: int = _setting(forms.count("16", least=1), 16)
    kubelet_max_bytes: int = _setting(forms.count("33554432", least=1 << 16), 32 << 20)
    cross_check_nodes: int = _setting(forms.count("2"), 2)
    prometheus_url: str | None = _setting(forms.URL, None)
    prometheus_namespaces: frozenset[str] = _setting(forms.NAMESPACES, MONITORING_NAMESPACES)
    prometheus_token_file: Path | None = _setting(forms.PATH, None)
    prometheus_user: str | None = _setting(forms.TEXT, None)
    prometheus_password: str | None = _setting(forms.SECRET, None)
    prometheus_password_file: Path | None = _setting(forms.PATH, None)
    prometheus_headers: Mapping[str, str] | None = _setting(forms.HEADERS, None)
    prometheus_ca_file: Path | None = _setting(forms.PATH, None)
    prometheus_insecure_tls: bool = _setting(forms.FLAG, False)
    prometheus_matchers: str = _setting(forms.matchers('cluster="prod"'), "")
    prometheus_cadvisor_matchers: str = _setting(forms.matchers('job="kubelet"'), "")
    prometheus_node_load_matchers: str = _setting(forms.matchers('job="node-exporter"'), "")
    prometheus_kube_state_matchers: str = _setting(forms.matchers('job="kube-state-metrics"'), "")
    prometheus_namespace_label: str = _setting(forms.NAME, "namespace")
    prometheus_pod_label: str = _setting(forms.NAME, "pod")
    prometheus_container_label: str = _setting(forms.NAME, "container")
    prometheus_id_label: str = _setting(forms.NAME_OR_NONE, "id")
    prometheus_node_label: str = _setting(forms.NAME_OR_NONE, "node")
    prometheus_node_load_label: str = _setting(forms.NAME_OR_NONE, "node")
    prometheus_cpu_metric: str = _setting(forms.NAME, "container_cpu_usage_seconds_total")
    prometheus_cpu_waiting_metric: str = _setting(forms.NAME, "container_pressure_cpu_waiting_seconds_total")
    prometheus_memory_metric: str = _setting(forms.NAME, "container_memory_working_set_bytes")
    prometheus_node_load_metric: str = _setting(forms.NAME, "node_load1")
    prometheus_step: timedelta = _setting(_STEP, timedelta(minutes=1))
    prometheus_settle: timedelta | None = _setting(_WAIT, None)
    prometheus_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=30))
    prometheus_concurrency: int = _setting(forms.count("4", least=1), 4)
    prometheus_max_series_per_query: int = _setting(forms.count("20000", least=1), 20_000)
    prometheus_max_samples_per_query: int = _setting(forms.count("1000000", least=1), 1_000_000)
    prometheus_accept_partial: bool = _setting(forms.FLAG, False)
    database_url: str | None = _setting(
        Form("a database's address", "postgresql://cruise@db:5432/cruise", forms.TEXT.read, secret=True), None
    )
    database_timeout: timedelta = _setting(_TIMEOUT, timedelta(minutes=5))
    data_dir: Path | None = _setting(forms.PATH, None)
    mode: Mode = _setting(choices.MODE, _POLICY.mode)
    rules: Rules = _setting(choices.RULES, _POLICY.rules)
    http_address: str = _setting(forms.ADDRESS, "127.0.0.1:8080")
    webhook_address: str = _setting(forms.ADDRESS, "0.0.0.0:8443")
    http_max_header_bytes: int = _setting(forms.count("32768", least=1024), 32 << 10)
    http_max_headers: int = _setting(forms.count("100", least=10), 100)
    http_max_connections: int = _setting(forms.count("512", least=1), 512)
    http_max_body_bytes: int = _setting(forms.count("33554432", least=1 << 16), 32 << 20)
    http_handshake_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=5))
    http_header_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    http_body_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    http_idle_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=120))
    tls_dir: Path | None = _setting(forms.PATH, None)
    webhook_service: str = _setting(Form("a Service's name", "cruise-webhook", forms.TEXT.read), "cruise-webhook")
    webhook_configuration: str = _setting(Form("a configuration's name", "cruise", forms.TEXT.read), "cruise")
    webhook_client_ca_file: Path | None = _setting(forms.PATH, None)
    webhook_client_names: frozenset[str] = _setting(forms.NAMES, frozenset())
    webhook_max_review_bytes: int = _setting(forms.count("1048576", least=1 << 16), _BOUNDS.review_bytes)
    webhook_max_elements: int = _setting(forms.count("10000", least=100), _BOUNDS.elements)
    webhook_max_containers: int = _setting(forms.count("100", least=1), _BOUNDS.containers)
    webhook_max_affinity_terms: int = _setting(forms.count("1000"), _BOUNDS.terms)
    webhook_max_annotations: int = _setting(forms.count("1000"), _BOUNDS.annotations)
    webhook_max_tolerations: int = _setting(forms.count("200"), _BOUNDS.tolerations)
    webhook_time_budget: timedelta = _setting(_BUDGET, timedelta(seconds=1))
    http_tls: HttpTls = _setting(choices.HTTP_TLS, HttpTls.AUTO)
    http_tls_dir: Path | None = _setting(forms.PATH, None)
    http_allowed_hosts: frozenset[str] = _setting(forms.HOSTS, frozenset())
    api_authentication: ApiAuthentication = _setting(choices.API_AUTHENTICATION, ApiAuthentication.TOKEN)
    api_token_file: Path | None = _setting(forms.PATH, None)
    api_requests_per_caller: int = _setting(forms.count("16", least=1), 16)
    oidc_issuer_url: str | None = _setting(_HTTPS, None)
    oidc_client_id: str | None = _setting(Form("a client", "cruise", forms.TEXT.read), None)
    oidc_client_secret_file: Path | None = _setting(forms.PATH, None)
    oidc_redirect_url: str | None = _setting(_HTTPS, None)
    oidc_username_claim: str = _setting(Form("a claim", "email", forms.TEXT.read), "sub")
    oidc_username_prefix: str | None = _setting(Form("a prefix", "oidc:", forms.TEXT.read), None)
    oidc_groups_claim: str = _setting(Form("a claim", "groups", forms.TEXT.read), "groups")
    oidc_groups_prefix: str = _setting(Form("a prefix", "oidc:", forms.TEXT.read), "")
    oidc_scopes: str = _setting(Form("scopes", "openid email groups", forms.TEXT.read), "openid")
    oidc_ca_file: Path | None = _setting(forms.PATH, None)
    metrics_open: bool = _setting(forms.FLAG, False)
    lease_duration: timedelta = _setting(_LEASE, timedelta(seconds=15))
    stop_grace: timedelta = _setting(_WAIT, timedelta(seconds=10))
    log_format: str = _setting(_LOG_FORMAT, "auto")
    log_level: str = _setting(_LOG_LEVEL, "info")
    pass_interval: timedelta = _setting(_PASS, _POLICY.pass_interval)
    node_load_interval: timedelta = _setting(_PASS, _POLICY.node_load_interval)
    max_age: timedelta = _setting(_PASS, _POLICY.max_age)
    max_decision_age: timedelta = _setting(_PASS, _POLICY.max_decision_age)
    look_ahead: timedelta = _setting(forms.duration("1d", least=timedelta(0)), _POLICY.look_ahead)
    new_workload_age: timedelta = _setting(_PAUSE, _POLICY.new_workload_age)
    memory_limits: MemoryLimits = _setting(choices.MEMORY_LIMITS, _POLICY.memory_limits)
    memory_limit_history: timedelta = _setting(_PAUSE, _POLICY.memory_limit_history)
    memory_limit_ceiling: float = _setting(forms.at_most(100, "2", least=1), _POLICY.memory_limit_ceiling)
    deferred_patience: timedelta = _setting(_PASS, _POLICY.deferred_patience)
    oom_cooldown: timedelta = _setting(forms.duration("1d", least=timedelta(0)), _POLICY.oom_cooldown)
    oom_reaction: OomReaction = _setting(choices.OOM_REACTION, _POLICY.oom_reaction)
    max_evictions_per_node: int = _setting(forms.count("1"), _POLICY.max_evictions_per_node)
    max_evictions_per_workload: int = _setting(forms.count("1"), _POLICY.max_evictions_per_workload)
    max_evictions_per_hour: int = _setting(forms.count("20"), _POLICY.max_evictions_per_hour)
    publish_vpas: PublishedVpas = _setting(choices.PUBLISH_VPAS, PublishedVpas.NONE)
    notify_url: str | None = _setting(
        Form("an address", "https://hooks.example.com/…", forms.TEXT.read, secret=True), None
    )
    notify_url_file: Path | None = _setting(forms.PATH, None)
    notify_secret_file: Path | None = _setting(forms.PATH, None)
    notify_format: NotifyFormat = _setting(choices.NOTIFY_FORMAT, NotifyFormat.GENERIC)
    notify_topics: frozenset[Topic] = _setting(choices.NOTIFY_TOPICS, frozenset(Topic))
    notify_interval: timedelta = _setting(_NOTIFY_INTERVAL, timedelta(minutes=1))
    packing: bool = _setting(forms.FLAG, True)
    packing_time_limit: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    consolidate: Consolidation = _setting(choices.CONSOLIDATE, Consolidation.ADVISE)
    consolidate_interval: timedelta = _setting(_DAYS, timedelta(minutes=30))
    consolidate_rest: timedelta = _setting(_PAUSE, timedelta(hours=4))
    price_core_hour: float | None = _setting(forms.price("0.0145"), None)
    price_gibibyte_hour: float | None = _setting(forms.price("0.00724"), None)
    price_starved_minute: float = _setting(forms.price("0.01"), _PRICES.starved_minute)
    price_kill: float = _setting(forms.price("1"), _PRICES.kill)
    price_eviction: float = _setting(forms.price("0.05"), _PRICES.eviction)
    price_resize: float = _setting(forms.price("0.0002"), _PRICES.resize)
    headroom: str = _setting(choices.HEADROOM, _POLICY.headroom)
    cpu_risk: float = _setting(forms.at_most(0.5, "0.05"), _POLICY.cpu_risk)
    memory_risk: float = _setting(forms.at_most(0.5, "0.01"), _POLICY.memory_risk)
    cpu_band: float = _setting(forms.at_most(1, "0.15"), _POLICY.cpu_band)
    memory_band: float = _setting(forms.at_most(1, "0.15"), _POLICY.memory_band)
    band_patience: timedelta = _setting(_PAUSE, _POLICY.band_patience)
    below_patience: timedelta = _setting(_PAUSE, _POLICY.below_patience)
    resizes_per_container_day: float = _setting(_WRITES, _POLICY.resizes_per_container_day)
    shrink_cooldown: timedelta | None = _setting(_PAUSE, _POLICY.shrink_cooldown)
    excluded_namespaces: frozenset[str] = _setting(forms.excluding(PROTECTED_NAMESPACES), _POLICY.excluded_namespaces)
    allow_extended_resources: bool = _setting(forms.FLAG, _POLICY.allow_extended_resources)
    admission_size: AdmissionSize | None = _setting(choices.ADMISSION_SIZE, _POLICY.admission_size)
    node_autoscaler: NodeAutoscaling = _setting(choices.NODE_AUTOSCALER, _POLICY.node_autoscaler)
    overload_above: float = _setting(forms.at_most(50, "1.0"), _POLICY.overload_above)
    overload_below: float = _setting(forms.at_most(50, "0.9"), _POLICY.overload_below)

    def oidc(self) -> "OidcSettings | None":
        """Return the identity provider that people sign in by, None without one."""
        from cruise.adapters.oidc.settings import OidcSettings

        if self.oidc_issuer_url is None or self.oidc_client_id is None or self.oidc_redirect_url is None:
            return None
        return OidcSettings(
            issuer_url=self.oidc_issuer_url,
            client_id=self.oidc_client_id,
            redirect_url=self.oidc_redirect_url,
            client_secret_file=self.oidc_client_secret_file,
            username_claim=self.oidc_username_claim,
            username_prefix=self.oidc_username_prefix,
            groups_claim=self.oidc_groups_claim,
            groups_prefix=self.oidc_groups_prefix,
            scopes=tuple(self.oidc_scopes.split()),
            ca_file=self.oidc_ca_file,
        )

    def policy(self) -> Policy:
        """Return what decisions read."""
        shared = {name: getattr(self, name) for name in FORMS if name in Policy.__dataclass_fields__}
        return Policy(**shared)

    def review_bounds(self) -> ReviewBounds:
        """Return how much of a review is read."""
        return ReviewBounds(
            self.webhook_max_review_bytes,
            self.webhook_max_elements,
            self.webhook_max_containers,
            self.webhook_max_affinity_terms,
            self.webhook_max_annotations,
            self.webhook_max_tolerations,
        )

    def kube(self) -> "KubeSettings":
        """Return how the API server is reached."""
        from cruise.adapters.kube.http.connecting import KubeSettings

        return KubeSettings(
            self.kubeconfig,
            self.kube_requests_per_second,
            self.kube_burst,
            self.kube_timeout.total_seconds(),
            self.kube_context,
        )

    def prometheus(self, url: str | None = None) -> "PrometheusSettings":
        """Return how the Prometheus server is reached, at `url` if one is given. Raises BadInput without any."""
        from cruise.adapters.prometheus.settings import Labels, Metrics, PrometheusSettings

        address = url or self.prometheus_url
        if address is None:
            raise BadInput("no Prometheus server is known; set prometheus_url, e.g. http://prometheus.monitoring:9090")
        return PrometheusSettings(
            url=address,
            token_file=self.prometheus_token_file,
            user=self.prometheus_user,
            password=self._password(),
            headers=self.prometheus_headers or {},
            ca_file=self.prometheus_ca_file,
            insecure_tls=self.prometheus_insecure_tls,
            matchers=self.prometheus_matchers,
            cadvisor_matchers=self.prometheus_cadvisor_matchers,
            node_load_matchers=self.prometheus_node_load_matchers,
            kube_state_matchers=self.prometheus_kube_state_matchers,
            finds_exporters=self.rules.plausible and not self.prometheus_cadvisor_matchers,
            labels=Labels(
                self.prometheus_namespace_label,
                self.prometheus_pod_label,
                self.prometheus_container_label,
                self.prometheus_id_label,
                self.prometheus_node_label,
            ),
            metrics=Metrics(
                self.prometheus_cpu_metric,
                self.prometheus_cpu_waiting_metric,
                self.prometheus_memory_metric,
                self.prometheus_node_load_metric,
            ),
            node_load_label=self.prometheus_node_load_label,
            timeout_seconds=self.prometheus_timeout.total_seconds(),
            concurrency=self.prometheus_concurrency,
            max_series_per_query=self.prometheus_max_series_per_query,
            max_samples_per_query=self.prometheus_max_samples_per_query,
            step_seconds=int(self.prometheus_step.total_seconds()),
            accept_partial=self.prometheus_accept_partial,
            plausible=self.rules.plausible,
        )

    def kubelets(self) -> "KubeletSettings":
        """Return how kubelets are asked."""
        from cruise.adapters.kubelets.settings import KubeletSettings

        return KubeletSettings(
            access=self.kubelet_access,
            endpoint=self.kubelet_endpoint,
            ca_file=self.kubelet_ca_file,
            insecure_tls=self.kubelet_insecure_tls,
            timeout_seconds=self.kubelet_timeout.total_seconds(),
            concurrency=self.kubelet_concurrency,
            max_bytes=self.kubelet_max_bytes,
            kept_seconds=3 * max(300.0, self.pass_interval.total_seconds()),
            plausible=self.rules.plausible,
        )

    def _password(self) -> str | None:
        if self.prometheus_password_file is None:
            return self.prometheus_password
        try:
            return self.prometheus_password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"prometheus_password_file {self.prometheus_password_file} cannot be read: {error}"
            ) from error


def _form_of(entry: "Field[Any]") -> Form:
    form = entry.metadata["form"]
    assert isinstance(form, Form)
    return form


FORMS: Mapping[str, Form] = {entry.name: _form_of(entry) for entry in fields(Settings)}
"""How each setting is written, by its key."""
