from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.domain.actions import Outcome, Reason, ResizePod, TaintNode, UntaintNode, Verdict
from cruise.domain.cluster import Container, Pod
from cruise.domain.resources import Amounts
from cruise.errors import Unavailable
from cruise.runtime.writing.gate import Gate, writes_at_once
from cruise.simulation.store.store import MemoryStore
from tests.simulation.scenes import START, amounts, resize, resources

ONE, OTHER = object(), object()


class Clock:
    """A clock that a test turns."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def pod(name: str = "web-1", requests: Amounts | None = None, limits: Amounts | None = None) -> Pod:
    container = Container("app", requests=requests or amounts(100, 128), limits=limits or Amounts())
    return Pod("shop", name, f"uid-{name}", (container,), node="n1")


def grow(name: str = "web-1") -> ResizePod:
    return replace(resize(pod(name), amounts(600, 128)), growth=resources(500, 0), node="n1")


def test_a_grow_counts_for_those_whose_snapshot_may_not_show_it():
    clock = Clock()
    gate = Gate(clock)
    gate.add_grow(ONE, grow())
    assert gate.grows_on("n2", clock()) == {}
    [known] = gate.grows_on("n1", clock()).values()
    assert (known.by, known.growth) == (ONE, resources(500, 0))
    assert not known.shows_in(pod())
    assert known.shows_in(pod(requests=amounts(600, 128), limits=amounts(None, 256)))
    # Who began two minutes later has seen it.
    assert gate.grows_on("n1", clock() + 120) == {}


def test_a_grow_that_was_not_done_gives_way_to_the_one_before():
    gate = Gate(Clock())
    first = gate.add_grow(ONE, grow())
    second = gate.add_grow(OTHER, grow())
    assert first is None
    assert second is not None
    gate.put_back_grow(grow(), second)
    assert [known.by for known in gate.grows_on("n1", gate.now()).values()] == [ONE]
    gate.put_back_grow(grow(), first)
    assert gate.grows_on("n1", gate.now()) == {}


def test_old_grows_are_forgotten():
    clock = Clock()
    gate = Gate(clock)
    gate.add_grow(ONE, grow("a"))
    clock.seconds += 3601
    gate.add_grow(ONE, grow("b"))
    assert list(gate.grows_on("n1", 0)) == ["uid-b"]


def held(action, minutes: int = 0, reason: Reason = Reason.BUDGET_HOUR, verdict: Verdict = Verdict.HELD) -> Outcome:
    return Outcome(START + timedelta(minutes=minutes), action, verdict, reason)


def test_the_same_again_is_no_news():
    gate = Gate()
    lines = [
        held(grow()),
        held(grow(), 5),
        held(grow(), 10, Reason.WAITING_FOR_ROOM),
        held(grow("b"), 10, Reason.WAITING_FOR_ROOM),
        held(grow(), 15, Reason.WAITING_FOR_ROOM, Verdict.REFUSED),
        held(grow(), 20, Reason.WAITING_FOR_ROOM, Verdict.REFUSED),
        held(TaintNode("n1", Reason.OVERLOADED), 20),
        held(UntaintNode("n1", Reason.LOAD_FELL), 20),
    ]
    for line in lines:
        gate.note(line)
    assert list(gate.unrecorded) == [line for number, line in enumerate(lines) if number not in (1, 5)]


def test_what_was_done_is_always_news_and_makes_the_next_hold_so():
    gate = Gate()
    done = held(grow(), 0, Reason.RIGHTSIZED, Verdict.DONE)
    lines = [held(grow()), done, done, held(grow(), 5)]
    for line in lines:
        gate.note(line)
    assert list(gate.unrecorded) == lines


def test_what_was_told_of_pods_that_are_gone_is_forgotten():
    gate = Gate()
    for number in range(25_000):
        gate.note(held(grow(f"pod-{number}"), number // 100))
    assert len(gate._told) < 21_000


async def test_lines_that_the_store_does_not_take_wait_in_their_order():
    class Lost(MemoryStore):
        async def record_outcomes(self, outcomes) -> None:
            raise Unavailable("the database is gone")

    gate, store = Gate(), MemoryStore()
    first, second = held(grow("a")), held(grow("b"))
    gate.note(first)
    with pytest.raises(Unavailable):
        await gate.record(Lost())
    gate.note(second)
    await gate.record(store)
    assert list(await store.outcomes(START)) == [second, first]
    assert gate.unrecorded == ()


@pytest.mark.parametrize(("per_second", "at_once"), [(0.5, 1), (4, 1), (50, 10), (100, 16), (10_000, 16)])
def test_no_more_is_under_way_than_a_slow_client_sends_at_once(per_second: float, at_once: int) -> None:
    assert writes_at_once(per_second) == at_once


def test_a_pod_rests_until_its_time_is_over():
    gate = Gate()
    gate.rest("a", START + timedelta(minutes=5), START)
    assert gate.rests("a", START + timedelta(minutes=4))
    assert not gate.rests("a", START + timedelta(minutes=5))
    assert not gate.rests("b", START)
