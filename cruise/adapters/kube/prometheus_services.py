"""Where the cluster's Prometheus is, by the labels that the usual charts and operators give its Service.

Whoever may create a Service may label it so. What it then answers is taken for the use of the whole cluster, so only
namespaces count that an administrator named.
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
_USUAL_PORTS = (9090, 8428, 8481, 10902, 8080, 80, 443)


@dataclass(frozen=True, slots=True)
class PrometheusEndpoint:
    """A server that speaks Prometheus' query API, as a `requests` session has to ask it.

    `headers` go with every request and may hold the API server's token; `ca_file` verifies the server (None: the
    system's), unless `insecure_tls`; `client_certificate` is the files of certificate and key. Inside of the cluster
    the Service is asked itself, from outside through the API server.
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
    """The server found, None without any, and the Services (namespace/name) that are labelled like one elsewhere."""

    endpoint: PrometheusEndpoint | None
    in_other_namespaces: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _ServicePattern:
    """One way in which such a Service is labelled; `path` leads from its root to the query API."""

    labels: Mapping[str, str]
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


# First what stores for long or queries several servers, then single ones: the order in which KRR looks.
_KINDS: Sequence[_ServicePattern] = (
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
    """Return the first server found in some namespaces. Nothing is asked of the server itself.

    Raises Refused (services may not be listed), Throttled, Unavailable.
    """
    found = await _labelled(client, _APP) + await _labelled(client, _NAME)
    elsewhere = dict[str, None]()
    for kind in _KINDS:
        for service in found:
            metadata, port = service.metadata, _port(service.spec)
            if port is None or not kind.labels.items() <= (metadata.labels or {}).items():
                continue
            if metadata.namespace in namespaces:
                return PrometheusSearchResult(await _place(client, kind, metadata, port))
            elsewhere[f"{metadata.namespace}/{metadata.name}"] = None
    return PrometheusSearchResult(None, sorted(elsewhere))


async def _labelled(client: KubernetesClient, key: str) -> list[_Service]:
    """Return the Services that bear one of the wanted values, sorted by namespace and name."""
    values = sorted({kind.labels[key] for kind in _KINDS if key in kind.labels})
    answer = await client.get("/api/v1/services", {"labelSelector": f"{key} in ({','.join(values)})"})
    services = decode_answer(answer, _Services, "the list of Services").items or ()
    return sorted(services, key=lambda one: (one.metadata.namespace, one.metadata.name))


def _port(spec: _ServiceSpec) -> _Port | None:
    """Return the port on which queries are answered: others are for gRPC or for reloading a configuration."""
    ports = [port for port in spec.ports or () if port.protocol == "TCP"]
    if spec.type == "ExternalName" or not ports:
        return None

    def rank(port: _Port) -> tuple[int, int]:
        name = _WEB_PORTS.index(port.name) if port.name in _WEB_PORTS else len(_WEB_PORTS)
        return name, _USUAL_PORTS.index(port.port) if port.port in _USUAL_PORTS else len(_USUAL_PORTS)

    return min(ports, key=rank)


async def _place(
    client: KubernetesClient, kind: _ServicePattern, service: _ServiceMetadata, port: _Port
) -> PrometheusEndpoint:
    scheme = "https" if port.name.startswith("https") or port.port == 443 else "http"
    if client.in_cluster:
        url = f"{scheme}://{service.name}.{service.namespace}.svc:{port.port}{kind.path}"
        return PrometheusEndpoint(url, service.namespace, service.name, kind.headers)
    identity = await client.identity()
    name = f"{scheme}:{service.name}:{port.port}"
    return PrometheusEndpoint(
        url=f"{identity.server}/api/v1/namespaces/{quote(service.namespace)}/services/{name}/proxy{kind.path}",
        namespace=service.namespace,
        service=service.name,
        headers={**identity.headers, **kind.headers},
        ca_file=identity.ca_file,
        client_certificate=identity.certificate,
        insecure_tls=not identity.verify,
    )
