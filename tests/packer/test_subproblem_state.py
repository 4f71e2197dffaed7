"""Combining the proofs of subproblems: complete for one, common to all answers for several."""

import numpy as np

from cruise.packer.problem import PackingObjective, PackingProblem, PlacementRules
from cruise.packer.subproblems import CombinedPacking, split_problem


def _apart(parts):
    """Parts of two nodes each, both with a pod of two thirds, and one more that waits: counting has room for it."""
    nodes, classes = 2 * parts, np.arange(parts)
    return PackingProblem(
        resources=("cpu",),
        capacities=np.full((nodes, 1), 3),
        demands=np.full((parts, 1), 2),
        headroom=np.zeros((parts, 1), dtype=np.int64),
        priorities=np.zeros(parts, dtype=np.int64),
        movable=np.ones(parts, dtype=np.bool_),
        preemptible=np.zeros(parts, dtype=np.bool_),
        preempt=np.ones(parts, dtype=np.bool_),
        weights=np.ones(parts, dtype=np.int64),
        max_on_node=np.full(parts, 3),
        node_mask_of_class=classes,
        allowed_nodes=np.arange(nodes) // 2 == classes[:, None],
        pod_class=np.repeat(classes, 3),
        pod_node=np.array([node for part in range(parts) for node in (2 * part, 2 * part + 1, -1)]),
        rules=PlacementRules(np.zeros((1, nodes), dtype=np.int64)),
        objective=PackingObjective.OPERATOR,
    )


def _bound_of(parts):
    problem = _apart(parts)
    whole = CombinedPacking(problem, split_problem(problem), problem.pod_node, lambda _: None)
    assert len(whole.pieces) == parts
    for piece in whole.pieces:
        piece.apply_bound((2, 0), (3, -1))
    return whole.packing.bound


def test_evictions_of_one_part_are_bounded_although_a_plan_may_place_more():
    assert _bound_of(1) == (3, -1)


def test_of_several_parts_they_are_not_since_one_may_place_less_where_another_places_more():
    assert _bound_of(2) == (6, 0)
