import asyncio

import pytest

from cruise.runtime.writing.api_answers import MAX_SEQUENTIAL_FAILURES, PauseState, WriteThrottle, WriteTimeouts


@pytest.fixture
def brake() -> WriteThrottle:
    return WriteThrottle(PauseState(None, WriteTimeouts(first_delay=0.001)))


async def most_together(brake: WriteThrottle, writers: int = 8) -> int:
    under_way = most = 0

    async def write() -> None:
        nonlocal under_way, most
        async with brake.acquire():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1

    await asyncio.gather(*(write() for _ in range(writers)))
    return most


async def test_writes_are_concurrent_before_and_after_a_storm_of_conflicts(brake):
    assert await most_together(brake) == 8
    brake.slow_down(0.001)
    assert await most_together(brake) == 1
    brake.report_success()
    assert await most_together(brake) == 8


async def test_a_successful_write_releases_the_waiting_ones(brake):
    brake.slow_down(0.001)
    order = []

    async def write(number: int) -> None:
        async with brake.acquire():
            order.append(number)
            brake.report_success()

    await asyncio.gather(*(write(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert await most_together(brake) == 8


async def test_those_that_were_under_way_together_press_once(brake):
    for _ in range(16):
        brake.slow_down(20)
    assert not brake.has_given_up


@pytest.mark.parametrize("asked", [None, 0.0, 3600.0])
def test_patience_ends(monkeypatch, asked):
    brake = WriteThrottle(PauseState(None))
    now = [0.0]
    monkeypatch.setattr("cruise.runtime.writing.api_answers.time.monotonic", lambda: now[0])
    presses = 0
    while not brake.has_given_up:
        brake.slow_down(asked)
        presses += 1
        now[0] += 31
    # 0.5 + 1 + 2 + … seconds; half a second each if the server states none; 30 seconds at most.
    assert presses == {None: 7, 0.0: 121, 3600.0: 3}[asked]


def test_a_failure_of_one_write_ends_the_rest_only_if_no_other_answer_arrives(brake):
    for _ in range(MAX_SEQUENTIAL_FAILURES - 1):
        brake.report_failure()
    brake.report_success()
    for _ in range(MAX_SEQUENTIAL_FAILURES - 1):
        brake.report_failure()
    assert not brake.has_given_up
    brake.report_failure()
    assert brake.has_given_up
