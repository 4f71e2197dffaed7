"""Every setting with its default; below `app` and `cli` only the frozen values made from them are known."""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cruise.adapters.kubelets.client import KubeletAccess, KubeletEndpoint
from cruise.domain.backtest import ObjectivePrices
from cruise.domain.policy import (
    PROTECTED_NAMESPACES,
    AdmissionSize,
    ConsolidationMode,
    MemoryLimitPolicy,
    Mode,
    NodeAutoscalerSetting,
    OomReaction,
    Policy,
    RuleSet,
)
from cruise.domain.users import NotificationTopic
from cruise.errors import BadInputError
from cruise.kube_json.admission_review import ReviewLimits
from cruise.settings import value_types
from cruise.settings.value_types import (
    ApiAuthentication,
    HttpTlsChoice,
    NotifyFormat,
    UsageSourceChoice,
    ValueType,
    VpaPublishing,
)

if TYPE_CHECKING:
    from cruise.adapters.kube.client import KubernetesSettings
    from cruise.adapters.kubelets.client import KubeletSettings
    from cruise.adapters.oidc import OidcSettings
    from cruise.adapters.prometheus.settings import PrometheusSettings

_POLICY = Policy()
_PRICES = ObjectivePrices()
_BOUNDS = ReviewLimits()


def _setting(form: ValueType, default: object) -> Any:  # noqa: ANN401 - the type is stated at the field
    return field(default=default, repr=not form.secret, metadata={"form": form})


def _https(value: object) -> str:
    text = str(value_types.URL.read(value))
    if not text.startswith("https://"):
        raise ValueError
    return text


