"""The headroom state that is kept from pass to pass, and from process to process."""

from dataclasses import replace

import numpy as np

from cruise.decisions.sizing.headroom import SHARED_MAX_HEADROOM
from cruise.decisions.sizing.headroom_level import RequestsInEffect, compute_initial_level
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import HourlyPeaks, PeakKey, StatisticsTable
from cruise.runtime.headroom import RETENTION_DAYS, HeadroomState, RiskHistory
from cruise.runtime.usage.sample_windows import PeaksByHour
from cruise.runtime.usage.usage_state import UsageState
from cruise.simulation.store import InMemoryStore

NOTHING = StatisticsTable.from_rows([])
RISK = Policy(headroom="risk")
DAY = 86400


def count_interval_of_day(history, day, used):
    """Count one interval of one node of one container that requests 100 m."""
    requests = {one: np.array([100]) for one in ResourceName}
    in_force = RequestsInEffect(day * DAY, np.array([0]), np.array([0]), 1, requests)
    samples = np.array([[float(used)]])
    history.count_interval(in_force, day * DAY + 300, {ResourceName.CPU: samples}, RISK)


async def test_the_largest_single_headroom_takes_nothing_read():
    policy = replace(RISK, headroom="shared-max")
    assert await HeadroomState(UsageState()).prepare(InMemoryStore(), NOTHING, policy) is SHARED_MAX_HEADROOM


async def test_a_new_leader_continues_with_the_previous_headroom_level():
    store, first = InMemoryStore(), RiskHistory()
    for used in (200, 50, 200):
        count_interval_of_day(first, 20_000, used)
    await store.record_risk_days(first.take_unsaved())
    assert first.take_unsaved() == []
    again = RiskHistory(await store.read_risk_days())
    assert (
        again.get_level(ResourceName.CPU, 0.07) == first.get_level(ResourceName.CPU, 0.07) > compute_initial_level(0.07)
    )
    assert again.get_level(ResourceName.MEMORY, 0.01) == compute_initial_level(0.01)
    count_interval_of_day(again, 20_000, 50)
    [stored] = again.take_unsaved()
    assert (stored.day, stored.intervals, stored.short) == (20_000, 4, 2)
    assert again.get_observed(20_000 * DAY, RISK.get_risk)[ResourceName.CPU].observed == 0.5


def test_days_are_forgotten_after_four_weeks_and_the_level_is_not():
    history = RiskHistory()
    count_interval_of_day(history, 20_000, 200)
    level = history.get_level(ResourceName.CPU, 0.07)
    count_interval_of_day(history, 20_000 + RETENTION_DAYS + 1, 200)
    assert history.get_level(ResourceName.CPU, 0.07) > level
    assert [one.day for one in history.take_unsaved()] == [20_000 + RETENTION_DAYS + 1]


async def test_a_pass_reports_how_stated_risks_are_kept_and_a_model_without_one_nothing():
    headroom = HeadroomState(UsageState())
    await headroom.prepare(InMemoryStore(), NOTHING, Policy())
    assert {one.stated_risk for one in headroom.observed_risks.values()} == {0.07, 0.01}
    other = HeadroomState(UsageState())
    await other.prepare(InMemoryStore(), NOTHING, replace(RISK, headroom="joint-peak"))
    assert other.observed_risks == {}


async def test_a_first_pass_has_no_usage_and_no_history():
    headroom = HeadroomState(UsageState())
    for model in ("risk", "joint-peak"):
        prepared = await headroom.prepare(InMemoryStore(), NOTHING, replace(RISK, headroom=model))
        found = prepared.compute_node_headroom(ResourceName.CPU, np.array([5]), np.array([7]), np.zeros((1, 3)))
        assert found.tolist() == [1 if model == "risk" else 7]


async def test_peaks_are_read_hour_by_hour_and_once():
    class Counting(InMemoryStore):
        asked = 0

        async def read_peaks_of_hour(self, hour):
            self.asked += 1
            keys = [PeakKey("a", "Deployment/b", "c", str(one)) for one in range(hour - 99)]
            values = np.full(len(keys), float(hour))
            return HourlyPeaks(keys, np.full(len(keys), hour), values, 2 * values)

    store, peaks = Counting(), PeaksByHour()
    for _ in range(2):
        await peaks.load(store, frozenset({101, 100}))
    assert store.asked == 2
    found = peaks.maxima.peaks[ResourceName.MEMORY]
    assert np.array_equal(found, np.array([[200.0, np.nan], [202.0, 202.0]]), equal_nan=True)
    assert peaks.find_columns([PeakKey("a", "Deployment/b", "c", "1"), PeakKey("x", "", "", "")]).tolist() == [1, -1]
    await peaks.load(store, frozenset({100}))
    assert peaks.maxima.peaks[ResourceName.CPU].tolist() == [[100.0]]
