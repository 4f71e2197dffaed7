"""Pods that would lose their work are recognized by their controller, if not by their restart policy."""

from dataclasses import replace

import pytest

from cruise.decisions.pod_policy.evictability import Evictability
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.cluster import QosClass
from cruise.domain.policy import SEED_RULES, EvictionRanking, Mode
from cruise.domain.reasons import ReasonDetailCode
from tests.builders import make_pod, make_snapshot, make_workload


@pytest.mark.parametrize(
    "kind",
    [
        "Job",
        "Job.batch.volcano.sh",
        "RayCluster",
        "RayJob",
        "MPIJob",
        "PyTorchJob",
        "TFJob",
        "SparkApplication",
        "Pod",
        "DaskWorkerGroup",
        "Workflow",
        "TaskRun",
    ],
)
def test_workers_that_are_always_restarted_are_not_evicted_by_default(kind):
    pod = make_pod(workload=f"{kind}/train", owner_kind=kind, owner_name="train", restart_policy="Always")
    rules = Evictability(make_snapshot([pod]))
    assert rules.explain_not_evictable(pod, EffectivePolicy(Mode.FULL)) == ReasonDetailCode.JOB
    # The ranking low states that the work may be lost.
    assert rules.explain_not_evictable(pod, EffectivePolicy(Mode.FULL, ranking=EvictionRanking.LOW)) is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "CloneSet", "Rollout", "KafkaConnect", "StrimziPodSet"])
def test_pods_of_services_may_be_evicted(kind):
    pod = make_pod(workload=f"{kind}/web", owner_kind=kind, owner_name="web")
    assert Evictability(make_snapshot([pod])).explain_not_evictable(pod, EffectivePolicy(Mode.FULL)) is None


@pytest.mark.parametrize(
    ("label", "on_delete", "detail"),
    [
        ("db-1", "db-2", ReasonDetailCode.UPDATES_ON_DELETE.create("db-2")),
        ("db-2", "db-2", None),
        ("db-1", "", None),
        (None, "db-2", None),
    ],
)
def test_an_eviction_updates_no_pod_that_its_owner_updates_by_deleting_it(label, on_delete, detail):
    labels = {} if label is None else {"controller-revision-hash": label}
    pod = make_pod(workload="StatefulSet/db", owner_kind="StatefulSet", owner_name="db", labels=labels)
    workload = make_workload("StatefulSet/db", revision_on_delete=on_delete)
    rules = Evictability(make_snapshot([pod], workloads=[workload]))
    assert rules.explain_not_evictable(pod, EffectivePolicy(Mode.FULL)) == detail


@pytest.mark.parametrize(
    ("fields", "detail"),
    [
        ({"extended_requests": (("nvidia.com/gpu", 1),)}, ReasonDetailCode.DEVICES),
        ({"qos": QosClass.GUARANTEED}, ReasonDetailCode.GUARANTEED),
        ({"extended_requests": (("hugepages-2Mi", 1),)}, None),
    ],
)
def test_pods_with_devices_and_guaranteed_pods_are_evicted_for_sizing_only_with_a_ranking(fields, detail):
    pod = make_pod(**fields)
    rules, policy = Evictability(make_snapshot([pod])), EffectivePolicy(Mode.FULL)
    assert rules.explain_not_evictable_for_sizing(pod, policy) == detail
    assert rules.explain_not_evictable_for_sizing(pod, replace(policy, ranking=EvictionRanking.HIGH)) is None
    killed = None if detail == ReasonDetailCode.GUARANTEED else detail
    assert rules.explain_not_evictable_for_sizing(pod, policy, killed=True) == killed
    # Packing plans may move both, and the first rules know neither.
    assert rules.explain_not_evictable(pod, policy) is None
    assert Evictability(make_snapshot([pod]), SEED_RULES).explain_not_evictable_for_sizing(pod, policy) is None
