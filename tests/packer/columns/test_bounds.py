"""Bounds of single objective entries under rules between pods, compared with exhaustive search."""

from dataclasses import replace
from itertools import product

import numpy as np

from cruise.packer.answer import compute_figures
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.bounds import ObjectiveEntryBound
from cruise.packer.columns.instance import convert_objective_entry
from cruise.packer.problem import (
    AttractionRule,
    EvictionLimit,
    IntArray,
    PackingProblem,
    PlacementRules,
    SpreadRule,
    count_copies,
)
from cruise.packer.rules.by_class import merge_exclusions
from cruise.packer.rules.preemption import match_pods_to_nodes
from tests.packer.exact.tiny import check_assignment, random_problem
from tests.packer.problems import draw_problem as drawn_problem

UNBOUNDED = BudgetMeter(np.inf, np.inf)


def obeying_keys(problem: PackingProblem) -> list[tuple[int, ...]]:
    nodes = range(-1, problem.node_count)
    choices = [
        [int(node)] if node >= 0 and not problem.movable[c] else list(nodes)
        for c, node in zip(problem.pod_class, problem.pod_node, strict=True)
    ]
    found = (np.array(chosen, dtype=np.int64) for chosen in product(*choices))
    return [compute_figures(problem, x).get_key(problem.objective) for x in found if check_assignment(problem, x)]


def attracted(problem: PackingProblem) -> PackingProblem:
    """The problem in which the first class keeps together by zone; the next follows it to nodes, another by zone."""
    rules, first = problem.rules, np.zeros(1, dtype=np.int64)
    wanted = [AttractionRule((1,), 0, first), AttractionRule((0,), 1, first), AttractionRule((1,), 2, first)]
    return replace(problem, rules=replace(rules, attractions=tuple(wanted[: problem.class_count])))


class Asking(ObjectiveEntryBound):
    """A target for a tree search with any known bound."""

    meter = UNBOUNDED

    def ask(self, target: int) -> tuple[IntArray | None, bool]:
        reaching = (
            v
            for v in range(999)
            if convert_objective_entry(self._problem, self._entry, self._fixed_value + v) >= target
        )
        self._generation.ceiling = next(reaching)
        return self.branch(self.meter)

    @property
    def parts(self) -> int:
        return 0 if self._tree is None else self._tree.nodes_visited


def test_no_assignment_as_good_before_surpasses_the_bound(seeds):
    tight = 0
    for seed in seeds(60, fewest=50):
        problem = random_problem(seed, most_pods=4)
        now = compute_figures(problem, problem.pod_node).get_key(problem.objective)
        keys = obeying_keys(problem)
        for entry in range(len(now)):
            bound = ObjectiveEntryBound(
                merge_exclusions(problem), count_copies(problem, problem.pod_node), entry, 1
            ).improve_bound(UNBOUNDED)
            rivals = [key[entry] for key in keys if all(a >= b for a, b in zip(key[:entry], now, strict=False))]
            assert max(rivals, default=now[entry]) <= bound, (seed, entry)
            tight += bound == max([now[entry], *rivals])
    assert tight > 60


def test_a_pod_without_requests_fits_where_headroom_leaves_no_capacity():
    one = np.ones(2, dtype=np.int64)
    problem = PackingProblem(
        resources=("cpu",),
        capacities=np.array([[8]]),
        demands=np.array([[5], [0]]),
        headroom=np.array([[3], [1]]),
        priorities=one,
        movable=np.array([False, True]),
        preemptible=np.ones(2, dtype=np.bool_),
        preempt=np.ones(2, dtype=np.bool_),
        weights=one,
        max_on_node=one,
        node_mask_of_class=np.zeros(2, dtype=np.int64),
        allowed_nodes=np.ones((1, 1), dtype=np.bool_),
        pod_class=np.array([0, 1]),
        pod_node=np.array([0, -1]),
        rules=PlacementRules(np.array([[0]])),
    )
    assert check_assignment(problem, np.array([0, 0]))
    assert ObjectiveEntryBound(problem, count_copies(problem, problem.pod_node), 0, 1).improve_bound(UNBOUNDED) == 2


def test_no_assignment_reaches_a_bound_that_branching_refutes(seeds):
    refuted = 0
    for seed in seeds(80, fewest=60):
        problem = merge_exclusions(attracted(random_problem(seed, most_pods=5)))
        now = compute_figures(problem, problem.pod_node).get_key(problem.objective)
        keys = obeying_keys(problem)
        for entry in range(len(now)):
            question = ObjectiveEntryBound(problem, count_copies(problem, problem.pod_node), entry, 1)
            rivals = [key[entry] for key in keys if all(a >= b for a, b in zip(key[:entry], now, strict=False))]
            bound = question.improve_bound(UNBOUNDED)
            while bound > now[entry] and question.branch(UNBOUNDED)[1]:
                bound = question.lower_refuted_bound()
                refuted += 1
            assert max(rivals, default=now[entry]) <= bound, (seed, entry)
    assert refuted


def test_a_tree_refutes_what_no_assignment_reaches_and_nothing_else(seeds):
    """The target is the best value and one more, with any bound before a tree search."""
    refuted = parted = 0
    for seed in seeds(80, fewest=60):
        problem = merge_exclusions(
            attracted(random_problem(seed, most_pods=5)) if seed % 3 else random_problem(seed, most_pods=5)
        )
        now = compute_figures(problem, problem.pod_node).get_key(problem.objective)
        keys = obeying_keys(problem)
        for entry in range(len(now)):
            best = max(key[entry] for key in keys if all(a >= b for a, b in zip(key[:entry], now, strict=False)))
            for target in (best, best + 1):
                question = Asking(problem, count_copies(problem, problem.pod_node), entry, 1)
                _, none = question.ask(target)
                assert not (none and target == best), (seed, entry)
                refuted += none
                parted += question.parts > 1
    assert refuted > 60 and parted > 20


