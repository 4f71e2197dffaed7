import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.interfaces.backtest.time_line_chart import (
    CHART_HEIGHT,
    MAX_COLUMNS,
    build_node_charts,
    downsample,
    format_start,
)
from tests.backtest_results import NODE, make_time_line


def points(path: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) (-?\d+)", path)]


def line(picture, kind):
    [found] = [one for one in picture.lines if one.kind == kind]
    return found


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 50))
def test_no_peak_and_no_trough_is_lost(values, most):
    low, high = downsample(np.array(values, dtype=np.int64), most)
    assert len(low) == len(high) <= most
    assert (int(low.min()), int(high.max())) == (min(values), max(values))
    assert bool((low <= high).all())


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300), st.integers(1, 50))
def test_every_value_lies_in_the_column_of_its_time(values, most):
    low, high = downsample(np.array(values, dtype=np.int64), most)
    if len(values) > most:
        bounds = [at * len(values) // most for at in range(most)] + [len(values)]
        parts = [values[start:end] for start, end in pairwise(bounds)]
        assert high.tolist() == [max(part) for part in parts]
        assert low.tolist() == [min(part) for part in parts]


@pytest.mark.parametrize("times", [288, 8640])
def test_a_spike_of_one_pass_is_drawn_at_its_height(times):
    cpu, _ = build_node_charts(make_time_line(times, spike_at=times // 3))
    x, y = min(points(line(cpu, "peak").path), key=lambda point: point[1])
    # 15.68 of an axis of 20 cores
    assert y == round(CHART_HEIGHT * (1 - 0.98 * 16 / 20))
    assert abs(x - MAX_COLUMNS / 3) <= 2


def test_a_month_is_no_wider_than_the_picture():
    for picture in build_node_charts(make_time_line(8640)):
        for one in picture.lines:
            xs = [x for x, _ in points(one.path)]
            assert (min(xs), max(xs)) == (0, MAX_COLUMNS)
            assert len(xs) <= 2 * MAX_COLUMNS


def test_lines_are_bands_only_where_columns_hold_several_passes():
    [short, *_], [long, *_] = build_node_charts(make_time_line(288)), build_node_charts(make_time_line(8640))
    assert not line(short, "base").path.endswith("Z")
    assert line(long, "base").path.endswith("Z")


def test_what_is_level_needs_no_points_between():
    cpu, memory = build_node_charts(make_time_line(288))
    assert points(line(cpu, "allocatable").path) == [(0, 200), (MAX_COLUMNS, 200)]
    assert points(line(memory, "allocatable").path) == [(0, 200), (MAX_COLUMNS, 200)]


def test_a_policy_without_base_has_none():
    cpu, memory = build_node_charts(make_time_line(base=False))
    assert [one.kind for one in cpu.lines] == ["peak", "requested", "allocatable"]
    assert [one.kind for one in memory.lines] == ["peak", "requested", "allocatable"]


def test_base_and_headroom_are_drawn_as_their_sum():
    timed = make_time_line(288)
    assert timed.base_cpu_millicores is not None and timed.headroom_cpu_millicores is not None
    top = int((timed.base_cpu_millicores + timed.headroom_cpu_millicores).max())
    cpu, _ = build_node_charts(timed)
    assert min(y for _, y in points(line(cpu, "headroom").path)) == round(CHART_HEIGHT * (1 - top / 20_000))


def test_axes_are_in_cores_gibibytes_and_days():
    cpu, memory = build_node_charts(make_time_line(8640))
    assert [place.text for place in cpu.y_labels] == ["0", "5", "10", "15", "20"]
    assert [place.text for place in memory.y_labels] == ["0", "20", "40", "60", "80"]
    assert [place.text for place in cpu.x_labels][:3] == ["0 d", "5 d", "10 d"]
    assert [place.text for place in build_node_charts(make_time_line(288))[0].x_labels][:3] == ["0 h", "5 h", "10 h"]
    assert cpu.description == "CPU of node-1, cores: at most 8.19 used and 10.2 requested of 16.0"
    assert format_start(make_time_line()) == "2026-01-01 00:05 UTC"


def test_memory_that_was_not_recorded_is_not_drawn():
    assert [picture.title for picture in build_node_charts(make_time_line(), memory=False)] == ["CPU"]


def test_one_pass_is_a_line_and_none_is_no_picture():
    [cpu, _] = build_node_charts(make_time_line(1))
    assert {x for x, _ in points(line(cpu, "requested").path)} == {0, MAX_COLUMNS}
    assert cpu.x_labels == ()
    assert build_node_charts(make_time_line(0)) == ()


def test_the_node_of_the_tests_is_the_terms_default():
    assert (NODE.cpu_millicores, NODE.memory_bytes) == (16_000, 64 << 30)
