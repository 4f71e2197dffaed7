import asyncio

import pytest

from cruise.runtime.writing.braking import MOST_ALONE, Brake
from cruise.runtime.writing.pausing import Pause
from cruise.runtime.writing.waits import WriteWaits


@pytest.fixture
def brake() -> Brake:
    return Brake(Pause(None), WriteWaits(first_delay=0.001))


async def most_together(brake: Brake, writers: int = 8) -> int:
    under_way = most = 0

    async def write() -> None:
        nonlocal under_way, most
        async with brake.turn():
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.001)
            under_way -= 1

    await asyncio.gather(*(write() for _ in range(writers)))
    return most


async def test_all_go_together_until_there_is_a_storm_and_after_it(brake):
    assert await most_together(brake) == 8
    brake.press(0.001)
    assert await most_together(brake) == 1
    brake.went_through()
    assert await most_together(brake) == 8


async def test_one_that_goes_through_lets_those_go_that_wait(brake):
    brake.press(0.001)
    order = []

    async def write(number: int) -> None:
        async with brake.turn():
            order.append(number)
            brake.went_through()

    await asyncio.gather(*(write(number) for number in range(5)))
    assert order == [0, 1, 2, 3, 4]
    assert await most_together(brake) == 8


async def test_those_that_were_under_way_together_press_once(brake):
    for _ in range(16):
        brake.press(20)
    assert not brake.given_up


@pytest.mark.parametrize("asked", [None, 0.0, 3600.0])
def test_patience_ends(monkeypatch, asked):
    brake = Brake(Pause(None))
    now = [0.0]
    monkeypatch.setattr("cruise.runtime.writing.braking.time.monotonic", lambda: now[0])
    presses = 0
    while not brake.given_up:
        brake.press(asked)
        presses += 1
        now[0] += 31
    # 0.5 + 1 + 2 + … seconds; half a second each where the server asks for none; 30 seconds at most.
    assert presses == {None: 7, 0.0: 121, 3600.0: 3}[asked]


def test_what_fails_for_itself_ends_the_rest_only_where_nothing_else_comes(brake):
    for _ in range(MOST_ALONE - 1):
        brake.failed_alone()
    brake.went_through()
    for _ in range(MOST_ALONE - 1):
        brake.failed_alone()
    assert not brake.given_up
    brake.failed_alone()
    assert brake.given_up
