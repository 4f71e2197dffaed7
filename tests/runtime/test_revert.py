"""The revert on small simulated clusters."""

from dataclasses import replace

import pytest

from cruise.domain.actions import ActionResult, OriginalSizes, Outcome, ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES, ORIGINAL_RESOURCES_SIGNATURE
from cruise.domain.cluster import WorkloadRef
from cruise.domain.original_resources import format_original_resources, sign_original_resources
from cruise.domain.pod_resources import get_spec_targets
from cruise.domain.policy import Mode, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.records import RETENTION
from cruise.domain.resources import StatedResources
from cruise.domain.usage import StatisticsTable
from cruise.runtime.node_pass import run_node_pass
from cruise.runtime.ports import PassContext
from cruise.runtime.revert import revert_workload, run_revert_pass
from cruise.runtime.writing.writer import ClusterWriter
from cruise.simulation.cluster.cluster import SimulatedCluster
from cruise.simulation.store import InMemoryStore
from tests.builders import make_statistic_for
from tests.simulation.scenes import START, amounts, cluster, container, pods, resize, run, template, workload

FULL = Policy(mode=Mode.FULL)


async def requests(world: SimulatedCluster) -> dict[str, StatedResources]:
    return {pod.labels["app"]: pod.containers[0].requests for pod in await pods(world)}


async def shrunk(world: SimulatedCluster, store: InMemoryStore) -> None:
    """Let cruise resize everything, as a node pass would."""
    snapshot = await world.snapshot()
    actions = [resize(pod, amounts(100, 128)) for pod in snapshot.pods]
    assert {one.result for one in await ClusterWriter(world, store, FULL).apply_plan(actions, snapshot, world.now)} == {
        ActionResult.DONE
    }
    run(world, 30)


def told(outcomes: list[Outcome]) -> list[tuple[ActionResult, ReasonCode]]:
    return [(one.result, one.reason) for one in outcomes]


async def test_pods_get_back_what_they_requested_before_the_first_resize():
    world, store = cluster([workload("a"), workload("b")]), InMemoryStore()
    before = await requests(world)
    await shrunk(world, store)
    assert before != await requests(world)
    outcomes = await run_revert_pass(PassContext(world, store, FULL, world.now))
    assert told(outcomes) == [(ActionResult.DONE, ReasonCode.REVERTED)] * 2
    assert await requests(world) == before
    run(world, 30)
    assert await run_revert_pass(PassContext(world, store, FULL, world.now)) == []


async def test_it_works_while_paused_and_in_any_mode_and_is_audited():
    world, store = cluster(workload("a")), InMemoryStore()
    before = await requests(world)
    await shrunk(world, store)
    await store.set_paused(True)
    outcomes = await run_revert_pass(PassContext(world, store, Policy(mode=Mode.OBSERVE), world.now))
    assert told(outcomes) == [(ActionResult.DONE, ReasonCode.REVERTED)]
    assert await requests(world) == before
    assert ReasonCode.REVERTED in {one.reason for one in await store.read_outcomes(world.now)}
    assert await store.is_paused() is True


SIZES = {"app": (amounts(300, 300), amounts(None, 600))}
TEXT = format_original_resources(SIZES)


async def noted_pods(**annotations: str):
    """A pod with an annotation, and a store with a key to sign with."""
    noted = template(container(100, 128, amounts(None, 256)), annotations=annotations)
    world, store = cluster(workload("a", noted)), InMemoryStore()
    await store.prune(world.now)
    return world, store


async def signed_pods(key: bytes | None = None, text: str = TEXT):
    """A pod whose annotation is signed by a key, by default the store's."""
    world, store = await noted_pods()
    [pod] = await pods(world)
    signature = sign_original_resources(pod, TEXT, key or (await store.read_signing_keys())[0])
    return await noted_pods(**{ORIGINAL_RESOURCES: text, ORIGINAL_RESOURCES_SIGNATURE: signature})


async def sizes_now(world):
    [after] = await pods(world)
    return (after.containers[0].requests, after.containers[0].limits)


async def test_annotations_signed_by_the_webhook_are_trusted():
    world, store = await signed_pods()
    assert told(await run_revert_pass(PassContext(world, store, FULL, world.now))) == [
        (ActionResult.DONE, ReasonCode.REVERTED)
    ]
    assert await sizes_now(world) == SIZES["app"]


async def test_annotations_signed_before_the_key_changed_are_trusted():
    world, store = await signed_pods()
    first = await store.read_signing_keys()
    await store.prune(world.now + RETENTION.signing_key)
    assert (await store.read_signing_keys())[1:] == first
    assert told(await run_revert_pass(PassContext(world, store, FULL, world.now))) == [
        (ActionResult.DONE, ReasonCode.REVERTED)
    ]