def test_trees_of_listed_fillings_and_priced_ones_decide_the_same(seeds):
    """Without rules all patterns are listed; with a row that requires nothing they are priced in each part."""
    refuted = 0
    for seed in seeds(80, fewest=60):
        problem = drawn_problem(seed)
        nothing = SpreadRule(0, 0, np.array([0]), 99, 0, np.ones(problem.node_count, dtype=np.bool_))
        rules = PlacementRules(np.zeros((1, problem.node_count), dtype=np.int64), spreads=(nothing,))
        now = compute_figures(problem, problem.pod_node).get_key(problem.objective)
        for entry in range(len(now)):
            none = []
            for one in (problem, replace(problem, rules=rules)):
                question = ObjectiveEntryBound(one, count_copies(one, one.pod_node), entry, 1)
                bound = question.improve_bound(UNBOUNDED)
                while bound > now[entry] and question.branch(UNBOUNDED)[1]:
                    bound = question.lower_refuted_bound()
                none.append(bound)
            assert none[0] == none[1], (seed, entry)
            refuted += none[0] == now[entry]
    assert refuted


def test_no_part_of_a_tree_is_looked_at_without_work_left(seeds):
    asked = 0
    for seed in seeds(40, fewest=30):
        problem = merge_exclusions(attracted(random_problem(seed, most_pods=5)))
        question = Asking(problem, count_copies(problem, problem.pod_node), 0, 1)
        question.ask(1)
        parts = question.parts
        question.meter = BudgetMeter(np.inf, 0)
        assert question.ask(2) == (None, False)
        assert question.parts == parts
        asked += parts > 0
    assert asked


def test_copies_that_cannot_move_count_where_pods_are_spread():
    one = np.ones(1, dtype=np.int64)
    problem = PackingProblem(
        resources=("cpu",),
        capacities=np.array([[2], [9], [9]]),
        demands=np.ones((1, 1), dtype=np.int64),
        headroom=np.zeros((1, 1), dtype=np.int64),
        priorities=one,
        movable=np.zeros(1, dtype=np.bool_),
        preemptible=np.ones(1, dtype=np.bool_),
        preempt=np.ones(1, dtype=np.bool_),
        weights=one,
        max_on_node=9 * one,
        node_mask_of_class=np.zeros(1, dtype=np.int64),
        allowed_nodes=np.ones((1, 3), dtype=np.bool_),
        pod_class=np.zeros(5, dtype=np.int64),
        pod_node=np.array([0, 0, -1, -1, -1]),
        rules=PlacementRules(
            np.array([[0, 1, 2]]), spreads=(SpreadRule(0, 0, np.array([0]), 1, 0, np.ones(3, dtype=np.bool_)),)
        ),
    )
    # Two run on the full node; the others go to the second node twice and to the third once.
    assert check_assignment(problem, np.array([0, 0, 1, 1, 2]))
    assert ObjectiveEntryBound(problem, count_copies(problem, problem.pod_node), 0, 1).improve_bound(UNBOUNDED) == 5


def two_tiers(
    capacities: list[list[int]], pod_class: list[int], pod_node: list[int], rules: PlacementRules
) -> PackingProblem:
    """Pods of one unit: the first class precedes the second."""
    one = np.ones(2, dtype=np.int64)
    return PackingProblem(
        resources=("cpu",),
        capacities=np.array(capacities),
        demands=one[:, None],
        headroom=np.zeros((2, 1), dtype=np.int64),
        priorities=np.array([1, 0]),
        movable=np.ones(2, dtype=np.bool_),
        preemptible=np.ones(2, dtype=np.bool_),
        preempt=np.ones(2, dtype=np.bool_),
        weights=one,
        max_on_node=9 * one,
        node_mask_of_class=np.zeros(2, dtype=np.int64),
        allowed_nodes=np.ones((1, len(capacities)), dtype=np.bool_),
        pod_class=np.array(pod_class),
        pod_node=np.array(pod_node),
        rules=rules,
    )


def test_pods_of_a_lower_tier_that_cannot_be_evicted_reduce_the_free_capacity():
    topologies, second = np.arange(2)[None, :], np.array([1])
    problem = two_tiers([[2], [1]], [0, 0, 1, 1], [-1, -1, 0, 0], PlacementRules(topologies))
    running = count_copies(problem, problem.pod_node)
    assert ObjectiveEntryBound(problem, running, 0, 1).improve_bound(UNBOUNDED) == 2
    limited = replace(problem, rules=replace(problem.rules, eviction_limits=(EvictionLimit("second", second, 0),)))
    assert ObjectiveEntryBound(limited, running, 0, 1).improve_bound(UNBOUNDED) == 1


def test_affinities_are_respected_in_a_lower_tier_as_well():
    """One of a lower tier cannot be on both nodes, and each of those that it attracts fills one otherwise."""
    wanted = PlacementRules(np.arange(2)[None, :], attractions=(AttractionRule((0,), 0, np.array([1])),))
    problem = two_tiers([[2], [2]], [0, 0, 0, 1], [-1, -1, -1, -1], wanted)
    question = ObjectiveEntryBound(problem, count_copies(problem, problem.pod_node), 0, 1)
    bound = question.improve_bound(UNBOUNDED)
    while bound > 1:
        found, refuted = question.branch(UNBOUNDED)
        assert found is None and refuted
        bound = question.lower_refuted_bound()
    found, _ = question.branch(UNBOUNDED)
    assert found is not None and check_assignment(problem, match_pods_to_nodes(problem, found))
