import json
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.adapters.kube.credentials import Credentials, ServiceAccountCredentials
from cruise.adapters.kube.prometheus_services import PrometheusSearchResult, find_prometheus
from cruise.errors import RefusedError
from tests.adapters.kube.answering_server import PreparedAnswer, answer_in_order, run_answering_server
from tests.controlplane.api import Api, ApiError, Json
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.manifests import pod

NAME, COMPONENT = "app.kubernetes.io/name", "app.kubernetes.io/component"


@pytest.fixture(autouse=True)
def no_service_of_others(admin: Api) -> Iterator[None]:
    """Services are looked for in all namespaces."""
    yield
    for service in admin.items("services"):
        if service["metadata"]["name"] != "kubernetes":
            with suppress(ApiError):
                admin.delete("services", service["metadata"]["namespace"], service["metadata"]["name"])


def create(
    admin: Api, namespace: str, name: str, labels: dict[str, str], *ports: tuple[str, int], **spec: object
) -> None:
    listed = [{"name": port, "port": number} for port, number in ports or (("http", 9090),)]
    metadata = {"namespace": namespace, "name": name, "labels": labels}
    made: Json = {"ports": listed, "clusterIP": "None", **spec}
    admin.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": made})


async def found(client: KubernetesClient, namespace: str) -> tuple[str, str] | None:
    """The Service and what follows its proxy's address."""
    place = (await find_prometheus(client, {namespace})).endpoint
    if place is None:
        return None
    root = f"/api/v1/namespaces/{place.namespace}/services/"
    return place.service, place.url.split(root)[1]


async def test_a_cluster_without_prometheus(client: KubernetesClient, admin: Api, namespace: str):
    create(admin, namespace, "web", {"app": "web"})
    create(admin, namespace, "alertmanager", {NAME: "alertmanager"})
    create(admin, namespace, "elsewhere", {NAME: "prometheus"}, type="ExternalName", externalName="x.org", clusterIP="")
    assert (await find_prometheus(client, {namespace})).endpoint is None


@pytest.mark.parametrize(
    ("labels", "ports", "proxied"),
    [
        (
            {"app": "kube-prometheus-stack-prometheus"},
            [("http-web", 9090), ("reloader-web", 8080)],
            "http:p:9090/proxy",
        ),
        ({"app": "prometheus", "component": "server"}, [("http", 80)], "http:p:80/proxy"),
        ({"app": "prometheus-server"}, [("http", 80)], "http:p:80/proxy"),
        ({NAME: "prometheus", COMPONENT: "server"}, [("http", 80)], "http:p:80/proxy"),
        ({NAME: "prometheus", COMPONENT: "prometheus"}, [("reloader-web", 8080), ("web", 9090)], "http:p:9090/proxy"),
        ({NAME: "prometheus"}, [("https", 9091)], "https:p:9091/proxy"),
        ({"app": "rancher-monitoring-prometheus"}, [("nginx-http", 8080), ("http-web", 9090)], "http:p:9090/proxy"),
        ({"app": "prometheus-operator-prometheus"}, [("web", 9090)], "http:p:9090/proxy"),
        ({NAME: "vmsingle"}, [("http", 8428), ("graphite", 2003)], "http:p:8428/proxy"),
        ({NAME: "victoria-metrics-single"}, [("http", 8428)], "http:p:8428/proxy"),
        ({NAME: "vmselect"}, [("http", 8481)], "http:p:8481/proxy/select/0/prometheus"),
        ({NAME: "thanos", COMPONENT: "query"}, [("grpc", 10901), ("http", 9090)], "http:p:9090/proxy"),
        ({NAME: "thanos-query"}, [("grpc", 10901), ("http", 10902)], "http:p:10902/proxy"),
        ({"app": "thanos-querier"}, [("tenancy", 9092), ("web", 9091)], "http:p:9091/proxy"),
        (
            {NAME: "mimir", COMPONENT: "query-frontend"},
            [("http-metrics", 8080), ("grpc", 9095)],
            "http:p:8080/proxy/prometheus",
        ),
    ],
)
async def test_the_usual_installations(
    client: KubernetesClient,
    admin: Api,
    namespace: str,
    labels: dict[str, str],
    ports: list[tuple[str, int]],
    proxied: str,
):
    create(admin, namespace, "p", labels, *ports)
    assert await found(client, namespace) == ("p", proxied)


@pytest.mark.parametrize(
    "labels",
    [
        {"app": "prometheus", "component": "alertmanager"},
        {NAME: "thanos", COMPONENT: "storegateway"},
        {NAME: "mimir", COMPONENT: "ingester"},
    ],
)
async def test_other_parts_of_the_same_installations(
    client: KubernetesClient, admin: Api, namespace: str, labels: dict[str, str]
):
    create(admin, namespace, "p", labels)
    assert (await find_prometheus(client, {namespace})).endpoint is None


