from datetime import timedelta

import pytest

from cruise.domain.actions import ActionResult, Outcome, ReasonCode, TaintNode, UntaintNode
from cruise.errors import UnavailableError
from cruise.runtime.writing.audit import AuditQueue
from cruise.simulation.store import InMemoryStore
from tests.runtime.writing.test_pending_growth import grow
from tests.simulation.scenes import START


def held(
    action,
    minutes: int = 0,
    reason: ReasonCode = ReasonCode.HOURLY_EVICTION_BUDGET_SPENT,
    verdict: ActionResult = ActionResult.SKIPPED,
) -> Outcome:
    return Outcome(START + timedelta(minutes=minutes), action, verdict, reason)


def test_the_same_again_is_no_news():
    audit = AuditQueue()
    lines = [
        held(grow()),
        held(grow(), 5),
        held(grow(), 10, ReasonCode.WAITING_FOR_CAPACITY),
        held(grow("b"), 10, ReasonCode.WAITING_FOR_CAPACITY),
        held(grow(), 15, ReasonCode.WAITING_FOR_CAPACITY, ActionResult.REFUSED),
        held(grow(), 20, ReasonCode.WAITING_FOR_CAPACITY, ActionResult.REFUSED),
        held(TaintNode("n1", ReasonCode.OVERLOADED), 20),
        held(UntaintNode("n1", ReasonCode.LOAD_NORMAL), 20),
        held(grow("c"), 20, verdict=ActionResult.FAILED),
        held(grow("c"), 25, verdict=ActionResult.FAILED),
    ]
    for line in lines:
        audit.add(line)
    # Each write without an answer counts, because each may be done.
    assert list(audit.unrecorded) == [line for number, line in enumerate(lines) if number not in (1, 5)]


async def test_a_lasting_skip_is_one_record_updated_every_hour():
    audit, store = AuditQueue(), InMemoryStore()
    told = 0
    for minutes in range(0, 24 * 60, 5):
        audit.add(held(grow(), minutes))
        told += len(audit.unrecorded)
        await audit.record(store)

    [line] = await store.read_outcomes(START)
    assert (line.first_at, line.at, line.count) == (START, START + timedelta(hours=23), 277)
    assert told == 24


async def test_the_end_of_a_skip_states_how_often_it_occurred():
    audit, store = AuditQueue(), InMemoryStore()
    for minutes in (0, 5, 10):
        audit.add(held(grow(), minutes))
    audit.add(held(grow(), 15, ReasonCode.RIGHTSIZED, ActionResult.DONE))
    await audit.record(store)

    done, hold = await store.read_outcomes(START)
    assert done.result is ActionResult.DONE
    assert (hold.first_at, hold.at, hold.count) == (START, START + timedelta(minutes=10), 3)


async def test_holds_that_take_turns_are_a_line_each():
    audit, store = AuditQueue(), InMemoryStore()
    for minutes in range(0, 125, 5):
        audit.add(
            held(
                grow(),
                minutes,
                ReasonCode.NODE_EVICTION_BUDGET_SPENT if minutes % 10 else ReasonCode.WAITING_FOR_CAPACITY,
            )
        )
    await audit.record(store)

    assert len(await store.read_outcomes(START)) == 2


async def test_a_skip_that_recurs_after_an_hour_is_a_new_record():
    audit, store = AuditQueue(), InMemoryStore()
    for minutes in (0, 61):
        audit.add(held(grow(), minutes))
    await audit.record(store)

    assert [line.count for line in await store.read_outcomes(START)] == [1, 1]


def test_what_was_done_is_always_news_and_makes_the_next_hold_so():
    audit = AuditQueue()
    done = held(grow(), 0, ReasonCode.RIGHTSIZED, ActionResult.DONE)
    lines = [held(grow()), done, done, held(grow(), 5)]
    for line in lines:
        audit.add(line)
    assert list(audit.unrecorded) == lines


def test_records_of_gone_pods_are_removed():
    audit = AuditQueue()
    for number in range(25_000):
        audit.add(held(grow(f"pod-{number}"), number // 100))
    assert len(audit._ongoing) < 21_000


async def test_forgets_pods_that_are_gone():
    audit, store = AuditQueue(), InMemoryStore()
    for minutes in (0, 5):
        audit.add(held(grow("gone"), minutes))
        audit.add(held(grow("kept"), minutes))
    audit.add(held(grow("new"), 10))
    audit.add(held(TaintNode("n1", ReasonCode.OVERLOADED), 5))
    # `new` was created after the pods were listed.
    audit.forget_gone_pods({grow("kept").uid}, START + timedelta(minutes=10))
    assert {subject for _, subject in audit._ongoing} == {grow("kept").uid, grow("new").uid, "n1"}
    await audit.record(store)
    assert {one.action.pod: one.count for one in await store.read_outcomes(START) if one.action == grow("gone")} == {
        "gone": 2
    }


async def test_lines_that_the_store_does_not_take_wait_in_their_order():
    class Lost(InMemoryStore):
        async def record_outcomes(self, outcomes, completed=()) -> None:
            raise UnavailableError("the database is gone")

    audit, store = AuditQueue(), InMemoryStore()
    first, second = held(grow("a")), held(grow("b"))
    audit.add(first)
    with pytest.raises(UnavailableError):
        await audit.record(Lost())
    audit.add(second)
    await audit.record(store)
    assert list(await store.read_outcomes(START)) == [second, first]
    assert audit.unrecorded == ()
