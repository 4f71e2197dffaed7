"""Pods that would lose their work are told by who created them, where their restart policy does not tell it."""

import pytest

from cruise.decisions.guidance.evictability import Evictability
from cruise.domain.annotations import Guidance
from cruise.domain.details import Detail
from cruise.domain.policy import EvictionRanking, Mode
from tests.builders import make_pod, make_snapshot


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
    assert rules.why_kept(pod, Guidance(Mode.FULL)) == Detail.JOB
    # Whoever states low has said that the work may be lost.
    assert rules.why_kept(pod, Guidance(Mode.FULL, ranking=EvictionRanking.LOW)) is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "CloneSet", "Rollout", "KafkaConnect", "StrimziPodSet"])
def test_pods_of_services_may_be_evicted(kind):
    pod = make_pod(workload=f"{kind}/web", owner_kind=kind, owner_name="web")
    assert Evictability(make_snapshot([pod])).why_kept(pod, Guidance(Mode.FULL)) is None
