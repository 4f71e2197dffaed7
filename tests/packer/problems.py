"""Small random problems without rules between pods: headroom, masks, limits, full nodes, both objectives."""

import random

import numpy as np

from cruise.packer.problem import PackingObjective, PackingProblem, PlacementRules
from tests.packer.columns.instances import draw_tiny_instance

# What is best of a problem whose nodes have no price.
WITHOUT_FLEET = (PackingObjective.PAPER, PackingObjective.OPERATOR)


def draw_problem(seed: int) -> PackingProblem:
    """A problem small enough to try everything; every second one has headroom, each class preempts."""
    source = random.Random(f"problem {seed}")
    instance = draw_tiny_instance(seed)
    classes, nodes = instance.running.shape
    resources = instance.demands.shape[1]
    pod_node: list[int] = []
    for c in range(classes):
        homes = np.repeat(np.arange(nodes), instance.running[c]).tolist()
        pod_node += homes + [-1] * (int(instance.counts[c]) - len(homes))
    headroom = [[source.choice([0, 0, 1, 2, 3]) for _ in range(resources)] for _ in range(classes)]
    if source.random() < 0.5:
        headroom = [[0] * resources] * classes
    # What runs on a node with headroom may surpass it, and so may what runs on one that shrank.
    capacities = instance.capacities - np.array([[source.random() < 0.15] for _ in range(nodes)])
    return PackingProblem(
        resources=tuple(f"resource {r}" for r in range(resources)),
        capacities=capacities,
        demands=instance.demands,
        headroom=np.array(headroom, dtype=np.int64),
        priorities=instance.priorities,
        movable=instance.movable,
        preemptible=np.array([source.random() < 0.7 for _ in range(classes)]),
        preempt=np.ones(classes, dtype=np.bool_),
        weights=np.array([source.randint(1, 4) for _ in range(classes)], dtype=np.int64),
        max_on_node=np.array([source.choice([1, 3, 3]) for _ in range(classes)], dtype=np.int64),
        node_mask_of_class=np.arange(classes),
        allowed_nodes=instance.maximum > 0,
        pod_class=np.repeat(np.arange(classes), instance.counts),
        pod_node=np.array(pod_node, dtype=np.int64),
        rules=PlacementRules(np.zeros((0, nodes), dtype=np.int64)),
        objective=source.choice([PackingObjective.PAPER, PackingObjective.OPERATOR]),
    )
