import numpy as np
import pytest

from cruise.backtest.baselines.eks import WorkloadUsageHistory

HOUR = 3600
ONE = np.array([0])


def matrix(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32).reshape(-1, 1)


def test_a_percentile_is_the_end_of_the_bucket_that_holds_it():
    recent = WorkloadUsageHistory(ONE, 7)
    recent.add(HOUR, matrix(*range(1, 101)), matrix())

    assert recent.get_cpu_percentile(0.95)[0] == pytest.approx(95, rel=0.06)
    assert recent.get_cpu_percentile(0.5)[0] == pytest.approx(50, rel=0.06)


def test_a_row_without_samples_is_zero():
    recent = WorkloadUsageHistory(np.array([0, 1]), 7)
    recent.add(HOUR, np.array([[100, np.nan]], dtype=np.float32), np.array([[5, np.nan]], dtype=np.float32))

    assert recent.get_cpu_percentile(0.95)[1] == 0
    assert recent.get_memory_maximum().tolist() == [5, 0]


def test_containers_of_one_row_are_looked_at_together():
    recent = WorkloadUsageHistory(np.array([0, 0]), 7)
    recent.add(HOUR, np.array([[100, 1000]] * 10, dtype=np.float32), np.array([[1, 7]] * 10, dtype=np.float32))

    assert recent.get_cpu_percentile(0.4)[0] == pytest.approx(100, rel=0.06)
    assert recent.get_cpu_percentile(0.95)[0] == pytest.approx(1000, rel=0.06)
    assert recent.get_memory_maximum()[0] == 7


@pytest.mark.parametrize(("days_later", "known"), [(6, True), (8, False)])
def test_use_is_forgotten_after_the_days_that_are_kept(days_later: int, known: bool):
    recent = WorkloadUsageHistory(ONE, 7)
    recent.add(HOUR, matrix(5000), matrix(9))
    recent.add(HOUR + days_later * 86400, matrix(100), matrix(1))

    assert recent.get_memory_maximum()[0] == (9 if known else 1)
    assert bool(recent.get_cpu_percentile(1.0)[0] > 4000) is known


def test_a_long_gap_leaves_nothing_behind():
    recent = WorkloadUsageHistory(ONE, 7)
    recent.add(HOUR, matrix(5000), matrix(9))
    recent.add(HOUR + 400 * 86400, matrix(100), matrix(1))

    assert recent.get_memory_maximum()[0] == 1


def test_a_row_is_known_since_its_first_sample():
    recent = WorkloadUsageHistory(np.array([0, 1]), 7)
    recent.add(HOUR, np.array([[1, np.nan]], dtype=np.float32), matrix())
    recent.add(2 * HOUR, np.array([[1, 1]], dtype=np.float32), matrix())

    assert recent.get_known_for(13 * HOUR, 12 * HOUR).tolist() == [True, False]
    assert recent.get_known_for(14 * HOUR, 12 * HOUR).tolist() == [True, True]
