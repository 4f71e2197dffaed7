"""RightsizingPolicy objects on a real API server: rejected ones, and the effect of accepted ones."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.controlplane.api import Api, ApiError, Json, wait_until
from tests.controlplane.binaries import programs
from tests.deploy.installing import resource_of
from tests.e2e.live.custom_kinds import policy_objects
from tests.e2e.live.manifests import app
from tests.e2e.live.sizes import requests
from tests.e2e.live.stage import LiveStage, list_skipped
from tests.e2e.live.usage import ContainerUse
from tests.kube_json.objects.test_rightsizing_policies import READABLE, UNREADABLE, policy_json

USE = ContainerUse(cores=0.4, mebibytes=300, peak_cores=0.5, peak_mebibytes=400)
# More than any other scene has; cruise writes their statuses one after the other.
MANY = 100
# What the structural schema refuses alone, before any rule: the decoder is given it by files only.
UNKNOWN_FIELDS: dict[str, tuple[Json, str]] = {
    "a field that is none": ({"modde": "off"}, 'unknown field "spec.modde"'),
    "namespaces in a namespace": ({"selector": {"namespaces": ["shop"]}}, 'unknown field "spec.selector.namespaces"'),
}


@pytest.fixture
def with_policies(admin: Api) -> Iterator[None]:
    with policy_objects(admin):
        yield


def dry_run(admin: Api, one: Json) -> Json:
    path = admin.path(resource_of(one), one["metadata"].get("namespace"))
    answer: Json = admin.request("POST", f"{path}?dryRun=All&fieldValidation=Strict", one)
    return answer


def test_the_api_server_refuses_what_cruise_could_not_read_and_says_what_to_write(
    admin: Api, namespace: str, with_policies: None
):
    for name, spec in READABLE.items():
        assert dry_run(admin, policy_json(spec, namespace=namespace))["spec"] == spec, name
    wrong = {name: (spec, told) for name, (spec, _, told) in UNREADABLE.items()} | UNKNOWN_FIELDS
    for name, (refused_spec, told) in wrong.items():
        with pytest.raises(ApiError) as refused:
            dry_run(admin, policy_json(refused_spec, namespace=namespace))
        assert told in refused.value.message, (name, refused.value.message)


def test_a_policy_takes_effect_and_is_named_by_explain(stage: LiveStage, with_policies: None):
    stage.node(cpu="16", memory="64Gi")
    names = ("web", "db", "free")
    for name in names:
        stage.create(app("Deployment", stage.namespace, name, "1", "1Gi"))
    stage.running(len(names))
    stage.measure(dict.fromkeys(names, USE))
    stage.mark()
    everything = policy_json({"selector": {"namespaces": [stage.namespace]}, "maxAllowed": {"cpu": "350m"}}, "all")
    web = policy_json({"selector": {"names": ["web"]}, "minAllowed": {"memory": "700Mi"}}, "web", stage.namespace)
    db = policy_json({"selector": {"matchLabels": {"app": "db"}}, "mode": "off"}, "db", stage.namespace)
    stage.create(everything, web, db)
    pods = {one["metadata"]["labels"]["app"]: one["metadata"]["name"] for one in stage.pods()}
    explained = " ".join(stage.command("explain", f"{stage.namespace}/{pods['web']}", mode="resize").out.split())
    assert "memory-min 700Mi RightsizingPolicy web" in explained
    assert "cpu-max 350m ClusterRightsizingPolicy all" in explained
    said = stage.once()
    assert list_skipped(said) == {pods["db"]: "mode-off"}
    web_size, free_size = (requests(stage.resized(pods[name])) for name in ("web", "free"))
    assert (web_size.cpu, web_size.memory) == (350, 700)
    assert free_size.cpu == 350
    assert free_size.memory in range(300, 441)


def test_a_policy_that_appears_while_cruise_runs_is_obeyed(stage: LiveStage, with_policies: None):
    stage.node(cpu="16", memory="64Gi")
    stage.create(app("Deployment", stage.namespace, "web", "1", "1Gi"))
    stage.running(1)
    stage.measure({"web": USE})
    with stage.serving("resize", pass_interval="2s"):
        wait_until(lambda: requests(stage.pod("web")).cpu < 600, "it is sized")
        stage.create(policy_json({"minAllowed": {"cpu": "900m"}}, "least", stage.namespace))
        wait_until(lambda: requests(stage.pod("web")).cpu == 900, "the policy is obeyed")


def test_the_status_says_what_a_policy_did_and_what_contradicts_it(stage: LiveStage, with_policies: None):
    admin, ns = stage.admin, stage.namespace
    stage.node(cpu="16", memory="64Gi")
    for name in ("web", "db"):
        stage.create(app("Deployment", ns, name, "1", "1Gi"))
    stage.running(2)
    stage.measure({"web": USE})
    one = policy_json({"selector": {"names": ["web"]}, "maxAllowed": {"cpu": "450m"}}, "one", ns)
    other = policy_json({"selector": {"names": ["web"]}, "maxAllowed": {"cpu": "300m"}}, "other", ns)
    more = policy_json({"selector": {"names": ["db"]}, "maxAllowed": {"memory": "8Gi"}}, "above", ns)
    everything = policy_json({"selector": {"namespaces": [ns]}, "maxAllowed": {"memory": "4Gi"}}, ns)
    stage.create(one, other, more, everything)

    def read(kind: str, namespace: str | None, name: str) -> Json:
        found: Json = admin.read(f"{kind}.cruise.io", namespace, name).get("status", {})
        return found

    with stage.serving("resize", pass_interval="2s"):
        wait_until(lambda: requests(stage.pod("web")).cpu == 450, "the first by name applies")
        wait_until(
            lambda: read("rightsizingpolicies", ns, "one").get("saved", {}).get("cpu") == "550m",
            "what it saves is in its status",
        )
        # Each policy's status is written by itself.
        wait_until(lambda: read("rightsizingpolicies", ns, "other").get("sized") == 1, "the other one counts the pod")
        wait_until(lambda: "conflicts" in read("rightsizingpolicies", ns, "above"), "the cluster's maximum is lower")
    conflict = {
        "policy": f"RightsizingPolicy {ns}/one",
        "winner": f"RightsizingPolicy {ns}/one",
        "settings": ["cpu-max"],
        "workload": "Deployment/web",
    }
    above = read("rightsizingpolicies", ns, "above")
    limit = f"ClusterRightsizingPolicy {ns}"
    assert above["conflicts"] == [
        {"policy": limit, "winner": limit, "settings": ["memory-max"], "workload": "Deployment/db"}
    ]
    assert (above["conditions"][1]["reason"], above["conditions"][1]["message"]) == ("AboveClusterMaximum", limit)
    found = read("rightsizingpolicies", ns, "other")
    assert (found["conflictCount"], found["conflicts"]) == (1, [conflict])
    assert (found["observedGeneration"], found["workloads"], found["sized"], found["skippedPods"]) == (1, 1, 1, 0)
    accepted, conflicted = found["conditions"]
    assert (accepted["type"], accepted["status"], accepted["observedGeneration"]) == ("Accepted", "True", 1)
    assert (conflicted["type"], conflicted["status"], conflicted["reason"]) == ("Conflicted", "True", "EquallySpecific")
    admin.delete("rightsizingpolicies.cruise.io", ns, "one")
    with stage.serving("resize", pass_interval="2s"):

        def agreed() -> list[Json]:
            now: list[Json] = read("rightsizingpolicies", ns, "other")["conditions"]
            return now if now[1]["status"] == "False" else []

        later = wait_until(agreed, "the conflict is over")
    assert later[0]["lastTransitionTime"] == accepted["lastTransitionTime"]
    assert later[1]["lastTransitionTime"] > conflicted["lastTransitionTime"]
    whole = read("clusterrightsizingpolicies", None, ns)
    assert (whole["workloads"], whole["sized"], whole["skippedPods"]) == (2, 1, 1)
    assert whole["skipped"] == [{"reason": "no-statistics", "count": 1}]


def test_many_policies_have_their_status_after_the_first_pass_and_kubectl_shows_it(
    stage: LiveStage, with_policies: None
):
    ns = stage.namespace
    stage.node(cpu="16", memory="64Gi")
    stage.create(app("Deployment", ns, "web", "1", "1Gi"))
    stage.running(1)
    stage.measure({"web": USE})
    names = ["web", *(f"w{number}" for number in range(1, MANY))]
    stage.create(*(policy_json({"selector": {"names": [name]}, "mode": "observe"}, name, ns) for name in names))

    def count_statuses() -> int:
        return sum("status" in one for one in stage.admin.items("rightsizingpolicies.cruise.io", ns))

    with stage.serving("resize", pass_interval="2s"):
        wait_until(lambda: count_statuses() == MANY, "all statuses are written")
    command: list[Any] = [
        programs() / "kubectl",
        "--kubeconfig",
        stage.plane.kubeconfig(),
        "get",
        "rightsizingpolicies",
    ]
    listed = subprocess.run([*command, "--namespace", ns], capture_output=True, text=True, check=True).stdout
    heading, *lines = listed.splitlines()
    assert heading.split() == "NAME MODE WORKLOADS SIZED SKIPPED SAVED CPU SAVED MEMORY CONFLICTS AGE".split()
    rows = {line.split()[0]: line.split()[1:-1] for line in lines}
    assert rows.pop("web") == ["observe", "1", "0", "1", "0", "0", "0"]
    assert set(rows) == set(names[1:]) and {tuple(row) for row in rows.values()} == {
        ("observe", "0", "0", "0", "0", "0", "0")
    }
