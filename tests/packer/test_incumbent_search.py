"""Small subproblems with and without rules, compared with exhaustive search and the paper's generator."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.packing_instances import InstanceShape, draw_pending, draw_rightsized, problem_of, with_peaks
from cruise.packer.answer import Packing, PackingStatus, compute_figures
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.bounds import ObjectiveEntryBound
from cruise.packer.exact.incumbent import build_incumbent
from cruise.packer.pack import IncumbentSearch, solve_subproblem
from cruise.packer.problem import IntArray, PackingObjective, PackingProblem, PlacementRules, count_copies
from cruise.packer.rules.by_class import merge_exclusions
from cruise.packer.verification import find_rule_violations
from tests.packer.every_assignment import find_best_key, is_valid, key_of
from tests.packer.exact import tiny
from tests.packer.problems import draw_problem
from tests.tiers import examples

SEEDS = st.integers(0, 10**6)


def solved(
    problem: PackingProblem, work: float = 3e8, start=None, seed: int = 7, deadline: float = math.inf
) -> Packing:
    begin = problem.pod_node if start is None else start
    return solve_subproblem(problem, begin, BudgetMeter(deadline, work), seed, lambda _packing: None)


def key(problem: PackingProblem, packing: Packing) -> tuple[int, ...]:
    return packing.planned.get_key(problem.objective)


def test_tiny_problems_equal_brute_force_and_every_proof_is_true(seeds):
    for seed in seeds(1000):
        problem = draw_problem(seed)
        packing = solved(problem)
        running, found = count_copies(problem, problem.pod_node), count_copies(problem, packing.pod_node)
        assert is_valid(problem, running, found), seed
        best, reached = find_best_key(problem), key(problem, packing)
        assert reached == key_of(problem, found) == packing.bound == best, seed
        already = reached == compute_figures(problem, problem.pod_node).get_key(problem.objective)
        assert (packing.status is PackingStatus.ALREADY_OPTIMAL) == already, seed


def test_what_is_proved_under_rules_with_bounds_is_the_best_of_all(seeds):
    closed = 0
    for seed in seeds(60, fewest=50):
        problem = merge_exclusions(tiny.random_problem(seed, most_pods=5))

        class Closing(ObjectiveEntryBound):
            def lower_refuted_bound(self) -> int:
                nonlocal closed
                closed += 1
                return super().lower_refuted_bound()

        class Asking(IncumbentSearch):
            # Where annealing finds nothing, what is there to close is closed.
            idle = not seed % 2

            def build_entry_bound(self, entry: int) -> ObjectiveEntryBound:
                return Closing(self.incumbent.layout.problem, self.incumbent.assignment, entry, 1)

            def anneal(self, entry: int, meter: BudgetMeter, start: IntArray | None = None) -> IntArray:
                return self.incumbent.assignment if self.idle else super().anneal(entry, meter, start)

        incumbent = build_incumbent(problem, problem.pod_node, lambda _packing: None)
        Asking(incumbent, 1).run(BudgetMeter(math.inf, 1e9))
        best = tiny.best_key(problem)
        assert incumbent.key <= best <= incumbent.bound, seed
        packing = solve_subproblem(problem, problem.pod_node, BudgetMeter(math.inf, math.inf), 1, lambda _packing: None)
        assert key(problem, packing) == packing.bound == best, seed
    assert closed


def test_a_question_is_asked_anew_where_more_is_reached_before_it():
    """The second tier's figures were requested next to one pod of the first, until two of them were placed."""
    one = np.ones(2, dtype=np.int64)
    problem = PackingProblem(
        resources=("cpu",),
        capacities=np.array([[2]]),
        demands=one[:, None],
        headroom=np.zeros((2, 1), dtype=np.int64),
        priorities=np.array([1, 0]),
        movable=np.ones(2, dtype=np.bool_),
        preemptible=np.ones(2, dtype=np.bool_),
        preempt=np.ones(2, dtype=np.bool_),
        weights=one,
        max_on_node=9 * one,
        node_mask_of_class=np.zeros(2, dtype=np.int64),
        allowed_nodes=np.ones((1, 1), dtype=np.bool_),
        pod_class=np.array([0, 0, 1, 1]),
        pod_node=np.array([0, -1, -1, -1]),
        rules=PlacementRules(np.zeros((1, 1), dtype=np.int64)),
    )
    asked: list[tuple[int, int]] = []

    class Silent(ObjectiveEntryBound):
        def branch(self, meter: BudgetMeter) -> tuple[IntArray | None, bool]:
            return None, False

    class Late(IncumbentSearch):
        def build_entry_bound(self, entry: int) -> ObjectiveEntryBound:
            asked.append((entry, int(self.incumbent.assignment[0].sum())))
            return Silent(problem, self.incumbent.assignment, entry, 1)

        def anneal(self, entry: int, meter: BudgetMeter, start: IntArray | None = None) -> IntArray:
            return np.array([[2], [0]]) if (2, 1) in asked else self.incumbent.assignment

    incumbent = build_incumbent(problem, problem.pod_node, lambda _packing: None)
    Late(incumbent, 1).run(BudgetMeter(math.inf, 1e9))
    assert (2, 1) in asked and (2, 2) in asked[asked.index((2, 1)) :]
    assert incumbent.key == incumbent.bound == find_best_key(problem)


