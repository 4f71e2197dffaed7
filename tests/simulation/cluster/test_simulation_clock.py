"""Simulated time: the order of scheduled actions."""

from datetime import UTC, datetime
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from cruise.simulation.cluster.state import SimulationClock, convert_to_datetime, convert_to_seconds


def test_due_things_run_in_order_of_time_then_of_planning() -> None:
    clock, seen = SimulationClock(0), list[tuple[str, int]]()
    for name, at in (("b", 5), ("c", 5), ("a", 3), ("late", 11)):
        clock.schedule(at, partial(lambda name, at: seen.append((name, at)), name))
    clock.run_until(10)
    assert seen == [("a", 3), ("b", 5), ("c", 5)]
    assert clock.now == 10
    clock.run_until(11)
    assert seen[-1] == ("late", 11)


def test_actions_scheduled_meanwhile_run_too() -> None:
    clock, seen = SimulationClock(0), list[int]()

    def again(at: int) -> None:
        seen.append(at)
        clock.schedule(at + 4, again)

    clock.schedule(1, again)
    clock.run_until(10)
    assert seen == [1, 5, 9]


def test_nothing_is_due_in_the_past() -> None:
    clock, seen = SimulationClock(100), list[int]()
    clock.schedule(50, seen.append)
    clock.run_until(100)
    assert seen == [100]


@given(st.datetimes(min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1)))  # noqa: DTZ001
def test_times_round_trip_to_the_second(time: datetime) -> None:
    whole = time.replace(microsecond=0, tzinfo=UTC)
    assert convert_to_datetime(convert_to_seconds(whole)) == whole
