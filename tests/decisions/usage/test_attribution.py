from dataclasses import replace

import pytest

from cruise.decisions.usage.attribution import UsageAttribution, UsageOwner, guess_former_owner
from cruise.domain.run_to_completion_operators import CompletedPod
from cruise.domain.usage import ContainerKey, PeakKey
from tests.builders import make_pod, make_ref, make_snapshot, make_workload

WORKLOADS = frozenset(
    {
        ("Deployment", "web"),
        ("Deployment", "web-api"),
        ("Rollout", "canary"),
        ("ReplicaSet", "plain"),
        ("DaemonSet", "agent"),
        ("StatefulSet", "db"),
        ("Job", "import"),
        ("CronJob", "backup"),
    }
)
LONG = "a-deployment-whose-name-is-so-long-that-its-pods-are-cut"  # 56 characters


@pytest.mark.parametrize(
    ("pod", "owner"),
    [
        ("web-7d9f8b6c5d-x2x4z", "Deployment/web"),
        ("web-api-7d9f8b6c5d-x2x4z", "Deployment/web-api"),
        ("canary-6b7c9-bcdfg", "Rollout/canary"),
        ("plain-x2x4z", "ReplicaSet/plain"),
        ("import-x2x4z", "Job/import"),
        ("import-3-x2x4z", "Job/import"),
        ("backup-29384570-x2x4z", "CronJob/backup"),
        ("backup-29384570-0-x2x4z", "CronJob/backup"),
    ],
)
def test_a_generated_name_identifies_the_workload(pod, owner):
    assert guess_former_owner(pod, "n1", WORKLOADS) == UsageOwner(owner)


def test_an_ordinal_is_an_identity():
    assert guess_former_owner("db-12", "n1", WORKLOADS) == UsageOwner("StatefulSet/db", "12")


def test_a_daemonset_pod_is_recognized_only_with_its_node():
    assert guess_former_owner("agent-x2x4z", "n7", WORKLOADS) == UsageOwner("DaemonSet/agent", "n7")
    assert guess_former_owner("agent-x2x4z", "", WORKLOADS) is None


@pytest.mark.parametrize(
    "pod",
    [
        "gone-7d9f8b6c5d-x2x4z",  # no such workload
        "web-7d9f8b6c5d-x2x4e",  # Kubernetes generates no vowels
        "web-x2x4z",  # a Deployment's pod has its ReplicaSet's hash
        "web-7d9f8b6c5d7-x2x4z",  # a hash that long is none
        "web",
        "x2x4z",
        "-x2x4z",
        "",
    ],
)
def test_other_names_identify_no_workload(pod):
    assert guess_former_owner(pod, "n1", WORKLOADS) is None


def test_an_ambiguous_name_identifies_no_workload():
    twins = WORKLOADS | {("ReplicaSet", "agent")}
    assert guess_former_owner("agent-x2x4z", "n1", twins) is None


def test_a_truncated_name_is_recognized_by_its_start():
    hashed = f"{LONG}-7d9f8b6c5d-"[:58]
    assert guess_former_owner(f"{hashed}x2x4z", "n1", WORKLOADS | {("Deployment", LONG)}) == UsageOwner(
        f"Deployment/{LONG}"
    )
    longer = f"{LONG}-off"
    assert guess_former_owner(f"{longer[:58]}x2x4z", "n1", frozenset({("DaemonSet", longer)})) == UsageOwner(
        f"DaemonSet/{longer}", "n1"
    )


def test_a_pod_that_exists_belongs_to_its_own_workload_whatever_its_name():
    pod = make_pod("unsupported-name", workload="Deployment/web", identity="")
    bare = make_pod("lonely", workload=None)
    attribution = UsageAttribution.from_snapshot(make_snapshot(pods=[pod, bare]))
    assert attribution.get_peak_key(ContainerKey("shop", "unsupported-name", "app"), "n1") == PeakKey(
        "shop", "Deployment/web", "app", ""
    )
    assert attribution.get_peak_key(ContainerKey("shop", "lonely", "app"), "") == PeakKey(
        "shop", "Pod/lonely", "app", ""
    )


def test_a_former_pod_belongs_to_a_workload_of_its_namespace():
    ref = make_ref("Deployment/web")
    attribution = UsageAttribution.from_snapshot(make_snapshot(workloads=[make_workload(ref)]))
    assert attribution.get_peak_key(ContainerKey("shop", "web-7d9f8b6c5d-x2x4z", "app"), "") == PeakKey(
        "shop", "Deployment/web", "app", ""
    )
    assert attribution.get_peak_key(ContainerKey("other", "web-7d9f8b6c5d-x2x4z", "app"), "") is None


def test_the_usage_of_a_deleted_pod_belongs_to_the_workload_that_the_cluster_remembers():
    ended = CompletedPod("shop", "nightly-1-train-2", "uid-1", "CronWorkflow/nightly:train", None)
    snapshot = replace(make_snapshot([make_pod("web-1")]), ended_pods=(ended,))
    attribution = UsageAttribution.from_snapshot(snapshot)
    found = attribution.get_peak_key(ContainerKey("shop", "nightly-1-train-2", "main"), "n1")
    assert found == PeakKey("shop", "CronWorkflow/nightly:train", "main", "")
    assert attribution.get_peak_key(ContainerKey("shop", "nightly-1-train-3", "main"), "n1") is None
    # A present pod of the same name counts.
    again = replace(snapshot, pods=(make_pod("nightly-1-train-2"),))
    key = UsageAttribution.from_snapshot(again).get_peak_key(ContainerKey("shop", "nightly-1-train-2", "main"), "n1")
    assert key == PeakKey("shop", "Deployment/web", "main", "")


@pytest.mark.parametrize(
    ("pod", "container", "node"),
    [("web-1", "a\0b", "n1"), ("web-1", "x" * 254, "n1"), (f"db-{'1' * 254}", "app", "n1"), ("web-1", "app", "\0")],
)
def test_series_with_names_that_no_object_has_belong_to_none(pod, container, node):
    owners = UsageAttribution(
        {("shop", "web-1"): UsageOwner("Deployment/web")}, {"shop": frozenset({("StatefulSet", "db")})}
    )
    assert owners.get_peak_key(ContainerKey("shop", "web-1", "app"), "n1") is not None
    assert owners.get_peak_key(ContainerKey("shop", pod, container), node) is None