@pytest.mark.parametrize(
    "shape",
    [
        InstanceShape(16, 4, 2, 100),
        InstanceShape(16, 8, 1, 95),
        InstanceShape(16, 8, 4, 100),
        InstanceShape(32, 4, 4, 100),
    ],
)
def test_what_the_paper_draws_is_proved_with_the_work_of_a_second(shape):
    for seed in (1, 2):
        problem = problem_of(draw_pending(shape, seed))
        packing = solved(problem, 1e9, seed=1)
        assert find_rule_violations(problem, packing.pod_node) == ()
        assert packing.status.is_proved


@pytest.mark.parametrize(
    ("shape", "instance_seed", "seed"),
    [
        (InstanceShape(32, 8, 4, 100), 118, 4),
        (InstanceShape(32, 8, 4, 105), 109, 4),
        (InstanceShape(32, 8, 1, 95), 117, 3),
    ],
)
def test_a_question_with_many_answers_does_not_stall(shape, instance_seed, seed):
    """Branching once circled around what the relaxed right-hand sides let in, and dives met the same dead end again."""
    assert solved(problem_of(draw_pending(shape, instance_seed)), 1e9, seed=seed).status.is_proved


def test_shared_headroom_places_more_pods_than_peaks():
    for seed in (1, 2):
        instance = draw_rightsized(InstanceShape(16, 8, 1, 95), seed)
        problem = replace(problem_of(instance), objective=PackingObjective.OPERATOR)
        packing, peaks = solved(problem, 1e9, seed=1), solved(problem_of(with_peaks(instance)), 1e8)
        assert find_rule_violations(problem, packing.pod_node) == ()
        assert packing.status.is_proved
        assert packing.planned.placed[0] > 1.14 * peaks.planned.placed[0]
        assert packing.planned.eviction_weight == 0


def test_the_same_seed_and_work_give_the_same_packing():
    problem = draw_problem(5)
    assert solved(problem).pod_node.tolist() == solved(problem).pod_node.tolist()


@given(SEEDS)
@examples(60)
def test_every_report_is_sound_and_better_than_the_one_before(seed):
    problem = draw_problem(seed)
    heard: list[Packing] = []
    answer = solve_subproblem(problem, problem.pod_node, BudgetMeter(math.inf, 3e8), 7, heard.append)
    last = compute_figures(problem, problem.pod_node).get_key(problem.objective)
    for packing in heard:
        assert find_rule_violations(problem, packing.pod_node) == ()
        assert last <= key(problem, packing) <= packing.bound
        last = key(problem, packing)
    assert key(problem, answer) == last


@given(SEEDS)
@examples(30)
def test_no_answer_is_worse_than_its_start_even_without_time(seed):
    problem = draw_problem(seed)
    best = solved(problem)
    again = solved(problem, math.inf, best.pod_node, deadline=0.0)
    assert key(problem, again) == key(problem, best)
    for work in (1.0, 1e6):
        hasty = solved(problem, work)
        assert hasty.current.get_key(problem.objective) <= key(problem, hasty) <= hasty.bound
    assert compute_figures(problem, again.pod_node) == again.planned


