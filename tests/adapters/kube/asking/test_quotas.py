from cruise.adapters.kube.asking.surroundings import read_quotas
from cruise.adapters.kube.http.client import KubeClient
from cruise.domain.quotas import Quota
from tests.builders import make_amounts
from tests.controlplane import manifests
from tests.controlplane.api import Api, until


async def test_what_a_real_quota_leaves(client: KubeClient, admin: Api, namespace: str):
    def used() -> str:
        status = admin.read("resourcequotas", namespace, "all").get("status", {})
        return str(status.get("used", {}).get("requests.cpu", ""))

    metadata = {"namespace": namespace, "name": "all"}
    hard = {"requests.cpu": "2", "limits.memory": "4Gi", "pods": "9"}
    admin.create({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}})
    until(used, "the quota counts")
    container = manifests.container(requests={"cpu": "500m"}, limits={"memory": "1Gi"})
    admin.create(manifests.pod(namespace, "one", container))
    until(lambda: used() == "500m", "the pod is counted")
    found = await read_quotas(client)
    assert found[namespace] == (Quota(make_amounts(1500, None), make_amounts(None, 3 * 1024)),)
