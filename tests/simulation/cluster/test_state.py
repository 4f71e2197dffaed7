"""The sums over a simulated cluster's nodes, against the pods themselves."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.pod_resources import count_pod_requests
from cruise.domain.resources import NO_RESOURCES
from cruise.errors import CruiseError
from cruise.simulation.cluster.cluster import SimulatedCluster
from tests.simulation.scenes import (
    AdjustableDemand,
    amounts,
    cluster,
    container,
    evict,
    node,
    pods,
    resize,
    run,
    template,
    workload,
)

commands = st.lists(st.tuples(st.booleans(), st.integers(0, 30), st.integers(1, 3000), st.integers(0, 40)), max_size=12)


@given(commands)
async def test_sums_are_those_of_the_pods_whatever_happened(script: list[tuple[bool, int, int, int]]) -> None:
    dial = AdjustableDemand(mebibytes=100)
    pod = template(container(400, 300, amounts(None, 600)))
    world = cluster(
        [
            workload("web", pod, dial, replicas=3),
            workload("db", pod, dial, kind="StatefulSet", replicas=2),
            workload("import", pod, dial, kind="Job", duration_seconds=45),
            workload("big", template(container(3000, 1000)), dial),
        ],
        [node("a", 3000), node("b", 2500)],
    )
    for gone, which, cpu, pause in script:
        found = await pods(world)
        one = found[which % len(found)]
        try:
            await world.perform(evict(one) if gone else resize(one, amounts(cpu)))
        except CruiseError as rejection:
            assert "invalid" in str(rejection)
        run(world, pause)
        await _check_sums(world)


async def _check_sums(world: SimulatedCluster) -> None:
    found = await pods(world)
    for figure in world.get_node_usage():
        here = [pod for pod in found if pod.node == figure.node]
        assert figure.requested == sum((count_pod_requests(pod) for pod in here), NO_RESOURCES)
        assert figure.pods == sum(not pod.is_finished for pod in here)