@given(SEEDS)
@examples(60)
def test_a_pod_that_never_preempts_never_profits_from_preemption(seed):
    problem = draw_problem(seed)
    shy = replace(problem, preempt=np.random.default_rng(seed).random(problem.class_count) < 0.5)
    packing = solved(shy)
    assert find_rule_violations(shy, packing.pod_node) == ()
    assert key(shy, packing) <= packing.bound
    assert key(shy, packing) <= find_best_key(problem)


@given(SEEDS)
@examples(40)
def test_the_order_of_pods_classes_and_nodes_changes_no_proved_figures(seed):
    problem = draw_problem(seed)
    draws = np.random.default_rng(seed)
    classes, nodes = draws.permutation(problem.class_count), draws.permutation(problem.node_count)
    pods = draws.permutation(problem.pod_count)
    pod_node = problem.pod_node[pods]
    names = (
        "demands",
        "headroom",
        "priorities",
        "movable",
        "preemptible",
        "weights",
        "max_on_node",
        "node_mask_of_class",
    )
    shuffled = replace(
        problem,
        capacities=problem.capacities[nodes],
        allowed_nodes=problem.allowed_nodes[:, nodes],
        **{name: getattr(problem, name)[classes] for name in names},
        pod_class=np.argsort(classes)[problem.pod_class[pods]],
        pod_node=np.where(pod_node < 0, -1, np.argsort(nodes)[pod_node]),
    )
    # Weights count only where the objective has them: elsewhere equally good answers may differ in them.
    assert key(problem, solved(problem)) == key(shuffled, solved(shuffled))


def easier(problem: PackingProblem) -> list[PackingProblem]:
    """The problem with one constraint less each time."""
    wider = replace(
        problem,
        capacities=np.concatenate([problem.capacities, problem.capacities[:1]]),
        allowed_nodes=np.concatenate([problem.allowed_nodes, np.ones_like(problem.allowed_nodes[:, :1])], axis=1),
        rules=PlacementRules(np.zeros((0, problem.node_count + 1), dtype=np.int64)),
    )
    return [
        wider,
        replace(problem, headroom=np.zeros_like(problem.headroom)),
        replace(problem, allowed_nodes=np.ones_like(problem.allowed_nodes)),
        replace(problem, max_on_node=problem.max_on_node + 2),
        replace(problem, movable=np.ones_like(problem.movable)),
        replace(problem, preemptible=np.ones_like(problem.preemptible)),
    ]


@given(SEEDS)
@examples(40)
def test_one_node_more_or_one_rule_less_is_never_worse(seed):
    # What is too full already would be made worse by a node of the same kind, which it counts for more.
    problem = draw_problem(seed)
    problem = replace(problem, capacities=problem.capacities + 10)
    before = key(problem, solved(problem))
    for eased in easier(problem):
        assert key(eased, solved(eased)) >= before


@pytest.mark.parametrize("nodes", [0, 1])
def test_nothing_to_place_and_nowhere_to_place_it_are_answered(nodes):
    empty = replace(draw_problem(1), **_nothing(nodes))
    assert solved(empty).status is PackingStatus.ALREADY_OPTIMAL


def _nothing(nodes: int) -> dict[str, Any]:
    """What makes a problem one of so many nodes and no pods."""
    problem = draw_problem(1)
    names = ("demands", "headroom", "priorities", "movable", "preemptible", "preempt", "weights", "max_on_node")
    return {
        **{name: getattr(problem, name)[:0] for name in names},
        "node_mask_of_class": problem.node_mask_of_class[:0],
        "allowed_nodes": np.ones((1, nodes), dtype=np.bool_),
        "capacities": np.resize(problem.capacities, (nodes, problem.capacities.shape[1])),
        "pod_class": problem.pod_class[:0],
        "pod_node": problem.pod_node[:0],
        "rules": PlacementRules(np.zeros((0, nodes), dtype=np.int64)),
    }
