"""Explanations by the last pass, and what a part of the statistics says of one workload's template."""

from dataclasses import replace

from cruise.decisions.explaining.explanation import explain
from cruise.decisions.exporting.templates import size_templates
from cruise.domain.annotations import Overrides
from cruise.domain.policy import Mode
from cruise.interfaces.http.pods import Explanations
from cruise.interfaces.http.workload import statistics_of, template_of
from cruise.runtime.sizing.pass_headroom import stored_headroom
from tests.builders import make_ref
from tests.interfaces.http.api_scene import NOW, asking, busy_scene
from tests.simulation.scenes import run


async def test_what_has_not_changed_since_the_pass_is_explained_as_if_it_alone_were():
    scene = await busy_scene()
    assert scene.done is not None
    snapshot, explanations = scene.done.snapshot, Explanations(scene)
    statistics, seen = await scene.statistics(), scene.done.seen
    headroom = await stored_headroom(scene.store, statistics, scene.policy)
    for pod in snapshot.pods:
        found = await explanations.of(replace(pod), await scene.snapshot())
        alone = explain(pod, snapshot, statistics, scene.policy, NOW, earlier=seen, headroom=headroom)
        assert (found.fate, found.steps, found.node) == (alone.fate, alone.steps, alone.node)


async def test_the_pass_is_taken_again_once_until_the_next_one_or_another_override():
    scene = await busy_scene()
    assert scene.done is not None
    snapshot, explanations = scene.done.snapshot, Explanations(scene)
    eligible = [(await explanations.of(pod, snapshot)).guidance for pod in snapshot.pods]
    assert {one.mode for one in eligible if one is not None} == {Mode.FULL}
    known = explanations._known
    await explanations.of(snapshot.pods[0], snapshot)
    assert explanations._known is known
    await scene.store.put_override("shop", make_ref("Deployment/web"), Overrides(mode=Mode.OFF))
    after = await explanations.of(snapshot.pods[0], snapshot)
    assert after.guidance is not None and after.guidance.mode is Mode.OFF
    assert explanations._known is not known


async def test_a_pod_that_was_resized_since_is_explained_as_it_is_now():
    scene = await busy_scene()
    run(scene.world, 30)
    [before, *_] = scene.done.snapshot.pods if scene.done is not None else ()
    async with asking(scene) as api:
        shown = (await api.get(f"/pods/shop/{before.name}")).json()
    [now] = [one for one in (await scene.snapshot()).pods if one.name == before.name]
    request = now.containers[0].requests.cpu_millicores
    assert request != before.containers[0].requests.cpu_millicores
    assert str(request) in str(shown["containers"])


async def test_a_workloads_own_rows_say_as_much_of_its_template_as_all_rows():
    scene = await busy_scene()
    snapshot, statistics = await scene.snapshot(), await scene.statistics()
    web = [pod for pod in snapshot.pods if pod.workload == make_ref("Deployment/web")]
    whole = size_templates(snapshot, statistics, scene.policy, NOW, web)
    assert await template_of(scene, snapshot, web) == [*whole.changed, *whole.left][0]
    assert set(statistics_of(statistics, web[:1]).keys) < set(statistics.keys)
