"""Adds constraints to the CP-SAT model: counts, capacity, preemption, exclusions, spread, eviction limits."""

import numpy as np
from ortools.sat.python import cp_model

from cruise.packer.exact.layout import compute_immovable_loads, select_rules_of_classes
from cruise.packer.exact.variables import BoolLiteral, BoundedSum, PlacementVariables
from cruise.packer.problem import EvictionLimit, ExclusionRule, IntArray, SpreadRule


def add_pod_rule_constraints(variables: PlacementVariables) -> None:
    """Add the exclusions, spreads and eviction limits that copies can break."""
    rule_index = variables.layout.rules
    rules, classes = rule_index.rules, variables.nodes_of
    for index in select_rules_of_classes(rule_index.exclusions, classes):
        exclusion = rules.exclusions[index]
        for nodes in rule_index.domains[exclusion.topology].values():
            _add_exclusion(variables, exclusion, nodes)
    for index in select_rules_of_classes(rule_index.spreads, classes):
        _add_spread(variables, rules.spreads[index], rule_index.domains[rules.spreads[index].topology])
    for index in select_rules_of_classes(rule_index.eviction_limits, classes):
        _add_eviction_limit(variables, rules.eviction_limits[index])
    if rules.max_evicted_by_node is not None:
        _add_node_eviction_limits(variables, rules.max_evicted_by_node)


def _add_exclusion(variables: PlacementVariables, exclusion: ExclusionRule, nodes: tuple[int, ...]) -> None:
    holder, targets = exclusion.holder, tuple(sorted(exclusion.targets.tolist()))
    others = tuple(target for target in targets if target != holder)
    own_count = int(holder in targets)
    target_count = variables.count_placed(targets, nodes)
    if target_count.maximum > own_count:
        variables.require(target_count.build_expression() <= own_count, variables.get_arriving((holder,), nodes))
    holders = variables.count_placed((holder,), nodes)
    if others and holders.maximum > 0:
        variables.require(holders.build_expression() <= 0, variables.get_arriving(others, nodes))


def _add_spread(variables: PlacementVariables, spread: SpreadRule, domains: dict[int, tuple[int, ...]]) -> None:
    targets = tuple(sorted(spread.targets.tolist()))
    eligible = {
        domain: eligible_nodes
        for domain, nodes in domains.items()
        if (eligible_nodes := tuple(n for n in nodes if spread.eligible[n]))
    }
    target_counts = {domain: variables.count_placed(targets, nodes) for domain, nodes in eligible.items()}
    minimum = variables.model.new_int_var(0, min((count.maximum for count in target_counts.values()), default=0), "")
    if len(eligible) < spread.min_domains:
        variables.require(minimum == 0)
    else:
        for count in target_counts.values():
            variables.require(minimum <= count.build_expression())
    own_count = int(spread.holder in targets)
    for domain, eligible_nodes in eligible.items():
        if target_counts[domain].maximum + own_count > spread.max_skew:
            within_skew = target_counts[domain].build_expression() <= minimum + spread.max_skew
            variables.require(within_skew, variables.get_arriving((spread.holder,), eligible_nodes))
            # On a node that is not eligible, an arriving pod counts only for itself.
            other_nodes = tuple(n for n in domains[domain] if not spread.eligible[n])
            within_skew_outside = target_counts[domain].build_expression() + own_count <= minimum + spread.max_skew
            variables.require(within_skew_outside, variables.get_arriving((spread.holder,), other_nodes))


def _add_eviction_limit(variables: PlacementVariables, limit: EvictionLimit) -> None:
    members = limit.members.tolist()
    running_count = int(variables.layout.running[members].sum())
    staying = variables.count_staying(members)
    if staying.constant < running_count - limit.allowed:
        variables.require(staying.build_expression() >= running_count - limit.allowed)


def _add_node_eviction_limits(variables: PlacementVariables, most_evicted: IntArray) -> None:
    running = variables.layout.running
    for node in range(running.shape[1]):
        classes = np.flatnonzero(running[:, node])
        least = int(running[classes, node].sum() - most_evicted[node])
        staying = variables.count_staying(classes.tolist(), (node,))
        if staying.constant < least:
            variables.require(staying.build_expression() >= least)


def add_count_constraints(variables: PlacementVariables) -> None:
    """Require no more copies of a class than exist, and as many as run now if it must not be preempted."""
    layout = variables.layout
    for pod_class in variables.nodes_of:
        held = variables.count_placed((pod_class,))
        if held.maximum > layout.counts[pod_class]:
            variables.require(held.build_expression() <= int(layout.counts[pod_class]))
        running_count = int(layout.running[pod_class].sum())
        if layout.returning:
            _limit_returning_copies(variables, pod_class)
        if running_count and not layout.problem.preemptible[pod_class]:
            variables.require(held.build_expression() >= running_count)


