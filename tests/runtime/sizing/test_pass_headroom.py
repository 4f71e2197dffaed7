"""What node passes keep of headroom from pass to pass, and from process to process."""

from dataclasses import replace

import numpy as np

from cruise.decisions.sizing.headroom.risk_level import InForce, first_level
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import HourlyPeaks, PeakKey, StatisticsTable
from cruise.runtime.sizing.pass_headroom import PassHeadroom
from cruise.runtime.sizing.risk_history import KEPT_DAYS, RiskHistory
from cruise.runtime.usage.peaks_by_hour import PeaksByHour
from cruise.runtime.usage.state import UsageState
from cruise.simulation.store.store import MemoryStore

NOTHING = StatisticsTable.of_rows([])
RISK = Policy(headroom="risk")
DAY = 86400


def judge(history, day, used):
    """Judge one node of one container that requests 100 m."""
    requests = {one: np.array([100]) for one in ResourceName}
    in_force = InForce(day * DAY, np.array([0]), np.array([0]), 1, requests)
    samples = np.array([[float(used)]])
    history.judge(in_force, day * DAY + 300, {ResourceName.CPU: samples}, RISK.risk_of)


async def test_the_largest_single_headroom_takes_nothing_read():
    policy = replace(RISK, headroom="shared-max")
    assert await PassHeadroom(UsageState()).prepare(MemoryStore(), NOTHING, policy) is SHARED_MAX


async def test_a_process_that_takes_over_goes_on_with_the_level_of_the_one_before():
    store, first = MemoryStore(), RiskHistory()
    for used in (200, 50, 200):
        judge(first, 20_000, used)
    await store.record_risk_days(first.unsaved())
    assert first.unsaved() == []
    again = RiskHistory(await store.risk_days())
    assert again.level(ResourceName.CPU, 0.07) == first.level(ResourceName.CPU, 0.07) > first_level(0.07)
    assert again.level(ResourceName.MEMORY, 0.01) == first_level(0.01)
    judge(again, 20_000, 50)
    [stored] = again.unsaved()
    assert (stored.day, stored.intervals, stored.short) == (20_000, 4, 2)
    assert again.kept(20_000 * DAY, RISK.risk_of)[ResourceName.CPU].observed == 0.5


def test_days_are_forgotten_after_four_weeks_and_the_level_is_not():
    history = RiskHistory()
    judge(history, 20_000, 200)
    level = history.level(ResourceName.CPU, 0.07)
    judge(history, 20_000 + KEPT_DAYS + 1, 200)
    assert history.level(ResourceName.CPU, 0.07) > level
    assert [one.day for one in history.unsaved()] == [20_000 + KEPT_DAYS + 1]


async def test_a_pass_reports_how_stated_risks_are_kept_and_a_model_without_one_nothing():
    headroom = PassHeadroom(UsageState())
    await headroom.prepare(MemoryStore(), NOTHING, Policy())
    assert {one.asked for one in headroom.kept_risks.values()} == {0.07, 0.01}
    other = PassHeadroom(UsageState())
    await other.prepare(MemoryStore(), NOTHING, replace(RISK, headroom="joint-peak"))
    assert other.kept_risks == {}


async def test_a_first_pass_has_no_usage_and_no_history():
    headroom = PassHeadroom(UsageState())
    for model in ("risk", "joint-peak"):
        prepared = await headroom.prepare(MemoryStore(), NOTHING, replace(RISK, headroom=model))
        found = prepared.of_nodes(ResourceName.CPU, np.array([5]), np.array([7]), np.zeros((1, 3)))
        assert found.tolist() == [1 if model == "risk" else 7]


async def test_peaks_are_read_hour_by_hour_and_once():
    class Counting(MemoryStore):
        asked = 0

        async def peaks_of_hour(self, hour):
            self.asked += 1
            keys = [PeakKey("a", "Deployment/b", "c", str(one)) for one in range(hour - 99)]
            values = np.full(len(keys), float(hour))
            return HourlyPeaks(keys, np.full(len(keys), hour), values, 2 * values)

    store, peaks = Counting(), PeaksByHour()
    for _ in range(2):
        await peaks.load(store, frozenset({101, 100}))
    assert store.asked == 2
    found = peaks.matrices()[ResourceName.MEMORY]
    assert np.array_equal(found, np.array([[200.0, np.nan], [202.0, 202.0]]), equal_nan=True)
    assert peaks.columns_of([PeakKey("a", "Deployment/b", "c", "1"), PeakKey("x", "", "", "")]).tolist() == [1, -1]
    await peaks.load(store, frozenset({100}))
    assert peaks.matrices()[ResourceName.CPU].tolist() == [[100.0]]
