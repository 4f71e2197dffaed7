"""All settings, and the values that other packages get from them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from cruise.domain.policy import Policy
from cruise.domain.prices import PriceSettings, ResourcePrices
from cruise.errors import BadInputError
from cruise.kube_json.admission_review import ReviewLimits
from cruise.settings.connections import (
    ApiOptions,
    DatabaseOptions,
    KubernetesOptions,
    ListenerOptions,
    PrometheusOptions,
    UsageSourceOptions,
    WebhookOptions,
)
from cruise.settings.decisions import ActionOptions, LogAndPriceOptions, SizingOptions
from cruise.settings.value_types import ValueType

if TYPE_CHECKING:
    from cruise.adapters.kube.client import KubernetesSettings
    from cruise.adapters.kubelets.client import KubeletSettings
    from cruise.adapters.oidc import OidcSettings
    from cruise.adapters.prometheus.settings import PrometheusSettings


@dataclass(frozen=True)
class Settings(
    ActionOptions,
    SizingOptions,
    KubernetesOptions,
    UsageSourceOptions,
    PrometheusOptions,
    DatabaseOptions,
    ApiOptions,
    WebhookOptions,
    ListenerOptions,
    LogAndPriceOptions,
):
    """All settings; None if the default depends on the machine.

    Settings with the name of a field of `Policy` mean the same as it; so do most Prometheus settings with fields of the
    adapter's `PrometheusSettings`.
    """

    def to_oidc_settings(self) -> "OidcSettings | None":
        """Return the identity provider for signing in, or None."""
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
        """Return the policy that decisions read."""
        shared = {name: getattr(self, name) for name in SETTING_TYPES if name in Policy.__dataclass_fields__}
        return Policy(**shared)

    def to_price_settings(self) -> PriceSettings:
        """Return the stated prices."""
        is_stated = self.price_core_hour is not None and self.price_gibibyte_hour is not None
        prices = ResourcePrices(self.price_core_hour or 0.0, self.price_gibibyte_hour or 0.0, self.currency)
        return PriceSettings(prices if is_stated else None, self.node_prices or {})

    def to_review_limits(self) -> ReviewLimits:
        """Return the limits of admission reviews."""
        return ReviewLimits(
            self.webhook_max_review_bytes,
            self.webhook_max_json_elements,
            self.webhook_max_containers,
            self.webhook_max_affinity_terms,
            self.webhook_max_annotations,
            self.webhook_max_tolerations,
        )

    def to_kubernetes_settings(self) -> "KubernetesSettings":
        """Return the API server's connection."""
        from cruise.adapters.kube.client import KubernetesSettings

        return KubernetesSettings(
            self.kubeconfig,
            self.kube_requests_per_second,
            self.kube_burst,
            self.kube_timeout.total_seconds(),
            self.kube_context,
        )

    def to_prometheus_settings(self, url: str | None = None) -> "PrometheusSettings":
        """Return the connection to Prometheus, at `url` or the configured address; BadInputError without either."""
        from cruise.adapters.prometheus.settings import MetricNames, PrometheusSettings, SeriesLabelNames

        address = url or self.prometheus_url
        if address is None:
            raise BadInputError(
                "no Prometheus server is known; set prometheus_url, e.g. http://prometheus.monitoring:9090"
            )
        return PrometheusSettings(
            url=address,
            token_file=self.prometheus_token_file,
            user=self.prometheus_user,
            password=self._read_prometheus_password(),
            identity=self.prometheus_identity,
            aws_region=self.prometheus_aws_region,
            headers=self.prometheus_headers or {},
            ca_file=self.prometheus_ca_file,
            insecure_tls=self.prometheus_insecure_tls,
            matchers=self.prometheus_matchers,
            cadvisor_matchers=self.prometheus_cadvisor_matchers,
            node_load_matchers=self.prometheus_node_load_matchers,
            kube_state_matchers=self.prometheus_kube_state_matchers,
            selects_exporters=self.rules.plausibility_checks and not self.prometheus_cadvisor_matchers,
            labels=SeriesLabelNames(
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
        """Return the connection to kubelets."""
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

    def _read_prometheus_password(self) -> str | None:
        if self.prometheus_password_file is None:
            return self.prometheus_password
        try:
            return self.prometheus_password_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(
                f"prometheus_password_file {self.prometheus_password_file} cannot be read: {error}"
            ) from error


SETTING_TYPES: Mapping[str, ValueType] = {one.name: one.metadata["type"] for one in fields(Settings)}
"""The type of each setting, by its key."""
