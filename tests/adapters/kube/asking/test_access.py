from pathlib import Path

import pytest

from cruise.adapters.kube.asking.access import held_to, may
from cruise.adapters.kube.http.client import KubeClient
from cruise.adapters.kube.http.connecting import KubeSettings, connect
from cruise.domain.preflight import AccessNeed
from cruise.errors import Unavailable
from tests.adapters.kube.answering_server import Answer, asking, in_turn, status
from tests.controlplane.api import Api
from tests.controlplane.control_plane import ControlPlane
from tests.deploy.installing import hold_to_policies

RESIZE = AccessNeed("patch", "pods", subresource="resize")


async def test_an_admin_may_everything(client: KubeClient):
    needs = [RESIZE, AccessNeed("delete", "nodes"), AccessNeed("update", "leases", "coordination.k8s.io")]
    assert await may(client, needs) == [True, True, True]


async def test_who_may_look_knows_whether_policies_are_there(
    control_plane: ControlPlane, client: KubeClient, admin: Api
):
    hold_to_policies(admin)
    assert await held_to(client, "cruise-accounts") is True
    assert await held_to(client, "of-nobody") is False
    admin.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": "default", "name": "nobody"}})
    nobody = admin.service_account_token("default", "nobody")
    async with connect(KubeSettings(control_plane.kubeconfig("nobody", nobody))) as other:
        assert await held_to(other, "cruise-accounts") is None


async def test_nothing_asked_is_nothing_answered(client: KubeClient):
    assert list(await may(client, [])) == []


async def test_an_account_may_what_its_role_says(control_plane: ControlPlane, admin: Api, namespace: str):
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
        AccessNeed("patch", "pods", subresource="resize", namespace=namespace): True,
        AccessNeed("patch", "pods", subresource="resize"): False,
        AccessNeed("patch", "pods", namespace=namespace): False,
        AccessNeed("update", "pods", subresource="resize", namespace=namespace): False,
        AccessNeed("get", "leases", "coordination.k8s.io", namespace=namespace, name="cruise"): True,
        AccessNeed("get", "leases", "coordination.k8s.io", namespace=namespace): False,
    }
    kubeconfig = control_plane.kubeconfig(f"some-{namespace}", admin.service_account_token(namespace, "some"))
    needs = list(allowed)
    async with connect(KubeSettings(kubeconfig)) as client:
        first = needs[0]
        for _ in range(100):
            # The server reads roles from a cache.
            if (await may(client, [first]))[0]:
                break
        assert dict(zip(needs, await may(client, needs), strict=True)) == allowed


@pytest.mark.parametrize("answer", [status(503), Answer((b"[]",)), Answer((b'{"status":{"allowed":"yes"}}',))])
async def test_no_answer_is_no_permission(tmp_path: Path, answer: Answer):
    async with asking(tmp_path, in_turn(answer)) as (client, _):
        with pytest.raises(Unavailable):
            await may(client, [RESIZE, RESIZE])


def test_needs_are_named_as_rules_name_them():
    assert str(RESIZE) == "patch pods/resize"
