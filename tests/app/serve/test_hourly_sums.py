"""Which sums of the cluster are kept of an hour."""

from dataclasses import replace
from datetime import timedelta

from cruise.app.serve.activity import Activity
from cruise.app.serve.hourly_sums import HourlySums
from cruise.domain.cluster_hours import hour_of
from cruise.domain.resources import Resources
from cruise.interfaces.http.figures import cluster_moment, pass_figures
from tests.interfaces.http.api_scene import NOW, busy_scene
from tests.simulation.scenes import run


async def test_the_first_pass_of_an_hour_that_knows_what_is_used_is_kept_with_what_was_saved():
    scene, activity, sums = await busy_scene(), Activity(), HourlySums()
    run(scene.world, 60)
    assert scene.done is not None
    after = replace(scene.done, snapshot=await scene.snapshot())
    moment = cluster_moment(pass_figures(after), await scene.statistics(), timedelta(minutes=15))
    await sums.keep(scene.store, activity)
    activity.node_pass = after
    activity.history.append(replace(moment, used=None))
    await sums.keep(scene.store, activity)
    assert await scene.store.cluster_hours(0) == []
    activity.history.append(moment)
    await sums.keep(scene.store, activity)
    later = after.at + timedelta(minutes=59)
    activity.node_pass = replace(after, at=later)
    activity.history.append(replace(moment, at=later, requested=Resources(1, 1)))
    await sums.keep(scene.store, activity)
    [kept] = await scene.store.cluster_hours(0)
    assert (kept.hour, kept.requested, kept.used) == (hour_of(NOW), moment.requested, moment.used)
    pods = (await scene.snapshot()).pods
    assert kept.saved.cpu_millicores == sum(500 - (pod.containers[0].requests.cpu_millicores or 0) for pod in pods)
    assert kept.saved.cpu_millicores != 0
