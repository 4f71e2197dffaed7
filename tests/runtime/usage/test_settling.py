"""How late samples come, from the tails of reads."""

import numpy as np

from cruise.domain.usage import ContainerKey, CounterTail
from cruise.runtime.usage.settling import Settling, unsettled_seconds

AT = 6000


def tail(*ages: int) -> CounterTail:
    """Series whose last scrape was so long before the end."""
    nothing = np.zeros(len(ages))
    keys = [ContainerKey("shop", f"web-{number}", "app") for number in range(len(ages))]
    return CounterTail(AT, keys, [""] * len(ages), nothing, nothing, AT - np.array(ages, dtype=np.int64))


def test_what_most_series_lack_is_late() -> None:
    assert unsettled_seconds([tail(120, 120), tail(60, 120), None], AT) == 120
    assert unsettled_seconds([tail(*[0] * 9, 120)], AT) == 0
    assert unsettled_seconds([tail(0, 0)], AT) == 0
    assert unsettled_seconds([], AT) == 0


def test_what_is_at_rest_or_was_not_read_tells_nothing() -> None:
    assert unsettled_seconds([tail(0, 0, 3600, 7200, AT + AT)], AT) == 0
    assert unsettled_seconds([tail(60), tail(120, 120, 120)], AT + 60) == 0


def test_reads_stay_behind_after_two_that_lacked_something() -> None:
    settling = Settling()
    settling.learn([tail(120)], AT)
    assert settling.seconds == 0
    settling.learn([tail(120)], AT)
    assert settling.seconds == 120
    settling.learn([tail(0)], AT)
    settling.learn([tail(60)], AT)
    assert settling.seconds == 120


def test_a_scrape_that_was_missed_once_changes_nothing() -> None:
    settling = Settling()
    for ages in ([180], [0], [240], [0]):
        settling.learn([tail(*ages)], AT)
    assert settling.seconds == 0


def test_reads_are_never_more_than_five_minutes_behind() -> None:
    settling = Settling()
    for _ in range(5):
        settling.learn([tail(240)], AT)
    assert settling.seconds == 300
