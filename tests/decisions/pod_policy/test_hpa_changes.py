"""A resize that was decided under an HPA is not written once that HPA allows less."""

from dataclasses import replace

import pytest

from cruise.decisions.pod_policy.hpa_bounds import HpaChangesSinceDecision
from cruise.domain.actions import ReasonCode, ResizePod
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import HorizontalPodAutoscaler, Pod
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.resources import NO_RESOURCES, ResourceName
from tests.builders import make_amounts, make_container, make_pod, make_ref, make_snapshot, make_workload

CPU, MEMORY = ResourceName
SCALING = UtilizationScaling((UtilizationMetric(CPU, "", 50, 50),), 2, 6, 2, 2, True)
POD = make_pod("web-1", containers=(make_container("app", 1000, 1024),))


def hpa(scaling: UtilizationScaling | None = SCALING, name: str = "web") -> HorizontalPodAutoscaler:
    return HorizontalPodAutoscaler("shop", name, make_ref("Deployment/web"), frozenset({CPU}), "", scaling)


def resize(pod: Pod, cpu: int = 200, memory_mib: int = 512) -> ResizePod:
    [target] = get_spec_targets(pod)
    return ResizePod(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        node=pod.node,
        workload=pod.workload,
        containers=(replace(target, requests=make_amounts(cpu, memory_mib)),),
        growth=NO_RESOURCES,
        reason=ReasonCode.RIGHTSIZED,
    )


def forbids(
    *now: HorizontalPodAutoscaler, before: tuple[HorizontalPodAutoscaler, ...] = (hpa(),), **sizes: int
) -> bool:
    workload = make_workload("Deployment/web", replicas=2)
    snapshot = make_snapshot([POD], workloads=[workload], autoscalers=before)
    return HpaChangesSinceDecision(snapshot).forbid(resize(POD, **sizes), POD, now)


CHANGED = {
    "pods are being added": replace(SCALING, desired_replicas=3),
    "pods were added": replace(SCALING, current_replicas=3, desired_replicas=3),
    "a smaller target": replace(SCALING, metrics=(UtilizationMetric(CPU, "", 40, 40),)),
    "above the target": replace(SCALING, metrics=(UtilizationMetric(CPU, "", 50, 51),)),
    "another metric of the resource": replace(
        SCALING, metrics=(*SCALING.metrics, UtilizationMetric(CPU, "app", 50, 50))
    ),
    "a larger tolerance": replace(SCALING, tolerance=0.2),
    "another minimum": replace(SCALING, min_replicas=1),
    "no longer active": replace(SCALING, is_active=False),
    "without a status": None,
}


@pytest.mark.parametrize("scaling", CHANGED.values(), ids=list(CHANGED))
def test_a_change_that_allows_less_forbids_the_write(scaling: UtilizationScaling | None):
    assert forbids(hpa(scaling))
    # The other resource does not concern the HPA.
    assert not forbids(hpa(scaling), cpu=1000)


def test_an_hpa_created_or_deleted_since_forbids_the_write():
    assert forbids()
    assert forbids(hpa(), before=())
    assert forbids(hpa(), hpa(name="other"))


@pytest.mark.parametrize(
    "scaling",
    [
        SCALING,
        replace(SCALING, metrics=(UtilizationMetric(CPU, "", 60, 60),)),
        replace(SCALING, max_replicas=9),
    ],
)
def test_a_change_that_allows_as_much_does_not(scaling: UtilizationScaling):
    assert not forbids(hpa(scaling))


def test_growth_at_the_maximum_is_not_written_once_utilisation_fell():
    def at_maximum(percent: int) -> HorizontalPodAutoscaler:
        metric = UtilizationMetric(CPU, "", 50, percent)
        return hpa(replace(SCALING, max_replicas=2, min_replicas=1, metrics=(metric,)))

    assert forbids(at_maximum(70), before=(at_maximum(80),), cpu=1500)
    assert not forbids(at_maximum(90), before=(at_maximum(80),), cpu=1500)


def test_sizes_that_no_hpa_bounded_are_not_compared():
    between = replace(SCALING, current_replicas=3, desired_replicas=3)
    assert not forbids(hpa(replace(between, current_replicas=4, desired_replicas=4)), before=(hpa(between),))
