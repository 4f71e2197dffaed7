"""QoS classes of the examples in the Kubernetes documentation."""

from dataclasses import replace

import pytest

from cruise.domain.cluster import Container, ContainerRole, Pod, QosClass
from cruise.domain.pod_resources import get_qos_class
from cruise.domain.resources import NOTHING_STATED, StatedResources
from tests.builders import make_pod_level

FULL = StatedResources(700, 200)


def pod(*stated: tuple[StatedResources, StatedResources]) -> Pod:
    return Pod("a", "p", "u", tuple(Container(f"c{i}", requests=r, limits=m) for i, (r, m) in enumerate(stated)))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ([(FULL, FULL)], QosClass.GUARANTEED),
        ([(NOTHING_STATED, FULL)], QosClass.GUARANTEED),  # requests default to the limits
        ([(FULL, FULL), (FULL, FULL)], QosClass.GUARANTEED),
        ([(FULL, FULL), (FULL, NOTHING_STATED)], QosClass.BURSTABLE),
        ([(StatedResources(None, 100), StatedResources(None, 200))], QosClass.BURSTABLE),
        ([(StatedResources(600, 200), FULL)], QosClass.BURSTABLE),
        ([(NOTHING_STATED, NOTHING_STATED), (StatedResources(None, 100), NOTHING_STATED)], QosClass.BURSTABLE),
        ([(NOTHING_STATED, NOTHING_STATED)], QosClass.BEST_EFFORT),
        ([(StatedResources(0, 0), NOTHING_STATED)], QosClass.BEST_EFFORT),
        ([(NOTHING_STATED, StatedResources(0, 200))], QosClass.BURSTABLE),
    ],
)
def test_class_of_what_is_stated(stated: list[tuple[StatedResources, StatedResources]], expected: QosClass) -> None:
    assert get_qos_class(pod(*stated)) is expected


def test_init_containers_and_sidecars_count() -> None:
    main = Container("app", requests=FULL, limits=FULL)
    for role in (ContainerRole.INIT, ContainerRole.SIDECAR):
        beside = Container("beside", role=role)
        assert get_qos_class(Pod("a", "p", "u", (beside, main))) is QosClass.BURSTABLE


def test_pod_level_resources_apply_to_the_pod() -> None:
    one = replace(pod((NOTHING_STATED, NOTHING_STATED)), pod_level=make_pod_level(FULL, FULL))
    assert get_qos_class(one) is QosClass.GUARANTEED
    assert get_qos_class(replace(one, pod_level=make_pod_level(StatedResources(100, 200)))) is QosClass.BURSTABLE
