from cruise.adapters.kube.client import KubernetesClient
from cruise.adapters.kube.discovery import read_quotas
from cruise.domain.autoscalers import ResourceQuota
from tests.builders import make_amounts
from tests.controlplane import manifests
from tests.controlplane.api import Api, wait_until


async def test_reads_a_quota_of_a_real_server(client: KubernetesClient, admin: Api, namespace: str):
    def used() -> str:
        status = admin.read("resourcequotas", namespace, "all").get("status", {})
        return str(status.get("used", {}).get("requests.cpu", ""))

    metadata = {"namespace": namespace, "name": "all"}
    hard = {"requests.cpu": "2", "limits.memory": "4Gi", "pods": "9"}
    admin.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    wait_until(used, "the quota counts")
    container = manifests.container(requests={"cpu": "500m"}, limits={"memory": "1Gi"})
    admin.create(manifests.pod(namespace, "one", container))
    wait_until(lambda: used() == "500m", "the pod is counted")
    found = await read_quotas(client)
    assert found[namespace] == (ResourceQuota(make_amounts(1500, None), make_amounts(None, 3 * 1024)),)
