"""LimitRanges: bounds of containers and pods, and the defaults that they imply."""

from typing import Any

import pytest

from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole, Pod
from cruise.domain.resources import StatedResources
from cruise.simulation.cluster.api_server import apply_limit_range_defaults, find_violated_bound
from tests.simulation.scenes import amounts, container


def pod(*stated: tuple[StatedResources, StatedResources], role: ContainerRole = ContainerRole.MAIN) -> Pod:
    rows = [container(r.cpu_millicores, None, m, f"c{i}") for i, (r, m) in enumerate(stated)]
    return Pod("shop", "p", "u", tuple(rows))


def item(of_pod: bool = False, **bounds: Any) -> LimitRangeItem:
    return LimitRangeItem(is_for_pod=of_pod, **bounds)


@pytest.mark.parametrize(
    ("request_cpu", "limit_cpu", "bounds", "problem"),
    [
        (200, 300, {"minimum": StatedResources(200), "maximum": StatedResources(300), "max_cpu_ratio": 1.5}, None),
        (199, 300, {"minimum": StatedResources(200)}, "minimum cpu usage per Container is 200, but request is 199"),
        (
            None,
            None,
            {"minimum": StatedResources(200)},
            "minimum cpu usage per Container is 200.  No request is specified",
        ),
        (200, 301, {"maximum": StatedResources(300)}, "maximum cpu usage per Container is 300, but limit is 301"),
        (
            200,
            None,
            {"maximum": StatedResources(300)},
            "maximum cpu usage per Container is 300.  No limit is specified",
        ),
        (200, 401, {"max_cpu_ratio": 2.0}, "cpu max limit to request ratio per Container is 2, but provided ratio is"),
        (None, 400, {"max_cpu_ratio": 2.0}, "but no request is specified or request is 0"),
        (200, None, {"max_cpu_ratio": 2.0}, "but no limit is specified or limit is 0"),
    ],
)
def test_bounds_of_a_container(
    request_cpu: int | None, limit_cpu: int | None, bounds: dict[str, Any], problem: str | None
) -> None:
    found = find_violated_bound(pod((StatedResources(request_cpu), StatedResources(limit_cpu))), [item(**bounds)])
    assert (found is None) if problem is None else (found is not None and problem in found)


def test_bounds_of_a_pod_are_about_its_sums() -> None:
    two = pod((StatedResources(200), StatedResources(400)), (StatedResources(200), StatedResources(400)))
    assert find_violated_bound(two, [item(of_pod=True, maximum=StatedResources(800))]) is None
    found = find_violated_bound(two, [item(of_pod=True, maximum=StatedResources(799))])
    assert found == "maximum cpu usage per Pod is 799, but limit is 800"


def test_init_containers_are_a_floor_of_the_pods_sums() -> None:
    one = Pod(
        "shop",
        "p",
        "u",
        (
            container(900, 100, amounts(900, 100), "init", ContainerRole.INIT),
            container(500, 100, amounts(500, 100)),
        ),
    )
    assert find_violated_bound(one, [item(of_pod=True, maximum=StatedResources(900))]) is None
    assert find_violated_bound(one, [item(of_pod=True, maximum=StatedResources(899))]) is not None


def test_maximum_and_minimum_are_defaults_for_missing_resources() -> None:
    one = apply_limit_range_defaults(
        pod((StatedResources(None), StatedResources(None))), [item(maximum=amounts(800, 512))]
    )
    assert one.containers[0].limits == amounts(800, 512)
    assert one.containers[0].requests == amounts(800, 512)
    two = apply_limit_range_defaults(
        pod((StatedResources(None), StatedResources(None))), [item(minimum=StatedResources(100))]
    )
    assert two.containers[0].requests == StatedResources(100)
    assert two.containers[0].limits == StatedResources()
    stated = pod((StatedResources(200), StatedResources(300)))
    assert apply_limit_range_defaults(stated, [item(of_pod=True, maximum=StatedResources(800))]) == stated
