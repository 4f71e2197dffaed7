"""The scrape delay, measured from the newest samples of reads."""

from dataclasses import replace

import numpy as np

from cruise.domain.usage import ContainerKey, PartitionCounterTail
from cruise.runtime.usage.usage_state import ScrapeDelay, measure_scrape_delay

AT = 6000


def tail(*ages: int) -> PartitionCounterTail:
    """Series whose last scrape was so long before the end."""
    nothing = np.zeros(len(ages))
    keys = [ContainerKey("shop", f"web-{number}", "app") for number in range(len(ages))]
    return PartitionCounterTail(AT, keys, [""] * len(ages), nothing, nothing, AT - np.array(ages, dtype=np.int64))


def test_what_most_series_lack_is_late() -> None:
    assert measure_scrape_delay([tail(120, 120), tail(60, 120), None], AT) == 120
    assert measure_scrape_delay([tail(*[0] * 9, 120)], AT) == 0
    assert measure_scrape_delay([tail(0, 0)], AT) == 0
    assert measure_scrape_delay([], AT) == 0


def test_what_is_at_rest_or_was_not_read_tells_nothing() -> None:
    assert measure_scrape_delay([tail(0, 0, 3600, 7200, AT + AT)], AT) == 0
    assert measure_scrape_delay([tail(60), tail(120, 120, 120)], AT + 60) == 0


def learned(*ages: int, passes: int = 1) -> ScrapeDelay:
    """What reads teach that follow each other minute by minute, with one series whose last scrape was so long ago."""
    settling = ScrapeDelay()
    for minute, age in enumerate(ages):
        for _ in range(passes):
            settling.learn([replace(tail(age), at=AT + 60 * minute, changed_at=changed(minute, age))], AT + 60 * minute)
    return settling


def changed(minute: int, age: int) -> np.ndarray:
    return np.array([AT + 60 * minute - age])


def test_reads_stay_behind_after_two_that_lacked_something() -> None:
    assert learned(120).seconds == 0
    assert learned(120, 120).seconds == 120
    assert learned(120, 120, 0, 60).seconds == 120


def test_a_scrape_that_was_missed_once_changes_nothing() -> None:
    assert learned(180, 0, 240, 0).seconds == 0


def test_passes_within_one_minute_read_it_once() -> None:
    assert learned(120, passes=5).seconds == 0
    assert learned(120, 0, 120, passes=5).seconds == 0


def test_scrapes_that_have_ceased_are_not_late() -> None:
    assert learned(0, 60, 120, 180, 240, 300, 360, 420, 0, 0).seconds == 0


def test_reads_are_never_more_than_five_minutes_behind() -> None:
    assert learned(*[240] * 5).seconds == 300
