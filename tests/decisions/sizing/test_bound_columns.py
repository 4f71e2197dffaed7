"""An HPA computes the same number of replicas before and after a resize, for all usage in the history."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.hpa_bounds import (
    HpaBounds,
    decide_hpa_bounds,
    do_requests_cover_usage,
)
from cruise.decisions.pod_policy.usable_statistics import LargestWeeklyUsage
from cruise.decisions.sizing.bound_columns import HpaMetricGroups, compute_hpa_request_bounds
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.autoscalers import UtilizationMetric, UtilizationScaling
from cruise.domain.cluster import HorizontalPodAutoscaler
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName, StatedResources
from cruise.simulation.horizontal_autoscaler import MeasuredPod, compute_desired_replicas, compute_replicas_for_metric
from tests.builders import make_ref, make_workload

CPU, MEMORY = ResourceName
CONTAINERS = ("app", "proxy")


@dataclass(frozen=True)
class Drawn:
    """Pods under an HPA: requests and 7-day maxima by pod and container, metrics, and use within the history."""

    scaling: UtilizationScaling
    containers: Sequence[str]
    requests: np.ndarray
    peaks: np.ndarray
    submitted: np.ndarray
    shares: np.ndarray
    measured: Sequence[bool]
    ready: Sequence[bool]
    up_tolerance: float


@st.composite
def drawn_pods(draw: st.DrawFn) -> Drawn:
    replicas = draw(st.integers(1, 6))
    containers = CONTAINERS[: draw(st.integers(1, 2))]
    shape = (replicas, len(containers))
    amounts = lambda low, high: np.array(  # noqa: E731
        draw(st.lists(st.integers(low, high), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))
    ).reshape(shape)
    names = ["", *containers]
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
    tolerance = draw(st.sampled_from([0.0, 0.05, 0.1, 0.3]))
    metrics = tuple(UtilizationMetric(CPU, one, draw(st.integers(1, 250)), 0) for one in chosen)
    metrics = tuple(one._replace(reported_percent=one.target_percent) for one in metrics)
    spare = draw(st.integers(0, 5))
    # One pod at least is measured and ready: without one the controller changes nothing.
    measured, ready = (
        [True, *draw(st.lists(st.booleans(), min_size=replicas - 1, max_size=replicas - 1))] for _ in range(2)
    )
    return Drawn(
        UtilizationScaling(metrics, replicas, replicas + spare, replicas, replicas, True, tolerance),
        containers,
        amounts(1, 3000),
        amounts(0, 2000),
        amounts(0, 4000),
        np.array(draw(st.lists(st.floats(0, 1), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1]))).reshape(
            shape
        ),
        measured,
        ready,
        draw(st.sampled_from([0.0, 0.05, 0.1])),
    )


def bounds_of(scaling: UtilizationScaling) -> HpaBounds | str:
    autoscaler = HorizontalPodAutoscaler("shop", "web", make_ref("Deployment/web"), frozenset({CPU}), "", scaling)
    return decide_hpa_bounds(autoscaler, make_workload("Deployment/web", replicas=scaling.current_replicas))


def groups_of(drawn: Drawn, bounds: HpaBounds) -> HpaMetricGroups:
    rows = []
    metrics = bounds.metrics.get(CPU, ())
    replicas, width = drawn.requests.shape
    for pod in range(replicas):
        for number, metric in enumerate(metrics):
            for offset, name in enumerate(drawn.containers):
                if metric.container in ("", name):
                    at = pod * width + offset
                    rows.append((at, pod * len(metrics) + number, int(drawn.submitted.ravel()[at])))
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    factors = np.tile(np.array([one[2:] for one in metrics], dtype=float).reshape(-1, 4), (replicas, 1))
    return HpaMetricGroups(*columns.T, *factors.T)


def measure(drawn: Drawn, requests: np.ndarray, use: np.ndarray) -> list[MeasuredPod]:
    return [
        MeasuredPod(
            dict(zip(drawn.containers, map(int, row), strict=True)),
            dict(zip(drawn.containers, map(int, used), strict=True)),
            measured,
            ready,
        )
        for row, used, measured, ready in zip(requests, use, drawn.measured, drawn.ready, strict=True)
    ]


def proposals(drawn: Drawn, requests: np.ndarray, use: np.ndarray, current: int) -> list[int]:
    pods = measure(drawn, requests, use)
    tolerances = (drawn.scaling.tolerance, drawn.up_tolerance)
    return [
        compute_replicas_for_metric(pods, one.target_percent, one.container, current, tolerances)
        for one in drawn.scaling.metrics
    ]


def desire(drawn: Drawn, requests: np.ndarray, use: np.ndarray) -> int:
    scaling = drawn.scaling
    wanted = proposals(drawn, requests, use, scaling.current_replicas)
    return compute_desired_replicas(wanted, scaling.min_replicas, scaling.max_replicas)


@given(drawn_pods(), st.floats(0, 1))
def test_at_its_minimum_an_hpa_keeps_its_replicas_for_all_recorded_usage(drawn: Drawn, position: float):
    bounds = bounds_of(drawn.scaling)
    assert isinstance(bounds, HpaBounds)
    use = LargestWeeklyUsage(drawn.peaks.ravel(), np.zeros(drawn.peaks.size, dtype=np.int64))
    groups, requests = groups_of(drawn, bounds), drawn.requests.ravel()
    if not do_requests_cover_usage(
        requests[groups.containers], use.largest[groups.containers], groups.groups, groups.peak_factor
    ):
        groups = groups_of(drawn, bounds.without_shrink(frozenset({CPU})))
    lower, upper = compute_hpa_request_bounds(groups, CPU, requests, use)
    lower, upper = lower.reshape(drawn.requests.shape), upper.reshape(drawn.requests.shape)
    unbounded = upper >= UNBOUNDED
    assert (lower <= np.maximum(drawn.requests, drawn.submitted)).all()
    assert (unbounded | (upper >= np.maximum(lower, drawn.requests))).all()
    upper = np.where(unbounded, drawn.requests, upper)
    lower = np.where(unbounded, drawn.requests, lower)
    # Anything within the bounds, and pods of which only some have been resized.
    after = np.maximum(lower + np.floor((upper - lower) * position).astype(np.int64), 1)
    some = np.where((np.arange(len(after)) % 2 == 0)[:, np.newaxis], after, drawn.requests)
    used = np.floor(drawn.peaks * drawn.shares).astype(np.int64)
    for requests in (after, some):
        before, now = desire(drawn, drawn.requests, used), desire(drawn, requests, used)
        # Use within the bounds of the history never adds pods where the requests left room for it.
        if before == drawn.scaling.min_replicas:
            assert now == before


@given(drawn_pods())
def test_a_shrunk_pod_never_needs_more_replicas_than_ran(drawn: Drawn):
    scaling = replace(drawn.scaling, min_replicas=1)
    fits = replace(drawn, requests=np.full_like(drawn.requests, 10**7), scaling=scaling)
    bounds = bounds_of(replace(scaling, current_replicas=1, desired_replicas=1))
    assert isinstance(bounds, HpaBounds)
    use = LargestWeeklyUsage(drawn.peaks.ravel(), np.zeros(drawn.peaks.size, dtype=np.int64))
    lower, _ = compute_hpa_request_bounds(groups_of(fits, bounds), CPU, fits.requests.ravel(), use)
    lowest = np.maximum(lower.reshape(drawn.requests.shape), 1)
    used = np.floor(drawn.peaks * drawn.shares).astype(np.int64)
    assert max(proposals(fits, lowest, used, len(lowest))) <= len(lowest)
    # Below the tolerance a metric wants what its use needs, and keeps no pod that another metric would remove.
    for one in scaling.metrics:
        pods = measure(replace(fits, measured=[True] * len(lowest), ready=[True] * len(lowest)), lowest, used)
        summed = sum(sum(pod.use.values()) if not one.container else pod.use[one.container] for pod in pods)
        requested = sum(
            sum(pod.requests.values()) if not one.container else pod.requests[one.container] for pod in pods
        )
        tolerances = (scaling.tolerance, drawn.up_tolerance)
        wanted = compute_replicas_for_metric(pods, one.target_percent, one.container, len(pods), tolerances)
        assert (
            wanted <= math.ceil(summed * 100 / requested / one.target_percent * len(pods)) or scaling.tolerance == 0.3
        )


@given(drawn_pods(), st.integers(1, 400))
def test_at_its_maximum_growth_removes_no_pod_while_usage_is_at_the_base(drawn: Drawn, excess: int):
    replicas = drawn.requests.shape[0]
    used = drawn.peaks
    tolerances = (drawn.scaling.tolerance, drawn.up_tolerance)
    everyone = replace(drawn, measured=[True] * replicas, ready=[True] * replicas)
    metrics = []
    for one in drawn.scaling.metrics:
        pods = measure(everyone, drawn.requests, used)
        summed = sum(sum(pod.use.values()) if not one.container else pod.use[one.container] for pod in pods)
        requested = sum(
            sum(pod.requests.values()) if not one.container else pod.requests[one.container] for pod in pods
        )
        metrics.append(one._replace(reported_percent=max(one.target_percent, summed * 100 // requested)))
    scaling = replace(drawn.scaling, metrics=tuple(metrics), min_replicas=0, max_replicas=replicas)
    bounds = bounds_of(scaling)
    if isinstance(bounds, str):
        assert any(one.reported_percent == one.target_percent for one in metrics)
        return
    history = LargestWeeklyUsage(np.full(used.size, UNBOUNDED), used.ravel())
    lower, upper = compute_hpa_request_bounds(groups_of(drawn, bounds), CPU, drawn.requests.ravel(), history)
    grown = np.where(upper >= UNBOUNDED, drawn.requests.ravel(), upper).reshape(drawn.requests.shape)
    assert (lower.reshape(grown.shape) * (upper.reshape(grown.shape) < UNBOUNDED) <= drawn.requests).all()
    wanted = [
        compute_replicas_for_metric(
            measure(everyone, grown, used), one.target_percent, one.container, replicas, tolerances
        )
        for one in metrics
    ]
    # Reported percent are whole numbers: one less than the target may remain.
    assert max(wanted) >= replicas or all(
        100 * used.sum() / grown.sum() >= one.target_percent - 1 for one in metrics if not one.container
    )


SCALING = UtilizationScaling((UtilizationMetric(CPU, "", 50, 50),), 2, 5, 2, 2, True)
HELD = {
    "not active": (replace(SCALING, is_active=False), ReasonDetailCode.UTILISATION_UNKNOWN),
    "not measured": (replace(SCALING, metrics=(UtilizationMetric(CPU, "", 50),)), ReasonDetailCode.UTILISATION_UNKNOWN),
    "scaling": (replace(SCALING, desired_replicas=3), ReasonDetailCode.REPLICAS_CHANGING),
    "between": (replace(SCALING, current_replicas=3, desired_replicas=3), ReasonDetailCode.REPLICAS_BETWEEN),
    "above its target at its minimum": (
        replace(SCALING, metrics=(UtilizationMetric(CPU, "", 50, 51),)),
        ReasonDetailCode.ABOVE_UTILISATION_TARGET,
    ),
    "at its maximum, below its target": (
        replace(SCALING, current_replicas=5, desired_replicas=5),
        ReasonDetailCode.REPLICAS_BETWEEN,
    ),
    "removes pods without delay": (
        replace(
            SCALING,
            current_replicas=5,
            desired_replicas=5,
            metrics=(UtilizationMetric(CPU, "", 50, 80),),
            scale_down_seconds=0,
        ),
        ReasonDetailCode.REPLICAS_BETWEEN,
    ),
    "scaled to zero": (
        replace(SCALING, min_replicas=0, current_replicas=0, desired_replicas=0),
        ReasonDetailCode.REPLICAS_BETWEEN,
    ),
}


@pytest.mark.parametrize(("scaling", "reason"), HELD.values(), ids=list(HELD))
def test_requests_are_held(scaling: UtilizationScaling, reason: ReasonDetailCode):
    assert bounds_of(scaling) == reason.create("web")


def test_the_replicas_of_the_target_count_as_well():
    autoscaler = HorizontalPodAutoscaler("shop", "web", make_ref("Deployment/web"), frozenset({CPU}), "", SCALING)
    changing = decide_hpa_bounds(autoscaler, make_workload("Deployment/web", replicas=3))
    assert changing == ReasonDetailCode.REPLICAS_CHANGING.create("web")
    unread = decide_hpa_bounds(autoscaler, None)
    assert isinstance(unread, HpaBounds) and unread.submitted == {}


def test_growth_at_the_minimum_ends_at_the_submitted_request():
    bounds = bounds_of(SCALING)
    assert isinstance(bounds, HpaBounds)
    groups = HpaMetricGroups(*np.array([[0], [0], [400]]), *np.array([bounds.metrics[CPU][0][2:]]).T)
    use = LargestWeeklyUsage(np.array([300]), np.array([250]))
    lower, upper = compute_hpa_request_bounds(groups, CPU, np.array([200]), use)
    # 300m need 667m for 50% and a margin of a tenth, so the request grows back to what was submitted.
    assert (lower.tolist(), upper.tolist()) == ([400], [400])
    lower, upper = compute_hpa_request_bounds(groups, CPU, np.array([1000]), use)
    assert (lower.tolist(), upper.tolist()) == ([667], [1000])


@given(drawn_pods())
def test_requests_grow_back_to_what_all_use_of_the_history_needs(drawn: Drawn):
    bounds = bounds_of(drawn.scaling)
    assert isinstance(bounds, HpaBounds)
    submitted = np.maximum(
        np.ceil(drawn.peaks * max(one.restore_factor for one in bounds.metrics[CPU])), drawn.requests
    )
    drawn = replace(drawn, submitted=submitted.astype(np.int64))
    use = LargestWeeklyUsage(drawn.peaks.ravel(), np.zeros(drawn.peaks.size, dtype=np.int64))
    lower, _ = compute_hpa_request_bounds(
        groups_of(drawn, bounds.without_shrink(frozenset({CPU}))), CPU, drawn.requests.ravel(), use
    )
    lower = np.maximum(lower.reshape(drawn.requests.shape), drawn.requests)
    used = np.floor(drawn.peaks * drawn.shares).astype(np.int64)
    assert desire(drawn, np.maximum(lower, 1), used) == drawn.scaling.min_replicas


def test_what_is_not_known_grows_nothing_back():
    bounds = bounds_of(SCALING)
    assert isinstance(bounds, HpaBounds)
    groups = HpaMetricGroups(*np.array([[0], [0], [900]]), *np.array([bounds.metrics[CPU][0][2:]]).T)
    lower, _ = compute_hpa_request_bounds(
        groups, CPU, np.array([200]), LargestWeeklyUsage(np.array([UNBOUNDED]), np.array([10]))
    )
    assert lower.tolist() == [200]


def test_without_seven_days_of_use_nothing_shrinks():
    bounds = bounds_of(SCALING)
    assert isinstance(bounds, HpaBounds)
    groups = HpaMetricGroups(*np.array([[0], [0], [0]]), *np.array([bounds.metrics[CPU][0][2:]]).T)
    lower, _ = compute_hpa_request_bounds(
        groups, CPU, np.array([1000]), LargestWeeklyUsage(np.array([UNBOUNDED]), np.array([10]))
    )
    assert lower.tolist() == [1000]


def test_submitted_requests_are_read_from_the_template():
    autoscaler = HorizontalPodAutoscaler("shop", "web", make_ref("Deployment/web"), frozenset({CPU}), "", SCALING)
    requests = {"app": StatedResources(500, None)}
    bounds = decide_hpa_bounds(autoscaler, make_workload("Deployment/web", replicas=2, requests=requests))
    assert isinstance(bounds, HpaBounds) and bounds.submitted == requests
