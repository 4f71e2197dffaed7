"""Pods with pod-level resources under HPAs on utilization: bounded like a pod whose one container states them."""

from dataclasses import replace

import pytest

from cruise.decisions.admission.admission import MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ReasonCode
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import POD_LEVEL, Pod
from cruise.domain.policy import Mode, Policy
from tests.builders import (
    NOW,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_pod_level,
    make_resources,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.decisions.sizing.test_utilisation import AT_MINIMUM, BETWEEN, CPU, hpa

FULL = Policy(mode=Mode.FULL, rules=TRACKING)
AT_MAXIMUM = replace(
    AT_MINIMUM, metrics=(UtilizationMetric(CPU, "", 50, 90),), max_replicas=4, current_replicas=4, desired_replicas=4
)
NODE = make_node(cpu=64_000, memory_mib=65_536, kubelet_version=(1, 36))


def whole_pod(name: str = "web-1", cpu: int = 1000, own: int | None = None, **more) -> Pod:
    """A pod that states CPU and 2 GiB for its containers, which state `own` CPU."""
    requests = make_amounts(cpu, 2048)
    containers = [make_container(one, own, None) for one in ("app", "proxy")]
    level = make_pod_level(requests, allocated=requests, actual=requests)
    return make_pod(name, containers=containers, pod_level=level, **more)


def plain_pod(name: str = "web-1", cpu: int = 1000, **more) -> Pod:
    return make_pod(name, containers=(make_container("app", cpu, 2048),), **more)


def rows_of(*pods: Pod, base: int = 15, largest: int = 45):
    """The use of whole pods by two containers, and as much of plain ones by one."""
    found = []
    for pod in (*pods, replace(pods[0], name="")):
        names = [one.name for one in pod.containers]
        factor = 2 // len(names)
        figures = {"cpu_base": base * factor, "cpu_peak": base * factor, "cpu_7d_max": largest * factor}
        memory = {"memory_base_mib": 50 * factor, "memory_peak_mib": 60 * factor}
        found += [make_statistic_for(pod, name, **figures, **memory) for name in names]
    return found


def plan_of(*pods: Pod, scaling: UtilizationScaling = AT_MINIMUM, **use) -> NodePlan:
    workload = make_workload(replicas=scaling.current_replicas, requests={"app": make_amounts(1000, 2048)})
    if pods[0].pod_level is not None:
        workload = replace(workload, requests={POD_LEVEL: make_amounts(1000, 2048)})
    snapshot = make_snapshot(pods, nodes=[NODE], workloads=[workload], autoscalers=[hpa(scaling)])
    [plan] = decide_node_plans(snapshot, make_table(*rows_of(*pods, **use)), FULL, NOW)
    return plan


def cpu_of(plan: NodePlan) -> dict[str, int]:
    return {one.pod: one.containers[0].requests.resources.cpu_millicores for one in plan.resize}


@pytest.mark.parametrize("scaling", [AT_MINIMUM, BETWEEN, AT_MAXIMUM], ids=["minimum", "between", "maximum"])
@pytest.mark.parametrize("use", [(15, 45), (300, 460), (700, 800)], ids=["idle", "near the target", "busy"])
def test_they_change_as_plain_pods_do(scaling, use):
    base, largest = use
    results = [
        cpu_of(plan_of(make("web-1"), make("web-2"), scaling=scaling, base=base, largest=largest))
        for make in (whole_pod, plain_pod)
    ]
    whole, plain = ({pod: cpu for pod, cpu in one.items() if cpu != 1000} for one in results)
    assert whole == plain
    if scaling is AT_MINIMUM and base == 15:
        # 90m together, at 45% of the request.
        assert whole == {"web-1": 200, "web-2": 200}


def test_container_requests_within_the_pods_own_remain_within():
    [first, *_] = plan_of(whole_pod(own=400), whole_pod("web-2", own=400)).resize
    whole, *own = first.containers
    assert whole.requests.resources.cpu_millicores == 200
    assert sum(one.requests.resources.cpu_millicores for one in own) <= 200


def test_one_pod_that_relies_on_the_others_holds_all():
    assert cpu_of(plan_of(whole_pod(), whole_pod("web-2", cpu=100)))["web-1"] == 1000


def test_other_denominators_than_the_pods_requests_are_not_touched():
    own_container = replace(AT_MINIMUM, metrics=(UtilizationMetric(CPU, "app", 50, 50),))
    for plan in (
        plan_of(whole_pod(own=400), scaling=own_container),
        plan_of(whole_pod(overhead=make_resources(100, 64))),
    ):
        assert [(one.pod, one.reason) for one in plan.skipped] == [("web-1", ReasonCode.MANAGED_BY_HPA)]


@pytest.mark.parametrize("scaling", [AT_MINIMUM, replace(BETWEEN, metrics=(UtilizationMetric(CPU, "", 50, 50, 600),))])
def test_a_new_one_requests_what_a_new_plain_one_does(scaling):
    sizes = []
    for make in (whole_pod, plain_pod):
        pods = [make("web-1"), make("web-2")]
        table = make_table(*rows_of(*pods))
        snapshot = make_snapshot(
            pods, nodes=[NODE], workloads=[make_workload(replicas=scaling.current_replicas)], autoscalers=[hpa(scaling)]
        )
        eligibility = Eligibility(snapshot, table, {}, FULL, NOW)
        created = make("", node=None)
        decision = decide_admission(created, eligibility, table, NodeIndex([NODE]), (), FULL)
        assert isinstance(decision, MutatePod)
        sizes.append(decision.containers[0].requests.resources.cpu_millicores)
    assert sizes[0] == sizes[1] < 1000
