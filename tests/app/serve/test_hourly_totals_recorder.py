"""The cluster totals that are stored for an hour."""

from dataclasses import replace
from datetime import timedelta

from cruise.app.serve.activity import HourlyTotalsRecorder, ServeActivity
from cruise.domain.records import get_clock_hour
from cruise.domain.resources import Resources
from cruise.interfaces.http.figures import compute_cluster_totals, summarize_node_pass
from tests.interfaces.http.api_scene import NOW, make_busy_scene
from tests.simulation.scenes import run


async def test_the_first_pass_of_an_hour_that_knows_what_is_used_is_kept_with_what_was_saved():
    scene, activity, sums = await make_busy_scene(), ServeActivity(), HourlyTotalsRecorder()
    run(scene.world, 60)
    assert scene.done is not None
    after = replace(scene.done, snapshot=await scene.snapshot())
    moment = compute_cluster_totals(summarize_node_pass(after), await scene.statistics(), timedelta(minutes=15))
    await sums.record(scene.store, activity)
    activity.node_pass = after
    activity.history.append(replace(moment, used=None))
    await sums.record(scene.store, activity)
    assert await scene.store.read_hourly_totals(0) == []
    activity.history.append(moment)
    await sums.record(scene.store, activity)
    later = after.at + timedelta(minutes=59)
    activity.node_pass = replace(after, at=later)
    activity.history.append(replace(moment, at=later, requested=Resources(1, 1)))
    await sums.record(scene.store, activity)
    [kept] = await scene.store.read_hourly_totals(0)
    assert (kept.hour, kept.requested, kept.used) == (get_clock_hour(NOW), moment.requested, moment.used)
    pods = (await scene.snapshot()).pods
    assert kept.saved.cpu_millicores == sum(500 - (pod.containers[0].requests.cpu_millicores or 0) for pod in pods)
    assert kept.saved.cpu_millicores != 0
