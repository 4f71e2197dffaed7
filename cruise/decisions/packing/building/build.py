"""Builds a packing problem from a snapshot."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from operator import attrgetter

import numpy as np

from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.packing.building.amounts import ATTACH, amounts_table, capacities, only, resource_names
from cruise.decisions.packing.building.budgets import apply_limits, most_evicted
from cruise.decisions.packing.building.built import Built, Usage
from cruise.decisions.packing.building.census import Census, extras_of, is_nominated, shared_volumes, take_census
from cruise.decisions.packing.building.classes import classify
from cruise.decisions.packing.building.kept_room import without_kept_room
from cruise.decisions.packing.building.marks import find_marks
from cruise.decisions.packing.building.movability import Movability
from cruise.decisions.packing.building.needs import counted_needs, rightsized_needs
from cruise.decisions.packing.building.nodes import NodeColumns
from cruise.decisions.packing.building.rules import RuleMaker
from cruise.decisions.packing.building.signatures import sign
from cruise.decisions.packing.building.sites import Sites
from cruise.decisions.scheduling.attachments import left_attached
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import UNLIMITED, Allowance, Sizes
from cruise.domain.policy import Mode, Policy
from cruise.domain.usage import StatisticsTable
from cruise.packer.answer import Note, NoteCode
from cruise.packer.problem import Fleet, Objective, Problem

# Offline a plan is decided as mode `full` would.
AS_FULL = Policy(mode=Mode.FULL)
NOTHING_KNOWN = Usage(StatisticsTable.of_rows(()), datetime(1970, 1, 2, tzinfo=UTC))


def build_problem(
    snapshot: Snapshot,
    policy: Policy = AS_FULL,
    sizes: Sizes = Sizes.FIXED,
    usage: Usage = NOTHING_KNOWN,
    *,
    objective: Objective | None = None,
    allowance: Allowance = UNLIMITED,
    prices: Mapping[str, int] | None = None,
    keep_domains: bool = False,
) -> Built:
    """Put a cluster into classes of equal pods, nodes and rules.

    `build_problem(snapshot)` is the whole offline call for sizes as they are; for `Sizes.RIGHTSIZED` add
    `usage=Usage(statistics, now)`: without it nothing is known of any pod, so none is sized. The objective is PAPER for
    fixed sizes, else OPERATOR; with `prices`, by node, it is FLEET. With `keep_domains` pods that are spread over
    zones, or the like, stay in theirs: where one leaves a zone for another, kube-scheduler lets its replacement into
    its own alone.
    """
    eligibility = Eligibility(snapshot, usage.statistics, usage.stored, policy, usage.now)
    if prices is not None:
        objective = Objective.FLEET
    elif objective is None:
        objective = Objective.PAPER if sizes is Sizes.FIXED else Objective.OPERATOR
    nodes = tuple(sorted(snapshot.nodes, key=attrgetter("name")))
    columns = NodeColumns(nodes)
    node_index = {node.name: index for index, node in enumerate(nodes)}
    census = take_census(
        snapshot,
        node_index,
        Movability(snapshot, eligibility, policy),
        columns.spread_by if keep_domains else None,
    )
    limits = apply_limits(census, snapshot.budgets, allowance, one_by_one=prices is not None)
    marks = find_marks(census, columns, snapshot.surroundings)
    sites = Sites(columns)
    signatures = sign(census, sites, marks, limits, objective)
    pods = tuple([taken.pod for taken in census.taken])
    if sizes is Sizes.FIXED:
        needs = counted_needs(pods)
    else:
        needs = rightsized_needs(pods, snapshot, eligibility, usage, policy)
    # Room is kept for these.
    needs[[index for index, pod in enumerate(pods) if is_nominated(pod)]] = 0
    pod_node = np.array([taken.node for taken in census.taken], dtype=np.int64)
    here = np.bincount(pod_node[pod_node >= 0], minlength=len(nodes))
    most_pods = np.maximum(here, np.array([node.allocatable_pods for node in nodes], dtype=np.int64))
    left = left_attached(snapshot)
    names = resource_names(
        (extras_of(kind.pod, kind.needs) for kind in census.kinds), nodes, snapshot.surroundings, most_pods, left
    )
    shared = shared_volumes(census)
    extras = [only(extras_of(kind.pod, kind.needs, shared), names) for kind in census.kinds]
    once = [
        only(
            ()
            if is_nominated(kind.pod)
            else tuple((ATTACH + volume[0], 1) for volume in kind.needs.attached if volume in shared),
            names,
        )
        for kind in census.kinds
    ]
    classes = classify(census, needs, signatures, extras, once)
    signed = [key.signature for key in classes.keys]
    admits = sites.table()
    of_class = np.array([signature.site for signature in signed], dtype=np.int64)
    most_on_node = np.full(len(signed), max(1, len(pods)), dtype=np.int64)
    maker = RuleMaker(census, columns, classes.of_kind, of_class, admits, most_on_node)
    rules, exclusion_obstacles = maker.rules(marks, limits)
    problem = Problem(
        resources=names,
        capacities=without_kept_room(capacities(nodes, snapshot.surroundings, names, left), snapshot, nodes, names),
        demands=amounts_table(
            [
                (key.cpu, key.memory, int(not one.kept), key.extras)
                for key, one in zip(classes.keys, signed, strict=True)
            ],
            names,
        ),
        headroom=amounts_table([(key.cpu_headroom, key.memory_headroom, 0, key.once) for key in classes.keys], names),
        priorities=np.array([signature.priority for signature in signed], dtype=np.int64),
        movable=np.array([signature.movable for signature in signed], dtype=np.bool_),
        preemptible=np.array([signature.preemptible for signature in signed], dtype=np.bool_),
        preempt=np.array([signature.preempts for signature in signed], dtype=np.bool_),
        weights=np.array([signature.weight for signature in signed], dtype=np.int64),
        most_on_node=most_on_node,
        sites=of_class,
        admits=admits,
        pod_class=classes.pod_class,
        pod_node=pod_node,
        rules=replace(rules, most_evicted=most_evicted(allowance, nodes)),
        objective=objective,
        fleet=None
        if prices is None
        else Fleet(
            np.array([prices[node.name] for node in nodes], dtype=np.int64),
            np.array([signature.occupies for signature in signed], dtype=np.bool_),
        ),
    )
    return Built(
        snapshot=snapshot,
        policy=policy,
        sizes=sizes,
        usage=usage,
        problem=problem,
        pods=pods,
        nodes=nodes,
        left_out=tuple(census.left_out),
        notes=_notes(census),
        exclusion_obstacles=exclusion_obstacles,
        limit_obstacles=tuple([limit.obstacle for limit in limits]),
        unmovable=tuple([None if taken.node < 0 else census.kinds[taken.kind].stays for taken in census.taken]),
    )


def _notes(census: Census) -> tuple[Note, ...]:
    counts = Counter(one.blocked_by[0] for one in census.left_out)
    notes = [Note(NoteCode.LEFT_OUT, obstacle, count) for obstacle, count in sorted(counts.items())]
    if census.nowhere:
        notes.append(Note(NoteCode.NODES_MISSING, count=census.nowhere))
    return tuple(notes)
