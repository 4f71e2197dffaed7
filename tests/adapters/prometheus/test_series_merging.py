"""Several series of one container: replicas that agree, and forged ones that do not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.series_merging import (
    find_concurrent_ids,
    find_gauge_disagreements,
    find_overlapping_starts,
    merge_counters,
)

NAN = float("nan")
MEBIBYTE = 1 << 20
NOTHING = np.array([NAN])
MOST = 16 * 60.0


def fold(one, other, before=NOTHING):
    merged, disagree = merge_counters(np.array([one], float), np.array([other], float), np.array(before, float), MOST)
    return merged[0].tolist(), disagree[0].tolist()


def is_growing(merged):
    known = np.array(merged)[~np.isnan(merged)]
    return bool((np.diff(known) >= 0).all())


def test_replicas_one_scrape_apart_agree_and_grow_as_one():
    merged, disagree = fold([1000, 1006, 1012, 1018, 1024], [1003, 1009, 1015, 1021, 1027])
    assert merged == [1003, 1006, 1012, 1018, 1024]
    assert not any(disagree)


def test_rejects_a_forged_counter_that_is_ahead_or_behind():
    truth = [1000, 1006, 1012, 1018, 1024]
    assert all(fold(truth, [5000, 5450, 5900, 6350, 6800])[1])
    assert all(fold(truth, [10, 460, 910, 1360, 1810])[1])


def test_a_new_forged_counter_adds_no_growth():
    merged, disagree = fold([1006, 1012, 1018, 1024], [NAN, NAN, NAN, 5000], [1000])
    assert (merged, any(disagree)) == ([1006, 1012, 1018, 1024], False)
    merged, _ = fold([1006, 1012, 1018, 1024], [7, 7, 7, 7], [1000])
    assert merged == [1006, 1012, 1018, 1024]


def test_an_idle_container_next_to_a_forged_counter_has_no_usage():
    merged, _ = fold([50] * 5, [500, 950, 1400, 1850, 2300], [50])
    assert np.isnan(merged).all()


def test_a_replica_that_misses_scrapes_still_agrees():
    merged, disagree = fold([1000, 1006, 1012, 1018, 1024, 1030], [1003, 1003, 1003, 1003, 1027, 1033])
    assert not any(disagree)
    # The replica that is behind does not have the samples in between yet.
    assert np.isnan(merged).tolist() == [False, True, True, True, False, False]
    assert is_growing(merged)


def test_a_replica_that_ends_or_begins_agrees():
    assert not any(fold([1000, 1006, NAN, NAN, NAN], [1003, 1009, 1015, 1021, 1027])[1])
    assert not any(fold([NAN, NAN, 1012, 1018, 1024], [1003, 1009, 1015, 1021, 1027])[1])


def test_replicas_that_see_the_same_reset_agree():
    merged, disagree = fold([1000, 1006, 3, 9, 15, 21], [1003, 1009, 1010, 6, 12, 18])
    assert not any(disagree)
    assert merged[-1] in (18, 21)


def test_a_counter_that_falls_alone_disagrees():
    assert any(fold([1000, 1006, 1012, 1018, 1024], [1003, 0, 450, 900, 1350])[1])


def test_rejects_only_the_steps_around_a_contradiction():
    truth = 1000 + 6.0 * np.arange(60)
    other = truth + 3
    other[30:33] += 5000
    _, disagree = fold(truth, other)
    assert all(disagree[30:33])
    assert not any(disagree[:20])
    assert not any(disagree[45:])


@given(
    st.lists(st.floats(0, 16), min_size=12, max_size=12),
    st.floats(0, 59),
    st.floats(0, 59),
    st.sets(st.integers(0, 10), max_size=3),
)
def test_replicas_of_any_use_at_any_moments_agree(cores, first, second, missed):
    edges = np.arange(13) * 60.0
    total = 100 + np.concatenate(([0.0], np.cumsum(np.array(cores) * 60)))

    def scraped(lag, holes):
        values = np.interp(edges[1:] - lag, edges, total)
        for hole in sorted(holes):
            values[hole + 1] = values[hole]
        return values

    merged, disagree = fold(scraped(first, set()), scraped(second, missed))
    assert not any(disagree)
    assert is_growing(merged)


def test_gauges_of_replicas_agree_and_forged_ones_do_not():
    one = np.array([[1000.0, 1100, 1050, 1600, 1610]]) * MEBIBYTE
    other = np.array([[1000.0, 1090, 1060, 1070, 1600]]) * MEBIBYTE
    assert not find_gauge_disagreements(one, other).any()
    assert find_gauge_disagreements(one, np.full((1, 5), 8000.0 * MEBIBYTE)).all()
    assert not find_gauge_disagreements(one, np.full((1, 5), NAN)).any()


def owners(*of):
    return np.array(of, dtype=np.int64)


def test_a_restart_is_one_container_and_an_id_that_counts_concurrently_is_not():
    restart = np.array([[1000, 1006, 1009, 1009, NAN], [NAN, NAN, 3, 9, 15]])
    assert find_concurrent_ids(restart, owners(0, 0), 1) is None
    forged = np.array([[1000, 1006, 1012, 1018, 1024], [NAN, NAN, 3, 453, 903]])
    found = find_concurrent_ids(forged, owners(0, 0), 1)
    assert found is not None
    assert found.tolist() == [[False, True, True, True]]
    lasting = np.array([[1000, 1006, 1012], [3, 453, 903], [1, 2, 3]])
    found = find_concurrent_ids(lasting, owners(1, 1, 0), 2)
    assert found is not None
    assert found.tolist() == [[False, False], [True, True]]


def test_an_old_id_that_lingers_from_before_the_read_is_not_alive():
    assert find_concurrent_ids(np.array([[1009, 1009, 1009, NAN], [3, 9, 15, 21]]), owners(0, 0), 1) is None


def test_two_names_of_one_control_group_with_equal_counts_are_one():
    assert find_concurrent_ids(np.array([[1000, 1006, 1012, 1018], [2000, 2006, 2012, 2018]]), owners(0, 0), 1) is None


@pytest.mark.parametrize(("old", "expected"), [([1000, 1006, 1012], [False, True]), ([1006, 1006, 1006], None)])
def test_ignores_the_earlier_growth_of_an_id_next_to_another(old, expected):
    found = find_overlapping_starts(np.array([old, [NAN, NAN, 900]]), owners(0, 0))
    assert (found if found is None else found[1].tolist()) == expected


def test_rejects_a_counter_that_no_missed_scrape_explains():
    assert fold([1000], [9000], [994]) == ([1000], [True])
    assert fold([1000], [1900], [994]) == ([1000], [False])
