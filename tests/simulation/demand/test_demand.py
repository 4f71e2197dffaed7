"""Replayed traces: step interpolation, offsets, loops and restarted processes."""

from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.domain.arrays import Float64Array
from cruise.domain.resources import Resources
from cruise.simulation.demand.demand import ContainerProfile, TraceMember, TraceUsage
from cruise.simulation.demand.trace import Trace, TraceSeries

ORIGIN = datetime(2026, 1, 5, tzinfo=UTC)
OLD = np.array([10**6])
SERIES = (TraceSeries("a", "web", Resources(100, 100)), TraceSeries("b", "db", Resources(100, 100)))
CPU = np.array([[1.0, 2.0, 3.0], [10.0, np.nan, 30.0]])
MEMORY = np.array([[500.0, 100.0, 300.0], [7.0, 7.0, 7.0]])


def trace(times: list[int], memory: Float64Array | None = MEMORY) -> Trace:
    return Trace(SERIES, np.array(times, dtype=np.int64), CPU, memory)


def cpu(usage: TraceUsage, member: int, seconds: list[int]) -> list[float]:
    at = np.array(seconds) + int(ORIGIN.timestamp())
    return [float(value) for value in usage.compute_demand(np.array([member]), at, OLD)[0]]


@pytest.mark.parametrize("times", [[0, 60, 120], [900, 960, 1020]])
def test_sample_holds_until_the_next(times: list[int]) -> None:
    usage = TraceUsage(trace(times), ORIGIN)
    assert cpu(usage, 0, [0, 59, 60, 119, 120, 179]) == [1, 1, 2, 2, 3, 3]


def test_uneven_times_hold_too() -> None:
    usage = TraceUsage(trace([0, 60, 240]), ORIGIN)
    assert cpu(usage, 0, [59, 60, 239, 240]) == [1, 2, 2, 3]


def test_nothing_is_known_outside_the_trace_or_where_a_sample_is_missing() -> None:
    usage = TraceUsage(trace([0, 60, 120]), ORIGIN)
    assert np.isnan(cpu(usage, 0, [-1, 180])).all()
    assert np.isnan(cpu(usage, 1, [60])).all()


def test_loop_repeats_both_ways() -> None:
    usage = TraceUsage(trace([0, 60, 120]), ORIGIN, loop=True)
    assert cpu(usage, 0, [180, 240, 300, 360, -60, -180, 180 * 10**5]) == [1, 2, 3, 1, 3, 1, 1]


def test_offsets_shift_members_of_one_series() -> None:
    usage = TraceUsage(
        trace([0, 60, 120]), ORIGIN, [TraceMember(0), TraceMember(0, 60), TraceMember(1, 120)], loop=True
    )
    assert [cpu(usage, member, [0])[0] for member in range(3)] == [1, 2, 30]


def test_fresh_process_warms_up_from_the_least_that_the_trace_shows() -> None:
    usage = TraceUsage(trace([0, 60, 120]), ORIGIN, warm_up_seconds=300)
    at = np.full(4, int(ORIGIN.timestamp()))
    _, memory = usage.compute_demand(np.array([0]), at, np.array([0, 150, 300, 10**6]))
    assert memory.tolist() == [100, 300, 500, 500]


def test_trace_without_memory_uses_none() -> None:
    usage = TraceUsage(trace([0, 60, 120], None), ORIGIN)
    _, memory = usage.compute_demand(np.array([0, 1]), np.array([int(ORIGIN.timestamp())]), OLD)
    assert memory.tolist() == [0, 0]


def test_pods_beyond_the_members_start_over() -> None:
    profile = ContainerProfile(TraceUsage(trace([0, 60, 120]), ORIGIN), (4, 9))
    assert [profile.get_member(slot) for slot in range(5)] == [4, 9, 4, 9, 4]
