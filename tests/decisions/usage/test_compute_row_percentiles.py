import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cruise.decisions.usage.usage_columns import compute_group_maxima, compute_row_percentiles

SAMPLES = st.one_of(st.just(float("nan")), st.integers(0, 2**40).map(float))


@given(
    arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=30), elements=SAMPLES),
    st.sampled_from([0.0, 0.5, 0.75, 0.99, 1.0]),
)
def test_percentiles_are_those_of_numpy_without_what_is_missing(rows, share):
    values, counts = compute_row_percentiles(rows, share)
    for row, value, count in zip(rows, values, counts, strict=True):
        known = row[~np.isnan(row)]
        assert count == len(known)
        if len(known):
            np.testing.assert_allclose(value, np.percentile(known, 100 * share), rtol=1e-12)
        else:
            assert np.isnan(value)


def test_rows_without_columns_have_no_percentile():
    values, counts = compute_row_percentiles(np.empty((2, 0)), 0.75)
    assert np.isnan(values).all()
    assert counts.tolist() == [0, 0]


def test_group_maxima_ignore_missing_values_and_ungrouped_rows():
    values = np.array([3.0, np.nan, 5.0, 9.0, np.nan])
    groups = np.array([0, 0, 0, -1, 1])
    np.testing.assert_array_equal(compute_group_maxima(values, groups, 3), [5.0, np.nan, np.nan])
