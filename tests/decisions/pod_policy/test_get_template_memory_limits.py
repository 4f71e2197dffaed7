"""Memory limits of a pod template: from the workload, else from admission's record."""

from dataclasses import replace

import pytest

from cruise.decisions.pod_policy.container_bounds import get_template_memory_limits
from cruise.domain.annotations import ORIGINAL_RESOURCES
from cruise.domain.resources import MEBIBYTE
from cruise.kube_json.object_errors import convert_to_struct
from cruise.kube_json.objects.workloads import decode_workload
from cruise.kube_json.wire.object_json import CronJobObject, DeploymentObject
from tests.builders import make_container_json, make_pod, make_snapshot, make_workload, make_workload_json

FORGED = '{"app":{"limits":{"memory":"64Gi"}}}'


def test_the_workloads_template_takes_precedence_over_the_annotation():
    workload = replace(make_workload(), memory_limits={"app": 256 * MEBIBYTE})
    pod = make_pod(annotations={ORIGINAL_RESOURCES: FORGED})
    assert get_template_memory_limits(pod, make_snapshot([pod], workloads=[workload])) == {"app": 256 * MEBIBYTE}


@pytest.mark.parametrize(
    ("noted", "limits"),
    [
        ('{"app":{"limits":{"memory":"1Gi"}}}', {"app": 1024 * MEBIBYTE}),
        ('{"app":{"requests":{"cpu":"1"}}}', {}),
        ("{}", None),
        ("[]", None),
        ("not JSON", None),
        ('{"app":{"limits":{"memory":"many"}}}', None),
        (None, None),
    ],
)
def test_the_annotation_is_used_for_unread_kinds(noted, limits):
    pod = make_pod(workload="Rollout/web", annotations={} if noted is None else {ORIGINAL_RESOURCES: noted})
    assert get_template_memory_limits(pod, make_snapshot([pod], workloads=[])) == limits


def test_templates_are_read_from_workloads():
    limited, free = make_container_json(memory_limit="1Gi"), make_container_json("free")
    template = {"spec": {"containers": [limited, free], "initContainers": [make_container_json("mesh")]}}
    deployment = convert_to_struct(make_workload_json("Deployment", template=template), DeploymentObject)
    assert decode_workload(deployment).memory_limits == {"app": 1024 * MEBIBYTE}
    job = convert_to_struct(make_workload_json("CronJob", jobTemplate={"spec": {"template": template}}), CronJobObject)
    assert decode_workload(job).memory_limits == {"app": 1024 * MEBIBYTE}
    unseen = convert_to_struct(make_workload_json("Deployment"), DeploymentObject)
    assert decode_workload(unseen).memory_limits is None
