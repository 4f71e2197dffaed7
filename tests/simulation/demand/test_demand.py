"""Replayed traces: step interpolation, offsets, loops and restarted processes."""

from datetime import UTC, datetime

import numpy as np
import pytest

from cruise.domain.arrays import Float64Array
from cruise.domain.resources import Resources
from cruise.domain.usage import ContainerKey
from cruise.simulation.demand.demand import ContainerProfile, EarlierDemand, MeasurementHistory, TraceMember, TraceUsage
from cruise.simulation.demand.trace import Trace, TraceSeries
from tests.simulation.scenes import AdjustableDemand

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


WEB, DB = ContainerKey("shop", "web", "app"), ContainerKey("data", "db", "app")


def history(start: int = 0, retention: int = 300) -> MeasurementHistory:
    return MeasurementHistory(start, 60, retention)


def record(kept: MeasurementHistory, at: int, row: int, cpu: float) -> None:
    kept.record(at, np.array([row]), np.array([cpu]), np.array([cpu * 10]))


def times(*seconds: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(seconds, dtype=np.int64)


def test_new_measurements_replace_the_oldest() -> None:
    kept = history()
    row = kept.add(WEB, "n1", None)
    for minute in range(1, 9):
        record(kept, 60 * minute, row, minute)
    found = kept.read("shop", times(*range(60, 600, 60)))
    np.testing.assert_array_equal(found.cpu_demand_millicores, [[np.nan] * 3 + [4, 5, 6, 7, 8] + [np.nan]])
    np.testing.assert_array_equal(found.memory_bytes[0, 3:8], [40, 50, 60, 70, 80])


def test_namespaces_are_separate_and_keys_sorted() -> None:
    kept = history()
    rows = [kept.add(key, "n1", None) for key in (WEB, DB, WEB._replace(container="a"))]
    kept.record(60, np.array(rows), np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    assert [key.container for key in kept.read("shop", times(60)).keys] == ["a", "app"]
    assert kept.read("data", times(60)).keys == [DB]
    assert kept.read("nowhere", times(60)).keys == []


def test_containers_without_a_sample_at_the_times_are_omitted() -> None:
    kept = history()
    row = kept.add(WEB, "n1", None)
    kept.add(WEB._replace(pod="idle"), "n1", None)
    record(kept, 60, row, 1)
    assert kept.read("shop", times(60)).keys == [WEB]
    assert kept.read("shop", times(120)).keys == []


def test_many_rows_fit() -> None:
    kept = history()
    rows = [kept.add(WEB._replace(pod=f"{number:03}"), "n1", None) for number in range(200)]
    kept.record(60, np.array(rows), np.arange(200.0), np.arange(200.0))
    assert kept.read("shop", times(60)).cpu_demand_millicores[:, 0].tolist() == list(range(200))


def test_retired_row_is_used_again_after_the_retention_only() -> None:
    kept = history(retention=300)
    old = kept.add(WEB, "n1", None)
    record(kept, 60, old, 1)
    kept.retire(old, 60)
    record(kept, 120, kept.add(DB, "n1", None), 1)
    assert kept.read("shop", times(60, 120)).keys == [WEB]
    for at in range(180, 480, 60):
        kept.record(at, np.array([], dtype=np.int64), np.array([]), np.array([]))
    new = kept.add(WEB._replace(pod="new"), "n2", None)
    assert new == old
    record(kept, 480, new, 2)
    found = kept.read("shop", times(240, 300, 360, 420, 480))
    assert [key.pod for key in found.keys] == ["new"]
    assert found.nodes == ["n2"]
    assert np.isfinite(found.memory_bytes[0]).tolist() == [False, False, False, False, True]


def test_past_is_the_demand_since_the_process_started() -> None:
    kept = history(start=600)
    dial = AdjustableDemand(cpu=70, mebibytes=1)
    kept.add(WEB, "n1", EarlierDemand(dial, 0, 400, 2.0**19))
    found = kept.read("shop", times(360, 420, 600, 660))
    np.testing.assert_array_equal(found.cpu_demand_millicores, [[np.nan, 70, 70, np.nan]])
    np.testing.assert_array_equal(found.memory_bytes, [[np.nan, 2.0**19, 2.0**19, np.nan]])
