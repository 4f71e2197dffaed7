from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.revert import PodRevert, decide_reverts
from cruise.domain.actions import ReasonCode
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ClusterSnapshot, Container, Node, Pod, QosClass
from cruise.domain.pod_resources import get_qos_class, replace_spec_resources
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, NOTHING_STATED, ResizePending, ResizeState, StatedResources
from tests.builders import make_pod_level
from tests.simulation.scenes import amounts, node, resources


def pod(requests=None, limits=NOTHING_STATED, name: str = "web-1", **fields) -> Pod:
    container = Container("app", requests=requests or amounts(100, 128), limits=limits, **fields.pop("container", {}))
    return replace(Pod("shop", name, f"uid-{name}", (container,), node="n1"), **fields)


def reverted(
    one: Pod, requests: StatedResources, limits: StatedResources = NOTHING_STATED, on: Node | None = None, **fields
) -> PodRevert:
    snapshot = ClusterSnapshot(nodes=(on or node(),), pods=(one,), **fields)
    [found] = decide_reverts(snapshot, {one.uid: {"app": (requests, limits)}})
    return found


def sizes(found: PodRevert) -> tuple[StatedResources, StatedResources]:
    [target] = found.resize.containers
    return target.requests, target.limits


def test_requests_and_limits_are_restored():
    found = reverted(pod(limits=amounts(None, 256)), amounts(500, 512), amounts(1000, 600))
    assert sizes(found) == (amounts(500, 512), amounts(1000, 600))
    assert (found.resize.reason, found.resize.growth, found.skipped, found.detail) == (
        ReasonCode.REVERTED,
        resources(400, 384),
        None,
        "",
    )


def test_a_limit_that_cruise_added_is_kept_and_reported():
    found = reverted(pod(limits=amounts(None, 256)), amounts(100, 512))
    # It must not stay below the request.
    assert sizes(found) == (amounts(100, 512), amounts(None, 512))
    assert found.detail == ReasonDetailCode.MEMORY_LIMIT_STAYS.create("app")


def test_a_request_that_cruise_added_is_kept_and_reported():
    found = reverted(pod(), StatedResources(50, None))
    assert sizes(found) == (amounts(50, 128), NOTHING_STATED)
    assert found.detail == ReasonDetailCode.MEMORY_REQUEST_STAYS.create("app")


def test_what_cannot_be_restored_is_reported_and_not_attempted():
    found = reverted(pod(limits=amounts(None, 256)), amounts(100, 128))
    assert found.skipped is ReasonCode.CANNOT_RESTORE
    assert found.detail == ReasonDetailCode.MEMORY_LIMIT_STAYS.create("app")


@pytest.mark.parametrize(("kubelet", "limit"), [((1, 33), 1024), ((1, 34), 256), (None, 256)])
def test_old_kubelets_lower_no_memory_limit(kubelet, limit):
    one = pod(amounts(100, 512), amounts(None, 1024))
    found = reverted(one, amounts(100, 128), amounts(None, 256), node(kubelet_version=kubelet))
    assert sizes(found) == (amounts(100, 128), amounts(None, limit))
    assert bool(found.detail) is (limit == 1024)


def test_sizes_that_would_restart_a_container_stay():
    one = pod(container={"cpu_resize_restarts": True})
    found = reverted(one, amounts(500, 512))
    assert sizes(found) == (amounts(100, 512), NOTHING_STATED)
    assert found.detail == ReasonDetailCode.CPU_NEEDS_RESTART.create("app")


def test_the_qos_class_of_a_pod_never_changes():
    # The limits stay where they are, and equal the original requests.
    one = pod(amounts(100, 128), amounts(500, 512))
    found = reverted(one, amounts(500, 512))
    assert found.skipped is ReasonCode.QOS_CHANGE


