"""What a model requires of nodes and classes alone: how many copies exist, capacity with headroom, preemption."""

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.exact.layout import compute_immovable_loads, select_rules_of_classes
from cruise.packer.exact.variables import BoolLiteral, BoundedSum, PlacementVariables
from cruise.packer.problem import EvictionLimit, ExclusionRule, IntArray, SpreadRule

# What a model requires of pods together: exclusions, spreads, and how many may be evicted.


def add_pod_rule_constraints(cells: PlacementVariables) -> None:
    """Add the exclusions, spreads and eviction limits that copies can break."""
    ruling = cells.layout.rules
    rules, classes = ruling.rules, cells.nodes_of
    for index in select_rules_of_classes(ruling.exclusions, classes):
        exclusion = rules.exclusions[index]
        for nodes in ruling.domains[exclusion.topology].values():
            _keep_apart(cells, exclusion, nodes)
    for index in select_rules_of_classes(ruling.spreads, classes):
        _keep_even(cells, rules.spreads[index], ruling.domains[rules.spreads[index].topology])
    for index in select_rules_of_classes(ruling.eviction_limits, classes):
        _keep_to_limit(cells, rules.eviction_limits[index])
    if rules.max_evicted_by_node is not None:
        _keep_on_nodes(cells, rules.max_evicted_by_node)


def _keep_apart(cells: PlacementVariables, exclusion: ExclusionRule, nodes: tuple[int, ...]) -> None:
    holder, targets = exclusion.holder, tuple(sorted(exclusion.targets.tolist()))
    others = tuple(target for target in targets if target != holder)
    alone = int(holder in targets)
    met = cells.get_held(targets, nodes)
    if met.maximum > alone:
        cells.require(met.expression() <= alone, cells.get_arriving((holder,), nodes))
    holders = cells.get_held((holder,), nodes)
    if others and holders.maximum > 0:
        cells.require(holders.expression() <= 0, cells.get_arriving(others, nodes))


def _keep_even(cells: PlacementVariables, spread: SpreadRule, domains: dict[int, tuple[int, ...]]) -> None:
    targets = tuple(sorted(spread.targets.tolist()))
    eligible = {
        domain: there for domain, nodes in domains.items() if (there := tuple(n for n in nodes if spread.eligible[n]))
    }
    met = {domain: cells.get_held(targets, nodes) for domain, nodes in eligible.items()}
    least = cells.model.new_int_var(0, min((count.maximum for count in met.values()), default=0), "")
    if len(eligible) < spread.min_domains:
        cells.require(least == 0)
    else:
        for count in met.values():
            cells.require(least <= count.expression())
    alone = int(spread.holder in targets)
    for domain, there in eligible.items():
        if met[domain].maximum + alone > spread.max_skew:
            even = met[domain].expression() <= least + spread.max_skew
            cells.require(even, cells.get_arriving((spread.holder,), there))
            # Where a node does not count, a pod that arrives there counts for itself alone.
            beside = tuple(n for n in domains[domain] if not spread.eligible[n])
            more = met[domain].expression() + alone <= least + spread.max_skew
            cells.require(more, cells.get_arriving((spread.holder,), beside))


def _keep_to_limit(cells: PlacementVariables, limit: EvictionLimit) -> None:
    members = limit.members.tolist()
    ran = int(cells.layout.running[members].sum())
    stays = cells.get_staying(members)
    if stays.constant < ran - limit.allowed:
        cells.require(stays.expression() >= ran - limit.allowed)


def _keep_on_nodes(cells: PlacementVariables, most_evicted: IntArray) -> None:
    running = cells.layout.running
    for node in range(running.shape[1]):
        there = np.flatnonzero(running[:, node])
        least = int(running[there, node].sum() - most_evicted[node])
        stays = cells.get_staying(there.tolist(), (node,))
        if stays.constant < least:
            cells.require(stays.expression() >= least)


def add_count_constraints(cells: PlacementVariables) -> None:
    """No class has more copies than exist, and those that may not be preempted all keep a place."""
    layout = cells.layout
    for pod_class in cells.nodes_of:
        held = cells.get_held((pod_class,))
        if held.maximum > layout.counts[pod_class]:
            cells.require(held.expression() <= int(layout.counts[pod_class]))
        ran = int(layout.running[pod_class].sum())
        if layout.returning:
            _keep_to_node(cells, pod_class)
        if ran and not layout.problem.preemptible[pod_class]:
            cells.require(held.expression() >= ran)


