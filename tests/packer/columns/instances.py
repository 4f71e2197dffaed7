"""Small random instances with node masks, immovable copies, several resources and priorities."""

import random

import numpy as np

from benchmarks.packing_instances import plain_instance
from cruise.packer.columns.instance import PackingInstance


def draw_tiny_instance(seed: int) -> PackingInstance:
    """At most three nodes, four classes and about eight copies: small enough to try everything."""
    source = random.Random(seed)
    nodes, classes, resources = source.randint(1, 3), source.randint(1, 4), source.randint(1, 3)
    capacities = [[source.randint(3, 12) for _ in range(resources)] for _ in range(nodes)]
    if source.random() < 0.5:
        capacities = [capacities[0]] * nodes
    demands = [[source.randint(0 if r else 1, 6) for r in range(resources)] for _ in range(classes)]
    counts = [source.randint(1, 3) for _ in range(classes)]
    most = [[source.choice([0, 1, 3, 3, 3]) for _ in range(nodes)] for _ in range(classes)]
    free = [row[:] for row in capacities]
    running = [[0] * nodes for _ in range(classes)]
    for c in range(classes):
        for _ in range(source.randint(0, counts[c])):
            n = source.randrange(nodes)
            if all(d <= f for d, f in zip(demands[c], free[n], strict=True)):
                running[c][n] += 1
                free[n] = [f - d for d, f in zip(demands[c], free[n], strict=True)]
    return plain_instance(
        demands=np.array(demands, dtype=np.int64),
        priorities=np.array([source.choice([0, 10, 100]) for _ in range(classes)], dtype=np.int64),
        counts=np.array(counts, dtype=np.int64),
        movable=np.array([source.random() < 0.8 for _ in range(classes)]),
        running=np.array(running, dtype=np.int64),
        most=np.array(most, dtype=np.int64),
        capacities=np.array(capacities, dtype=np.int64),
    )
