"""Which pods are resizable under replay, from pass to pass."""

from dataclasses import replace

import numpy as np

from cruise.backtest.policies.replayed_pods import ReplayedPods, ResizableReplayedPods
from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.policies.statistics_lookup import ReplayedStatisticsLookup
from cruise.domain.policy import Mode, Policy
from tests.backtest.replayed import START, make_recording, make_view

STEP = 300


class Setting:
    """Passes over containers that use the same all the time."""

    def __init__(self, *workloads, **policy):
        self.policy = replace(Policy(mode=Mode.FULL), **policy)
        self.recording = make_recording(*workloads)
        self.statistics = ReplayedStatistics(self.recording, self.policy)
        self.known = ReplayedStatisticsLookup(self.recording, self.statistics)
        self.resizable = ResizableReplayedPods(self.recording, ReplayedPods(self.recording), self.policy)
        self.at = START

    def passes(self, count, node, creation_count=None):
        """Let passes go by; returns the candidates and which containers are among them at the last."""
        for _ in range(count):
            self.at += STEP
            there = np.array(node) >= 0
            cpu = np.where(there, 100, np.nan).astype(np.float32)[np.newaxis]
            self.statistics.observe(self.at, cpu, cpu)
            view = make_view(node, at=self.at, creation_count=creation_count)
            self.known.refresh(view)
            found = self.resizable.get_candidates(view, self.known)
        return found


def test_no_pod_is_resizable_before_half_an_hour_of_history():
    setting = Setting("web", "api")
    assert setting.passes(5, [0, 0])[1].tolist() == []
    assert setting.passes(3, [0, 0])[1].tolist() == [0, 1]


def test_the_same_columns_serve_while_nothing_changes_and_others_when_a_pod_leaves():
    setting = Setting("web", "api")
    first, _ = setting.passes(10, [0, 0])
    again, _ = setting.passes(1, [1, 0])
    assert again is first
    fewer, chosen = setting.passes(1, [1, -2])
    assert fewer is not first
    assert (chosen.tolist(), [pod.pod.name for pod in fewer.pods]) == ([0], ["pod-0"])


def test_a_replaced_pod_is_asked_about_again():
    setting = Setting("web", "api")
    first, _ = setting.passes(10, [0, 0])
    again, chosen = setting.passes(1, [0, 0], creation_count=[1, 2])
    assert again is not first
    assert chosen.tolist() == [0, 1]
    assert [pod.pod.uid for pod in again.pods] == ["shop/pod-0-1", "shop/pod-1-2"]


def test_a_pod_with_stale_statistics_is_skipped():
    setting = Setting("web", "api")
    setting.passes(10, [0, 0])
    for _ in range(5):
        setting.at += STEP
        setting.statistics.observe(
            setting.at, np.array([[100, np.nan]], dtype=np.float32), np.array([[100, np.nan]], dtype=np.float32)
        )
    view = make_view([0, 0], at=setting.at)
    setting.known.refresh(view)
    assert setting.resizable.get_candidates(view, setting.known)[1].tolist() == [0]