def test_reverts_that_the_server_would_reject_are_skipped():
    wanted = (amounts(500, 512), NOTHING_STATED)
    assert reverted(pod(), *wanted, node(ready=False)).skipped is ReasonCode.NODE_NOT_READY
    assert reverted(pod(), *wanted, node(kubelet_version=(1, 32))).skipped is ReasonCode.RESIZE_UNSUPPORTED
    assert reverted(pod(runs_on_windows=True), *wanted).skipped is ReasonCode.WINDOWS
    assert reverted(pod(is_mirror_pod=True), *wanted).skipped is ReasonCode.STATIC_POD
    assert reverted(pod(pod_level=make_pod_level(amounts(1))), *wanted).skipped is ReasonCode.POD_LEVEL_RESOURCES
    ranges = {"shop": (LimitRangeItem(False, maximum=amounts(400)),)}
    assert reverted(pod(), *wanted, limit_ranges=ranges).skipped is ReasonCode.LIMIT_RANGE


def test_unchanged_terminating_and_unknown_pods_are_not_reverted():
    pods = (
        pod(name="same"),
        pod(name="going", terminating=True),
        pod(name="over", phase="Succeeded"),
        pod(name="unknown"),
        pod(name="web"),
    )
    other = {"app": (amounts(500, 512), NOTHING_STATED)}
    originals = {one.uid: other for one in pods if one.name != "unknown"} | {
        "uid-same": {"app": (amounts(100, 128), NOTHING_STATED)}
    }
    found = decide_reverts(ClusterSnapshot(nodes=(node(),), pods=pods), originals)
    assert [one.resize.pod for one in found] == ["web"]


def test_decreases_are_first():
    pods = (pod(name="a"), pod(amounts(900, 900), name="b"), pod(name="c"))
    originals = {one.uid: {"app": (amounts(500, 512), NOTHING_STATED)} for one in pods}
    found = decide_reverts(ClusterSnapshot(nodes=(node(),), pods=pods), originals)
    assert [(one.resize.pod, one.resize.growth == NO_RESOURCES) for one in found] == [
        ("b", True),
        ("a", False),
        ("c", False),
    ]


def test_a_pending_resize_is_replaced_and_counts_its_allocated_resources():
    waiting = ResizeState(ResizePending.DEFERRED)
    one = pod(amounts(3000, 128), resize=waiting, container={"allocated": amounts(100, 128)})
    found = reverted(one, amounts(500, 128))
    assert found.skipped is None
    assert found.resize.growth == NO_RESOURCES


stated = st.none() | st.integers(1, 4000)
some_amounts = st.builds(
    lambda cpu, memory: StatedResources(cpu, None if memory is None else memory * MEBIBYTE), stated, stated
)


@st.composite
def valid_sizes(draw) -> tuple[StatedResources, StatedResources]:
    requests, limits = draw(some_amounts), draw(some_amounts)

    def at_least(limit: int | None, request: int | None) -> int | None:
        return None if limit is None else max(limit, request or 0)

    return requests, StatedResources(
        at_least(limits.cpu_millicores, requests.cpu_millicores), at_least(limits.memory_bytes, requests.memory_bytes)
    )


@given(now=valid_sizes(), original=valid_sizes(), old=st.booleans())
def test_every_revert_is_valid_and_idempotent(now, original, old):
    one = pod(*now)
    one = replace(one, qos=get_qos_class(one))
    snapshot = ClusterSnapshot(nodes=(node(kubelet_version=(1, 33) if old else (1, 34)),), pods=(one,))
    found = decide_reverts(snapshot, {one.uid: {"app": original}})
    if not found or found[0].skipped is not None:
        return
    after = replace_spec_resources(one, found[0].resize.containers)
    [container] = after.containers
    assert get_qos_class(after) is one.qos is not QosClass.BEST_EFFORT
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
    assert [one.skipped for one in again] in ([], [ReasonCode.CANNOT_RESTORE])


def test_a_guaranteed_pod_is_reverted_with_equal_limits_or_not():
    sized = pod(amounts(300, 256), amounts(300, 256), qos=QosClass.GUARANTEED)
    assert sizes(reverted(sized, amounts(500, 512), amounts(500, 512))) == (amounts(500, 512), amounts(500, 512))
    old = node(kubelet_version=(1, 33))
    found = reverted(sized, amounts(200, 128), amounts(200, 128), on=old)
    assert sizes(found) == (amounts(200, 256), amounts(200, 256))
    assert (found.skipped, found.detail) == (None, ReasonDetailCode.MEMORY_LIMIT_FIXED.create("app"))
