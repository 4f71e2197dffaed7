from pathlib import Path

import pytest

from cruise.adapters.kube.access import check_access, is_admission_policy_bound
from cruise.adapters.kube.client import KubernetesClient, KubernetesSettings, connect_to_kubernetes
from cruise.domain.preflight import RequiredAccess
from cruise.errors import UnavailableError
from tests.adapters.kube.answering_server import PreparedAnswer, answer_in_order, build_status, create_client
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane
from tests.deploy.installing import apply_policies

RESIZE = RequiredAccess("patch", "pods", subresource="resize")


async def test_an_admin_has_every_access(client: KubernetesClient):
    needs = [RESIZE, RequiredAccess("delete", "nodes"), RequiredAccess("update", "leases", "coordination.k8s.io")]
    assert await check_access(client, needs) == [True, True, True]


async def test_reads_whether_policies_exist_if_permitted(
    control_plane: ControlPlane, client: KubernetesClient, admin: Api
):
    apply_policies(admin)
    assert await is_admission_policy_bound(client, "cruise-accounts") is True
    assert await is_admission_policy_bound(client, "of-nobody") is False
    admin.apply(
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"namespace": "default", "name": "nobody"},
        }
    )
    nobody = admin.service_account_token("default", "nobody")
    async with connect_to_kubernetes(KubernetesSettings(control_plane.kubeconfig("nobody", nobody))) as other:
        assert await is_admission_policy_bound(other, "cruise-accounts") is None


async def test_checks_nothing_for_no_access(client: KubernetesClient):
    assert list(await check_access(client, [])) == []


async def test_an_account_has_the_access_of_its_role(control_plane: ControlPlane, admin: Api, namespace: str):
    rbac = "rbac.authorization.k8s.io"
    metadata = {"namespace": namespace, "name": "some"}
    admin.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
    rules = [
        {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get"], "resourceNames": ["cruise"]},
    ]
    admin.create({"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": rules})
    binding = {
        "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "some"},
        "subjects": [{"kind": "ServiceAccount", "namespace": namespace, "name": "some"}],
    }
    admin.create({"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": metadata, **binding})
    allowed = {
        RequiredAccess("patch", "pods", subresource="resize", namespace=namespace): True,
        RequiredAccess("patch", "pods", subresource="resize"): False,
        RequiredAccess("patch", "pods", namespace=namespace): False,
        RequiredAccess("update", "pods", subresource="resize", namespace=namespace): False,
        RequiredAccess("get", "leases", "coordination.k8s.io", namespace=namespace, name="cruise"): True,
        RequiredAccess("get", "leases", "coordination.k8s.io", namespace=namespace): False,
    }
    kubeconfig = control_plane.kubeconfig(f"some-{namespace}", admin.service_account_token(namespace, "some"))
    needs = list(allowed)
    async with connect_to_kubernetes(KubernetesSettings(kubeconfig)) as client:
        first = needs[0]
        for _ in range(100):
            # The server reads roles from a cache.
            if (await check_access(client, [first]))[0]:
                break
        assert dict(zip(needs, await check_access(client, needs), strict=True)) == allowed


@pytest.mark.parametrize(
    "answer", [build_status(503), PreparedAnswer((b"[]",)), PreparedAnswer((b'{"status":{"allowed":"yes"}}',))]
)
async def test_a_missing_answer_is_not_an_access(tmp_path: Path, answer: PreparedAnswer):
    async with create_client(tmp_path, answer_in_order(answer)) as (client, _):
        with pytest.raises(UnavailableError):
            await check_access(client, [RESIZE, RESIZE])


def test_names_access_as_rules_do():
    assert str(RESIZE) == "patch pods/resize"
