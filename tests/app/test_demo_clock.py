from datetime import UTC, datetime, timedelta

import pytest

from cruise.app.demo_frames import DemoClock
from cruise.app.serve.activity import ServeActivity

START = datetime(2026, 1, 5, 9, 1, tzinfo=UTC)
AHEAD = timedelta(minutes=7, seconds=30)


def test_it_is_as_fast_as_asked_while_the_passes_keep_up():
    activity = ServeActivity(refreshed_at=START)
    clock = DemoClock(START, 300.0, AHEAD, activity)
    for _ in range(100):
        activity.refreshed_at = clock.tick(0.1)
    assert clock.now == START + timedelta(seconds=3000)
    assert clock.get_speed == pytest.approx(300.0)


def test_it_never_runs_further_ahead_than_its_passes_however_slow_they_are():
    activity = ServeActivity(refreshed_at=START)
    clock = DemoClock(START, 300.0, AHEAD, activity)
    for step in range(1, 1000):
        now = clock.tick(0.1)
        assert activity.refreshed_at is not None
        assert now - activity.refreshed_at <= AHEAD
        # A refresh takes four seconds, in which twenty simulated minutes would pass.
        if step % 40 == 0:
            activity.refreshed_at = now
    assert 0 < clock.get_speed < 150


def test_a_process_that_was_stopped_makes_no_leap():
    clock = DemoClock(START, 300.0, AHEAD, ServeActivity())
    assert clock.tick(3600.0) - START == timedelta(seconds=300)


def test_it_never_decreases():
    activity = ServeActivity()
    clock = DemoClock(START, 300.0, AHEAD, activity)
    later = clock.tick(1.0)
    activity.refreshed_at = START - timedelta(hours=1)
    assert clock.tick(1.0) == later