_HTTPS = ValueType("an address with https", "https://idp.example.com", _https)
_TIMEOUT = value_types.create_duration_type("1h", "30s")
_PASS = value_types.create_duration_type("1d")
_PAUSE = value_types.create_duration_type("366d", least=timedelta(0))
_WAIT = value_types.create_duration_type("1h", "10s", least=timedelta(0))
_NOTIFY_INTERVAL = value_types.create_duration_type("1d", "1m", least=timedelta(seconds=5))
_STEP = value_types.create_duration_type("10m", "60s", least=timedelta(seconds=5))
_LEASE = value_types.create_duration_type("5m", "15s", least=timedelta(seconds=2))
_BUDGET = value_types.create_duration_type("30s", "1s")
_DAYS = value_types.create_duration_type("30d")
_WRITES = value_types.create_number_type("a number from 1 to 300", "6", lambda found: 1 <= found <= 300)
_LOG_FORMAT = value_types.create_choice_type("a log format", [(name, name) for name in ("auto", "json", "text")])
_LOG_LEVEL = value_types.create_choice_type(
    "a log level", [(name, name) for name in ("debug", "info", "warning", "error")]
)


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

    kubeconfig: Path | None = _setting(value_types.PATH, None)
    kube_context: str | None = _setting(ValueType("a context", "prod", value_types.TEXT.read), None)
    kube_requests_per_second: float = _setting(value_types.create_positive_type("100"), 100.0)
    kube_burst: int = _setting(value_types.create_count_type("200", least=1), 200)
    kube_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=30))
    namespace: str | None = _setting(value_types.NAMESPACE, None)
    usage_source: UsageSourceChoice = _setting(value_types.USAGE_SOURCE_CHOICE, UsageSourceChoice.AUTO)
    kubelet_access: KubeletAccess = _setting(value_types.KUBELET_ACCESS_CHOICE, KubeletAccess.DIRECT)
    kubelet_endpoint: KubeletEndpoint = _setting(value_types.KUBELET_ENDPOINT_CHOICE, KubeletEndpoint.CADVISOR)
    kubelet_ca_file: Path | None = _setting(value_types.PATH, None)
    kubelet_insecure_tls: bool = _setting(value_types.FLAG, False)
    kubelet_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    kubelet_concurrency: int = _setting(value_types.create_count_type("16", least=1), 16)
    kubelet_max_bytes: int = _setting(value_types.create_count_type("33554432", least=1 << 16), 32 << 20)
    kubelet_cross_check_nodes: int = _setting(value_types.create_count_type("2"), 2)
    prometheus_url: str | None = _setting(value_types.URL, None)
    prometheus_namespaces: frozenset[str] = _setting(value_types.NAMESPACES, MONITORING_NAMESPACES)
    prometheus_token_file: Path | None = _setting(value_types.PATH, None)
    prometheus_user: str | None = _setting(value_types.TEXT, None)
    prometheus_password: str | None = _setting(value_types.SECRET, None)
    prometheus_password_file: Path | None = _setting(value_types.PATH, None)
    prometheus_headers: Mapping[str, str] | None = _setting(value_types.HEADERS, None)
    prometheus_ca_file: Path | None = _setting(value_types.PATH, None)
    prometheus_insecure_tls: bool = _setting(value_types.FLAG, False)
    prometheus_matchers: str = _setting(value_types.create_matchers_type('cluster="prod"'), "")
    prometheus_cadvisor_matchers: str = _setting(value_types.create_matchers_type('job="kubelet"'), "")
    prometheus_node_load_matchers: str = _setting(value_types.create_matchers_type('job="node-exporter"'), "")
    prometheus_kube_state_matchers: str = _setting(value_types.create_matchers_type('job="kube-state-metrics"'), "")
    prometheus_namespace_label: str = _setting(value_types.NAME, "namespace")
    prometheus_pod_label: str = _setting(value_types.NAME, "pod")
    prometheus_container_label: str = _setting(value_types.NAME, "container")
    prometheus_id_label: str = _setting(value_types.NAME_OR_NONE, "id")
    prometheus_node_label: str = _setting(value_types.NAME_OR_NONE, "node")
    prometheus_node_load_label: str = _setting(value_types.NAME_OR_NONE, "node")
    prometheus_cpu_metric: str = _setting(value_types.NAME, "container_cpu_usage_seconds_total")
    prometheus_cpu_pressure_metric: str = _setting(value_types.NAME, "container_pressure_cpu_waiting_seconds_total")
    prometheus_memory_metric: str = _setting(value_types.NAME, "container_memory_working_set_bytes")
    prometheus_node_load_metric: str = _setting(value_types.NAME, "node_load1")
    prometheus_step: timedelta = _setting(_STEP, timedelta(minutes=1))
    prometheus_scrape_delay: timedelta | None = _setting(_WAIT, None)
    prometheus_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=30))
    prometheus_concurrency: int = _setting(value_types.create_count_type("4", least=1), 4)
    prometheus_max_series_per_query: int = _setting(value_types.create_count_type("20000", least=1), 20_000)
    prometheus_max_samples_per_query: int = _setting(value_types.create_count_type("1000000", least=1), 1_000_000)
    prometheus_allow_partial_response: bool = _setting(value_types.FLAG, False)
    database_url: str | None = _setting(
        ValueType("a database's address", "postgresql://cruise@db:5432/cruise", value_types.TEXT.read, secret=True),
        None,
    )
    database_statement_timeout: timedelta = _setting(_TIMEOUT, timedelta(minutes=5))
    data_dir: Path | None = _setting(value_types.PATH, None)
    mode: Mode = _setting(value_types.MODE_CHOICE, _POLICY.mode)
    rules: RuleSet = _setting(value_types.RULES_CHOICE, _POLICY.rules)
    http_address: str = _setting(value_types.ADDRESS, "127.0.0.1:8080")
    webhook_address: str = _setting(value_types.ADDRESS, "0.0.0.0:8443")
    http_max_header_bytes: int = _setting(value_types.create_count_type("32768", least=1024), 32 << 10)
    http_max_headers: int = _setting(value_types.create_count_type("100", least=10), 100)
    http_max_connections: int = _setting(value_types.create_count_type("512", least=1), 512)
    http_max_body_bytes: int = _setting(value_types.create_count_type("33554432", least=1 << 16), 32 << 20)
    http_handshake_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=5))
    http_header_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    http_body_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    http_idle_timeout: timedelta = _setting(_TIMEOUT, timedelta(seconds=120))
    tls_dir: Path | None = _setting(value_types.PATH, None)
    webhook_service: str = _setting(
        ValueType("a Service's name", "cruise-webhook", value_types.TEXT.read), "cruise-webhook"
    )
    webhook_configuration: str = _setting(
        ValueType("a configuration's name", "cruise", value_types.TEXT.read), "cruise"
    )
    webhook_client_ca_file: Path | None = _setting(value_types.PATH, None)
    webhook_client_names: frozenset[str] = _setting(value_types.NAMES, frozenset())
    webhook_max_review_bytes: int = _setting(
        value_types.create_count_type("1048576", least=1 << 16), _BOUNDS.review_bytes
    )
    webhook_max_json_elements: int = _setting(value_types.create_count_type("10000", least=100), _BOUNDS.json_elements)
    webhook_max_containers: int = _setting(value_types.create_count_type("100", least=1), _BOUNDS.containers)
    webhook_max_affinity_terms: int = _setting(value_types.create_count_type("1000"), _BOUNDS.terms)
    webhook_max_annotations: int = _setting(value_types.create_count_type("1000"), _BOUNDS.annotations)
    webhook_max_tolerations: int = _setting(value_types.create_count_type("200"), _BOUNDS.tolerations)
    webhook_time_budget: timedelta = _setting(_BUDGET, timedelta(seconds=1))
    http_tls: HttpTlsChoice = _setting(value_types.HTTP_TLS_CHOICE, HttpTlsChoice.AUTO)
    http_tls_dir: Path | None = _setting(value_types.PATH, None)
    http_allowed_hosts: frozenset[str] = _setting(value_types.HOSTS, frozenset())
    api_authentication: ApiAuthentication = _setting(value_types.API_AUTHENTICATION_CHOICE, ApiAuthentication.TOKEN)
    api_token_file: Path | None = _setting(value_types.PATH, None)
    api_concurrent_requests_per_caller: int = _setting(value_types.create_count_type("16", least=1), 16)
    oidc_issuer_url: str | None = _setting(_HTTPS, None)
    oidc_client_id: str | None = _setting(ValueType("a client", "cruise", value_types.TEXT.read), None)
    oidc_client_secret_file: Path | None = _setting(value_types.PATH, None)
    oidc_redirect_url: str | None = _setting(_HTTPS, None)
    oidc_username_claim: str = _setting(ValueType("a claim", "email", value_types.TEXT.read), "sub")
    oidc_username_prefix: str | None = _setting(ValueType("a prefix", "oidc:", value_types.TEXT.read), None)
    oidc_groups_claim: str = _setting(ValueType("a claim", "groups", value_types.TEXT.read), "groups")
    oidc_groups_prefix: str = _setting(ValueType("a prefix", "oidc:", value_types.TEXT.read), "")
    oidc_scopes: str = _setting(ValueType("scopes", "openid email groups", value_types.TEXT.read), "openid")
    oidc_ca_file: Path | None = _setting(value_types.PATH, None)
    metrics_allow_anonymous: bool = _setting(value_types.FLAG, False)
    lease_duration: timedelta = _setting(_LEASE, timedelta(seconds=15))
    shutdown_grace_period: timedelta = _setting(_WAIT, timedelta(seconds=10))
    log_format: str = _setting(_LOG_FORMAT, "auto")
    log_level: str = _setting(_LOG_LEVEL, "info")
    pass_interval: timedelta = _setting(_PASS, _POLICY.pass_interval)
    node_load_interval: timedelta = _setting(_PASS, _POLICY.node_load_interval)
    max_age: timedelta = _setting(_PASS, _POLICY.max_age)
    max_decision_age: timedelta = _setting(_PASS, _POLICY.max_decision_age)
    look_ahead: timedelta = _setting(value_types.create_duration_type("1d", least=timedelta(0)), _POLICY.look_ahead)
    new_workload_age: timedelta = _setting(_PAUSE, _POLICY.new_workload_age)
    memory_limits: MemoryLimitPolicy = _setting(value_types.MEMORY_LIMITS_CHOICE, _POLICY.memory_limits)
    memory_limit_history: timedelta = _setting(_PAUSE, _POLICY.memory_limit_history)
    memory_limit_ceiling: float = _setting(
        value_types.create_bounded_type(100, "2", least=1), _POLICY.memory_limit_ceiling
    )
    deferred_resize_timeout: timedelta = _setting(_PASS, _POLICY.deferred_resize_timeout)
    oom_cooldown: timedelta = _setting(value_types.create_duration_type("1d", least=timedelta(0)), _POLICY.oom_cooldown)
    oom_reaction: OomReaction = _setting(value_types.OOM_REACTION_CHOICE, _POLICY.oom_reaction)
    max_evictions_per_node: int = _setting(value_types.create_count_type("1"), _POLICY.max_evictions_per_node)
    max_evictions_per_workload: int = _setting(value_types.create_count_type("1"), _POLICY.max_evictions_per_workload)
    max_evictions_per_hour: int = _setting(value_types.create_count_type("20"), _POLICY.max_evictions_per_hour)
    publish_vpas: VpaPublishing = _setting(value_types.PUBLISH_VPAS_CHOICE, VpaPublishing.NONE)
    notify_url: str | None = _setting(
        ValueType("an address", "https://hooks.example.com/…", value_types.TEXT.read, secret=True), None
    )
    notify_url_file: Path | None = _setting(value_types.PATH, None)
    notify_secret_file: Path | None = _setting(value_types.PATH, None)
    notify_format: NotifyFormat = _setting(value_types.NOTIFY_FORMAT_CHOICE, NotifyFormat.GENERIC)
    notify_topics: frozenset[NotificationTopic] = _setting(
        value_types.NOTIFY_TOPICS_CHOICE, frozenset(NotificationTopic)
    )
    notify_interval: timedelta = _setting(_NOTIFY_INTERVAL, timedelta(minutes=1))
    packing_enabled: bool = _setting(value_types.FLAG, True)
    packing_time_limit: timedelta = _setting(_TIMEOUT, timedelta(seconds=10))
    consolidation: ConsolidationMode = _setting(value_types.CONSOLIDATION_CHOICE, ConsolidationMode.ADVISE)
    consolidation_interval: timedelta = _setting(_DAYS, timedelta(minutes=30))
    consolidation_cooldown: timedelta = _setting(_PAUSE, timedelta(hours=4))
    price_core_hour: float | None = _setting(value_types.create_price_type("0.0145"), None)
    price_gibibyte_hour: float | None = _setting(value_types.create_price_type("0.00724"), None)
    price_starved_minute: float = _setting(value_types.create_price_type("0.01"), _PRICES.starved_minute)
    price_oom_kill: float = _setting(value_types.create_price_type("1"), _PRICES.oom_kill)
    price_eviction: float = _setting(value_types.create_price_type("0.05"), _PRICES.eviction)
    price_resize: float = _setting(value_types.create_price_type("0.0002"), _PRICES.resize)
    headroom: str = _setting(value_types.HEADROOM_CHOICE, _POLICY.headroom)
    cpu_risk: float = _setting(value_types.create_bounded_type(0.5, "0.05"), _POLICY.cpu_risk)
    memory_risk: float = _setting(value_types.create_bounded_type(0.5, "0.01"), _POLICY.memory_risk)
    cpu_tolerance: float = _setting(value_types.create_bounded_type(1, "0.15"), _POLICY.cpu_tolerance)
    memory_tolerance: float = _setting(value_types.create_bounded_type(1, "0.15"), _POLICY.memory_tolerance)
    over_requested_stabilization: timedelta = _setting(_PAUSE, _POLICY.over_requested_stabilization)
    under_requested_stabilization: timedelta = _setting(_PAUSE, _POLICY.under_requested_stabilization)
    resizes_per_container_day: float = _setting(_WRITES, _POLICY.resizes_per_container_day)
    shrink_cooldown: timedelta | None = _setting(_PAUSE, _POLICY.shrink_cooldown)
    excluded_namespaces: frozenset[str] = _setting(
        value_types.create_excluded_namespaces_type(PROTECTED_NAMESPACES), _POLICY.excluded_namespaces
    )
    allow_extended_resources: bool = _setting(value_types.FLAG, _POLICY.allow_extended_resources)
    admission_size: AdmissionSize | None = _setting(value_types.ADMISSION_SIZE_CHOICE, _POLICY.admission_size)
    node_autoscaler: NodeAutoscalerSetting = _setting(value_types.NODE_AUTOSCALER_CHOICE, _POLICY.node_autoscaler)
    overload_taint_threshold: float = _setting(
        value_types.create_bounded_type(50, "1.0"), _POLICY.overload_taint_threshold
    )
    overload_untaint_threshold: float = _setting(
        value_types.create_bounded_type(50, "0.9"), _POLICY.overload_untaint_threshold
    )

    def to_oidc_settings(self) -> "OidcSettings | None":
        """Return the identity provider that people sign in by, None without one."""
        from cruise.adapters.oidc import OidcSettings

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

    def to_policy(self) -> Policy:
        """Return what decisions read."""
        shared = {name: getattr(self, name) for name in SETTING_TYPES if name in Policy.__dataclass_fields__}
        return Policy(**shared)

    def to_review_limits(self) -> ReviewLimits:
        """Return how much of a review is read."""
        return ReviewLimits(
            self.webhook_max_review_bytes,
            self.webhook_max_json_elements,
            self.webhook_max_containers,
            self.webhook_max_affinity_terms,
            self.webhook_max_annotations,
            self.webhook_max_tolerations,
        )

    def to_kubernetes_settings(self) -> "KubernetesSettings":
        """Return how the API server is reached."""
        from cruise.adapters.kube.client import KubernetesSettings

        return KubernetesSettings(
            self.kubeconfig,
            self.kube_requests_per_second,
            self.kube_burst,
            self.kube_timeout.total_seconds(),
            self.kube_context,
        )

    def to_prometheus_settings(self, url: str | None = None) -> "PrometheusSettings":
        """Return how the Prometheus server is reached, at `url` if one is given. Raises BadInputError without any."""
        from cruise.adapters.prometheus.settings import MetricNames, PrometheusSettings, SeriesLabels

        address = url or self.prometheus_url
        if address is None:
            raise BadInputError(
                "no Prometheus server is known; set prometheus_url, e.g. http://prometheus.monitoring:9090"
            )
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
            selects_exporters=self.rules.plausibility_checks and not self.prometheus_cadvisor_matchers,
            labels=SeriesLabels(
                self.prometheus_namespace_label,
                self.prometheus_pod_label,
                self.prometheus_container_label,
                self.prometheus_id_label,
                self.prometheus_node_label,
            ),
            metrics=MetricNames(
                self.prometheus_cpu_metric,
                self.prometheus_cpu_pressure_metric,
                self.prometheus_memory_metric,
                self.prometheus_node_load_metric,
            ),
            node_load_label=self.prometheus_node_load_label,
            timeout_seconds=self.prometheus_timeout.total_seconds(),
            concurrency=self.prometheus_concurrency,
            max_series_per_query=self.prometheus_max_series_per_query,
            max_samples_per_query=self.prometheus_max_samples_per_query,
            step_seconds=int(self.prometheus_step.total_seconds()),
            accept_partial=self.prometheus_allow_partial_response,
            plausible=self.rules.plausibility_checks,
        )

    def to_kubelet_settings(self) -> "KubeletSettings":
        """Return how kubelets are asked."""
        from cruise.adapters.kubelets.client import KubeletSettings

        return KubeletSettings(
            access=self.kubelet_access,
            endpoint=self.kubelet_endpoint,
            ca_file=self.kubelet_ca_file,
            insecure_tls=self.kubelet_insecure_tls,
            timeout_seconds=self.kubelet_timeout.total_seconds(),
            concurrency=self.kubelet_concurrency,
            max_bytes=self.kubelet_max_bytes,
            retention_seconds=3 * max(300.0, self.pass_interval.total_seconds()),
            plausible=self.rules.plausibility_checks,
        )

    def _password(self) -> str | None:
        if self.prometheus_password_file is None:
            return self.prometheus_password
        try:
            return self.prometheus_password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(
                f"prometheus_password_file {self.prometheus_password_file} cannot be read: {error}"
            ) from error


def _form_of(entry: "Field[Any]") -> ValueType:
    form = entry.metadata["form"]
    assert isinstance(form, ValueType)
    return form


SETTING_TYPES: Mapping[str, ValueType] = {entry.name: _form_of(entry) for entry in fields(Settings)}
"""How each setting is written, by its key."""
