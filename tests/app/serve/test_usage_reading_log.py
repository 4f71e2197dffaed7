"""Progress and remaining time of the first usage read."""

from datetime import timedelta

from structlog.testing import capture_logs

from cruise.app.serve.activity import UsageReadingLog, compute_read_percent, estimate_time_left
from cruise.runtime.usage.usage_reader import UsageReadingProgress


def read(done: float, total: float = 1000.0) -> UsageReadingProgress:
    return UsageReadingProgress(done, total)


def test_the_rest_takes_as_long_as_what_was_seen_says():
    assert estimate_time_left(read(100), read(300), 20.0) == timedelta(seconds=70)
    assert estimate_time_left(read(100), read(100), 20.0) is None


def test_it_is_not_all_read_before_all_is():
    assert compute_read_percent(read(999.9)) == 99
    assert compute_read_percent(read(1000)) == 100
    assert compute_read_percent(read(0, 0)) == 100


def test_a_line_is_printed_every_ten_seconds_with_share_and_time_left():
    now = 0.0
    telling = UsageReadingLog(lambda: now)
    with capture_logs() as lines:
        for second in range(0, 41, 4):
            now = float(second)
            telling(read(10.0 * (second + 4)))
    assert [(line["percent"], line["left"]) for line in lines] == [
        (16, "0:01:24"),
        (28, "0:01:12"),
        (40, "0:01:00"),
    ]


def test_what_is_read_within_seconds_says_nothing():
    with capture_logs() as lines:
        telling = UsageReadingLog(lambda: 1.0)
        for done in (10, 500, 1000):
            telling(read(done))
    assert lines == []


def test_each_pass_counts_anew():
    now = 0.0
    telling = UsageReadingLog(lambda: now)
    telling(read(1000))
    now = 300.0
    with capture_logs() as lines:
        telling(read(1, 50))
        now = 311.0
        telling(read(12, 50))
    assert [line["left"] for line in lines] == ["0:00:38"]
