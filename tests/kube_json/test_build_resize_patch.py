import pytest

from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ContainerTarget, ReasonCode, ResizePod
from cruise.domain.cluster import ContainerRole
from cruise.domain.policy import MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import NO_RESOURCES, StatedResources
from cruise.kube_json.patches import build_resize_patch
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic_for,
    make_table,
)


def target(name="app", requests=None, limits=None, role=ContainerRole.MAIN) -> ContainerTarget:
    return ContainerTarget(name, role, requests or make_amounts(130, 257), limits or make_amounts(None, 800))


def patch_of(*targets: ContainerTarget, uid="u-1") -> dict[str, object]:
    return build_resize_patch(
        ResizePod("a", "q", uid, "n1", make_ref("Deployment/web"), targets, NO_RESOURCES, ReasonCode.RIGHTSIZED)
    )


def test_a_container_has_its_requests_and_limits_as_kubernetes_writes_them():
    assert patch_of(target()) == {
        "metadata": {"uid": "u-1"},
        "spec": {
            "containers": [
                {
                    "name": "app",
                    "resources": {"requests": {"cpu": "130m", "memory": "257Mi"}, "limits": {"memory": "800Mi"}},
                }
            ]
        },
    }


def test_one_patch_holds_all_containers_and_sidecars_are_under_init_containers():
    patch = patch_of(target("proxy", role=ContainerRole.SIDECAR), target("app"), target("logs"))
    spec = patch["spec"]
    assert isinstance(spec, dict)
    assert {key: [one["name"] for one in containers] for key, containers in spec.items()} == {
        "containers": ["app", "logs"],
        "initContainers": ["proxy"],
    }


def test_a_pod_whose_uid_is_unknown_is_patched_without_preconditions():
    assert "metadata" not in patch_of(target(), uid="")


@pytest.mark.parametrize(
    ("requests", "limits", "resources"),
    [
        (
            make_amounts(2000, 1024),
            make_amounts(4000, 2048),
            {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}},
        ),
        (StatedResources(10, 123456789), StatedResources(), {"requests": {"cpu": "10m", "memory": "123456789"}}),
        (StatedResources(100, None), StatedResources(), {"requests": {"cpu": "100m"}}),
    ],
)
def test_what_is_absent_is_left_out(requests, limits, resources):
    one = ContainerTarget("app", ContainerRole.MAIN, requests, limits)
    assert patch_of(one)["spec"] == {"containers": [{"name": "app", "resources": resources}]}


def test_the_patch_of_a_plan_says_all_that_the_plan_decided():
    pod = make_pod(
        containers=[make_container("proxy", cpu=900, role=ContainerRole.SIDECAR), make_container(cpu_limit=500)]
    )
    table = make_table(make_statistic_for(pod), make_statistic_for(pod, "proxy"))
    policy = Policy(mode=Mode.FULL, memory_limits=MemoryLimitPolicy.ALWAYS)
    [plan] = decide_node_plans(make_snapshot([pod]), table, policy, NOW)
    [resize] = plan.resize
    # Headrooms of 150 each, shared: 50 + 75, so the node needs 250 and has 1000. The other CPU request may stay at 100,
    # and the proxy is cut to the rest of what the node needs. Memory: 64 + 18, and a tenth of that.
    limits = {"memory": "200Mi"}
    app = {"requests": {"cpu": "100m", "memory": "91Mi"}, "limits": limits | {"cpu": "4"}}
    proxy = {"requests": {"cpu": "150m", "memory": "91Mi"}, "limits": limits}
    assert build_resize_patch(resize) == {
        "metadata": {"uid": pod.uid},
        "spec": {
            "containers": [{"name": "app", "resources": app}],
            "initContainers": [{"name": "proxy", "resources": proxy}],
        },
    }
