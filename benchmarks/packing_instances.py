"""Random instances like those of "Priority Matters", placed by a default scheduler without preemption."""

import random
from dataclasses import dataclass, replace

import numpy as np

from cruise.packer.columns.instance import PackingInstance
from cruise.packer.problem import BoolArray, IntArray, PackingProblem, PlacementRules

MEGABYTE = 1_000_000
BALANCE_WEIGHT, SPREAD_WEIGHT = 1.0, 2.0


@dataclass(frozen=True, slots=True)
class InstanceShape:
    """The shape of an instance: nodes, pods per node, priorities, and the requested share of the capacity."""

    nodes: int
    pods_per_node: int
    priorities: int
    usage_percent: int

    def __str__(self) -> str:
        return f"{self.nodes}x{self.pods_per_node} p{self.priorities} {self.usage_percent}%"


# The paper's range: 4 to 32 nodes, 4 and 8 pods per node, 1 to 4 priorities, 90 to 105 %.
PAPER_RANGE = (
    InstanceShape(4, 4, 1, 95),
    InstanceShape(4, 8, 4, 105),
    InstanceShape(8, 4, 4, 100),
    InstanceShape(8, 8, 1, 95),
    InstanceShape(8, 8, 4, 105),
    InstanceShape(16, 4, 2, 100),
    InstanceShape(16, 4, 4, 95),
    InstanceShape(16, 8, 1, 95),
    InstanceShape(16, 8, 4, 100),
    InstanceShape(32, 4, 1, 95),
    InstanceShape(32, 4, 4, 100),
    InstanceShape(32, 8, 1, 95),
    InstanceShape(32, 8, 4, 100),
    InstanceShape(32, 8, 4, 105),
)


def plain_instance(
    demands: IntArray,
    priorities: IntArray,
    counts: IntArray,
    movable: BoolArray,
    running: IntArray,
    most: IntArray,
    capacities: IntArray,
) -> PackingInstance:
    """Return an instance without headroom whose classes may all be preempted."""
    return PackingInstance(
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=priorities,
        counts=counts,
        movable=movable,
        preemptible=np.ones(len(demands), dtype=np.bool_),
        weights=np.ones(len(demands), dtype=np.int64),
        running=running,
        maximum=most,
        capacities=capacities,
    )


def draw_instance(shape: InstanceShape, seed: int) -> PackingInstance:
    """Draw ReplicaSets of 1 to 4 pods, 100 to 1000 m and MB each, and let the scheduler place them on equal nodes."""
    source = random.Random(f"{shape} {seed}")
    wanted = shape.nodes * shape.pods_per_node
    demands: list[tuple[int, int]] = []
    counts: list[int] = []
    priorities: list[int] = []
    while (drawn := sum(counts)) < wanted:
        counts.append(min(source.randint(1, 4), wanted - drawn))
        demands.append((source.randint(100, 1000), source.randint(100, 1000) * MEGABYTE))
        # Larger priorities are higher.
        priorities.append(source.randint(1, shape.priorities))
    # Rounded up twice, like the paper's generator.
    totals = [sum(n * d[r] for n, d in zip(counts, demands, strict=True)) for r in range(2)]
    capacity = [_ceil(_ceil(total * 100, shape.usage_percent), shape.nodes) for total in totals]
    capacities = np.tile(np.array(capacity, dtype=np.int64), (shape.nodes, 1))
    demand_rows, count_row = np.array(demands, dtype=np.int64), np.array(counts, dtype=np.int64)
    return plain_instance(
        demands=demand_rows,
        priorities=np.array(priorities, dtype=np.int64),
        counts=count_row,
        movable=np.ones(len(counts), dtype=np.bool_),
        running=default_placement(demand_rows, count_row, capacities),
        most=np.tile(count_row[:, None], (1, shape.nodes)),
        capacities=capacities,
    )