@pytest.mark.parametrize(
    "annotations",
    [
        {ORIGINAL_RESOURCES: TEXT},
        {ORIGINAL_RESOURCES: TEXT, ORIGINAL_RESOURCES_SIGNATURE: ""},
        {ORIGINAL_RESOURCES: TEXT, ORIGINAL_RESOURCES_SIGNATURE: "0" * 64},
        {ORIGINAL_RESOURCES: TEXT, ORIGINAL_RESOURCES_SIGNATURE: "\ud800"},
        *({ORIGINAL_RESOURCES: text} for text in ("", "nonsense", "[]", '{"app": 3}')),
    ],
)
async def test_what_a_tenant_wrote_moves_nothing(annotations):
    world, store = await noted_pods(**annotations)
    assert told(await run_revert_pass(PassContext(world, store, FULL, world.now))) == [
        (ActionResult.SKIPPED, ReasonCode.UNSIGNED_ANNOTATION)
    ]
    assert world.counts.resizes_requested == 0


@pytest.mark.parametrize("forged", ["another key", "another text"])
async def test_a_signature_of_something_else_moves_nothing(forged):
    other = format_original_resources({"app": (amounts(4000, 8000), amounts(None, 8000))})
    world, store = await (signed_pods(b"k" * 32) if forged == "another key" else signed_pods(text=other))
    assert told(await run_revert_pass(PassContext(world, store, FULL, world.now))) == [
        (ActionResult.SKIPPED, ReasonCode.UNSIGNED_ANNOTATION)
    ]
    assert world.counts.resizes_requested == 0


async def test_the_store_takes_precedence_over_annotations():
    world, store = await signed_pods()
    [pod] = await pods(world)
    was = tuple(replace(one, requests=amounts(200, 200)) for one in get_spec_targets(pod))
    await store.record_original_sizes([OriginalSizes(pod.uid, "shop", pod.name, was, world.now)])
    assert told(await run_revert_pass(PassContext(world, store, FULL, world.now))) == [
        (ActionResult.DONE, ReasonCode.REVERTED)
    ]
    assert await sizes_now(world) == (amounts(200, 200), amounts(None, 256))


async def test_a_resize_without_free_capacity_is_deferred_and_no_pod_is_evicted():
    # 4000m: `a` and `b` had 1500 each, and most of what they gave back went to `c`.
    world = cluster([*(workload(name, template(container(1500))) for name in "ab"), workload("c")])
    store = InMemoryStore()
    await shrunk(world, store)
    [other] = await pods(world, "c")
    await world.perform(resize(other, amounts(2400, 512)))
    run(world, 30)
    outcomes = await run_revert_pass(PassContext(world, store, FULL, world.now))
    # Sorted by name: a, b, c.
    assert told(outcomes) == [
        (ActionResult.DONE, ReasonCode.REVERTED),
        (ActionResult.SKIPPED, ReasonCode.WAITING_FOR_CAPACITY),
        (ActionResult.DONE, ReasonCode.REVERTED),
    ]
    assert world.counts.evictions == 0
    # `c` has given back by now.
    run(world, 30)
    assert [one.result for one in await run_revert_pass(PassContext(world, store, FULL, world.now))] == [
        ActionResult.DONE
    ]


async def test_only_the_namespace_that_was_named():
    world, store = cluster(workload("a")), InMemoryStore()
    await shrunk(world, store)
    assert await run_revert_pass(PassContext(world, store, FULL, world.now), "other") == []
    assert len(await run_revert_pass(PassContext(world, store, FULL, world.now), "shop")) == 1


async def test_one_workload_is_reverted_and_remains_reverted_while_others_are_sized():
    world, store = cluster([workload(name, created_at=START.replace(day=1)) for name in "ab"]), InMemoryStore()
    before = await requests(world)
    await shrunk(world, store)
    of_a = WorkloadRef("Deployment", "a")
    reverted_at = world.now
    outcomes = await revert_workload(PassContext(world, store, FULL, reverted_at), "shop", of_a)
    assert told(outcomes) == [(ActionResult.DONE, ReasonCode.REVERTED)]
    run(world, 30)
    assert await requests(world) == {"a": before["a"], "b": amounts(100, 128)}
    assert await store.read_paused_workloads() == {("shop", of_a): reverted_at}
    rows = [make_statistic_for(pod, updated_at=int(world.now.timestamp())) for pod in await pods(world)]
    await store.write_statistics(StatisticsTable.from_rows(rows))
    await run_node_pass(PassContext(world, store, FULL, world.now))
    run(world, 30)
    after = await requests(world)
    assert after["a"] == before["a"] and after["b"] != amounts(100, 128)


async def test_what_is_not_even_tried_is_in_the_audit_too():
    world, store = await noted_pods(**{ORIGINAL_RESOURCES: TEXT})
    await run_revert_pass(PassContext(world, store, FULL, world.now))
    assert told(list(await store.read_outcomes(world.now))) == [(ActionResult.SKIPPED, ReasonCode.UNSIGNED_ANNOTATION)]


async def test_what_a_resize_cannot_restore_is_reported():
    world, store = cluster(workload("a", template(container(500, 512)))), InMemoryStore()
    snapshot = await world.snapshot()
    [pod] = snapshot.pods
    action = resize(pod, amounts(100, 128), amounts(None, 256))
    await ClusterWriter(world, store, FULL).apply_plan([action], snapshot, world.now)
    run(world, 30)
    [outcome] = await run_revert_pass(PassContext(world, store, FULL, world.now))
    assert (outcome.result, outcome.detail) == (ActionResult.DONE, ReasonDetailCode.MEMORY_LIMIT_STAYS.create("app"))
