"""What node passes keep of headroom from pass to pass, and from process to process."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.decisions.sizing.headroom.scores import MEASURE
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.domain.headroom import DayScores
from cruise.domain.policy import HeadroomStart, Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import HourlyPeaks, PeakKey, StatisticsTable
from cruise.runtime.sizing.pass_headroom import PassHeadroom
from cruise.runtime.sizing.score_history import ScoreHistory
from cruise.runtime.sizing.shipped_scores import shipped_priors
from cruise.runtime.usage.peaks_by_hour import PeaksByHour
from cruise.runtime.usage.state import UsageState
from cruise.simulation.store.store import MemoryStore

NOTHING = StatisticsTable.of_rows([])


def asked(_):
    return 0.3


RISK = Policy(headroom="risk", headroom_start=HeadroomStart.SUM_OF_PEAKS)


async def test_the_largest_single_headroom_takes_nothing_read():
    policy = replace(RISK, headroom="shared-max")
    assert await PassHeadroom(UsageState()).prepare(MemoryStore(), NOTHING, policy) is SHARED_MAX


async def test_a_process_that_takes_over_goes_on_with_the_scores_of_the_one_before():
    store, day = MemoryStore(), 20_000
    history = ScoreHistory()
    history.add(ResourceName.CPU, day * 86400, np.array([1.0, 2.0, 300.0]))
    await store.record_headroom_scores(history.unsaved())
    assert history.unsaved() == []
    again = ScoreHistory(await store.headroom_scores())
    assert again.margins(day * 86400, asked) == history.margins(day * 86400, asked)
    assert again.margins(day * 86400, asked)[ResourceName.CPU].score > 1
    again.add(ResourceName.CPU, day * 86400, np.array([4.0]))
    [stored] = again.unsaved()
    assert (stored.day, stored.counts.sum()) == (day, 4)


async def test_a_process_that_takes_over_borrows_what_is_still_missing_and_no_more():
    store, at, policy = MemoryStore(), 20_000 * 86400, Policy()
    first, scores = ScoreHistory(priors=shipped_priors(policy)), np.full(50, 0.5)
    alone = first.promised(at, asked)[ResourceName.CPU]
    first.add(ResourceName.CPU, at, scores[:3])
    await store.record_headroom_scores(first.unsaved())
    again = ScoreHistory(await store.headroom_scores(), shipped_priors(policy))
    assert again.promised(at, asked) == first.promised(at, asked)
    borrowed = [alone[1].borrowed, again.promised(at, asked)[ResourceName.CPU][1].borrowed]
    again.add(ResourceName.CPU, at, scores)
    assert [*borrowed, again.promised(at, asked)[ResourceName.CPU][1].borrowed] == [1.0, pytest.approx(0.55), 0.0]


async def test_a_pass_tells_how_stated_risks_are_kept_and_a_model_without_one_nothing():
    headroom = PassHeadroom(UsageState())
    await headroom.prepare(MemoryStore(), NOTHING, Policy())
    assert {one.asked for one in headroom.promises.values()} == {0.07, 0.01}
    assert {one.borrowed for one in headroom.promises.values()} == {1.0}
    other = PassHeadroom(UsageState())
    await other.prepare(MemoryStore(), NOTHING, replace(RISK, headroom="joint-peak"))
    assert other.promises == {}


def test_scores_of_another_measure_are_left_aside():
    other = DayScores(ResourceName.CPU, 20_000, MEASURE + 1, np.ones(10, dtype=np.int64))
    assert ScoreHistory([other]).margins(20_000 * 86400, asked)[ResourceName.CPU].proven is False


async def test_a_first_pass_has_no_usage_and_no_scores():
    headroom = PassHeadroom(UsageState())
    for model in ("risk", "joint-peak"):
        prepared = await headroom.prepare(MemoryStore(), NOTHING, replace(RISK, headroom=model))
        found = prepared.of_nodes(ResourceName.CPU, np.array([5]), np.array([7]), np.zeros((1, 3)))
        assert found.tolist() == [7]


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
