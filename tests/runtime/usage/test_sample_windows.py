import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.records import CONTAINER_STARTS_KEPT, RETENTION
from cruise.domain.usage import (
    ContainerKey,
    ContainerStart,
    HourlyPeaks,
    PartitionProgress,
    PeakKey,
    SampleBlock,
    UsageUpdate,
)
from cruise.runtime.usage.sample_windows import KnownStarts, PeakColumns, UsageWindows
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW_SECONDS

MINUTE = 60
START = 1_767_268_200


def key(pod: str) -> ContainerKey:
    return ContainerKey("shop", pod, "app")


def block(times, rows, psi_known=True):
    """Rows map a pod to its samples, alike for CPU and memory."""
    values = np.array(list(rows.values()), dtype=np.float64).reshape(len(rows), len(times))
    return SampleBlock(
        [key(pod) for pod in rows],
        np.array(times, dtype=np.int64),
        values.astype(np.float32),
        values * 1e6,
        np.full(len(rows), psi_known),
    )


def minutes(first, count):
    return [START + MINUTE * (first + index) for index in range(count)]


def held(windows, pod):
    """The last hour of a pod, oldest first."""
    recent = windows.get_recent()
    row = windows.find_rows([key(pod)])[0]
    assert row >= 0
    return recent.cpu_demand_millicores[row, recent.columns]


def append(windows, times, rows, numbers=None, **more):
    windows.append(block(times, rows, **more), np.arange(len(rows)) if numbers is None else np.array(numbers))


def test_a_block_goes_to_its_containers_and_times():
    windows = UsageWindows()
    append(windows, minutes(0, 3), {"a": [1, np.nan, 3], "b": [4, 5, np.nan]})
    assert len(windows) == 2
    np.testing.assert_array_equal(held(windows, "a"), [np.nan] * 57 + [1, np.nan, 3])
    recent = windows.get_recent()
    rows = windows.find_rows([key("a"), key("b"), key("c")])
    assert rows[2] == -1
    np.testing.assert_array_equal(recent.newest[rows[:2]], [START + 120, START + 60])
    np.testing.assert_array_equal(recent.number[rows[:2]], [0, 1])
    assert np.nanmax(recent.memory_bytes[rows[1]]) == 5e6


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(0, 30)), min_size=1, max_size=8))
def test_the_windows_hold_the_last_hour_of_whatever_was_taken_in(spans):
    windows = UsageWindows()
    sampled: dict[int, float] = {}
    at = 0
    for length, hole in spans:
        at += hole
        values = [float(at + index) for index in range(length)]
        append(windows, minutes(at, length), {"a": values})
        sampled.update(zip(minutes(at, length), values, strict=True))
        at += length
    last = START + MINUTE * (at - 1)
    np.testing.assert_array_equal(
        held(windows, "a"), [sampled.get(last - MINUTE * back, np.nan) for back in range(59, -1, -1)]
    )


def test_blocks_of_other_containers_may_be_behind():
    windows = UsageWindows()
    append(windows, minutes(0, 10), {"a": range(10)})
    append(windows, minutes(5, 3), {"b": [1, 2, 3]}, [7])
    np.testing.assert_array_equal(held(windows, "b"), [np.nan] * 55 + [1, 2, 3, np.nan, np.nan])
    append(windows, minutes(-70, 3), {"c": [1, 2, 3]})
    assert len(windows) == 2


def test_a_gap_that_is_filled_later_leaves_what_is_there():
    windows = UsageWindows()
    append(windows, minutes(2, 2), {"a": [3, 4]})
    append(windows, minutes(0, 3), {"a": [1, 2, np.nan]})
    np.testing.assert_array_equal(held(windows, "a")[-4:], [1, 2, 3, 4])
    assert windows.get_recent().newest[windows.find_rows([key("a")])[0]] == START + 180


def test_a_container_is_as_old_as_the_last_time_at_which_both_resources_are_known():
    windows = UsageWindows()
    both, half = block(minutes(0, 2), {"a": [1, 2]}), block(minutes(2, 2), {"a": [3, 4]})
    half.cpu_demand_millicores[:] = np.nan
    for one in (both, half):
        windows.append(one, np.array([0]))
    row = windows.find_rows([key("a")])[0]
    assert windows.get_recent().newest_complete[row] == START + MINUTE
    assert windows.get_recent().newest[row] == START + 3 * MINUTE
    assert windows.get_recent().memory_bytes[row].tolist().count(4e6) == 1
    windows.append(block(minutes(2, 2), {"a": [3, 4]}), np.array([0]))
    assert windows.get_recent().newest_complete[row] == START + 3 * MINUTE


