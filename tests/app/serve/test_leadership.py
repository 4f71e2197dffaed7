"""Only the leader runs passes and writes."""

from datetime import timedelta

import numpy as np
import pytest
from structlog.testing import capture_logs

from cruise.app.serve.leadership import fence_store, fence_store_to_term, run_while_leading, uses_leader_election
from cruise.decisions.oom import build_oom_record
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, TaintNode, WriteIntent
from cruise.domain.cluster import OomKill
from cruise.domain.policy import Mode
from cruise.domain.usage import HourlyPeaks, PartitionProgress, UsageUpdate
from cruise.errors import UnavailableError
from cruise.simulation.store import InMemoryStore
from tests.builders import NOW, make_statistic, make_table

KILL = build_oom_record(OomKill("shop", "web-1", "uid", "app", None, "", "n1", NOW, 1 << 28, None), None)
NO_PEAKS = HourlyPeaks((), np.empty(0, np.int64), np.empty(0), np.empty(0))
ADVANCE = UsageUpdate("0", PartitionProgress(0, 60), NO_PEAKS, None)


@pytest.mark.parametrize(("mode", "wanted"), [(Mode.OBSERVE, False), (Mode.INITIAL, False), (Mode.RESIZE, True)])
def test_one_is_elected_where_the_cluster_is_written_to(mode: Mode, wanted: bool):
    assert uses_leader_election(mode) is wanted


async def test_without_a_lease_the_work_begins_at_once_and_says_so_once():
    done: list[int] = []

    async def work() -> None:
        done.append(1)

    with capture_logs() as lines:
        await run_while_leading(None, work)
    assert done == [1]
    assert [line["log_level"] for line in lines] == ["info"]
    assert "no election" in lines[0]["event"]


async def test_a_former_leader_writes_no_usage_no_statistics_and_no_kill():
    leads = True
    inner = InMemoryStore()
    store = fence_store(inner, lambda: leads)
    await store.record_usage(ADVANCE)
    await store.write_statistics(make_table(make_statistic()))
    assert await store.record_oom_kill(KILL)
    leads = False
    for late in (
        store.record_usage(UsageUpdate("0", PartitionProgress(0, 30), NO_PEAKS, None)),
        store.write_statistics(make_table(make_statistic(pod="other"))),
        store.record_oom_kill(KILL),
        store.record_lost_usage(60),
        store.read_open_intents(),
        store.record_intents([WriteIntent(1, NOW, TaintNode("n1", ReasonCode.OVERLOADED))]),
    ):
        with pytest.raises(UnavailableError, match="another process leads"):
            await late
    assert (await inner.read_usage_progress())["0"].read_until == 60
    assert len((await inner.read_statistics()).keys) == 1


async def test_what_a_term_leaves_under_way_writes_nothing_in_the_next_one():
    inner = InMemoryStore()
    with fence_store_to_term(inner) as first:
        await first.record_usage(ADVANCE)
    with fence_store_to_term(inner) as second:
        with pytest.raises(UnavailableError):
            await first.write_statistics(make_table(make_statistic()))
        await second.write_statistics(make_table(make_statistic()))
    assert len((await inner.read_statistics()).keys) == 1


async def test_a_former_leader_still_reports_what_it_did_and_continues_to_read():
    inner = InMemoryStore()
    store = fence_store(inner, lambda: False)
    await store.record_outcomes(
        [Outcome(NOW, TaintNode("n1", ReasonCode.OVERLOADED), ActionResult.DONE, ReasonCode.OVERLOADED)]
    )
    assert len(await store.read_outcomes(NOW - timedelta(hours=1))) == 1
    assert not await store.is_paused()
