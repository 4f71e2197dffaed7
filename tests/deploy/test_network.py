"""The NetworkPolicies select the pods of the other manifests and open the right ports."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.controlplane.api import Json
from tests.deploy.installing import MANIFESTS, NAMESPACE, documents

POLICIES = documents("network.yaml")
WORKLOADS = [one for file in MANIFESTS for one in documents(file) if one["kind"] in ("Deployment", "Job")]
NAMES = [one["metadata"]["name"] for one in WORKLOADS]
DNS, API_SERVER, DATABASE, PROMETHEUS = {53}, {443, 6443}, {5432}, {9090}


def selects(policy: Json, labels: Json) -> bool:
    selector = policy["spec"]["podSelector"]
    wanted = [(key, [value]) for key, value in selector.get("matchLabels", {}).items()]
    for one in selector.get("matchExpressions", ()):
        assert one["operator"] == "In"
        wanted.append((one["key"], one["values"]))
    return all(labels.get(key) in values for key, values in wanted)


def of(workload: Json) -> list[Json]:
    return [one for one in POLICIES if selects(one, workload["spec"]["template"]["metadata"]["labels"])]


def ports(workload: Json, direction: str) -> Iterator[int]:
    for policy in of(workload):
        for rule in policy["spec"].get(direction, ()):
            assert rule["ports"], "a rule without ports opens all of them"
            yield from (one["port"] for one in rule["ports"])


@pytest.mark.parametrize("workload", WORKLOADS, ids=NAMES)
def test_a_pod_is_reached_at_its_own_port_and_at_no_other(workload: Json):
    [container] = workload["spec"]["template"]["spec"]["containers"]
    assert {one for policy in of(workload) for one in policy["spec"]["policyTypes"]} == {"Ingress", "Egress"}
    assert set(ports(workload, "ingress")) == {one["containerPort"] for one in container.get("ports", ())}


@pytest.mark.parametrize(
    ("name", "reached"),
    [
        ("cruise-serve", DNS | API_SERVER | DATABASE | PROMETHEUS),
        ("cruise-webhook", DNS | API_SERVER | DATABASE),
        ("cruise-certificates", DNS | API_SERVER),
    ],
)
def test_a_pod_reaches_what_it_needs_and_nothing_else(name: str, reached: set[int]):
    [workload] = [one for one in WORKLOADS if one["metadata"]["name"] == name]
    assert set(ports(workload, "egress")) == reached


def test_prometheus_is_where_the_settings_have_it():
    [settings] = documents("settings.yaml")
    address = urlsplit(settings["data"]["CRUISE_PROMETHEUS_URL"])
    assert address.hostname is not None
    [policy] = [one for one in POLICIES if one["metadata"]["name"] == "cruise-serve"]
    [out], [into] = policy["spec"]["egress"], policy["spec"]["ingress"]
    [[peer], [port]] = out["to"], out["ports"]
    assert peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] == address.hostname.split(".")[1]
    assert port["port"] == address.port
    assert into["from"] == out["to"]


def test_all_are_in_cruises_namespace_and_none_is_for_other_pods():
    assert {one["metadata"]["namespace"] for one in POLICIES} == {NAMESPACE}
    assert [one["metadata"]["name"] for one in POLICIES if selects(one, {"app": "postgres"})] == []