def test_what_has_no_owner_or_no_sample_takes_no_row():
    windows = UsageWindows()
    append(windows, minutes(0, 2), {"a": [1, 2], "nobody": [1, 2], "silent": [np.nan, np.nan]}, [0, -1, 1])
    assert windows.find_rows([key("a"), key("nobody"), key("silent")]).tolist() == [0, -1, -1]


def test_a_row_is_free_an_hour_after_its_last_sample():
    windows = UsageWindows()
    append(windows, minutes(0, 1), {"gone": [9]}, [5])
    row = windows.find_rows([key("gone")])[0]
    windows.advance(START + 59 * MINUTE)
    assert windows.find_rows([key("gone")])[0] == row
    windows.advance(START + 60 * MINUTE)
    assert windows.find_rows([key("gone")])[0] == -1
    append(windows, minutes(61, 1), {"next": [1]}, [6])
    assert windows.find_rows([key("next")])[0] == row
    np.testing.assert_array_equal(held(windows, "next"), [np.nan] * 59 + [1])


def test_samples_go_to_rows_that_are_known_already():
    windows = UsageWindows(least_rows=3)
    rows = windows.get_rows([key("a"), key("b"), key("c")])
    times = np.array(minutes(0, 2))
    values = np.array([[1.0, 2.0], [np.nan, np.nan], [np.nan, 4.0]])
    windows.advance(minutes(1, 1)[0])
    windows.put(rows, np.array([7, 8, 9]), times, values.astype(np.float32), values, np.array([True, True, False]))
    assert [windows.get_numbers(key(pod)) for pod in "abc"] == [7, -1, 9]
    np.testing.assert_array_equal(held(windows, "a")[-2:], [1, 2])
    np.testing.assert_array_equal(held(windows, "c")[-2:], [np.nan, 4])
    np.testing.assert_array_equal(windows.get_recent().psi_known[rows], [True, False, False])
    assert len(windows.get_recent().number) == 3


def test_rows_that_became_free_are_counted():
    windows = UsageWindows()
    append(windows, minutes(0, 1), {"a": [1], "b": [2]})
    append(windows, minutes(30, 1), {"b": [2]})
    windows.advance(minutes(60, 1)[0])
    assert windows.released == 1


def test_pressure_is_as_it_was_last():
    windows = UsageWindows()
    append(windows, minutes(0, 1), {"a": [1]}, psi_known=False)
    row = windows.find_rows([key("a")])[0]
    assert not windows.get_recent().psi_known[row]
    append(windows, minutes(1, 1), {"a": [1]})
    assert windows.get_recent().psi_known[row]


def test_numbers_can_be_exchanged():
    windows = UsageWindows()
    append(windows, minutes(0, 1), {"a": [1], "b": [2], "c": [3]}, [4, 9, 4])
    windows.renumber({4: 0, 9: 1}.__getitem__)
    assert [windows.get_numbers(key(pod)) for pod in ("a", "b", "c", "d")] == [0, 1, 0, -1]


def test_growing_keeps_what_is_there():
    windows = UsageWindows()
    append(windows, minutes(0, 1), {"a": [1]})
    append(windows, minutes(0, 1), {f"pod-{number}": [number] for number in range(3000)})
    assert len(windows) == 3001
    assert held(windows, "a")[-1] == 1
    assert held(windows, "pod-2999")[-1] == 2999


def test_225_000_containers_fit_in_300_mb():
    windows = UsageWindows()
    for first in range(0, 225_000, 25_000):
        append(windows, minutes(0, 1), {f"pod-{first + number}": [1.0] for number in range(25_000)})
    assert len(windows) == 225_000
    assert windows.nbytes <= 300e6


KEYS = [PeakKey("shop", f"DaemonSet/agent-{number}", "app", f"n{number}") for number in range(4)]
HOURS = frozenset({10, 34})
SINCE = 10

RECORDS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from(KEYS),
            st.integers(5, 40),
            st.one_of(st.just(np.nan), st.floats(0, 1e4)),
            st.integers(0, 2**40).map(float),
        ),
        max_size=6,
    ),
    min_size=1,
    max_size=6,
)


