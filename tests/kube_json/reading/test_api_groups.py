"""Kinds of other API groups with the names of built-in kinds, and templates of custom workloads."""

import pytest

from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.other_autoscalers import find_workloads_with_same_name
from cruise.domain.actions import ReasonCode
from cruise.domain.cluster import ClusterSnapshot, WorkloadRef
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import StatedResources
from tests.builders import (
    LONG_AGO,
    NOW,
    Json,
    make_container_json,
    make_node_json,
    make_pod_json,
    make_replica_set_json,
    make_table,
    make_workload_json,
    stamp,
)
from tests.kube_json.reading.test_snapshot import read_items

N1 = make_node_json()
TEMPLATE: Json = {"spec": {"containers": [make_container_json("app", "1", "1Gi")]}}


def owned(name: str, api_version: str, kind: str, owner: str, restart_policy: str = "Always") -> Json:
    reference = {"apiVersion": api_version, "kind": kind, "name": owner, "uid": "u", "controller": True}
    return make_pod_json(
        name, owner=None, metadata={"ownerReferences": [reference]}, spec={"restartPolicy": restart_policy}
    )


def read(*items: Json) -> ClusterSnapshot:
    return read_items(N1, *items)


def with_api(document: Json, api_version: str) -> Json:
    return document | {"apiVersion": api_version}


@pytest.mark.parametrize("odd", [False, True])
def test_longhorns_nodes_and_volcanos_jobs_are_not_kubernetes_own(odd):
    # One object that does not decode has the others read one by one.
    spec: Json = {"spec": {"tasks": [], "parallelism": "many"}} if odd else {"spec": {"tasks": []}}
    volcano = with_api(make_workload_json("Job", "train"), "batch.volcano.sh/v1alpha1") | spec
    own = make_workload_json("Job", "train", owner="CronJob/train")
    longhorn = with_api(make_node_json("n1"), "longhorn.io/v1beta2")
    pod = owned("train-0", "batch.volcano.sh/v1alpha1", "Job", "train")
    manager = owned("manager", "longhorn.io/v1beta2", "Node", "n1")
    snapshot = read(longhorn, volcano, own, pod, manager)
    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert [(one.owner_kind, str(one.workload), one.is_mirror_pod) for one in snapshot.pods] == [
        ("Node.longhorn.io", "Node.longhorn.io/n1", False),
        ("Job.batch.volcano.sh", "Job.batch.volcano.sh/train", False),
    ]
    # It is a Job still, whose work would be lost.
    assert all(one.runs_to_completion for one in snapshot.pods if one.name == "train-0")
    snapshot = read(owned("train-0", "batch.volcano.sh/v1alpha1", "Job", "train", "OnFailure"))
    assert snapshot.pods[0].runs_to_completion


@pytest.mark.parametrize("kruise_first", [False, True])
def test_of_two_statefulsets_of_one_name_kubernetes_own_counts(kruise_first):
    own = make_workload_json("StatefulSet", "web", replicas=2)
    kruise = with_api(make_workload_json("StatefulSet", "web", replicas=7), "apps.kruise.io/v1beta1")
    snapshot = read(*((kruise, own) if kruise_first else (own, kruise)))
    assert [(one.replicas, one.api_version) for one in snapshot.workloads.values()] == [(2, "apps/v1")]
    assert [one.api_version for one in read(kruise).workloads.values()] == ["apps.kruise.io/v1beta1"]


def test_kruises_pods_have_the_identity_of_their_kind():
    web = owned("web-3", "apps.kruise.io/v1beta1", "StatefulSet", "web")
    agent = owned("agent-x", "apps.kruise.io/v1alpha1", "DaemonSet", "agent")
    assert [(str(pod.workload), pod.identity) for pod in read(web, agent).pods] == [
        ("DaemonSet/agent", "n1"),
        ("StatefulSet/web", "3"),
    ]


@pytest.mark.parametrize(
    ("kind", "api_version"), [("Rollout", "argoproj.io/v1alpha1"), ("CloneSet", "apps.kruise.io/v1alpha1")]
)
def test_templates_of_rollouts_and_clonesets_are_read(kind, api_version):
    document = with_api(make_workload_json(kind, "web", template=TEMPLATE, replicas=3), api_version)
    workload = read(document).workloads["shop", WorkloadRef(kind, "web")]
    assert (workload.requests, workload.replicas) == ({"app": StatedResources(1000, 1 << 30)}, 3)
    assert (workload.api_version, workload.is_read) == (api_version, True)