def _keep_to_node(cells: PlacementVariables, pod_class: int) -> None:
    """What returns to a node arrives there as well: together they are no more than it may hold."""
    for node in cells.nodes_of[pod_class]:
        most = int(cells.layout.problem.max_on_node[pod_class])
        held = cells.get_held((pod_class,), (node,))
        if held.maximum > most:
            cells.require(held.expression() <= most, cells.get_arriving((pod_class,), (node,)))


def add_capacity_constraints(cells: PlacementVariables) -> None:
    """Demands and the largest headroom fit each node; one that holds too much already takes nothing more."""
    layout, problem = cells.layout, cells.layout.problem
    taken, kept = compute_immovable_loads(problem)
    on_node: dict[int, list[int]] = {}
    for pod_class, nodes in cells.nodes_of.items():
        for node in nodes:
            on_node.setdefault(node, []).append(pod_class)
    for node, here in on_node.items():
        for resource in range(len(problem.resources)):
            demands = {c: int(problem.demands[c, resource]) for c in here}
            headroom = {c: int(problem.headroom[c, resource]) for c in here}
            load = _load(cells, node, {c: demand for c, demand in demands.items() if demand})
            load.add_constant(int(taken[node, resource]))
            least, capacity = int(kept[node, resource]), int(problem.capacities[node, resource])
            if load.maximum + max(least, *headroom.values()) <= capacity:
                continue
            condition: BoolLiteral = True
            if layout.overfull[node, resource]:
                condition = cells.get_arriving(tuple(c for c in here if demands[c] or headroom[c]), (node,))
            larger = {c: much for c, much in headroom.items() if much > least}
            _keep_back(cells, load, node, larger, least)
            cells.require(load.expression() <= capacity, condition)


def add_preemption_constraints(cells: PlacementVariables) -> None:
    """A copy that leaves a node where a class arrives that may not preempt, arrives elsewhere; so on from there."""
    layout, problem = cells.layout, cells.layout.problem
    polite = tuple(np.flatnonzero(~problem.preempt).tolist())
    if not polite:
        return
    if not (problem.preemptible & problem.movable & layout.running.any(axis=1)).any():
        return
    guarded = [cells.model.new_bool_var("") for _ in range(problem.node_count)]
    for node, guard in enumerate(guarded):
        cells.require(guard >= 1, cells.get_arriving(polite, (node,)))
    for pod_class in np.flatnonzero(problem.movable & layout.running.any(axis=1)).tolist():
        _guard_moves(cells, pod_class, guarded)


def _guard_moves(cells: PlacementVariables, pod_class: int, guarded: list[cp_model.IntVar]) -> None:
    """What leaves a guarded node goes to another one, from which then nothing is preempted either."""
    layout, runs = cells.layout, cells.layout.running[pod_class]
    came = {node: cells.get_arrivals((pod_class,), (node,)) for node in range(len(guarded))}
    came = {node: count for node, count in came.items() if count.maximum}
    into = {node: BoundedSum() for node in came}
    for node in np.flatnonzero(runs).tolist():
        stays = cells.get_staying((pod_class,), (node,))
        if not stays.terms and stays.constant == runs[node]:
            continue
        out = BoundedSum()
        for target, count in came.items():
            if target != node or layout.returning:
                most = min(int(runs[node]), count.maximum)
                moves = cells.model.new_int_var(0, most, "")
                cells.model.add(moves <= most * guarded[target])
                out.add_variable(moves, most)
                into[target].add_variable(moves, most)
        cells.require(out.expression() >= int(runs[node]) - stays.expression(), guarded[node])
    for target, count in came.items():
        cells.add_stay_before_arrival((pod_class, target))
        cells.require(into[target].expression() <= count.expression())


def _load(cells: PlacementVariables, node: int, demands: dict[int, int]) -> BoundedSum:
    load = BoundedSum()
    for pod_class, demand in demands.items():
        cell = pod_class, node
        if cell in cells.stay:
            load.add_variable(cells.stay[cell], cells.stay_most[cell], demand)
        if cell in cells.arrive:
            load.add_variable(cells.arrive[cell], cells.arrive_most[cell], demand)
    return load


def _keep_back(cells: PlacementVariables, load: BoundedSum, node: int, larger: dict[int, int], least: int) -> None:
    """Add the largest headroom on a node to its load: `least` in any case, what is `larger` with its class."""
    if not larger:
        load.add_constant(least)
        return
    most = max(larger.values())
    headroom = cells.model.new_int_var(least, most, "")
    for pod_class, much in larger.items():
        cells.require(headroom >= much, cells.get_presence(pod_class, node))
    load.add_variable(headroom, most)
