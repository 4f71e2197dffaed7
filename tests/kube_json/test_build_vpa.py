"""Published VerticalPodAutoscalers name their workloads with the right API group."""

import pytest

from cruise.domain.records import WorkloadRecommendation
from cruise.kube_json.patches import build_vpa
from tests.builders import make_ref


@pytest.mark.parametrize(
    ("workload", "api_version"),
    [
        ("Deployment/web", "apps/v1"),
        ("CronJob/web", "batch/v1"),
        ("CloneSet/web", "apps.kruise.io/v1alpha1"),
        ("Rollout/web", "argoproj.io/v1alpha1"),
    ],
)
def test_owner_and_target_are_of_the_workloads_api_group(workload, api_version):
    made = build_vpa(WorkloadRecommendation("shop", make_ref(workload), "u", (), True, api_version), "Off")
    target = {"apiVersion": api_version, "kind": workload.partition("/")[0], "name": "web"}
    assert made["spec"]["targetRef"] == target
    assert made["metadata"]["ownerReferences"] == [{**target, "uid": "u"}]
