import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.interfaces.backtest.pareto_chart import choose_round_step, create_linear_scale, create_log_scale

VALUES = st.lists(st.floats(0, 1e6).map(lambda value: 0.0 if value < 1e-9 else value), min_size=1, max_size=9)


def plain(value: float) -> str:
    return f"{value:g}"


@pytest.mark.parametrize("scale", [create_linear_scale, create_log_scale])
@given(VALUES)
def test_every_value_lies_on_the_axis_and_larger_ones_farther(scale, values):
    drawn = scale(values, plain)
    places = [drawn.place(value) for value in sorted(values)]
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    assert places == sorted(places)


@pytest.mark.parametrize("scale", [create_linear_scale, create_log_scale])
@given(VALUES)
def test_an_axis_has_few_ticks_all_of_them_on_it(scale, values):
    ticks = scale(values, plain).ticks
    assert 1 <= len(ticks) <= 8
    assert all(-1e-9 <= scale(values, plain).place(value) <= 1 + 1e-9 for value, _ in ticks)


@given(VALUES)
def test_zero_is_at_the_start(values):
    assert create_log_scale(values, plain).place(0) == 0
    assert create_linear_scale(values, plain).place(0) == 0


def test_ticks_are_round():
    assert [text for _, text in create_linear_scale([0.81], plain).ticks] == ["0", "0.2", "0.4", "0.6", "0.8", "1"]
    assert [text for _, text in create_log_scale([0.0, 0.0004, 0.012], plain).ticks] == [
        "0",
        "0.0001",
        "0.001",
        "0.01",
        "0.1",
    ]


def test_of_many_decades_some_have_a_tick():
    ticks = create_log_scale([1e-7, 500.0], plain).ticks
    assert [text for _, text in ticks] == ["0", "1e-07", "1e-05", "0.001", "0.1", "10", "1000"]


def test_what_lies_close_together_needs_no_decades():
    assert create_log_scale([3.0, 41.0], plain).ticks == create_linear_scale([3.0, 41.0], plain).ticks


def test_use_above_the_requests_is_negative_slack_and_on_the_axis():
    scale = create_linear_scale([-0.12, 0.4], plain)
    assert scale.ticks[0] == (-0.2, "-0.2")
    assert scale.place(-0.12) > 0


def test_nothing_but_zero_is_one_tick():
    assert create_linear_scale([0.0], plain).ticks == [(0.0, "0")]
    assert create_linear_scale([], plain).ticks == [(0.0, "0")]


@given(st.floats(1e-9, 1e9))
def test_a_step_is_not_shorter_than_asked_and_not_three_times_as_long(least):
    assert least * (1 - 1e-9) <= choose_round_step(least) <= 2.5 * least * (1 + 1e-9)
