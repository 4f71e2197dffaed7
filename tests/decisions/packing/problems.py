"""Problems from instances, and the other way a checker's view of a packing."""

import numpy as np

from cruise.decisions.packing.instance import Instance
from cruise.decisions.packing.problem import Objective, Problem, Rules


def problem_of(instance: Instance, objective: Objective = Objective.PAPER) -> Problem:
    """The problem whose nodes each have a class's limit of their own only where it is 0."""
    classes, nodes = instance.running.shape
    pod_node = []
    for c in range(classes):
        homes = np.repeat(np.arange(nodes), instance.running[c]).tolist()
        pod_node += homes + [-1] * (int(instance.counts[c]) - len(homes))
    resources = instance.demands.shape[1]
    return Problem(
        resources=tuple(f"resource {r}" for r in range(resources)),
        capacities=instance.capacities,
        demands=instance.demands,
        headroom=np.zeros_like(instance.demands),
        priorities=instance.priorities,
        movable=instance.movable,
        preemptible=np.ones(classes, dtype=np.bool_),
        preempt=np.ones(classes, dtype=np.bool_),
        weights=np.ones(classes, dtype=np.int64),
        most_on_node=instance.most.max(axis=1, initial=0),
        sites=np.arange(classes),
        admits=instance.most > 0,
        pod_class=np.repeat(np.arange(classes), instance.counts),
        pod_node=np.array(pod_node, dtype=np.int64),
        rules=Rules(np.zeros((0, nodes), dtype=np.int64)),
        objective=objective,
    )
