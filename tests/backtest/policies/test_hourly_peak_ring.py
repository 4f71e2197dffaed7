"""Hourly peaks of a week in columns, compared with a store's summary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.policies.statistics import RETENTION_HOURS, HourlyPeakRing
from cruise.decisions.usage.peaks import HourlyPeakRows
from cruise.decisions.usage.usage_columns import NEVER
from cruise.domain.usage import HourlyPeaks, PeakKey
from cruise.simulation.peak_store import InMemoryPeaks

KEYS = [PeakKey("shop", f"Deployment/web-{number}", "app", "") for number in range(3)]
SAMPLE = st.one_of(st.just(np.nan), st.integers(0, 2**20).map(float))
PEAKS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), SAMPLE, SAMPLE), max_size=8)


def peaks_of(rows):
    return HourlyPeakRows(
        np.array([row[0] for row in rows], dtype=np.int64),
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([row[2] for row in rows], dtype=np.float64),
        np.array([row[3] for row in rows], dtype=np.float64),
    )


@given(st.lists(st.tuples(st.integers(0, 90), PEAKS), min_size=1, max_size=8))
def test_the_summary_is_that_of_a_store(spans):
    week, store, hour = HourlyPeakRing(len(KEYS)), InMemoryPeaks(), 1000
    for passed, rows in spans:
        hour += passed
        # A number and an hour come once, and some sample with them.
        found = {(row[0], hour + row[1]): row[2:] for row in rows if not (np.isnan(row[2]) and np.isnan(row[3]))}
        peaks = peaks_of([(*place, *figures) for place, figures in found.items()])
        week.merge(peaks)
        store.merge(
            HourlyPeaks(
                [KEYS[number] for number in peaks.numbers],
                peaks.hours,
                peaks.cpu_demand_millicores,
                peaks.memory_bytes,
            )
        )
        hour += 3
    since, hours = hour - 168, frozenset({hour - 168, hour - 100, hour - 2, hour - 1})
    summary, expected = week.summarize(KEYS, hours, since), store.summarize(hours, since)
    known = np.flatnonzero(summary.first_hour != NEVER)
    assert {KEYS[number] for number in known} == set(expected.keys)
    order = [expected.keys.index(KEYS[number]) for number in known]
    for name in ("cpu_peak_millicores", "memory_peak_bytes", "memory_7d_max_bytes", "first_hour"):
        np.testing.assert_array_equal(getattr(summary, name)[known], getattr(expected, name)[order])


def test_an_hour_takes_the_place_of_the_one_that_counts_no_more():
    week = HourlyPeakRing(1)
    week.merge(peaks_of([(0, 5, 9.0, 9.0), (0, 6, 8.0, 8.0)]))
    week.merge(peaks_of([(0, 5 + RETENTION_HOURS, 1.0, 2.0)]))
    week.merge(peaks_of([(0, 5, 7.0, 7.0)]))  # too late
    cpu, memory = week.get_for_hours({5, 6, 5 + RETENTION_HOURS})
    assert cpu.tolist() == [[8.0], [1.0]]
    assert memory.tolist() == [[8.0], [2.0]]


def test_nothing_held_is_nothing_known():
    summary = HourlyPeakRing(2).summarize(KEYS[:2], frozenset({1}), 0)
    assert summary.first_hour.tolist() == [NEVER, NEVER]
    assert np.isnan(summary.cpu_peak_millicores).all()
