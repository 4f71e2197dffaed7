"""Pods and the sums over their nodes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.backtest.replay.nodes import ABSENT_NODE, PENDING_NODE, ReplayedPodState
from cruise.backtest.replay.policy import ContainerSizes, ReplayOptions
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import get_placements, sizes

COUNT = 5
TERMS = ReplayOptions(node=Resources(10**6, 10**6))


def pods() -> ReplayedPodState:
    use = np.ones((1, COUNT))
    return ReplayedPodState(make_recording(use, use), TERMS)


def test_a_pod_is_absent_then_pending_then_placed_then_absent():
    world = pods()
    assert world.node.tolist() == [ABSENT_NODE] * COUNT
    world.create(get_placements(1, 3), 600)
    world.resize(get_placements(1, 3), sizes((10, 20, 30), (40, 50, 60)))
    world.bind(3, world.nodes.add())
    assert world.node.tolist() == [ABSENT_NODE, PENDING_NODE, ABSENT_NODE, 0, ABSENT_NODE]
    assert (world.creation_count.tolist(), world.created_at.tolist()) == ([0, 1, 0, 1, 0], [0, 600, 0, 600, 0])
    assert (world.nodes.cpu_millicores.tolist(), world.nodes.pods.tolist()) == ([40], [1])
    world.remove(get_placements(1, 3))
    assert world.node.tolist() == [ABSENT_NODE] * COUNT
    assert (world.nodes.cpu_millicores.tolist(), world.nodes.pods.tolist()) == ([0], [0])


def test_places_are_sorted_by_node_and_kept_until_one_changes():
    world = pods()
    world.create(np.arange(COUNT), 0)
    for _ in range(3):
        world.nodes.add()
    for container, node in ((0, 2), (1, 0), (3, 2), (4, 0)):
        world.bind(container, node)
    found = world.placements
    assert found.order.tolist() == [1, 4, 0, 3]
    assert (found.nodes.tolist(), found.starts.tolist(), found.row_of_container.tolist()) == (
        [0, 2],
        [0, 2],
        [0, 0, 1, 1],
    )
    world.resize(get_placements(0), sizes((5, 5, 5)))
    assert world.placements is found
    world.bind(2, 1)
    assert world.placements.nodes.tolist() == [0, 1, 2]


def test_no_placed_pod_means_no_placements():
    found = pods().placements
    assert found.order.size == found.nodes.size == found.starts.size == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "place", "remove", "resize"]),
        st.sets(st.integers(0, COUNT - 1), min_size=1),
        st.integers(0, 3),
        st.integers(0, 500),
    ),
    max_size=25,
)


@given(STEPS)
def test_sums_are_those_of_the_pods_that_are_placed(steps: list[tuple[str, set[int], int, int]]):
    world = pods()
    for _ in range(4):
        world.nodes.add()
    for step, chosen, node, amount in steps:
        containers = get_placements(*sorted(chosen))
        state = world.node[containers]
        match step:
            case "create":
                world.create(containers[state == ABSENT_NODE], 0)
            case "place":
                for container in containers[state == PENDING_NODE].tolist():
                    world.bind(container, node)
            case "remove":
                world.remove(containers)
            case "resize":
                there = containers[state != ABSENT_NODE]
                row = np.arange(len(there)) * amount
                world.resize(there, ContainerSizes(row, row // 2, row * 2))
    placed = world.node >= 0
    for found, asked in (
        (world.nodes.cpu_millicores, world.sizes.cpu_millicores),
        (world.nodes.memory_bytes, world.sizes.memory_bytes),
        (world.nodes.scored_cpu_millicores, np.where(world.sizes.cpu_millicores == 0, 100, world.sizes.cpu_millicores)),
        (world.nodes.pods, np.ones(COUNT, dtype=np.int64)),
    ):
        sums = [int(asked[placed & (world.node == node)].sum()) for node in range(4)]
        assert found.tolist() == sums
