"""Readiness: what a process waits for, and its failures."""

import re
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from cruise.adapters.kube.watching import WatchTiming
from cruise.app.serve.activity import ServeActivity
from cruise.app.serve.jobs import JobScheduler
from cruise.app.serve.readiness import ServeView
from cruise.domain.actions import ActionResult, Outcome, ReasonCode, TaintNode
from cruise.domain.policy import Mode, Policy
from cruise.errors import UnavailableError
from cruise.interfaces.http.figures import JobFigures
from cruise.runtime.usage.usage_reader import UsageReadingProgress
from cruise.simulation.store import InMemoryStore
from tests.adapters.kube.loopback import LoopbackServer, watch_loopback
from tests.builders import NOW, make_statistic, make_table


def running(**more: object) -> ServeView:
    activity = ServeActivity(is_filled=True, refreshed_at=NOW)
    one = ServeView(Policy(mode=Mode.OBSERVE), lambda: NOW, activity, waiting_for=None, opened_store=InMemoryStore())
    return replace(one, **more)  # type: ignore[arg-type]


def test_while_it_starts_it_says_what_for():
    assert running(waiting_for="the database").get_unready_reasons() == ["waiting for the database"]
    assert not running(waiting_for="the cluster").leading


def test_all_is_well_with_young_statistics():
    assert running().get_unready_reasons() == []


def test_without_statistics_it_is_not_ready_and_says_how_far_they_are():
    filling = ServeActivity(fill_progress=UsageReadingProgress(430.0, 1000.0))
    assert running(activity=filling).get_unready_reasons() == ["waiting for the statistics (43 % read)"]
    assert running(activity=ServeActivity()).get_unready_reasons() == ["waiting for the statistics"]


@pytest.mark.parametrize(("age", "expected"), [(15, []), (16, ["the statistics were last refreshed 16m ago"])])
def test_statistics_may_be_as_old_as_decisions_allow(age: int, expected: list[str]):
    activity = ServeActivity(is_filled=True, refreshed_at=NOW - timedelta(minutes=age))
    assert running(activity=activity).get_unready_reasons() == expected


def test_a_pass_that_fails_again_and_again_is_named_with_its_reason():
    activity = ServeActivity(is_filled=True, refreshed_at=NOW)
    activity.jobs["node pass"] = JobFigures("node pass", failures_in_a_row=3, error="Postgres is away")
    activity.jobs["prune"] = JobFigures("prune", failures_in_a_row=2, error="Postgres is away")
    assert running(activity=activity).get_unready_reasons() == ["node pass: failed 3 times in a row: Postgres is away"]


async def test_a_pass_that_does_not_end_or_succeed_is_named_while_this_process_leads():
    async with JobScheduler() as jobs:
        jobs.set_deadline("node pass", timedelta(0), timedelta(0), vital=True)
        one = running(controller=Passing(jobs, usage_gap_seconds=300))
        [reason] = one.get_unready_reasons()
        assert reason.startswith("node pass: no success for")
        metrics = one.metrics().decode()
    assert 'cruise_last_success_age_seconds{pass="node pass"}' in metrics
    assert "cruise_leadership_released_total 0.0" in metrics
    assert "cruise_usage_gap_seconds 300.0" in metrics


@dataclass
class Passing:
    """The jobs of a controller."""

    jobs: JobScheduler
    history_incomplete: bool = False
    usage_gap_seconds: int = 0


@pytest.mark.server
async def test_a_view_of_the_cluster_that_is_over_a_minute_old_is_not_acted_on(tmp_path: Path):
    ahead = 0.0

    def clock() -> float:
        return time.monotonic() + ahead

    # Its watches are not opened anew before half a minute has passed.
    async with watch_loopback(LoopbackServer(), tmp_path, WatchTiming(), clock=clock) as cluster:
        one = running(cluster=cluster)
        assert one.get_unready_reasons() == []
        ahead = 90.0
        [reason] = one.get_unready_reasons()
        assert re.fullmatch(r"the view of the cluster is 9\d s old", reason)
        assert one.leading


def test_before_the_store_is_open_the_api_answers_so():
    with pytest.raises(UnavailableError, match="the database is not there yet"):
        _ = running(opened_store=None).store


async def test_before_the_cluster_is_watched_there_is_no_snapshot():
    with pytest.raises(UnavailableError, match="not watched yet"):
        await running().snapshot()


async def test_statistics_are_those_of_the_last_refresh_else_those_stored():
    store = InMemoryStore()
    await store.write_statistics(make_table(make_statistic()))
    assert len((await running(opened_store=store).statistics()).keys) == 1
    activity = ServeActivity(is_filled=True, refreshed_at=NOW, statistics=make_table())
    assert len((await running(opened_store=store, activity=activity).statistics()).keys) == 0


def test_after_a_term_only_completed_actions_remain():
    activity = ServeActivity(is_filled=True, refreshed_at=NOW, statistics=make_table())
    activity.jobs["prune"] = JobFigures("prune", failures_in_a_row=9, error="away")
    activity.add([Outcome(NOW, TaintNode("n1", ReasonCode.OVERLOADED), ActionResult.DONE, ReasonCode.OVERLOADED)])
    activity.reset_for_new_term()
    one = running(activity=activity)
    assert one.get_unready_reasons() == ["waiting for the statistics"]
    assert sum(one.get_figures().outcomes.values()) == 1


def test_metrics_have_the_mode_and_the_leader():
    text = running().metrics().decode()
    assert 'cruise_mode{mode="observe"} 1.0' in text
    assert "cruise_leader 1.0" in text


def test_the_time_is_the_controllers():
    at = datetime(2030, 1, 1, tzinfo=NOW.tzinfo)
    assert running(clock=lambda: at).now() == at
