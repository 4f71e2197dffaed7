"""Invariants of plan execution on small random clusters, with any plan and any change of leader."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.actions import ActionResult, EvictPod, ReasonCode
from cruise.domain.cluster import Pod
from cruise.domain.packing_plan import PlanPhase
from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import NO_RESOURCES
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.runtime.packing.packing_pass import run_packing_pass
from cruise.runtime.ports import PassContext
from cruise.simulation.cluster.controllers import DisruptionBudgetSpec
from tests.runtime.packing.packing_scenes import FULL, PackingSimulation, make_resized_pod
from tests.runtime.packing.test_packing_pass import LONG, Exhaustive
from tests.simulation.scenes import NAMESPACE, START, node, run
from tests.tiers import examples

sizes = st.integers(4, 30).map(lambda tenths: tenths * 100)


@st.composite
def theatres(draw: st.DrawFn) -> PackingSimulation:
    """Two or three nodes, two to four applications of which some have budgets, and one that is created last."""
    names = [f"app{number}" for number in range(draw(st.integers(2, 4)))]
    workloads = [make_resized_pod(name, draw(sizes), priority=draw(st.integers(1, 2))) for name in names]
    workloads.append(
        make_resized_pod("big", draw(st.integers(20, 40)) * 100, priority=draw(st.sampled_from([0, 0, 5])))
    )
    guarded = [name for name in names if draw(st.booleans())]
    budgets = [
        DisruptionBudgetSpec(
            NAMESPACE,
            name,
            LabelSelector((LabelRequirement("app", SelectorOperator.IN, (name,)),)),
            max_unavailable=draw(st.integers(0, 1)),
        )
        for name in guarded
    ]
    nodes = [node(f"n{number}", cpu=draw(st.sampled_from([3000, 4000]))) for number in range(draw(st.integers(2, 3)))]
    theatre = PackingSimulation(workloads, nodes, FULL, budgets=budgets)
    theatre.steers = draw(st.booleans())
    run(theatre.world, LONG.total_seconds() + 10)
    return theatre


@given(theatre=theatres(), restarts=st.sets(st.integers(1, 30), max_size=4))
@examples(60)
async def test_a_plan_ends_without_breaking_a_budget_or_evicting_a_pod_twice(theatre, restarts):
    before = [pod for pod in (await theatre.world.snapshot()).pods if pod.node is None]
    done = await run_packing_pass(
        PassContext(theatre.world, theatre.store, theatre.policy, theatre.world.now), Exhaustive(), seconds=1
    )
    plan = done.plan
    if plan is None or plan.phase is not PlanPhase.IN_PROGRESS:
        assert theatre.world.counts.evictions == 0
        return
    planned = len(plan.proposal.moves) + len(plan.proposal.preempted)
    steps = 0
    while plan.phase is PlanPhase.IN_PROGRESS:
        plan = await theatre.step(plan)
        steps += 1
        assert steps < 400
        if steps in restarts:
            theatre.restart()
            plan = await theatre.carrying().start() or plan
    lines = await theatre.store.read_outcomes(START)
    evicted = [
        line.action.uid for line in lines if isinstance(line.action, EvictPod) and line.result is ActionResult.DONE
    ]
    running = [line for line in lines if line.action.node is not None and isinstance(line.action, EvictPod)]
    assert len(set(evicted)) == len(evicted)
    assert sum(line.result is ActionResult.DONE for line in running) <= planned
    assert theatre.world.counts.evictions_refused == 0
    assert list(await theatre.store.read_placement_hints()) == []
    if lines:
        of_a_node_pass = replace(lines[0].action, node="n0", reason=ReasonCode.RIGHTSIZED)
        assert theatre.exclusions.explain_exclusion(of_a_node_pass, theatre.world.now) is None
    if plan.phase is PlanPhase.FINISHED:
        # kube-scheduler may take another of those that wait, if it is as important and no larger.
        named, waited = {arrival.uid for arrival in plan.proposal.placed}, {pod.uid for pod in before}
        now = (await theatre.world.snapshot()).pods
        instead = [pod for pod in now if pod.node is not None and pod.uid in waited - named]
        for missing in (pod for pod in now if pod.node is None and pod.uid in named):
            instead.remove(next(pod for pod in instead if _stands_for(missing, pod)))
    taken = dict.fromkeys(theatre.world.node_names, NO_RESOURCES)
    for pod in (await theatre.world.snapshot()).pods:
        if pod.node is not None:
            taken[pod.node] += count_pod_requests(pod)
    for one in (await theatre.world.snapshot()).nodes:
        assert taken[one.name].fits_in(one.allocatable)


def _stands_for(missing: Pod, other: Pod) -> bool:
    return other.priority >= missing.priority and count_pod_requests(other).fits_in(count_pod_requests(missing))
