"""Explanations of the last pass, and of one workload's template from a part of the statistics."""

from dataclasses import replace

from cruise.decisions.explanation.pod_explanation import explain_pod
from cruise.decisions.sizing.node_plans import SizingContext
from cruise.decisions.template_sizes import size_templates
from cruise.domain.policy import Mode
from cruise.interfaces.http.workload import PodExplainer, compute_template_sizes, select_statistics
from cruise.runtime.headroom import prepare_stored_headroom
from tests.builders import make_ref
from tests.interfaces.http.api_scene import NOW, create_api_client, make_busy_scene
from tests.simulation.scenes import run


async def test_what_did_not_change_since_the_pass_is_explained_from_the_pass():
    scene = await make_busy_scene()
    assert scene.done is not None
    snapshot, explanations = scene.done.snapshot, PodExplainer(scene)
    statistics, seen = await scene.statistics(), scene.done.for_next_pass
    headroom = await prepare_stored_headroom(scene.store, statistics, scene.policy)
    context = SizingContext(headroom=headroom, earlier=seen)
    for pod in snapshot.pods:
        found = await explanations.explain(replace(pod), await scene.snapshot())
        alone = explain_pod(pod, snapshot, statistics, scene.policy, NOW, context=context)
        assert (found.outcome, found.steps, found.node) == (alone.outcome, alone.steps, alone.node)


async def test_the_pass_is_taken_again_once_until_the_next_one_or_pause():
    scene = await make_busy_scene()
    assert scene.done is not None
    snapshot, explanations = scene.done.snapshot, PodExplainer(scene)
    eligible = [(await explanations.explain(pod, snapshot)).effective_policy for pod in snapshot.pods]
    assert {one.mode for one in eligible if one is not None} == {Mode.FULL}
    known = explanations._cached
    await explanations.explain(snapshot.pods[0], snapshot)
    assert explanations._cached is known
    await scene.store.write_workload_pause("shop", make_ref("Deployment/web"), NOW)
    after = await explanations.explain(snapshot.pods[0], snapshot)
    assert after.effective_policy is not None and after.effective_policy.mode is Mode.OBSERVE
    assert explanations._cached is not known


async def test_a_pod_resized_since_the_pass_is_explained_with_its_present_size():
    scene = await make_busy_scene()
    run(scene.world, 30)
    [before, *_] = scene.done.snapshot.pods if scene.done is not None else ()
    async with create_api_client(scene) as api:
        shown = (await api.get(f"/pods/shop/{before.name}")).json()
    [now] = [one for one in (await scene.snapshot()).pods if one.name == before.name]
    request = now.containers[0].requests.cpu_millicores
    assert request != before.containers[0].requests.cpu_millicores
    assert str(request) in str(shown["containers"])


async def test_a_workloads_own_rows_say_as_much_of_its_template_as_all_rows():
    scene = await make_busy_scene()
    snapshot, statistics = await scene.snapshot(), await scene.statistics()
    web = [pod for pod in snapshot.pods if pod.workload == make_ref("Deployment/web")]
    whole = size_templates(snapshot, statistics, scene.policy, NOW, web)
    assert await compute_template_sizes(scene, snapshot, web) == [*whole.changed, *whole.skipped][0]
    assert set(select_statistics(statistics, web[:1]).keys) < set(statistics.keys)
