"""What kube-scheduler counts, against cases worked out by hand from KEP-753, KEP-1287 and KEP-2837."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import Container, ContainerRole, Pod
from cruise.domain.pod_resources import compute_init_container_minimum, count_container_requests, count_pod_requests
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, ResizePending, ResizeState, Resources, StatedResources
from tests.builders import make_pod_level

INIT, SIDECAR, MAIN = ContainerRole.INIT, ContainerRole.SIDECAR, ContainerRole.MAIN
INFEASIBLE = ResizeState(pending=ResizePending.INFEASIBLE)
DEFERRED = ResizeState(pending=ResizePending.DEFERRED)


def container(name: str, cpu: int | None, mebibytes: int | None = 0, role: ContainerRole = MAIN) -> Container:
    memory = None if mebibytes is None else mebibytes * MEBIBYTE
    return Container(name=name, role=role, requests=StatedResources(cpu, memory))


def pod(*containers: Container, **fields: Any) -> Pod:
    return replace(Pod(namespace="a", name="p", uid="u", containers=containers), **fields)


def cpu(counted: Resources) -> int:
    return counted.cpu_millicores


def test_main_containers_are_summed() -> None:
    # The two-container pod of the Kubernetes manual (frontend): 2 × (250m, 64Mi).
    assert count_pod_requests(pod(container("app", 250, 64), container("log-aggregator", 250, 64))) == Resources(
        500, 128 * MEBIBYTE
    )


def test_init_containers_set_a_floor_and_are_not_added() -> None:
    # Max(Max(initContainers), Sum(Containers)): cpu max(max(300, 200), 250) = 300; memory max(max(50, 100), 120) = 120.
    counted = count_pod_requests(
        pod(container("i1", 300, 50, INIT), container("i2", 200, 100, INIT), container("app", 250, 120))
    )
    assert counted == Resources(300, 120 * MEBIBYTE)


def test_sidecar_counts_next_to_the_main_containers() -> None:
    assert cpu(count_pod_requests(pod(container("s", 100, role=SIDECAR), container("app", 250)))) == 350


@pytest.mark.parametrize(
    ("inits", "counted"),
    [
        # InitContainerUse(0) = 0 + 500 = 500; running = 100 + 250 = 350
        ((("i", 500, INIT), ("s", 100, SIDECAR)), 500),
        # InitContainerUse(1) = 100 + 500 = 600; running = 350
        ((("s", 100, SIDECAR), ("i", 500, INIT)), 600),
        # uses: i1 = 400, i2 = 100 + 350 = 450, i3 = 100 + 50 + 310 = 460; running = 150 + 250 = 400
        ((("i1", 400, INIT), ("s1", 100, SIDECAR), ("i2", 350, INIT), ("s2", 50, SIDECAR), ("i3", 310, INIT)), 460),
        # init need 100 + 120 = 220 is below what runs, 100 + 250 = 350
        ((("s", 100, SIDECAR), ("i", 120, INIT)), 350),
    ],
)
def test_an_init_container_needs_the_sidecars_started_before_it(
    inits: tuple[tuple[str, int, ContainerRole], ...], counted: int
) -> None:
    containers = [container(name, millicores, role=role) for name, millicores, role in inits]
    assert cpu(count_pod_requests(pod(*containers, container("app", 250)))) == counted


def test_each_resource_takes_its_own_maximum() -> None:
    # cpu floor 600 from the init container, memory 300 Mi from the running ones.
    counted = count_pod_requests(
        pod(container("s", 100, 100, SIDECAR), container("i", 500, 50, INIT), container("app", 250, 200))
    )
    assert counted == Resources(600, 300 * MEBIBYTE)


RESIZING = replace(
    container("app", 300), allocated=StatedResources(200, 64 * MEBIBYTE), actual=StatedResources(100, 128 * MEBIBYTE)
)


@pytest.mark.parametrize(
    ("spec", "allocated", "actual", "resize", "counted"),
    [
        (500, 1000, 1000, ResizeState(), 1000),  # shrinking, not yet allocated: room frees later
        (500, 500, 1000, ResizeState(in_progress=True), 1000),  # allocated, not yet in force
        (500, 500, 500, ResizeState(), 500),  # done
        (2000, 1000, 1000, DEFERRED, 2000),  # a deferred grow already takes its room
        (2000, 1000, 1000, INFEASIBLE, 1000),  # an infeasible one never will
        (2000, 1000, 1500, INFEASIBLE, 1500),
        (700, None, None, ResizeState(), 700),  # pending pod, or a kubelet that reports nothing
        (700, None, None, INFEASIBLE, 700),
        (700, None, 900, ResizeState(), 900),
        (None, 300, None, ResizeState(), 300),
    ],
)
def test_resizing_container_counts_the_largest_that_may_hold(
    spec: int | None, allocated: int | None, actual: int | None, resize: ResizeState, counted: int
) -> None:
    one = replace(
        container("app", spec),
        allocated=None if allocated is None else StatedResources(allocated),
        actual=None if actual is None else StatedResources(actual),
    )
    assert cpu(count_pod_requests(pod(one, resize=resize))) == counted
    assert cpu(count_container_requests(one, resize.pending is ResizePending.INFEASIBLE)) == counted


def test_resizing_takes_the_maximum_resource_by_resource() -> None:
    assert count_pod_requests(pod(RESIZING)) == Resources(300, 128 * MEBIBYTE)


def test_maximum_is_taken_within_each_container_before_the_sum() -> None:
    # a shrinks 400 → 100, b grows 100 → 400, neither in force: max per container 400 + 400, not max of sums 500.
    a = replace(container("a", 100), allocated=StatedResources(400), actual=StatedResources(400))
    b = replace(container("b", 400), allocated=StatedResources(100), actual=StatedResources(100))
    assert cpu(count_pod_requests(pod(a, b))) == 800


def test_pod_level_requests_win_for_the_resource_they_state() -> None:
    one = pod(container("app", 250, 64), pod_level=make_pod_level(StatedResources(1000, None)))
    assert count_pod_requests(one) == Resources(1000, 64 * MEBIBYTE)
    assert cpu(count_pod_requests(pod(container("app", 250), pod_level=make_pod_level(StatedResources(100))))) == 100


def test_overhead_is_added_last() -> None:
    overhead = Resources(50, 16 * MEBIBYTE)
    assert count_pod_requests(pod(container("app", 250, 64), overhead=overhead)) == Resources(300, 80 * MEBIBYTE)
    assert (
        cpu(
            count_pod_requests(
                pod(container("app", 250), overhead=overhead, pod_level=make_pod_level(StatedResources(100)))
            )
        )
        == 150
    )


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_finished_pod_counts_nothing(phase: str) -> None:
    assert count_pod_requests(pod(container("app", 250), phase=phase, overhead=Resources(50))) == NO_RESOURCES


def test_init_floor_uses_the_planned_sidecars_in_order() -> None:
    one = pod(
        container("i1", 400, 10, INIT),
        container("s1", 100, 100, SIDECAR),
        container("i2", 350, 10, INIT),
        container("s2", 50, 100, SIDECAR),
        container("app", 250, 500),
    )
    # i1 = (400, 10); i2 = planned s1 (20, 30) + (350, 10) = (370, 40)
    assert compute_init_container_minimum(one, {"s1": Resources(20, 30 * MEBIBYTE)}) == Resources(400, 40 * MEBIBYTE)
    # unplanned: i2 = (100, 100) + (350, 10)
    assert compute_init_container_minimum(one, {}) == Resources(450, 110 * MEBIBYTE)


def test_init_floor_is_zero_without_init_containers() -> None:
    assert (
        compute_init_container_minimum(pod(container("s", 100, role=SIDECAR), container("app", 250)), {})
        == NO_RESOURCES
    )


@given(
    st.lists(st.tuples(st.sampled_from([INIT, SIDECAR, MAIN]), st.integers(0, 4000), st.integers(0, 4096)), max_size=6)
)
def test_counted_is_what_runs_floored_by_init(drawn: list[tuple[ContainerRole, int, int]]) -> None:
    """The floor with the present sidecars, and what runs, bound the count from below; one of them reaches it."""
    order = sorted(drawn, key=lambda one: one[0] is MAIN)
    one = pod(*(container(f"c{i}", millicores, mib, role) for i, (role, millicores, mib) in enumerate(order)))
    running = sum((c.requests.resources for c in one.containers if c.role is not INIT), NO_RESOURCES)
    assert count_pod_requests(one) == running.max_with(compute_init_container_minimum(one, {}))
