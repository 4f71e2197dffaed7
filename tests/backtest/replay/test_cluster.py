"""How a policy's decisions are applied, on nodes of 1000 millicores and 1000 MiB."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.backtest.replay.cluster import ReplayedCluster
from cruise.backtest.replay.nodes import PENDING_NODE, ReplayedPodState
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ContainerSizes,
    ReplayDecision,
    ReplayedOomReaction,
    ReplayOptions,
)
from cruise.backtest.replay.scoring import ChangeCounts
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import FixedSizesPolicy, get_placements, sizes

TERMS = ReplayOptions(node=Resources(1000, 1000 * MEBIBYTE))
NO_SIZES = sizes()


def mebibytes(*rows: tuple[int, ...]) -> ContainerSizes:
    """One row a container: CPU, memory and perhaps a limit, in MiB."""
    return sizes(*((row[0], row[1] * MEBIBYTE, (row[2] if len(row) > 2 else 0) * MEBIBYTE) for row in rows))


class World:
    """Containers p0, p1 … that have been created at time 0."""

    def __init__(self, admitted: ContainerSizes, has_memory: bool = True) -> None:
        use = np.ones((2, len(admitted.cpu_millicores)))
        recording = replace(make_recording(use, use), has_memory=has_memory)
        self.policy = FixedSizesPolicy(admitted)
        self.pods = ReplayedPodState(recording, TERMS)
        self.changes = ChangeCounts(len(recording.containers))
        self.cluster = ReplayedCluster(recording, self.pods, self.policy, self.changes)
        self.cluster.create(np.arange(len(recording.containers)), 0)

    def resize(
        self, containers: tuple[int, ...], wanted: ContainerSizes, evict: tuple[int, ...] = (), force: bool = False
    ):
        self.cluster.apply(ReplayDecision(get_placements(*containers), wanted, get_placements(*evict), force), 300)

    @property
    def cpu(self) -> list[int]:
        return [int(one) for one in self.pods.sizes.cpu_millicores]

    @property
    def memory(self) -> list[int]:
        return [int(one) // MEBIBYTE for one in self.pods.sizes.memory_bytes]

    @property
    def node(self) -> list[int]:
        return [int(one) for one in self.pods.node]


def test_pods_are_spread_and_a_node_is_added_if_none_fits():
    world = World(mebibytes((400, 100), (700, 100), (300, 100), (300, 100)))
    assert world.node == [0, 1, 0, 1]
    assert world.pods.nodes.peak == 2


def test_pods_of_one_time_are_placed_by_name():
    world = World(mebibytes((600, 1), (600, 1), (400, 1), *[(1, 1)] * 7, (400, 1)))
    # p10 comes before p2, and gets the first of two equal rooms.
    assert world.node[10] == 0 and world.node[2] == 1


def test_a_pod_that_fits_no_empty_node_is_pending_until_it_is_recreated_smaller():
    world = World(mebibytes((1001, 1), (100, 100)))
    assert world.node == [PENDING_NODE, 0]
    world.resize((0,), mebibytes((10, 1)))
    assert (world.node[0], world.cpu[0]) == (PENDING_NODE, 1001)
    world.policy.admitted = mebibytes((900, 1), (100, 100))
    world.resize((), NO_SIZES, evict=(0,))
    assert world.node == [0, 0]
    assert world.pods.creation_count.tolist() == [2, 1]
    assert world.changes.evictions.tolist() == [1, 0]


def test_decreases_free_capacity_for_increases_of_the_same_pass():
    world = World(mebibytes((500, 100), (500, 100)))
    world.resize((0, 1), mebibytes((900, 100), (100, 100)))
    assert world.cpu == [900, 100]


def test_a_replacement_uses_capacity_freed_by_decreases():
    world = World(mebibytes((500, 100), (500, 100)))
    world.policy.admitted = mebibytes((500, 100), (800, 100))
    world.resize((0,), mebibytes((200, 100)), evict=(1,))
    assert (world.node, world.cpu) == ([0, 0], [200, 800])


def test_evictions_free_capacity_for_increases_of_the_same_pass():
    world = World(mebibytes((500, 100), (500, 100)))
    world.policy.admitted = mebibytes((500, 100), (600, 100))
    world.resize((0,), mebibytes((900, 100)), evict=(1,))
    assert (world.cpu, world.node) == ([900, 600], [0, 1])


def test_a_replacement_does_not_precede_the_increase_it_was_evicted_for():
    world = World(mebibytes((500, 100), (500, 100), (500, 100)))
    world.policy.admitted = mebibytes((500, 100), (450, 100), (500, 100))
    world.resize((0,), mebibytes((900, 100)), evict=(1,))
    assert (world.cpu, world.node) == ([900, 450, 500], [0, 1, 1])
    assert world.pods.nodes.cpu_millicores.tolist() == [900, 950]


def test_a_replacement_waits_for_the_evicted_pods_capacity_before_a_node_is_added():
    world = World(mebibytes((700, 100), (700, 100)))
    world.resize((), NO_SIZES, evict=(0, 1))
    assert (sorted(world.node), world.pods.nodes.peak) == ([0, 1], 2)


def test_a_pod_is_not_resized_in_the_pass_that_evicts_it():
    world = World(mebibytes((500, 100), (100, 100)))
    world.resize((1,), mebibytes((50, 50)), evict=(1, 1))
    assert (world.cpu, world.changes.evictions.tolist(), world.changes.resizes.tolist()) == ([500, 100], [0, 1], [0, 0])


def test_increases_that_do_not_all_fit_are_written_by_name():
    world = World(mebibytes((200, 100), (200, 100), (200, 100)))
    world.resize((2, 1, 0), mebibytes((300, 100), (700, 100), (250, 100)))
    assert world.cpu == [250, 200, 300]
    assert world.changes.resizes.tolist() == [1, 0, 1]


def test_decreases_of_an_increase_that_does_not_fit_are_written():
    world = World(mebibytes((400, 500, 600), (600, 400)))
    world.resize((0,), mebibytes((500, 200, 800)))
    assert (world.cpu[0], world.memory[0]) == (400, 200)
    assert world.pods.sizes.memory_limit_bytes[0] == 800 * MEBIBYTE
    assert world.changes.resizes.tolist() == [1, 0]


def test_decreases_within_the_update_threshold_are_not_written():
    world = World(mebibytes((400, 500), (600, 400)))
    world.resize((0,), mebibytes((500, 490)))
    assert (world.cpu[0], world.memory[0], world.changes.resizes.tolist()) == (400, 500, [0, 0])


def test_an_increase_that_does_not_fit_evicts_if_the_policy_asks_for_it():
    world = World(mebibytes((400, 500), (600, 400)))
    world.policy.admitted = mebibytes((450, 500), (600, 400))
    world.resize((0,), mebibytes((500, 200)), force=True)
    assert (world.node, world.cpu) == ([1, 0], [450, 600])


def test_an_increase_of_one_resource_needs_no_capacity_of_the_other():
    world = World(mebibytes((400, 500), (600, 400)))
    world.resize((0,), mebibytes((400, 600)))
    assert world.memory[0] == 600


def test_an_unchanged_size_is_not_a_resize():
    world = World(mebibytes((400, 500, 500), (100, 100)))
    world.resize((0, 1), mebibytes((400, 500, 500), (100, 100, 300)))
    assert world.changes.resizes.tolist() == [0, 1]


@pytest.mark.parametrize(("limit", "done"), [(199, False), (200, True), (0, True)])
@pytest.mark.parametrize("before", [0, 500])
def test_a_limit_does_not_fall_under_the_memory_in_use(before: int, limit: int, done: bool):
    world = World(mebibytes((400, 100, before)))
    world.pods.memory_in_use = np.array([200 * MEBIBYTE], dtype=np.float32)
    world.resize((0,), mebibytes((300, 100, limit)))
    assert (world.cpu[0] == 300) is done
    assert world.changes.resizes.tolist() == [int(done)]


def test_empty_nodes_are_removed_and_their_names_reused():
    world = World(mebibytes((700, 100), (700, 100), (700, 100)))
    world.cluster.remove(get_placements(0, 1))
    assert world.pods.nodes.exists.tolist() == [False, False, True]
    world.cluster.create(get_placements(1), 300)
    assert world.node == [-2, 0, 2]


def test_a_replacement_pod_may_run_on_the_node_that_its_eviction_emptied():
    world = World(mebibytes((700, 100)))
    world.resize((), NO_SIZES, evict=(0,))
    assert (world.node, world.pods.nodes.peak) == ([0], 1)


def test_memory_that_was_not_recorded_counts_nowhere():
    world = World(mebibytes((100, 5000), (100, 5000)), has_memory=False)
    assert world.node == [0, 0]
    world.resize((0, 1), mebibytes((100, 1), (100, 9000)))
    assert world.changes.resizes.tolist() == [0, 0]
    assert world.pods.nodes.memory_bytes.tolist() == [0]


@pytest.mark.parametrize(
    ("reaction", "wanted"),
    [
        (ReplayedOomReaction(mebibytes((300, 400, 800))), (300, 400)),
        (ReplayedOomReaction(mebibytes((300, 700, 800))), (300, 300)),
        (ReplayedOomReaction(mebibytes((200, 200, 800))), (200, 200)),
        (ReplayedOomReaction(), (300, 300)),
    ],
)
def test_a_reaction_to_a_kill_is_immediate_within_free_capacity(reaction: ReplayedOomReaction, wanted: tuple[int, int]):
    world = World(mebibytes((300, 300), (700, 500)))
    world.cluster.apply_oom_reaction(0, reaction, 60)
    assert (world.cpu[0], world.memory[0]) == wanted


def test_a_reaction_may_evict():
    world = World(mebibytes((300, 300)))
    world.policy.admitted = mebibytes((300, 900))
    world.cluster.apply_oom_reaction(0, ReplayedOomReaction(evict=True), 60)
    assert (world.memory, world.pods.created_at.tolist(), world.changes.evictions.tolist()) == ([900], [60], [1])


def test_nothing_wanted_changes_nothing():
    world = World(mebibytes((300, 300)))
    world.cluster.apply(ReplayDecision(NO_CONTAINERS, NO_SIZES, NO_CONTAINERS), 300)
    world.cluster.remove(NO_CONTAINERS)
    assert (world.node, world.pods.creation_count.tolist()) == ([0], [1])
