"""Builds a packing problem from a snapshot."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from operator import attrgetter

import numpy as np

from cruise.decisions.packing.building.amounts import Extras, capacities, demand_rows, resource_names
from cruise.decisions.packing.building.built import UNLIMITED, Allowance, Built, Usage
from cruise.decisions.packing.building.census import Census, extras_of, take_census
from cruise.decisions.packing.building.movability import Movability
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.decisions.packing.building.sites import Sites
from cruise.decisions.packing.problem import Objective, Problem, Rules
from cruise.decisions.packing.proposal import Sizes
from cruise.decisions.scope import Scope
from cruise.domain.cluster import Node, Snapshot
from cruise.domain.policy import Mode, Policy
from cruise.domain.requests import counted_requests
from cruise.domain.usage import StatisticsTable

# Offline a plan is decided as mode `full` would.
AS_FULL = Policy(mode=Mode.FULL)
_NOTHING_KNOWN = Usage(StatisticsTable.of_rows(()), datetime(1970, 1, 2, tzinfo=UTC))


def build_problem(
    snapshot: Snapshot,
    scope: Scope | None = None,
    policy: Policy = AS_FULL,
    sizes: Sizes = Sizes.FIXED,
    usage: Usage | None = None,
    *,
    objective: Objective | None = None,
    allowance: Allowance = UNLIMITED,
) -> Built:
    """Put a cluster into classes of equal pods, nodes and rules.

    `build_problem(snapshot)` is the whole offline call for sizes as they are; for `Sizes.RIGHTSIZED` add
    `usage=Usage(statistics, now)`: without it nothing is known of any pod, so none is sized. `scope` is what a caller
    has at hand already for the same snapshot, usage and policy. The objective is PAPER for fixed sizes, else OPERATOR.
    """
    usage = usage or _NOTHING_KNOWN
    scope = scope or Scope(snapshot, usage.statistics, usage.stored, policy, usage.now)
    if objective is None:
        objective = Objective.PAPER if sizes is Sizes.FIXED else Objective.OPERATOR
    nodes = tuple(sorted(snapshot.nodes, key=attrgetter("name")))
    node_index = {node.name: index for index, node in enumerate(nodes)}
    census = take_census(snapshot, node_index, Movability(snapshot, scope, policy))
    problem = _problem(snapshot, nodes, census, objective)
    return Built(
        snapshot=snapshot,
        policy=policy,
        sizes=sizes,
        usage=usage,
        problem=problem,
        pods=tuple([taken.pod for taken in census.taken]),
        nodes=nodes,
        left_out=tuple(census.left_out),
        notes=_notes(census),
        unmovable=tuple([census.kinds[taken.kind].stays for taken in census.taken]),
    )


def _problem(snapshot: Snapshot, nodes: Sequence[Node], census: Census, objective: Objective) -> Problem:
    columns = NodeColumns(nodes)
    sites = Sites(columns)
    top = max((kind.pod.priority for kind in census.kinds if kind.pending), default=None)
    signatures: dict[tuple[int, ...], int] = {}
    of_kind: list[int] = []
    for kind in census.kinds:
        movable = kind.stays is None
        below = objective is Objective.PAPER or (top is not None and kind.pod.priority < top)
        key = (
            kind.pod.priority,
            movable,
            movable and below,
            kind.pod.preempts,
            kind.weight,
            sites.of(kind),
        )
        of_kind.append(signatures.setdefault(key, len(signatures)))
    numbers: dict[tuple[int, int, int, Extras], int] = {}
    pod_class = []
    for taken in census.taken:
        counted = counted_requests(taken.pod)
        extras = extras_of(taken.pod, census.kinds[taken.kind].needs)
        row = (of_kind[taken.kind], counted.cpu_millicores, counted.memory_bytes, extras)
        pod_class.append(numbers.setdefault(row, len(numbers)))
    names = resource_names(row[3] for row in numbers)
    classes = np.array([list(signatures)[row[0]] for row in numbers], dtype=np.int64).reshape(-1, 6)
    demands = demand_rows([row[1:] for row in numbers], names)
    return Problem(
        resources=names,
        capacities=capacities(nodes, snapshot.surroundings, names),
        demands=demands,
        headroom=np.zeros_like(demands),
        priorities=classes[:, 0],
        movable=classes[:, 1].astype(np.bool_),
        preemptible=classes[:, 2].astype(np.bool_),
        preempt=classes[:, 3].astype(np.bool_),
        weights=classes[:, 4],
        most_on_node=np.full(len(numbers), max(1, len(census.taken)), dtype=np.int64),
        sites=classes[:, 5],
        admits=sites.table(),
        pod_class=np.array(pod_class, dtype=np.int64),
        pod_node=np.array([taken.node for taken in census.taken], dtype=np.int64),
        rules=Rules(topologies=np.zeros((0, len(nodes)), dtype=np.int64)),
        objective=objective,
    )


def _notes(census: Census) -> tuple[str, ...]:
    counts = Counter(one.obstacle for one in census.left_out)
    notes = [f"{count} pending pods are left out: {obstacle}" for obstacle, count in sorted(counts.items())]
    if census.nowhere:
        notes.append(f"{census.nowhere} pods are bound to nodes that are not there")
    return tuple(notes)
