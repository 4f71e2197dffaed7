from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.revert import Reversion, decide_reverts
from cruise.domain.actions import Reason
from cruise.domain.cluster import Container, LimitRangeItem, Node, Pod, QosClass, ResizePending, ResizeState, Snapshot
from cruise.domain.details import Detail
from cruise.domain.qos import qos_class
from cruise.domain.resources import MEBIBYTE, NO_AMOUNTS, NO_RESOURCES, Amounts
from cruise.domain.sizes import with_sizes
from tests.simulation.scenes import amounts, node, resources


def pod(requests=None, limits=NO_AMOUNTS, name: str = "web-1", **fields) -> Pod:
    container = Container("app", requests=requests or amounts(100, 128), limits=limits, **fields.pop("container", {}))
    return replace(Pod("shop", name, f"uid-{name}", (container,), node="n1"), **fields)


def reverted(one: Pod, requests: Amounts, limits: Amounts = NO_AMOUNTS, on: Node | None = None, **fields) -> Reversion:
    snapshot = Snapshot(nodes=(on or node(),), pods=(one,), **fields)
    [found] = decide_reverts(snapshot, {one.uid: {"app": (requests, limits)}})
    return found


def sizes(found: Reversion) -> tuple[Amounts, Amounts]:
    [target] = found.resize.containers
    return target.requests, target.limits


def test_requests_and_limits_go_back():
    found = reverted(pod(limits=amounts(None, 256)), amounts(500, 512), amounts(1000, 600))
    assert sizes(found) == (amounts(500, 512), amounts(1000, 600))
    assert (found.resize.reason, found.resize.growth, found.held, found.detail) == (
        Reason.REVERTED,
        resources(400, 384),
        None,
        "",
    )


def test_a_limit_that_cruise_added_stays_and_is_told():
    found = reverted(pod(limits=amounts(None, 256)), amounts(100, 512))
    # It must not stay under the request.
    assert sizes(found) == (amounts(100, 512), amounts(None, 512))
    assert found.detail == Detail.MEMORY_LIMIT_STAYS.of("app")


def test_a_request_that_cruise_added_stays_and_is_told():
    found = reverted(pod(), Amounts(50, None))
    assert sizes(found) == (amounts(50, 128), NO_AMOUNTS)
    assert found.detail == Detail.MEMORY_REQUEST_STAYS.of("app")


def test_what_nothing_can_restore_is_told_and_not_tried():
    found = reverted(pod(limits=amounts(None, 256)), amounts(100, 128))
    assert found.held is Reason.CANNOT_RESTORE
    assert found.detail == Detail.MEMORY_LIMIT_STAYS.of("app")


@pytest.mark.parametrize(("kubelet", "limit"), [((1, 33), 1024), ((1, 34), 256), (None, 256)])
def test_old_kubelets_lower_no_memory_limit(kubelet, limit):
    one = pod(amounts(100, 512), amounts(None, 1024))
    found = reverted(one, amounts(100, 128), amounts(None, 256), node(kubelet_version=kubelet))
    assert sizes(found) == (amounts(100, 128), amounts(None, limit))
    assert bool(found.detail) is (limit == 1024)


def test_what_would_restart_a_container_stays():
    one = pod(container={"cpu_resize_restarts": True})
    found = reverted(one, amounts(500, 512))
    assert sizes(found) == (amounts(100, 512), NO_AMOUNTS)
    assert found.detail == Detail.CPU_NEEDS_RESTART.of("app")


def test_the_class_of_a_pod_never_changes():
    # The limits stay where they are, and equal the original requests.
    one = pod(amounts(100, 128), amounts(500, 512))
    found = reverted(one, amounts(500, 512))
    assert found.held is Reason.QOS_CHANGE


