"""The API server's rejections, with their causes."""

from dataclasses import replace
from typing import Any

import pytest

from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.pod_resources import get_qos_class
from cruise.errors import RefusedError
from cruise.simulation.cluster.api_server import (
    check_creation,
    check_resize,
    count_spec_requests,
    replace_spec_resources_checked,
)
from tests.builders import make_pod_level
from tests.simulation.scenes import amounts, container, node, resize, resources

INVALID, FORBIDDEN = "FieldValueInvalid", "FieldValueForbidden"
LIMITED = container(500, 512, amounts(1000, 1024))
OPEN = container(500, 512)
GUARANTEED = container(500, 512, amounts(500, 512))


def running(*containers: Container, **fields: Any) -> Pod:
    one = replace(Pod("shop", "p", "u", containers, node="n1"), **fields)
    return replace(one, qos=get_qos_class(one))


def rejection(pod: Pod, wanted: Pod, version: tuple[int, int] = (1, 34), **fields: Any) -> RefusedError | None:
    try:
        check_resize(pod, wanted, node(kubelet_version=fields.pop("kubelet", version), **fields), (), version)
    except RefusedError as refused:
        return refused
    return None


def wanted(pod: Pod, name: str = "app", **changes: Any) -> Pod:
    return replace_spec_resources_checked(pod, resize(pod, name=name, **changes).containers)


@pytest.mark.parametrize(
    ("pod", "changes", "cause", "message"),
    [
        (running(LIMITED), {"requests": amounts(1001)}, INVALID, "less than or equal to cpu limit of 1000"),
        (running(LIMITED), {"requests": amounts(None, 1025)}, INVALID, "less than or equal to memory limit"),
        (running(LIMITED), {"limits": amounts(400)}, INVALID, "less than or equal to cpu limit of 400"),
        (running(LIMITED), {"requests": amounts(-1)}, INVALID, "greater than or equal to 0"),
        (running(LIMITED), {"requests": amounts(1000, 1024)}, INVALID, "QOS Class may not change"),
        (running(GUARANTEED), {"requests": amounts(400)}, INVALID, "QOS Class may not change"),
        (running(container(None, None)), {"requests": amounts(100)}, INVALID, "QOS Class may not change"),
        (running(LIMITED, is_mirror_pod=True), {}, FORBIDDEN, "static pods"),
        (running(LIMITED, runs_on_windows=True), {}, FORBIDDEN, "windows pods"),
        (running(LIMITED, pod_level=make_pod_level(amounts(900))), {}, FORBIDDEN, "pods with pod-level resources"),
    ],
)
def test_refusals(pod: Pod, changes: dict[str, Any], cause: str, message: str) -> None:
    refused = rejection(pod, wanted(pod, **changes))
    assert refused is not None
    assert refused.cause == cause
    assert message in str(refused)
    assert 'Pod "p" is invalid' in str(refused)


@pytest.mark.parametrize(
    ("pod", "changes"),
    [
        (running(LIMITED), {}),
        (running(LIMITED), {"requests": amounts(100, 100), "limits": amounts(4000, 600)}),
        (running(OPEN), {"limits": amounts(1000, 1024)}),
        (running(GUARANTEED), {"requests": amounts(400, 400), "limits": amounts(400, 400)}),
    ],
)
def test_accepted(pod: Pod, changes: dict[str, Any]) -> None:
    assert rejection(pod, wanted(pod, **changes)) is None


def test_none_does_not_change_a_value() -> None:
    pod = running(LIMITED, container(100, 100, name="other"))
    changed = wanted(pod, requests=amounts(300), limits=amounts(None, 2048))
    assert changed.containers[0].requests == amounts(300, 512)
    assert changed.containers[0].limits == amounts(1000, 2048)
    assert changed.containers[1] == pod.containers[1]


def test_unknown_container_is_refused() -> None:
    pod = running(LIMITED)
    with pytest.raises(RefusedError, match="may not be added") as refused:
        wanted(pod, name="nobody", requests=amounts(100))
    assert refused.value.cause == FORBIDDEN


@pytest.mark.parametrize("limits", [amounts(None, 1000), amounts(1000, 1023)])
def test_memory_limit_may_fall_from_1_34_on(limits: Any) -> None:
    pod = running(LIMITED)
    old = rejection(pod, wanted(pod, limits=limits), (1, 33))
    assert old is not None
    assert old.cause == FORBIDDEN
    assert rejection(pod, wanted(pod, limits=limits), (1, 34)) is None
    # What counts is the node's kubelet.
    assert rejection(pod, wanted(pod, limits=limits), (1, 34), kubelet=(1, 33)) is not None
    restarting = running(replace(LIMITED, memory_resize_restarts=True))
    assert rejection(restarting, wanted(restarting, limits=limits), (1, 33)) is None


def test_memory_limit_may_be_added_from_1_34_on() -> None:
    pod = running(OPEN)
    assert rejection(pod, wanted(pod, limits=amounts(None, 4096)), (1, 33)) is not None
    assert rejection(pod, wanted(pod, limits=amounts(None, 4096)), (1, 34)) is None


def test_old_kubelets_resize_nothing() -> None:
    pod = running(LIMITED)
    refused = rejection(pod, wanted(pod, requests=amounts(400)), kubelet=(1, 32))
    assert refused is not None
    assert "without support for resize" in str(refused)


def test_init_containers_are_immutable_but_sidecars_are_not() -> None:
    pod = running(
        container(100, 100, name="init", role=ContainerRole.INIT),
        container(100, 100, name="proxy", role=ContainerRole.SIDECAR),
        LIMITED,
    )
    assert rejection(pod, wanted(pod, "proxy", requests=amounts(50))) is None
    assert rejection(pod, wanted(pod, "init", requests=amounts(50))) is not None
    assert rejection(pod, wanted(pod, "init", requests=amounts(50)), (1, 36)) is None


def test_node_capacity_is_checked_from_1_36_on() -> None:
    pod = running(OPEN)
    too_much = wanted(pod, requests=amounts(None, 8193))
    assert rejection(pod, too_much, (1, 35)) is None
    refused = rejection(pod, too_much, (1, 36))
    assert refused is not None
    assert refused.cause == "NodeCapacity"
    assert rejection(pod, wanted(pod, requests=amounts(None, 8192)), (1, 36)) is None


def test_limit_range_holds_at_creation_and_at_a_resize() -> None:
    ranges = (LimitRangeItem(is_for_pod=False, maximum=amounts(800, None)),)
    pod = running(container(500, 512, amounts(700, 1024)))
    check_creation(pod, ranges)
    with pytest.raises(RefusedError, match="maximum cpu usage per Container is 800, but limit is 900") as refused:
        check_resize(pod, wanted(pod, limits=amounts(900)), node(), ranges, (1, 34))
    assert refused.value.cause == "LimitRange"
    with pytest.raises(RefusedError, match="No limit is specified"):
        check_creation(running(OPEN), ranges)


def test_creation_needs_requests_within_limits() -> None:
    with pytest.raises(RefusedError, match="less than or equal to memory limit"):
        check_creation(running(container(100, 600, amounts(None, 512))), ())


def test_stated_requests_ignore_what_the_kubelet_reports() -> None:
    pod = running(replace(OPEN, allocated=amounts(900, 900), actual=amounts(900, 900)))
    assert count_spec_requests(pod) == resources(500, 512)