def draw_rightsized(shape: InstanceShape, seed: int) -> PackingInstance:
    """Draw an instance whose pods share headroom: 10 to 100 % of their CPU usage, 5 to 50 % of memory.

    Nodes have capacity for the shared headroom of random pods. The pods still request their own peaks, so the default
    scheduler leaves many of them pending.
    """
    source = random.Random(f"rightsized {shape} {seed}")
    plain = draw_instance(shape, seed)
    shares = np.array([[source.uniform(0.1, 1.0), source.uniform(0.05, 0.5)] for _ in range(plain.class_count)])
    headroom = (plain.demands * shares).astype(np.int64)
    pods = np.repeat(np.arange(plain.class_count), plain.counts).tolist()
    source.shuffle(pods)
    thrown = [headroom[pods[n :: shape.nodes]].max(axis=0) for n in range(shape.nodes)]
    capacities = plain.capacities + np.mean(thrown, axis=0).astype(np.int64)
    running = default_placement(plain.demands + headroom, plain.counts, capacities)
    return replace(plain, headroom=headroom, capacities=capacities, running=running)


def with_peaks(instance: PackingInstance) -> PackingInstance:
    """Return the same pods and nodes without shared headroom."""
    return replace(instance, demands=instance.demands + instance.headroom, headroom=np.zeros_like(instance.headroom))


def _ceil(value: int, divisor: int) -> int:
    return (value + divisor - 1) // divisor


def draw_pending(shape: InstanceShape, seed: int) -> PackingInstance:
    """Return the first instance from a seed on in which the default scheduler leaves pods pending."""
    for attempt in range(1000):
        instance = draw_instance(shape, seed * 1000 + attempt)
        if (instance.running.sum(axis=1) < instance.counts).any():
            return instance
    raise RuntimeError(f"the default scheduler places everything of {shape} from seed {seed} on")


def default_placement(demands: IntArray, counts: IntArray, capacities: IntArray) -> IntArray:
    """Place pods in order of arrival, each on the least allocated, best balanced node with the fewest pods."""
    placed = np.zeros((len(demands), len(capacities)), dtype=np.int64)
    used = np.zeros_like(capacities)
    for c, demand in enumerate(demands):
        for _ in range(counts[c]):
            after = used + demand
            open_nodes = (after <= capacities).all(axis=1)
            if not open_nodes.any():
                break
            share = after / capacities
            score = 100 * (1 - share).mean(axis=1) + BALANCE_WEIGHT * 100 * (1 - share.std(axis=1))
            most = placed[c].max()
            score += SPREAD_WEIGHT * (100 * (most - placed[c]) / most if most else 100)
            node = int(np.argmax(np.where(open_nodes, score, -1.0)))
            placed[c, node] += 1
            used[node] = after[node]
    return placed


def problem_of(instance: PackingInstance) -> PackingProblem:
    """Return an instance as a problem of pods: the running pods of each class by node, then the pending ones."""
    classes, nodes = instance.class_count, instance.node_count
    where: list[int] = []
    of: list[int] = []
    for number in range(classes):
        running = np.repeat(np.arange(nodes), instance.running[number]).tolist()
        where += running + [-1] * (int(instance.counts[number]) - len(running))
        of += [number] * int(instance.counts[number])
    return PackingProblem(
        resources=("cpu", "memory")[: instance.demands.shape[1]],
        capacities=instance.capacities,
        demands=instance.demands,
        headroom=instance.headroom,
        priorities=instance.priorities,
        movable=instance.movable,
        preemptible=instance.preemptible,
        preempt=np.ones(classes, dtype=np.bool_),
        weights=instance.weights,
        max_on_node=instance.counts,
        node_mask_of_class=np.zeros(classes, dtype=np.int64),
        allowed_nodes=np.ones((1, nodes), dtype=np.bool_),
        pod_class=np.array(of, dtype=np.int64),
        pod_node=np.array(where, dtype=np.int64),
        rules=PlacementRules(np.zeros((0, nodes), dtype=np.int64)),
    )
