"""The Prometheus of the cluster, found by the labels that common charts and operators give its Service.

Anyone who may create a Service can label it so, and its answers count as the usage of the whole cluster. So only
namespaces that an administrator configured are searched.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import msgspec

from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.responses import decode_answer
from cruise.domain.annotations import APP_COMPONENT, APP_NAME

_APP, _NAME, _COMPONENT = "app", APP_NAME, APP_COMPONENT
_WEB_PORTS = ("http-web", "web", "http", "https", "http-query", "query", "http-metrics")
_QUERY_PORTS = (9090, 8428, 8481, 10902, 8080, 80, 443)


@dataclass(frozen=True, slots=True)
class PrometheusEndpoint:
    """A server with Prometheus' query API, and how a `requests` session connects to it.

    `headers` may contain the API server's token. `ca_file` verifies the server (None: the system's CAs), unless
    `insecure_tls`. `client_certificate` is the files of certificate and key. Inside the cluster the Service is queried
    itself, from outside through the API server.
    """

    url: str
    namespace: str
    service: str
    headers: Mapping[str, str] = field(default_factory=dict)
    ca_file: str | None = None
    client_certificate: tuple[str, str] | None = None
    insecure_tls: bool = False


@dataclass(frozen=True, slots=True)
class PrometheusSearchResult:
    """The server found, if any, and matching Services (namespace/name) in other namespaces."""

    endpoint: PrometheusEndpoint | None
    in_other_namespaces: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _ServicePattern:
    """Labels of such a Service; `path` is the path of its query API."""

    labels: Mapping[str, str]
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


# First long-term storage and global queries, then single servers; KRR uses the same order.
_PATTERNS: Sequence[_ServicePattern] = (
    _ServicePattern({_NAME: "vmsingle"}),
    _ServicePattern({_NAME: "victoria-metrics-single"}),
    _ServicePattern({_NAME: "vmselect"}, path="/select/0/prometheus"),
    _ServicePattern({_APP: "vmselect"}, path="/select/0/prometheus"),
    _ServicePattern({_NAME: "thanos", _COMPONENT: "query"}),
    _ServicePattern({_NAME: "thanos-query"}),
    _ServicePattern({_APP: "thanos-query"}),
    _ServicePattern({_APP: "thanos-querier"}),
    _ServicePattern(
        {_NAME: "mimir", _COMPONENT: "query-frontend"}, path="/prometheus", headers={"X-Scope-OrgID": "anonymous"}
    ),
    _ServicePattern({_APP: "kube-prometheus-stack-prometheus"}),
    _ServicePattern({_APP: "prometheus", "component": "server"}),
    _ServicePattern({_APP: "prometheus-server"}),
    _ServicePattern({_APP: "prometheus-operator-prometheus"}),
    _ServicePattern({_APP: "rancher-monitoring-prometheus"}),
    _ServicePattern({_APP: "prometheus-prometheus"}),
    _ServicePattern({_NAME: "prometheus", _COMPONENT: "server"}),
    _ServicePattern({_NAME: "prometheus", _COMPONENT: "prometheus"}),
    _ServicePattern({_NAME: "prometheus"}),
)


class _ServiceMetadata(msgspec.Struct, frozen=True):
    name: str
    namespace: str
    labels: dict[str, str] | None = None


class _Port(msgspec.Struct, frozen=True):
    port: int
    name: str = ""
    protocol: str = "TCP"


class _ServiceSpec(msgspec.Struct, frozen=True):
    type: str = ""
    ports: tuple[_Port, ...] | None = None


class _Service(msgspec.Struct, frozen=True):
    metadata: _ServiceMetadata
    spec: _ServiceSpec = _ServiceSpec()


class _Services(msgspec.Struct, frozen=True):
    items: tuple[_Service, ...] | None = None


async def find_prometheus(client: KubernetesClient, namespaces: Collection[str]) -> PrometheusSearchResult:
    """Return the first server found in the namespaces, without a request to it.

    Raises RefusedError (Services may not be listed), ThrottledError and UnavailableError.
    """
    found = await _list_services(client, _APP) + await _list_services(client, _NAME)
    in_other_namespaces = dict[str, None]()
    for pattern in _PATTERNS:
        for service in found:
            metadata, port = service.metadata, _find_port(service.spec)
            if port is None or not pattern.labels.items() <= (metadata.labels or {}).items():
                continue
            if metadata.namespace in namespaces:
                return PrometheusSearchResult(await _create_endpoint(client, pattern, metadata, port))
            in_other_namespaces[f"{metadata.namespace}/{metadata.name}"] = None
    return PrometheusSearchResult(None, sorted(in_other_namespaces))


async def _list_services(client: KubernetesClient, key: str) -> list[_Service]:
    """Return the Services with one of the known values of a label, sorted by namespace and name."""
    values = sorted({pattern.labels[key] for pattern in _PATTERNS if key in pattern.labels})
    answer = await client.get("/api/v1/services", {"labelSelector": f"{key} in ({','.join(values)})"})
    services = decode_answer(answer, _Services, "the list of Services").items or ()
    return sorted(services, key=lambda one: (one.metadata.namespace, one.metadata.name))


def _find_port(spec: _ServiceSpec) -> _Port | None:
    """Return the port of the query API; others are for gRPC or for configuration reloads."""
    ports = [port for port in spec.ports or () if port.protocol == "TCP"]
    if spec.type == "ExternalName" or not ports:
        return None

    def rank(port: _Port) -> tuple[int, int]:
        name = _WEB_PORTS.index(port.name) if port.name in _WEB_PORTS else len(_WEB_PORTS)
        return name, _QUERY_PORTS.index(port.port) if port.port in _QUERY_PORTS else len(_QUERY_PORTS)

    return min(ports, key=rank)


async def _create_endpoint(
    client: KubernetesClient, pattern: _ServicePattern, service: _ServiceMetadata, port: _Port
) -> PrometheusEndpoint:
    scheme = "https" if port.name.startswith("https") or port.port == 443 else "http"
    if client.in_cluster:
        url = f"{scheme}://{service.name}.{service.namespace}.svc:{port.port}{pattern.path}"
        return PrometheusEndpoint(url, service.namespace, service.name, pattern.headers)
    identity = await client.get_identity()
    name = f"{scheme}:{service.name}:{port.port}"
    return PrometheusEndpoint(
        url=f"{identity.server}/api/v1/namespaces/{quote(service.namespace)}/services/{name}/proxy{pattern.path}",
        namespace=service.namespace,
        service=service.name,
        headers={**identity.headers, **pattern.headers},
        ca_file=identity.ca_file,
        client_certificate=identity.certificate,
        insecure_tls=not identity.verify,
    )