def test_what_servers_do_not_take_is_held():
    wanted = (amounts(500, 512), NO_AMOUNTS)
    assert reverted(pod(), *wanted, node(ready=False)).held is Reason.NODE_NOT_READY
    assert reverted(pod(), *wanted, node(kubelet_version=(1, 32))).held is Reason.RESIZE_UNSUPPORTED
    assert reverted(pod(windows=True), *wanted).held is Reason.WINDOWS
    assert reverted(pod(mirror=True), *wanted).held is Reason.STATIC_POD
    assert reverted(pod(pod_requests=amounts(1)), *wanted).held is Reason.POD_LEVEL_RESOURCES
    ranges = {"shop": (LimitRangeItem(False, maximum=amounts(400)),)}
    assert reverted(pod(), *wanted, limit_ranges=ranges).held is Reason.LIMIT_RANGE


def test_who_is_as_before_or_going_or_unknown_is_left():
    pods = (
        pod(name="same"),
        pod(name="going", terminating=True),
        pod(name="over", phase="Succeeded"),
        pod(name="unknown"),
        pod(name="web"),
    )
    other = {"app": (amounts(500, 512), NO_AMOUNTS)}
    originals = {one.uid: other for one in pods if one.name != "unknown"} | {
        "uid-same": {"app": (amounts(100, 128), NO_AMOUNTS)}
    }
    found = decide_reverts(Snapshot(nodes=(node(),), pods=pods), originals)
    assert [one.resize.pod for one in found] == ["web"]


def test_shrinks_come_first():
    pods = (pod(name="a"), pod(amounts(900, 900), name="b"), pod(name="c"))
    originals = {one.uid: {"app": (amounts(500, 512), NO_AMOUNTS)} for one in pods}
    found = decide_reverts(Snapshot(nodes=(node(),), pods=pods), originals)
    assert [(one.resize.pod, one.resize.growth == NO_RESOURCES) for one in found] == [
        ("b", True),
        ("a", False),
        ("c", False),
    ]


def test_a_resize_that_waits_is_replaced_and_counts_by_what_is_granted():
    waiting = ResizeState(ResizePending.DEFERRED)
    one = pod(amounts(3000, 128), resize=waiting, container={"allocated": amounts(100, 128)})
    found = reverted(one, amounts(500, 128))
    assert found.held is None
    assert found.resize.growth == NO_RESOURCES


stated = st.none() | st.integers(1, 4000)
some_amounts = st.builds(
    lambda cpu, memory: Amounts(cpu, None if memory is None else memory * MEBIBYTE), stated, stated
)


@st.composite
def valid_sizes(draw) -> tuple[Amounts, Amounts]:
    requests, limits = draw(some_amounts), draw(some_amounts)

    def at_least(limit: int | None, request: int | None) -> int | None:
        return None if limit is None else max(limit, request or 0)

    return requests, Amounts(
        at_least(limits.cpu_millicores, requests.cpu_millicores), at_least(limits.memory_bytes, requests.memory_bytes)
    )


@given(now=valid_sizes(), original=valid_sizes(), old=st.booleans())
def test_whatever_was_a_revert_is_valid_and_deciding_again_changes_nothing(now, original, old):
    one = pod(*now)
    one = replace(one, qos=qos_class(one))
    snapshot = Snapshot(nodes=(node(kubelet_version=(1, 33) if old else (1, 34)),), pods=(one,))
    found = decide_reverts(snapshot, {one.uid: {"app": original}})
    if not found or found[0].held is not None:
        return
    after = with_sizes(one, found[0].resize.containers)
    [container] = after.containers
    assert qos_class(after) is one.qos is not QosClass.BEST_EFFORT
    for request, limit, was_request, was_limit in (
        (
            container.requests.cpu_millicores,
            container.limits.cpu_millicores,
            now[0].cpu_millicores,
            now[1].cpu_millicores,
        ),
        (container.requests.memory_bytes, container.limits.memory_bytes, now[0].memory_bytes, now[1].memory_bytes),
    ):
        assert limit is None or limit >= (request or 0)
        assert was_request is None or request is not None
        assert was_limit is None or limit is not None
    again = decide_reverts(replace(snapshot, pods=(after,)), {one.uid: {"app": original}})
    assert [one.held for one in again] in ([], [Reason.CANNOT_RESTORE])
