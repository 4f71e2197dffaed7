"""API priority and fairness: cruise's requests have their own queue, and its Lease is exempt."""

import http.client
import ssl
from urllib.parse import urlsplit

import pytest

from tests.controlplane.api import Api, Json, wait_until
from tests.controlplane.control_plane import ControlPlane
from tests.deploy.installing import ACCOUNTS, NAMESPACE, SERVE, documents, grant, token

GROUP = "flowcontrol.apiserver.k8s.io"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Api:
    admin = control_plane.api()
    grant(admin, "full")
    for one in documents("flowcontrol.yaml"):
        admin.apply(one)
    return admin


def classified(plane: ControlPlane, bearer: str, path: str) -> tuple[str | None, str | None]:
    """Flow schema and priority level of a request, as the answer's headers have them."""
    address = urlsplit(plane.address)
    context = ssl.create_default_context(cafile=str(plane.ca_file))
    connection = http.client.HTTPSConnection(address.netloc, timeout=30, context=context)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {bearer}"})
        answer = connection.getresponse()
        answer.read()
        prefix = "X-Kubernetes-PF"
        return answer.getheader(f"{prefix}-FlowSchema-UID"), answer.getheader(f"{prefix}-PriorityLevel-UID")
    finally:
        connection.close()


def uids(admin: Api, schema: str, level: str) -> tuple[str, str]:
    found = (
        admin.read(f"flowschemas.{GROUP}", None, schema),
        admin.read(f"prioritylevelconfigurations.{GROUP}", None, level),
    )
    one, other = (each["metadata"]["uid"] for each in found)
    return one, other


@pytest.mark.parametrize("account", ACCOUNTS)
@pytest.mark.parametrize("path", ["/api/v1/pods", "/api/v1/nodes", "/version"])
def test_each_account_has_the_queue_of_cruise(control_plane: ControlPlane, installed: Api, account: str, path: str):
    bearer, wanted = token(installed, account), uids(installed, "cruise", "cruise")
    wait_until(lambda: classified(control_plane, bearer, path) == wanted, "the schema is in force")


def test_the_lease_does_not_wait_for_what_else_cruise_asks(control_plane: ControlPlane, installed: Api):
    bearer = token(installed, SERVE)
    wanted = uids(installed, "cruise-lead", "leader-election")
    path = f"{LEASES}/cruise-serve"
    wait_until(lambda: classified(control_plane, bearer, path) == wanted, "the schema is in force")


def test_others_keep_theirs(control_plane: ControlPlane, installed: Api):
    found = classified(control_plane, installed.service_account_token("default", "default"), "/version")
    assert None not in found
    assert found != uids(installed, "cruise", "cruise")


def test_cruise_takes_no_seat_of_others():
    [level] = [one for one in documents("flowcontrol.yaml") if one["kind"] == "PriorityLevelConfiguration"]
    limited: Json = level["spec"]["limited"]
    assert limited["borrowingLimitPercent"] == 0
    # Of 245 shares that every cluster has besides.
    assert limited["nominalConcurrencyShares"] <= 245 / 20
