"""Peaks in memory, compared with a store's summary."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.usage import HourlyPeaks, PartitionProgress, PeakKey, UsageUpdate
from cruise.runtime.usage.peak_columns import PeakColumns
from cruise.simulation.store import InMemoryStore

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


def test_there_is_room_for_many_keys():
    peaks = PeakColumns()
    numbers = [
        peaks.get_or_add_number(PeakKey("shop", f"Deployment/web-{number}", "app", "")) for number in range(5000)
    ]
    assert numbers == list(range(5000))
    assert len(peaks.get_known().parent) == 5000