def test_a_rollouts_template_is_that_of_its_newest_replica_set_in_use():
    def replica_set(name: str, cpu: str, day: int, replicas: int) -> Json:
        template = {"spec": {"containers": [make_container_json("app", cpu)]}}
        document = make_replica_set_json(name, owner="Rollout/web", replicas=replicas, template=template)
        document["metadata"]["creationTimestamp"] = stamp(LONG_AGO.replace(day=day))
        return document

    sets = [replica_set("web-1", "1", 1, 0), replica_set("web-2", "2", 2, 2), replica_set("web-3", "3", 3, 0)]
    for items in (sets, sets[::-1]):
        workload = read(*items).workloads["shop", WorkloadRef("Rollout", "web")]
        assert workload.requests == {"app": StatedResources(2000, 128 << 20)}
        # Of the Rollout itself nothing is known.
        assert (workload.replicas, workload.created_at, workload.is_read) == (None, None, False)
    # A Deployment is read itself: where it was not printed, its template is not known.
    assert read(make_replica_set_json("web-1", template=TEMPLATE)).workloads == {}
    whole = with_api(make_workload_json("Rollout", "web", template=TEMPLATE), "argoproj.io/v1alpha1")
    assert read(*sets, whole).workloads["shop", WorkloadRef("Rollout", "web")].is_read


def test_a_rollout_with_a_workload_ref_has_the_template_of_its_replica_sets():
    rollout = with_api(make_workload_json("Rollout", "web", replicas=3), "argoproj.io/v1alpha1")
    rollout["spec"].pop("template", None)
    rollout["spec"]["workloadRef"] = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "old"}
    rollout["metadata"]["annotations"] = {"cruise.io/cpu-min": "100m"}
    replica_set = make_replica_set_json("web-1", owner="Rollout/web", template=TEMPLATE)
    for items in ([rollout, replica_set], [replica_set, rollout]):
        workload = read(*items).workloads["shop", WorkloadRef("Rollout", "web")]
        assert (workload.requests, workload.memory_limits) == ({"app": StatedResources(1000, 1 << 30)}, {})
        # All else is the Rollout's own.
        assert (workload.replicas, workload.api_version, workload.is_read) == (3, "argoproj.io/v1alpha1", True)
        assert workload.annotations == {"cruise.io/cpu-min": "100m"}


def test_a_job_that_was_not_seen_is_its_cron_jobs_by_name_if_that_exists():
    pod = make_pod_json("nightly-29384712-x2x4z", owner="Job/nightly-29384712")
    cron_job = make_workload_json("CronJob", "nightly")
    assert str(read(pod, cron_job).pods[0].workload) == "CronJob/nightly"
    assert str(read(pod).pods[0].workload) == "Job/nightly-29384712"
    assert str(read(pod, make_workload_json("CronJob", "nightly", "other")).pods[0].workload) == "Job/nightly-29384712"
    # One that is there and belongs to no CronJob is its own.
    alone = make_workload_json("Job", "nightly-29384712")
    assert str(read(pod, cron_job, alone).pods[0].workload) == "Job/nightly-29384712"
    named = make_pod_json("nightly-2-x2x4z", owner="Job/nightly-2")
    assert str(read(named, cron_job).pods[0].workload) == "Job/nightly-2"


def test_foreign_objects_of_one_kind_and_name_are_not_sized_by_each_others_statistics():
    own = owned("agent-a", "apps/v1", "DaemonSet", "agent")
    other = owned("agent-b", "apps.kruise.io/v1beta1", "DaemonSet", "agent")
    ref = ("shop", WorkloadRef("DaemonSet", "agent"))
    assert find_workloads_with_same_name(read(own, other)) == {ref}
    # The other one is listed, and has no pod yet.
    assert find_workloads_with_same_name(read(make_workload_json("DaemonSet", "agent"), other)) == {ref}
    listed = with_api(make_workload_json("DaemonSet", "agent"), "apps.kruise.io/v1beta1")
    for alone in ([own], [other], [listed, other], [owned("x", "a.example.com/v1", "Cluster", "db")]):
        assert find_workloads_with_same_name(read(*alone)) == frozenset()
    groups = [owned(f"db-{group}", f"{group}.example.com/v1", "Cluster", "db") for group in "ab"]
    snapshot = read(*groups)
    assert find_workloads_with_same_name(snapshot) == {("shop", WorkloadRef("Cluster", "db"))}
    eligibility = Eligibility(snapshot, make_table(), {}, Policy(mode=Mode.FULL), NOW)
    assert {eligibility.explain_skip_at_admission(pod) for pod in snapshot.pods} == {ReasonCode.AMBIGUOUS_WORKLOAD}
