"""Expected values are from upstream pkg/recommender/model/container_test.go; each test names its source."""

import numpy as np
import pytest

from cruise.backtest.baselines.vpa_recommender import DecayingHistograms, ExponentialBuckets, VpaMemoryPeaks
from cruise.domain.arrays import Float64Array, Int64Array

MIB = 1 << 20
DAY = 86400
NOW = 1_492_536_905
ONE = np.array([0])


class Journal(DecayingHistograms):
    """Histograms that record additions and subtractions: sign, bytes, and the time after NOW."""

    def __init__(self) -> None:
        super().__init__(1, ExponentialBuckets.create(1e12, 1e7, 1.05), (0.9,), DAY, 1e-4)
        self.lines: list[tuple[str, float, int]] = []

    def add(self, rows: Int64Array, values: Float64Array, weight: float, time: Int64Array) -> None:
        super().add(rows, values, weight, time)
        self.lines += [("+", value, time - NOW) for value, time in zip(values.tolist(), time.tolist(), strict=True)]

    def subtract(self, rows: Int64Array, values: Float64Array, weight: float, time: Int64Array) -> None:
        super().subtract(rows, values, weight, time)
        self.lines += [("-", value, time - NOW) for value, time in zip(values.tolist(), time.tolist(), strict=True)]


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def peaks(journal: Journal) -> VpaMemoryPeaks:
    return VpaMemoryPeaks(journal, ONE)


def use(peaks: VpaMemoryPeaks, used: float, time: int) -> None:
    peaks.add(ONE, np.array([float(used)]), time)


def test_a_window_has_one_peak_dated_at_its_end(peaks: VpaMemoryPeaks, journal: Journal) -> None:
    """TestAggregateContainerUsageSamples."""
    use(peaks, 5, NOW)
    use(peaks, 10, NOW + DAY // 2)
    use(peaks, 2, NOW + DAY)
    use(peaks, -1000, NOW + 2 * DAY)
    use(peaks, 1000, NOW + DAY // 2)
    assert journal.lines == [("+", 5, DAY), ("-", 5, DAY), ("+", 10, DAY), ("+", 2, 2 * DAY)]


@pytest.mark.parametrize(("requested", "needed"), [(1000, 1200), (1, 101)])
def test_a_kill_counts_as_more_than_was_requested(
    requested: int, needed: int, peaks: VpaMemoryPeaks, journal: Journal
) -> None:
    """TestRecordOOMIncreasedByBumpUp, TestRecordOOMIncreasedByMin."""
    assert peaks.add_oom_kill(0, requested * MIB, NOW)
    assert journal.lines == [("+", needed * MIB, DAY)]


def test_kills_do_not_add_up(peaks: VpaMemoryPeaks, journal: Journal) -> None:
    """TestRecordOOMDontRunAway."""
    for requested in (1000, 999, 999):
        assert peaks.add_oom_kill(0, requested * MIB, NOW)
    assert journal.lines == [("+", 1200 * MIB, DAY)]
    assert peaks.add_oom_kill(0, 2000 * MIB, NOW)
    assert journal.lines[1:] == [("-", 1200 * MIB, DAY), ("+", 2400 * MIB, DAY)]


def test_a_kill_counts_as_more_than_was_used(peaks: VpaMemoryPeaks, journal: Journal) -> None:
    """TestRecordOOMMaxedWithKnownSample."""
    use(peaks, 3000 * MIB, NOW)
    assert peaks.add_oom_kill(0, 1000 * MIB, NOW)
    assert journal.lines == [("+", 3000 * MIB, DAY), ("-", 3000 * MIB, DAY), ("+", 3600 * MIB, DAY)]


def test_a_kill_from_before_the_window_is_dropped(peaks: VpaMemoryPeaks, journal: Journal) -> None:
    """TestRecordOOMDiscardsOldSample."""
    use(peaks, 1000 * MIB, NOW)
    assert not peaks.add_oom_kill(0, 1000 * MIB, NOW - 30 * 3600)
    assert journal.lines == [("+", 1000 * MIB, DAY)]


def test_a_kill_can_open_a_window_and_knows_the_last_peak(peaks: VpaMemoryPeaks, journal: Journal) -> None:
    """TestRecordOOMInNewWindow."""
    use(peaks, 2000 * MIB, NOW)
    assert peaks.add_oom_kill(0, 1000 * MIB, NOW + 2 * DAY)
    assert journal.lines == [("+", 2000 * MIB, DAY), ("+", 2400 * MIB, 3 * DAY)]


def test_a_replaced_pod_begins_a_new_window_and_leaves_its_peak(peaks: VpaMemoryPeaks, journal: Journal) -> None:
    use(peaks, 5, NOW)
    peaks.reset(ONE)
    use(peaks, 3, NOW + 3600)
    assert journal.lines == [("+", 5, DAY), ("+", 3, DAY + 3600)]


def test_two_containers_of_a_workload_have_separate_windows() -> None:
    """aggregate_container_state_test.go, TestAggregateStateByContainerName: both peaks are in the one histogram."""
    histograms = DecayingHistograms(1, ExponentialBuckets.create(1e12, 1e7, 1.05), (0.5, 1.0), DAY, 1e-4)
    peaks = VpaMemoryPeaks(histograms, np.array([0, 0]))
    peaks.add(np.array([0, 1]), np.array([2e9, 4e9]), NOW)
    assert histograms.compute_percentiles()[:, 0] == pytest.approx([2e9, 4e9], rel=0.05)