def _limit_returning_copies(variables: PlacementVariables, pod_class: int) -> None:
    """Limit the copies on a node where copies return, because these count as arrivals as well."""
    for node in variables.nodes_of[pod_class]:
        maximum = int(variables.layout.problem.max_on_node[pod_class])
        held = variables.count_placed((pod_class,), (node,))
        if held.maximum > maximum:
            variables.require(held.build_expression() <= maximum, variables.get_arriving((pod_class,), (node,)))


def add_capacity_constraints(variables: PlacementVariables) -> None:
    """Require that demands and the largest headroom fit each node; overcommitted ones take nothing more."""
    layout, problem = variables.layout, variables.layout.problem
    immovable_demand, immovable_headroom = compute_immovable_loads(problem)
    on_node: dict[int, list[int]] = {}
    for pod_class, nodes in variables.nodes_of.items():
        for node in nodes:
            on_node.setdefault(node, []).append(pod_class)
    for node, classes in on_node.items():
        for resource in range(len(problem.resources)):
            demands = {c: int(problem.demands[c, resource]) for c in classes}
            headroom = {c: int(problem.headroom[c, resource]) for c in classes}
            load = _sum_load(variables, node, {c: demand for c, demand in demands.items() if demand})
            load.add_constant(int(immovable_demand[node, resource]))
            min_headroom, capacity = int(immovable_headroom[node, resource]), int(problem.capacities[node, resource])
            if load.maximum + max(min_headroom, *headroom.values()) <= capacity:
                continue
            condition: BoolLiteral = True
            if layout.overfull[node, resource]:
                condition = variables.get_arriving(tuple(c for c in classes if demands[c] or headroom[c]), (node,))
            larger = {c: amount for c, amount in headroom.items() if amount > min_headroom}
            _add_headroom(variables, load, node, larger, min_headroom)
            variables.require(load.build_expression() <= capacity, condition)


def add_preemption_constraints(variables: PlacementVariables) -> None:
    """Require that a copy leaving a node where a class arrives that never preempts is placed again."""
    layout, problem = variables.layout, variables.layout.problem
    never_preempting = tuple(np.flatnonzero(~problem.preempt).tolist())
    if not never_preempting:
        return
    if not (problem.preemptible & problem.movable & layout.running.any(axis=1)).any():
        return
    guarded = [variables.model.new_bool_var("") for _ in range(problem.node_count)]
    for node, guard in enumerate(guarded):
        variables.require(guard >= 1, variables.get_arriving(never_preempting, (node,)))
    for pod_class in np.flatnonzero(problem.movable & layout.running.any(axis=1)).tolist():
        _add_move_guards(variables, pod_class, guarded)


def _add_move_guards(variables: PlacementVariables, pod_class: int, guarded: list[cp_model.IntVar]) -> None:
    """Copies that leave a guarded node move to another one, which is then guarded as well."""
    layout, running = variables.layout, variables.layout.running[pod_class]
    arrivals = {node: variables.count_arriving((pod_class,), (node,)) for node in range(len(guarded))}
    arrivals = {node: count for node, count in arrivals.items() if count.maximum}
    moves_to = {node: BoundedSum() for node in arrivals}
    for node in np.flatnonzero(running).tolist():
        staying = variables.count_staying((pod_class,), (node,))
        if not staying.terms and staying.constant == running[node]:
            continue
        moves_from = BoundedSum()
        for target, count in arrivals.items():
            if target != node or layout.returning:
                maximum = min(int(running[node]), count.maximum)
                moves = variables.model.new_int_var(0, maximum, "")
                variables.model.add(moves <= maximum * guarded[target])
                moves_from.add_variable(moves, maximum)
                moves_to[target].add_variable(moves, maximum)
        variables.require(
            moves_from.build_expression() >= int(running[node]) - staying.build_expression(), guarded[node]
        )
    for target, count in arrivals.items():
        variables.add_stay_before_arrival((pod_class, target))
        variables.require(moves_to[target].build_expression() <= count.build_expression())


def _sum_load(variables: PlacementVariables, node: int, demands: dict[int, int]) -> BoundedSum:
    load = BoundedSum()
    for pod_class, demand in demands.items():
        cell = pod_class, node
        if cell in variables.stay:
            load.add_variable(variables.stay[cell], variables.stay_most[cell], demand)
        if cell in variables.arrive:
            load.add_variable(variables.arrive[cell], variables.arrive_most[cell], demand)
    return load


def _add_headroom(
    variables: PlacementVariables, load: BoundedSum, node: int, larger: dict[int, int], least: int
) -> None:
    """Add the largest headroom on a node to its load: at least `least`, and that of present classes in `larger`."""
    if not larger:
        load.add_constant(least)
        return
    maximum = max(larger.values())
    headroom = variables.model.new_int_var(least, maximum, "")
    for pod_class, amount in larger.items():
        variables.require(headroom >= amount, variables.get_presence(pod_class, node))
    load.add_variable(headroom, maximum)
