"""The ring buffer of measurements: its retention and containers."""

import numpy as np

from cruise.domain.usage import ContainerKey
from cruise.simulation.demand.history import EarlierDemand, MeasurementHistory
from tests.simulation.scenes import AdjustableDemand

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


def test_namespaces_are_apart_and_keys_sorted() -> None:
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
