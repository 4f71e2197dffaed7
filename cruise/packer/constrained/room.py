"""What a model requires of nodes and classes alone: how many copies exist, capacity with headroom, preemption."""

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.constrained.cells import Cells, Count, Literal
from cruise.packer.constrained.layout import loads_of_stuck


def keep_to_counts(cells: Cells) -> None:
    """No class has more copies than exist, and those that may not be preempted all keep a place."""
    layout = cells.layout
    for pod_class in cells.nodes_of:
        held = cells.held((pod_class,))
        if held.most > layout.counts[pod_class]:
            cells.require(held.expression() <= int(layout.counts[pod_class]))
        ran = int(layout.running[pod_class].sum())
        if layout.returning:
            _keep_to_node(cells, pod_class)
        if ran and not layout.problem.preemptible[pod_class]:
            cells.require(held.expression() >= ran)


def _keep_to_node(cells: Cells, pod_class: int) -> None:
    """What returns to a node arrives there as well: together they are no more than it may hold."""
    for node in cells.nodes_of[pod_class]:
        most = int(cells.layout.problem.most_on_node[pod_class])
        held = cells.held((pod_class,), (node,))
        if held.most > most:
            cells.require(held.expression() <= most, cells.arrives((pod_class,), (node,)))


def keep_to_capacity(cells: Cells) -> None:
    """Demands and the largest headroom fit each node; one that holds too much already takes nothing more."""
    layout, problem = cells.layout, cells.layout.problem
    taken, kept = loads_of_stuck(problem)
    on_node: dict[int, list[int]] = {}
    for pod_class, nodes in cells.nodes_of.items():
        for node in nodes:
            on_node.setdefault(node, []).append(pod_class)
    for node, here in on_node.items():
        for resource in range(len(problem.resources)):
            demands = {c: int(problem.demands[c, resource]) for c in here}
            headroom = {c: int(problem.headroom[c, resource]) for c in here}
            load = _load(cells, node, {c: demand for c, demand in demands.items() if demand})
            load.know(int(taken[node, resource]))
            least, capacity = int(kept[node, resource]), int(problem.capacities[node, resource])
            if load.most + max(least, *headroom.values()) <= capacity:
                continue
            condition: Literal = True
            if layout.overfull[node, resource]:
                condition = cells.arrives(tuple(c for c in here if demands[c] or headroom[c]), (node,))
            larger = {c: much for c, much in headroom.items() if much > least}
            _keep_back(cells, load, node, larger, least)
            cells.require(load.expression() <= capacity, condition)


def keep_preemption_to_those_who_may(cells: Cells) -> None:
    """A copy that leaves a node where a class arrives that may not preempt, arrives elsewhere; so on from there."""
    layout, problem = cells.layout, cells.layout.problem
    polite = tuple(np.flatnonzero(~problem.preempt).tolist())
    if not polite:
        return
    if not (problem.preemptible & problem.movable & layout.running.any(axis=1)).any():
        return
    guarded = [cells.model.new_bool_var("") for _ in range(problem.node_count)]
    for node, guard in enumerate(guarded):
        cells.require(guard >= 1, cells.arrives(polite, (node,)))
    for pod_class in np.flatnonzero(problem.movable & layout.running.any(axis=1)).tolist():
        _guard_moves(cells, pod_class, guarded)


def _guard_moves(cells: Cells, pod_class: int, guarded: list[cp_model.IntVar]) -> None:
    """What leaves a guarded node goes to another one, from which then nothing is preempted either."""
    layout, runs = cells.layout, cells.layout.running[pod_class]
    came = {node: cells.arrivals((pod_class,), (node,)) for node in range(len(guarded))}
    came = {node: count for node, count in came.items() if count.most}
    into = {node: Count() for node in came}
    for node in np.flatnonzero(runs).tolist():
        stays = cells.stays((pod_class,), (node,))
        if not stays.terms and stays.known == runs[node]:
            continue
        out = Count()
        for target, count in came.items():
            if target != node or layout.returning:
                most = min(int(runs[node]), count.most)
                moves = cells.model.new_int_var(0, most, "")
                cells.model.add(moves <= most * guarded[target])
                out.take(moves, most)
                into[target].take(moves, most)
        cells.require(out.expression() >= int(runs[node]) - stays.expression(), guarded[node])
    for target, count in came.items():
        cells.stay_before_arriving((pod_class, target))
        cells.require(into[target].expression() <= count.expression())


def _load(cells: Cells, node: int, demands: dict[int, int]) -> Count:
    load = Count()
    for pod_class, demand in demands.items():
        cell = pod_class, node
        if cell in cells.stay:
            load.take(cells.stay[cell], cells.stay_most[cell], demand)
        if cell in cells.arrive:
            load.take(cells.arrive[cell], cells.arrive_most[cell], demand)
    return load


def _keep_back(cells: Cells, load: Count, node: int, larger: dict[int, int], least: int) -> None:
    """Add the largest headroom on a node to its load: `least` in any case, what is `larger` with its class."""
    if not larger:
        load.know(least)
        return
    most = max(larger.values())
    headroom = cells.model.new_int_var(least, most, "")
    for pod_class, much in larger.items():
        cells.require(headroom >= much, cells.is_on(pod_class, node))
    load.take(headroom, most)
