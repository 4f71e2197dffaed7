import numpy as np

from cruise.decisions.sizing.headroom import NO_HOURS, HourlyMaxima, PastDemand
from cruise.decisions.usage.usage_columns import RecentUsage
from cruise.domain.resources import ResourceName


def usage_of(samples, step):
    """Return windows whose newest column stands first, as in a ring."""
    columns = len(samples[0])
    ring = np.roll(np.array(samples, dtype=np.float64), 1, axis=1)
    order = (np.arange(columns) + 1) % columns
    rows = len(samples)
    return RecentUsage(
        ring.astype(np.float32),
        2 * ring,
        order,
        np.zeros(rows, np.int64),
        np.ones(rows, np.bool_),
        np.ones(rows, np.int64),
        np.ones(rows, np.int64),
    )


def test_minutes_become_the_largest_of_five_and_rows_follow_the_statistics():
    usage = usage_of([list(range(60)), [np.nan] * 55 + [1.0, np.nan, 3.0, 2.0, np.nan]], 60)
    past = PastDemand.create(usage, np.array([1, -1, 0]), np.full(3, -1), NO_HOURS)
    cpu, memory = past.recent[ResourceName.CPU], past.recent[ResourceName.MEMORY]
    assert cpu.shape == (3, 12)
    assert cpu[0, -1] == 3.0 and np.isnan(cpu[0, :-1]).all()
    assert np.isnan(cpu[1]).all()
    assert cpu[2].tolist() == [4.0 + 5 * part for part in range(12)]
    assert memory[2].tolist() == (2 * cpu[2]).tolist()


def test_a_step_of_five_minutes_is_unchanged():
    past = PastDemand.create(usage_of([list(range(12))], 300), np.array([0]), np.array([-1]), NO_HOURS)
    assert past.recent[ResourceName.CPU][0].tolist() == list(range(12))


def test_hours_belong_to_each_rows_number():
    hours = {one: np.array([[1.0, 2.0], [3.0, np.nan]]) for one in ResourceName}
    numbers = np.array([1, -1, 0])
    past = PastDemand.create(usage_of([[0.0] * 12], 300), np.full(3, -1), numbers, HourlyMaxima(hours))
    # The last row was added later.
    rows = np.array([2, 0, 1, 3])
    nothing = [np.nan, np.nan]
    found = past.get_hours(ResourceName.CPU, rows)
    assert np.array_equal(found, np.array([[1.0, 3.0], [2.0, np.nan], nothing, nothing]), equal_nan=True)
    usual = past.get_usual_maxima(ResourceName.CPU, rows)
    assert np.array_equal(usual, np.array([2.5, 2.0, np.nan, np.nan]), equal_nan=True)


def test_without_hours_there_are_no_columns():
    hours = {one: np.empty((0, 2)) for one in ResourceName}
    past = PastDemand.create(usage_of([[0.0] * 12], 300), np.array([0]), np.array([1]), HourlyMaxima(hours))
    assert past.get_hours(ResourceName.MEMORY, np.array([0])).shape == (1, 0)
    assert np.isnan(past.get_usual_maxima(ResourceName.MEMORY, np.array([0]))).tolist() == [True]