def peaks_of(rows):
    return HourlyPeaks(
        [row[0] for row in rows],
        np.array([row[1] for row in rows], dtype=np.int64),
        np.array([row[2] for row in rows], dtype=np.float64),
        np.array([row[3] for row in rows], dtype=np.float64),
    )


def summed_up(peaks: PeakColumns):
    known = peaks.get_known()
    columns = zip(
        known.keys,
        known.cpu_peak_millicores,
        known.memory_peak_bytes,
        known.memory_7d_max_bytes,
        known.first_hour,
        strict=True,
    )
    return {key: np.nan_to_num([*values], nan=-1).tolist() for key, *values in columns if key.identity}


@given(RECORDS, st.integers(0, 5))
async def test_merging_what_is_stored_gives_what_the_store_sums_up(records, loaded_after):
    store = InMemoryStore()
    peaks = PeakColumns.from_summary(await store.read_peak_summary(HOURS, SINCE), HOURS, SINCE)
    for number, rows in enumerate(records):
        recorded = peaks_of(rows)
        await store.record_usage(UsageUpdate("all", PartitionProgress(0, 60), recorded, None))
        if number == loaded_after:
            peaks = PeakColumns.from_summary(await store.read_peak_summary(HOURS, SINCE), HOURS, SINCE)
        else:
            peaks.merge(recorded)
    expected = summed_up(PeakColumns.from_summary(await store.read_peak_summary(HOURS, SINCE), HOURS, SINCE))
    actual = summed_up(peaks)
    assert {key: values for key, values in actual.items() if values[2] != -1} == expected


def test_an_identity_has_its_workload_as_parent():
    peaks = PeakColumns()
    number = peaks.get_or_add_number(KEYS[0])
    known = peaks.get_known()
    assert known.keys[known.parent[number]] == KEYS[0]._replace(identity="")
    assert known.parent[known.parent[number]] == known.parent[number]
    assert peaks.get_or_add_number(KEYS[0]) == number


def test_many_keys_are_supported():
    peaks = PeakColumns()
    numbers = [
        peaks.get_or_add_number(PeakKey("shop", f"Deployment/web-{number}", "app", "")) for number in range(5000)
    ]
    assert numbers == list(range(5000))
    assert len(peaks.get_known().parent) == 5000


KEY = PeakKey("shop", "Deployment/web", "app", "")


def start(number, cpu=900.0, started_at=NOW_SECONDS - 3600, **fields):
    ends = {"ends_at": started_at + 60, "sampled_until": started_at + 60} | fields
    return ContainerStart(*KEY[:3], f"uid-{number}", started_at, cpu_peak_millicores=cpu, **ends)


def test_a_start_that_is_read_in_two_parts_counts_once_it_is_whole():
    known = KnownStarts([start(0), start(1)])
    recent = NOW_SECONDS - 60
    known.merge([start(2, 700, recent, ends_at=0, sampled_until=recent + 30)])
    assert known.estimate(NOW_SECONDS) == {}
    known.merge([start(2, 1900, recent)])
    assert known.estimate(NOW_SECONDS)[KEY] > 900


def test_a_start_that_never_becomes_ready_is_forgotten():
    known = KnownStarts([start(number) for number in range(3)])
    known.merge([start(9, 5000, NOW_SECONDS - 10_800, ends_at=0)])
    assert known.estimate(NOW_SECONDS) == {KEY: 900}
    known.merge([start(9, 1, NOW_SECONDS - 10_800)])
    assert known.estimate(NOW_SECONDS + 86_400) == {KEY: 900}


def test_the_newest_starts_are_kept():
    known = KnownStarts([start(number, 5000, NOW_SECONDS - 86_400) for number in range(20)])
    known.merge([start(100 + number) for number in range(CONTAINER_STARTS_KEPT)])
    assert known.estimate(NOW_SECONDS) == {KEY: 900}


def test_old_starts_are_no_estimate_any_more():
    known = KnownStarts([start(number) for number in range(3)])
    assert known.estimate(NOW_SECONDS) == {KEY: 900}
    later = NOW_SECONDS + int(RETENTION.container_starts.total_seconds()) + 86_400
    assert known.estimate(later) == {}
