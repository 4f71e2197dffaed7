"""Settings of a Prometheus server: the connection, and the names of labels and metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class CloudProvider(StrEnum):
    """The providers of managed Prometheus servers."""

    AWS = "aws"
    GOOGLE = "google"
    AZURE = "azure"


@dataclass(frozen=True, slots=True)
class SeriesLabelNames:
    """The label names of cAdvisor's series; an empty `id` or `node` means that series have no such label.

    `id` is the runtime's id, which differs after a restart of the container.
    """

    namespace: str = "namespace"
    pod: str = "pod"
    container: str = "container"
    id: str = "id"
    node: str = "node"


@dataclass(frozen=True, slots=True)
class MetricNames:
    """The names of the metrics that cruise reads."""

    cpu: str = "container_cpu_usage_seconds_total"
    cpu_waiting: str = "container_pressure_cpu_waiting_seconds_total"
    memory: str = "container_memory_working_set_bytes"
    node_load: str = "node_load1"


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Everything that may differ between servers.

    `matchers` is added to every selector, such as `cluster="prod"`; the other matchers are added to those of cAdvisor,
    node exporters and kube-state-metrics. `series_selectors` has further matchers by metric of cAdvisor; with
    `selects_exporters` the source finds them itself. `token_file` is read again when it changes. `headers` are sent
    with every request (`X-Scope-OrgID` for Mimir). `node_load_label` names the node on `node_load1`; a series without
    it is identified by its `instance`, without the port. `accept_partial` accepts answers that the server reports as
    incomplete. `client_certificate` is the files of a certificate and its key. `uses_get`: an API server treats a POST
    through its proxy as a write, which needs another permission. `plausible` is the rule of that name: growth over
    missed scrapes is spread over them. `identity` is the provider whose credentials are sent, `aws_region` the region
    of a workspace, None to read it from the URL.
    """

    url: str
    token_file: Path | None = None
    user: str | None = None
    password: str | None = None
    identity: CloudProvider | None = None
    aws_region: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    insecure_tls: bool = False
    matchers: str = ""
    cadvisor_matchers: str = ""
    node_load_matchers: str = ""
    kube_state_matchers: str = ""
    series_selectors: Mapping[str, str] = field(default_factory=dict)
    selects_exporters: bool = False
    labels: SeriesLabelNames = SeriesLabelNames()
    metrics: MetricNames = MetricNames()
    node_load_label: str = "node"
    timeout_seconds: float = 30.0
    concurrency: int = 4
    max_series_per_query: int = 20_000
    max_samples_per_query: int = 1_000_000
    step_seconds: int = 60
    accept_partial: bool = False
    client_certificate: tuple[str, str] | None = None
    uses_get: bool = False
    plausible: bool = True
