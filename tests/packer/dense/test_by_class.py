from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.answer import Note, NoteCode, Packing, Status, figures_of
from cruise.packer.budget import Budget
from cruise.packer.dense.by_class import solve_dense
from cruise.packer.dense.classing import barred, is_allowed
from cruise.packer.problem import Objective, Problem, copies_of
from tests.packer.every_assignment import best_key, is_sound, key_of
from tests.packer.problems import draw_problem
from tests.tiers import examples

REPLAY = Budget(work_units=3e8, seed=7)
SEEDS = st.integers(0, 10**6)


def solved(problem: Problem, budget: Budget = REPLAY, start=None) -> Packing:
    return solve_dense(problem, problem.pod_node if start is None else start, budget, lambda _packing: None)


def key(problem: Problem, packing: Packing) -> tuple[int, ...]:
    return packing.after.key(problem.objective)


def test_tiny_problems_equal_brute_force(seeds):
    for seed in seeds(1000):
        problem = draw_problem(seed)
        packing = solved(problem)
        running, found = copies_of(problem, problem.pod_node), copies_of(problem, packing.pod_node)
        assert is_sound(problem, running, found), seed
        best, reached = best_key(problem), key(problem, packing)
        assert reached == key_of(problem, found), seed
        assert packing.bound >= best >= reached, seed
        if not barred(problem).any():
            assert reached == packing.bound == best, seed
            assert packing.status in (Status.OPTIMAL, Status.ALREADY_OPTIMAL), seed


def test_evictions_are_used_only_where_nothing_else_places_as_many(seeds):
    said, tried = Counter[int](), seeds(300, fewest=50)
    for seed in tried:
        problem = replace(draw_problem(seed), objective=Objective.OPERATOR)
        packing = solved(problem)
        if barred(problem).any():
            continue
        still = best_key(replace(problem, movable=np.zeros_like(problem.movable)))
        rescued = still[:-1] == key(problem, packing)[:-1]
        assert (packing.after.eviction_weight == 0) == rescued, seed
        assert (Note(NoteCode.EVICTIONS_NEEDED) in packing.notes) != rescued, seed
        said[seed // 50] += Note(NoteCode.EVICTIONS_NEEDED) in packing.notes
    assert all(said[fifty] for fifty in range(len(tried) // 50))


@given(SEEDS)
@examples(60)
def test_every_report_is_sound_and_better_than_the_one_before(seed):
    problem = draw_problem(seed)
    running = copies_of(problem, problem.pod_node)
    heard: list[Packing] = []
    answer = solve_dense(problem, problem.pod_node, REPLAY, heard.append)
    last = figures_of(problem, problem.pod_node).key(problem.objective)
    for packing in heard:
        assert is_sound(problem, running, copies_of(problem, packing.pod_node))
        assert is_allowed(problem, packing.pod_node)
        assert key(problem, packing) >= last
        last = key(problem, packing)
    assert key(problem, answer) == last


@given(SEEDS)
@examples(30)
def test_no_answer_is_worse_than_its_start_even_without_time(seed):
    problem = draw_problem(seed)
    best = solved(problem)
    again = solved(problem, Budget(deadline_seconds=0.0), best.pod_node)
    assert key(problem, again) == key(problem, best)
    hasty = solved(problem, Budget(deadline_seconds=0.0))
    assert key(problem, hasty) >= hasty.now.key(problem.objective)
    assert figures_of(problem, again.pod_node) == again.after


@given(SEEDS)
@examples(60)
def test_who_never_preempts_never_profits_from_it(seed):
    problem = draw_problem(seed)
    shy = replace(problem, preempt=np.random.default_rng(seed).random(problem.class_count) < 0.5)
    packing = solved(shy)
    assert is_allowed(shy, packing.pod_node)
    assert key(shy, packing) <= packing.bound
    assert key(shy, packing) <= best_key(problem)


@given(SEEDS)
@examples(40)
def test_the_order_of_pods_classes_and_nodes_changes_no_proved_figures(seed):
    problem = draw_problem(seed)
    draws = np.random.default_rng(seed)
    classes, nodes = draws.permutation(problem.class_count), draws.permutation(problem.node_count)
    pods = draws.permutation(problem.pod_count)
    pod_node = problem.pod_node[pods]
    shuffled = replace(
        problem,
        capacities=problem.capacities[nodes],
        admits=problem.admits[:, nodes],
        **{
            name: getattr(problem, name)[classes]
            for name in (
                "demands",
                "headroom",
                "priorities",
                "movable",
                "preemptible",
                "weights",
                "most_on_node",
                "sites",
            )
        },
        pod_class=np.argsort(classes)[problem.pod_class[pods]],
        pod_node=np.where(pod_node < 0, -1, np.argsort(nodes)[pod_node]),
    )
    one, other = solved(problem), solved(shuffled)
    if not barred(problem).any():
        # Weights count only where the objective has them: elsewhere equally good answers may differ in them.
        assert key(problem, one) == key(shuffled, other)


def easier(problem: Problem) -> list[Problem]:
    """The problem with one constraint less each time."""
    wider = replace(
        problem,
        capacities=np.concatenate([problem.capacities, problem.capacities[:1]]),
        admits=np.concatenate([problem.admits, np.ones_like(problem.admits[:, :1])], axis=1),
    )
    return [
        wider,
        replace(problem, headroom=np.zeros_like(problem.headroom)),
        replace(problem, admits=np.ones_like(problem.admits)),
        replace(problem, most_on_node=problem.most_on_node + 2),
        replace(problem, movable=np.ones_like(problem.movable)),
        replace(problem, preemptible=np.ones_like(problem.preemptible)),
    ]


@given(SEEDS)
@examples(40)
def test_one_node_more_or_one_rule_less_is_never_worse(seed):
    problem = draw_problem(seed)
    if barred(problem).any():
        problem = replace(problem, capacities=problem.capacities + 10)
    before = key(problem, solved(problem))
    for eased in easier(problem):
        assert key(eased, solved(eased)) >= before
