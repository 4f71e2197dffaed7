"""Pods that would lose their work are recognized by their controller, if not by their restart policy."""

import pytest

from cruise.decisions.pod_policy.evictability import Evictability
from cruise.domain.annotations import EffectivePolicy
from cruise.domain.policy import EvictionRanking, Mode
from cruise.domain.reasons import ReasonDetail
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
    assert rules.explain_not_evictable(pod, EffectivePolicy(Mode.FULL)) == ReasonDetail.JOB
    # The ranking low states that the work may be lost.
    assert rules.explain_not_evictable(pod, EffectivePolicy(Mode.FULL, ranking=EvictionRanking.LOW)) is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "StatefulSet", "CloneSet", "Rollout", "KafkaConnect", "StrimziPodSet"])
def test_pods_of_services_may_be_evicted(kind):
    pod = make_pod(workload=f"{kind}/web", owner_kind=kind, owner_name="web")
    assert Evictability(make_snapshot([pod])).explain_not_evictable(pod, EffectivePolicy(Mode.FULL)) is None
