"""Eviction budgets under replay, and which pod of a node is evicted."""

from dataclasses import replace

import pytest

from cruise.backtest.policies.cruise_policy import CruisePolicy
from cruise.backtest.policies.evictions import ReplayEvictionBudgets
from cruise.backtest.policies.replayed_pods import ReplayedPods
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.actions import EvictPod, ReasonCode
from cruise.domain.policy import EvictionRanking, Policy
from cruise.domain.resources import MEBIBYTE, ResourceName, Resources
from tests.backtest.replayed import START, make_recording, make_view

WORKLOADS = ("web", "web", "api", "db")


class Setting:
    def __init__(self, **policy):
        self.pods = ReplayedPods(make_recording(*WORKLOADS))
        self.disruptions = ReplayEvictionBudgets(self.pods, replace(Policy(), **policy))

    def spend(self, container, view):
        pod = self.pods.get_pod(container, view)
        return self.disruptions.spend(
            EvictPod(
                pod.namespace,
                pod.name,
                pod.uid,
                pod.node,
                pod.workload,
                EvictionRanking.LOW,
                ResourceName.CPU,
                ReasonCode.NODE_OVER_CAPACITY,
            ),
            view,
        )


def test_one_a_node_and_pass():
    setting, view = Setting(), make_view([0, 1, 0, 1])
    assert setting.spend(0, view) is None
    assert setting.spend(2, view) is ReasonCode.NODE_EVICTION_BUDGET_SPENT
    assert setting.spend(3, view) is None
    later = make_view([1, 1, 0, 0], at=view.time + 300, creation_count=[2, 1, 1, 2])
    assert setting.spend(2, later) is None


def test_one_a_workload_at_a_time():
    setting, view = Setting(max_evictions_per_node=5), make_view([0, 1, 0, 1])
    assert setting.spend(0, view) is None
    assert setting.spend(1, view) is ReasonCode.WORKLOAD_EVICTION_BUDGET_SPENT


@pytest.mark.parametrize(("seconds", "reason"), [(3500, ReasonCode.HOURLY_EVICTION_BUDGET_SPENT), (3700, None)])
def test_so_many_an_hour_in_all(seconds, reason):
    setting = Setting(max_evictions_per_hour=1)
    assert setting.spend(0, make_view([0, 1, 0, 1], at=START)) is None
    assert setting.spend(3, make_view([1, 1, 0, 1], at=START + seconds, creation_count=[2, 1, 1, 1])) is reason


@pytest.mark.parametrize("woken_millicores", [4000, 5000, 6000])
def test_the_pod_that_leaves_is_evicted_and_not_one_that_would_return(woken_millicores):
    """A pod wakes next to a busy one, whose replacement fits where it was and nowhere else until a node is added."""
    recording = make_recording("busy", "woken", *("small",) * 4, length=60)
    recording.cpu_millicores[:, :2] = (5000, 300)
    # Its headroom makes the busy one the first in the ranking.
    recording.cpu_millicores[5::12, 0] = 5400
    recording.cpu_millicores[36:, 1] = woken_millicores
    score = replay_policy(
        recording, CruisePolicy(recording, Policy()), ReplayOptions(node=Resources(8000, 16384 * MEBIBYTE))
    )
    assert {one.pod: one.evictions for one in score.worst_containers if one.evictions} == {"pod-1": 1}
