"""From direct owner to workload."""

import pytest

from cruise.domain.cluster import WorkloadRef
from cruise.kube_json.objects.owners import NO_OWNERS, OwnerIndex, find_controller, read_pod_identity
from cruise.kube_json.wire.pod_json import OwnerReference

DEPLOYMENT = WorkloadRef("Deployment", "web")


def test_a_replica_set_leads_to_its_controller_of_any_kind():
    owners = OwnerIndex({("shop", "ReplicaSet", "web-1"): WorkloadRef("Rollout", "web")})
    assert owners.find_workload("shop", "ReplicaSet", "web-1", {}) == WorkloadRef("Rollout", "web")


def test_a_replica_set_without_controller_is_the_workload():
    owners = OwnerIndex({("shop", "ReplicaSet", "web-1"): None})
    assert owners.find_workload("shop", "ReplicaSet", "web-1", {"pod-template-hash": "1"}) == WorkloadRef(
        "ReplicaSet", "web-1"
    )


def test_an_unseen_replica_set_is_read_off_the_template_hash():
    labels = {"pod-template-hash": "7d9f8b6c5d"}
    assert NO_OWNERS.find_workload("shop", "ReplicaSet", "web-7d9f8b6c5d", labels) == DEPLOYMENT
    rollout = {"rollouts-pod-template-hash": "7d9f8b6c5d"}
    assert NO_OWNERS.find_workload("shop", "ReplicaSet", "web-7d9f8b6c5d", rollout) == WorkloadRef("Rollout", "web")


def test_an_unseen_replica_set_with_a_foreign_hash_is_unchanged():
    for labels in ({}, {"pod-template-hash": "other"}, {"pod-template-hash": ""}):
        assert NO_OWNERS.find_workload("shop", "ReplicaSet", "web-1", labels) == WorkloadRef("ReplicaSet", "web-1")


def test_the_same_name_in_another_namespace_is_another_replica_set():
    owners = OwnerIndex({("other", "ReplicaSet", "web-1"): DEPLOYMENT})
    assert owners.find_workload("shop", "ReplicaSet", "web-1", {}) == WorkloadRef("ReplicaSet", "web-1")


def test_the_replication_controllers_of_a_deployment_config_are_one_workload():
    labels = {"deploymentconfig": "web", "deployment": "web-3"}
    for name in ("web-3", "web-4"):
        found = NO_OWNERS.find_workload("shop", "ReplicationController", name, labels)
        assert found == WorkloadRef("DeploymentConfig", "web")
    # A label that another client wrote does not name its rollout.
    for name, odd in (("web-3", {}), ("web-3", {"deploymentconfig": "we"}), ("web-x", labels), ("web", labels)):
        found = NO_OWNERS.find_workload("shop", "ReplicationController", name, odd)
        assert found == WorkloadRef("ReplicationController", name)


def test_a_job_leads_to_its_cron_job():
    owners = OwnerIndex({("shop", "Job", "nightly-29"): WorkloadRef("CronJob", "nightly")})
    assert owners.find_workload("shop", "Job", "nightly-29", {}) == WorkloadRef("CronJob", "nightly")
    assert owners.find_workload("shop", "Job", "by-hand", {}) == WorkloadRef("Job", "by-hand")


def test_other_controllers_are_taken_as_they_are():
    assert NO_OWNERS.find_workload("shop", "StatefulSet", "db", {}) == WorkloadRef("StatefulSet", "db")
    assert NO_OWNERS.find_workload("shop", "Workflow", "w", {}) == WorkloadRef("Workflow", "w")


def test_static_and_bare_pods_have_no_workload():
    assert NO_OWNERS.find_workload("kube-system", "Node", "n1", {}) is None
    assert NO_OWNERS.find_workload("shop", None, None, {}) is None


def test_only_the_controller_counts_among_owners():
    references = (OwnerReference("Tenant", "t"), OwnerReference("ReplicaSet", "web-1", controller=True))
    assert find_controller(references) == references[1]
    assert find_controller((OwnerReference("Tenant", "t", controller=False),)) is None
    assert find_controller(None) is None


def test_identity_is_the_ordinal_or_the_node_or_nothing():
    assert read_pod_identity("StatefulSet", "db-11", "n1") == "11"
    assert read_pod_identity("StatefulSet", "db", "n1") == ""
    assert read_pod_identity("DaemonSet", "agent-x2x4z", "n1") == "n1"
    assert read_pod_identity("DaemonSet", "agent-x2x4z", None) == ""
    assert read_pod_identity("ReplicaSet", "web-1", "n1") == ""


@pytest.mark.parametrize("wrong", [{"kind": "Foo\0"}, {"name": "n\0m"}, {"api_version": "\0/v1"}, {"name": "x" * 254}])
def test_an_owner_with_names_that_no_object_has_is_none(wrong):
    """The API server accepts them, and one of them in a statistic would be rejected with all others."""
    names = {"kind": "Foo", "name": "f", "api_version": "x.io/v1"}
    assert find_controller((OwnerReference(controller=True, **names),)) is not None
    assert find_controller((OwnerReference(controller=True, **names | wrong),)) is None
