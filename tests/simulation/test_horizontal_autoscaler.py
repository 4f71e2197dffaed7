"""The simulated HPA controller: what a metric wants, the scale-down window, and the limit of scale-up."""

import math

from hypothesis import given
from hypothesis import strategies as st

from cruise.simulation.horizontal_autoscaler import (
    MeasuredPod,
    SimulatedHpa,
    compute_desired_replicas,
    compute_replicas_for_metric,
)


def pods(*use: int, request: int = 1000, **more: bool) -> list[MeasuredPod]:
    return [MeasuredPod({"app": request}, {"app": one}, **more) for one in use]


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=8), st.integers(1, 150))
def test_replicas_bring_utilization_to_the_target(use, target):
    wanted = compute_replicas_for_metric(pods(*use), target, "", len(use))
    percent = sum(use) * 100 // (1000 * len(use))
    if 0.9 <= percent / target <= 1.1:
        assert wanted == len(use)
    else:
        assert wanted == math.ceil(percent / target * len(use))


def test_no_pod_is_removed_for_one_without_metrics():
    assert compute_replicas_for_metric([*pods(100, 100), *pods(0, is_measured=False)], 50, "", 3) == 3
    assert compute_replicas_for_metric(pods(100, 100, 0), 50, "", 3) == 1


def test_pods_that_are_not_ready_use_nothing_before_pods_are_added():
    # 180 % of the target by the ready pods, 90 % by all.
    assert compute_replicas_for_metric([*pods(900), *pods(900, is_ready=False)], 50, "", 2) == 2
    assert compute_replicas_for_metric(pods(900, 900), 50, "", 2) == 4


def test_without_a_ready_pod_nothing_is_wanted():
    assert compute_replicas_for_metric(pods(900, is_ready=False), 50, "", 1) == 1


def test_the_container_of_a_metric_counts_alone():
    pod = MeasuredPod({"app": 1000, "proxy": 100}, {"app": 100, "proxy": 100})
    assert compute_replicas_for_metric([pod, pod], 50, "proxy", 2) == 4
    assert compute_replicas_for_metric([pod, pod], 50, "app", 2) == 1


def test_pods_are_removed_after_the_window():
    one = SimulatedHpa(1, 10)
    replicas = [one.reconcile(time, 5, [3 if time == 120 else 2], 60) for time in range(60, 661, 60)]
    # The present replicas count as the first recommendation.
    assert replicas == [5] * 6 + [3, *[2] * 4]


def test_pods_are_added_at_once_to_the_maximum():
    assert SimulatedHpa(1, 10).reconcile(0, 3, [20], 60) == 10


def test_each_sync_adds_as_many_pods_as_there_are_and_four_at_least():
    assert SimulatedHpa(1, 100).reconcile(0, 1, [60], 15) == 4
    assert SimulatedHpa(1, 100).reconcile(0, 10, [60], 15) == 20
    assert SimulatedHpa(1, 100).reconcile(0, 10, [60], 30) == 40


def test_the_window_keeps_what_exceeded_the_maximum():
    one = SimulatedHpa(2, 4)
    assert [one.reconcile(0, 4, [9]), one.reconcile(15, 4, [1]), one.reconcile(300, 4, [1])] == [4, 4, 4]
    assert one.reconcile(315, 4, [1]) == 2


def test_replicas_follow_the_metric_that_requests_most():
    assert compute_desired_replicas([1, 5, 3], 2, 4) == 4
    assert compute_desired_replicas([1], 2, 4) == 2
