"""The chart's policies.leader: only the process that holds the Lease may write."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from cruise.adapters.kube.leases import DATABASE_EPOCH
from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.controlplane.control_plane import ControlPlane
from tests.controlplane.namespaces import own_namespace
from tests.deploy.installing import NAMESPACE, SERVE, grant
from tests.deploy.rendering import objects

LEASE = ("leases.coordination.k8s.io", NAMESPACE, "cruise-serve")
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
REPLICAS = ("cruise-a", "cruise-b")


@pytest.fixture
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    admin = control_plane.api()
    grant(admin, "full")
    values = {"mode": "full", "database.existingSecret": "cruise-database", "policies.leader": "true"}
    manifests = [one for one in objects(values) if one["metadata"]["name"] == "cruise-leader"]
    with own_namespace(admin) as namespace:
        wait_until(lambda: admin.items("serviceaccounts", namespace), "its account is there")
        admin.create(pod(namespace, "victim"))
        for name in REPLICAS:
            admin.create(pod(NAMESPACE, name))
        for one in manifests:
            admin.create(one)
        try:
            yield namespace
        finally:
            for resource in (
                "validatingadmissionpolicybindings.admissionregistration.k8s.io",
                "validatingadmissionpolicies.admissionregistration.k8s.io",
            ):
                admin.delete(resource, None, "cruise-leader")
            for name in REPLICAS:
                admin.delete("pods", NAMESPACE, name, grace=0)
            with suppress(ApiError):
                admin.delete(*LEASE)


def pod(namespace: str, name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "serviceAccountName": SERVE if namespace == NAMESPACE else "default",
            "nodeSelector": {"no": "node"},
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "app", "image": "example.com/app", "securityContext": RESTRICTED}],
        },
    }


def replica(plane: ControlPlane, name: str) -> Api:
    """A client with the token that a kubelet would give a pod."""
    admin = plane.api()
    bound = {
        "kind": "Pod",
        "apiVersion": "v1",
        "name": name,
        "uid": admin.read("pods", NAMESPACE, name)["metadata"]["uid"],
    }
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound, "expirationSeconds": 3600},
    }
    told = admin.request("POST", admin.path("serviceaccounts", NAMESPACE, SERVE, "token"), body)
    return plane.api(token=told["status"]["token"])


def hold(admin: Api, holder: str) -> None:
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15}
    try:
        admin.patch(*LEASE, {"spec": spec})
    except ApiError:
        name = {"name": LEASE[2], "namespace": NAMESPACE}
        admin.create({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": name, "spec": spec})


def refused(api: Api, namespace: str) -> str:
    """Try an eviction that changes nothing; return the server's rejection."""
    victim = {"name": "victim", "namespace": namespace}
    uid = api.get(api.path("pods", namespace, "victim"))["metadata"]["uid"]
    options = {"dryRun": ["All"], "preconditions": {"uid": uid}}
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": victim, "deleteOptions": options}
    try:
        api.request("POST", f"{api.path('pods', namespace, 'victim')}/eviction?dryRun=All", body)
    except ApiError as error:
        return str(error)
    return ""


def test_the_holder_of_the_lease_writes_and_no_other(control_plane: ControlPlane, namespace: str):
    admin = control_plane.api()
    first, second = (replica(control_plane, name) for name in REPLICAS)
    hold(admin, "cruise-a-1f2e3d4c")
    wait_until(lambda: "is held by cruise-a" in refused(second, namespace), "the policy is in force")
    wait_until(lambda: not refused(first, namespace), "the holder is let through")
    hold(admin, "cruise-b-1f2e3d4c")
    wait_until(lambda: "is held by cruise-b" in refused(first, namespace), "the former holder is refused")
    wait_until(lambda: not refused(second, namespace), "the new one is let through")
    admin.delete(*LEASE)
    wait_until(lambda: refused(first, namespace) and refused(second, namespace), "without a Lease nobody is")


def test_a_token_of_no_pod_writes_nothing(control_plane: ControlPlane, namespace: str):
    admin = control_plane.api()
    hold(admin, "cruise-a-1f2e3d4c")
    loose = control_plane.api(token=admin.service_account_token(NAMESPACE, SERVE))
    wait_until(lambda: refused(loose, namespace), "it is refused")


def test_it_is_off_by_default():
    values = {"mode": "full", "database.existingSecret": "cruise-database"}
    assert "cruise-leader" not in {one["metadata"]["name"] for one in objects(values)}


def test_of_the_leases_annotations_only_the_epoch_is_cruises(control_plane: ControlPlane, namespace: str):
    admin = control_plane.api()
    hold(admin, "cruise-a-1f2e3d4c")
    admin.patch(*LEASE, {"metadata": {"annotations": {"team": "x"}}})
    leader = replica(control_plane, REPLICAS[0])

    def write(**metadata: Json) -> None:
        found = leader.read(*LEASE)
        leader.request("PUT", leader.path(*LEASE), {**found, "metadata": {**found["metadata"], **metadata}})

    write(annotations={"team": "x", DATABASE_EPOCH: "7"})
    for others in ({"team": "y"}, {}, {"team": "x", "other": "z"}):
        with pytest.raises(ApiError, match=f"only the annotation {DATABASE_EPOCH}"):
            write(annotations={**others, DATABASE_EPOCH: "8"})
    with pytest.raises(ApiError, match="may not change labels, annotations, owners or finalizers"):
        write(labels={"a": "b"})
    assert admin.read(*LEASE)["metadata"]["annotations"] == {"team": "x", DATABASE_EPOCH: "7"}
