"""The level to which growth is cut, against trying every level."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.sizing.trimming import level_within

sizes = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=8)


def taken(before: np.ndarray, after: np.ndarray, level: int) -> int:
    return int((np.maximum(np.minimum(after, level), before) - before).sum())


@given(sizes, st.integers(-5, 200))
def test_the_level_is_the_highest_that_there_is_room_for(growing, room):
    before = np.array([now for now, _ in growing])
    after = before + np.array([more for _, more in growing])
    level = level_within(before, after, room)
    if room < 0:
        assert level == 0
    else:
        assert taken(before, after, level) <= room
        assert level >= after.max() or taken(before, after, level + 1) > room


def test_small_ones_get_all_that_they_need():
    level = level_within(np.array([100, 500, 600]), np.array([300, 1500, 1200]), 3000 - 700 - 1200)
    assert level == 1000
