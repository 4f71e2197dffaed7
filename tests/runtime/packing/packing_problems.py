"""Small packing problems as plain arrays."""

import numpy as np

from cruise.packer.problem import PackingObjective, PackingProblem, PlacementRules


def make_problem(demands=((4,), (2,)), running=((1, 0), (1, 1)), pending=(0,), capacity=5, nodes=2) -> PackingProblem:
    """One resource, equal nodes; `running` are (class, node), `pending` are classes; priorities fall with the class."""
    rows = np.array(demands, dtype=np.int64)
    classes = len(rows)
    names = (*(f"r{number}" for number in range(rows.shape[1])), "pods")
    room = np.tile(np.array([[capacity] * rows.shape[1] + [110]], dtype=np.int64), (nodes, 1))
    return PackingProblem(
        resources=names,
        capacities=room,
        demands=np.hstack([rows, np.ones((classes, 1), dtype=np.int64)]),
        headroom=np.zeros((classes, rows.shape[1] + 1), dtype=np.int64),
        priorities=np.arange(classes, 0, -1, dtype=np.int64),
        movable=np.ones(classes, dtype=np.bool_),
        preemptible=np.ones(classes, dtype=np.bool_),
        preempt=np.ones(classes, dtype=np.bool_),
        weights=np.ones(classes, dtype=np.int64),
        max_on_node=np.full(classes, 110, dtype=np.int64),
        node_mask_of_class=np.zeros(classes, dtype=np.int64),
        allowed_nodes=np.ones((1, nodes), dtype=np.bool_),
        pod_class=np.array([*(one for one, _ in running), *pending], dtype=np.int64),
        pod_node=np.array([*(node for _, node in running), *(-1 for _ in pending)], dtype=np.int64),
        rules=PlacementRules(topologies=np.zeros((0, nodes), dtype=np.int64)),
        objective=PackingObjective.PAPER,
    )