async def test_prefers_servers_that_query_several_others(client: KubernetesClient, admin: Api, namespace: str):
    create(admin, namespace, "a-prometheus", {"app": "prometheus-server"})
    create(admin, namespace, "z-thanos", {NAME: "thanos-query"})
    create(admin, namespace, "b-prometheus", {"app": "prometheus-server"})
    assert await found(client, namespace) == ("z-thanos", "http:z-thanos:9090/proxy")
    admin.delete("services", namespace, "z-thanos")
    assert await found(client, namespace) == ("a-prometheus", "http:a-prometheus:9090/proxy")


async def test_does_not_trust_a_service_in_a_namespace_that_is_not_configured(
    client: KubernetesClient, admin: Api, namespace: str
):
    """Thanos is preferred to a single Prometheus, but only where an administrator allows it."""
    tenant = f"a-{namespace}"
    admin.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": tenant}})
    create(admin, tenant, "thanos", {NAME: "thanos-query"})
    assert await find_prometheus(client, {namespace}) == PrometheusSearchResult(None, [f"{tenant}/thanos"])
    create(admin, namespace, "prometheus", {NAME: "prometheus"})
    assert await found(client, namespace) == ("prometheus", "http:prometheus:9090/proxy")
    place = (await find_prometheus(client, {namespace, tenant})).endpoint
    assert place is not None
    assert (place.namespace, place.service) == (tenant, "thanos")


async def test_from_outside_the_api_server_is_asked_with_its_own_credentials(
    client: KubernetesClient, admin: Api, namespace: str, control_plane: ControlPlane
):
    create(admin, namespace, "p", {NAME: "mimir", COMPONENT: "query-frontend"})
    place = (await find_prometheus(client, {namespace})).endpoint
    assert place is not None
    assert place.url.startswith(f"{control_plane.address}/api/v1/namespaces/{namespace}/services/http:p:9090/proxy")
    assert place.headers == {
        "Authorization": f"Bearer {control_plane.token('admin')}",
        "X-Scope-OrgID": "anonymous",
    }
    assert place.ca_file == str(control_plane.ca_file)
    assert place.client_certificate is None
    assert not place.insecure_tls


async def test_from_inside_the_service_is_asked_itself(
    admin: Api, namespace: str, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    create(admin, namespace, "p", {NAME: "vmselect"}, ("http", 8481))
    (tmp_path / "token").write_text(control_plane.token("admin"))
    (tmp_path / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    host, _, port = control_plane.address.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    credentials = Credentials(ServiceAccountCredentials(tmp_path))
    client = KubernetesClient(credentials, requests_per_second=100, burst=100, timeout_seconds=10)
    place = (await find_prometheus(client, {namespace})).endpoint
    await client.close()
    assert place is not None
    assert place.url == f"http://p.{namespace}.svc:8481/select/0/prometheus"
    assert not place.headers
    assert place.ca_file is None


def own_address() -> str | None:
    """An address of this machine that is not loopback, which API servers do not pass requests on to."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("10.255.255.255", 1))
        except OSError:
            return None
        address: str = probe.getsockname()[0]
    return None if address.startswith("127.") else address


async def test_the_api_server_passes_queries_on(client: KubernetesClient, admin: Api, namespace: str):
    address = own_address()
    if address is None:
        pytest.skip("this machine has no address but loopback, which API servers do not pass requests on to")
    result = json.dumps({"status": "success", "data": {"resultType": "vector", "result": []}}).encode()
    async with run_answering_server(answer_in_order(PreparedAnswer((result,))), address) as (prometheus, url):
        port = int(url.rpartition(":")[2])
        create(admin, namespace, "p", {NAME: "vmselect"}, ("http", port))
        # The server passes requests on to pods only.
        admin.create(pod(namespace, "p"))
        admin.patch("pods", namespace, "p", {"status": {"podIPs": [{"ip": address}]}}, subresource="status")
        subset = {
            "addresses": [{"ip": address, "targetRef": {"kind": "Pod", "namespace": namespace, "name": "p"}}],
            "ports": [{"name": "http", "port": port}],
        }
        metadata = {"namespace": namespace, "name": "p"}
        admin.create({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": [subset]})
        place = (await find_prometheus(client, {namespace})).endpoint
        assert place is not None
        path = place.url.removeprefix((await client.get_identity()).server)
        answer = await client.get(f"{path}/api/v1/query", {"query": "up"})
    assert answer == result
    assert [asked.path for asked in prometheus.asked] == ["/select/0/prometheus/api/v1/query?query=up"]


async def test_without_permission_to_list_services(control_plane: ControlPlane, admin: Api, namespace: str):
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": namespace, "name": "blind"}})
    kubeconfig = control_plane.kubeconfig(f"blind-{namespace}", admin.service_account_token(namespace, "blind"))
    async with connect_to_kubernetes(KubernetesSettings(kubeconfig)) as client:
        with pytest.raises(RefusedError) as refused:
            await find_prometheus(client, {namespace})
    assert refused.value.cause == "Forbidden"
