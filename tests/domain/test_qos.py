"""The classes of the Kubernetes manual's examples."""

from dataclasses import replace

import pytest

from cruise.domain.cluster import Container, ContainerRole, Pod, QosClass
from cruise.domain.qos import qos_class
from cruise.domain.resources import NO_AMOUNTS, Amounts

FULL = Amounts(700, 200)


def pod(*stated: tuple[Amounts, Amounts]) -> Pod:
    return Pod("a", "p", "u", tuple(Container(f"c{i}", requests=r, limits=m) for i, (r, m) in enumerate(stated)))


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ([(FULL, FULL)], QosClass.GUARANTEED),
        ([(NO_AMOUNTS, FULL)], QosClass.GUARANTEED),  # requests default to the limits
        ([(FULL, FULL), (FULL, FULL)], QosClass.GUARANTEED),
        ([(FULL, FULL), (FULL, NO_AMOUNTS)], QosClass.BURSTABLE),
        ([(Amounts(None, 100), Amounts(None, 200))], QosClass.BURSTABLE),
        ([(Amounts(600, 200), FULL)], QosClass.BURSTABLE),
        ([(NO_AMOUNTS, NO_AMOUNTS), (Amounts(None, 100), NO_AMOUNTS)], QosClass.BURSTABLE),
        ([(NO_AMOUNTS, NO_AMOUNTS)], QosClass.BEST_EFFORT),
        ([(Amounts(0, 0), NO_AMOUNTS)], QosClass.BEST_EFFORT),
        ([(NO_AMOUNTS, Amounts(0, 200))], QosClass.BURSTABLE),
    ],
)
def test_class_of_what_is_stated(stated: list[tuple[Amounts, Amounts]], expected: QosClass) -> None:
    assert qos_class(pod(*stated)) is expected


def test_init_containers_and_sidecars_count() -> None:
    main = Container("app", requests=FULL, limits=FULL)
    for role in (ContainerRole.INIT, ContainerRole.SIDECAR):
        beside = Container("beside", role=role)
        assert qos_class(Pod("a", "p", "u", (beside, main))) is QosClass.BURSTABLE


def test_pod_level_resources_speak_for_the_pod() -> None:
    one = replace(pod((NO_AMOUNTS, NO_AMOUNTS)), pod_requests=FULL, pod_limits=FULL)
    assert qos_class(one) is QosClass.GUARANTEED
    assert qos_class(replace(one, pod_requests=Amounts(100, 200))) is QosClass.BURSTABLE
