"""Annealing under rules between pods, compared with exhaustive search."""

from itertools import product

import numpy as np

from cruise.packer.answer import compute_figures
from cruise.packer.budget import BudgetMeter
from cruise.packer.columns.instance import ResidualInstance, build_instance, fix_running_copies
from cruise.packer.columns.primal_heuristics import AnnealingSearch
from cruise.packer.columns.rule_energies import build_rule_energies
from cruise.packer.kernels.placement import BROKEN, update_rule_energy
from cruise.packer.problem import IntArray, PackingProblem, count_copies
from cruise.packer.rules.preemption import match_pods_to_nodes
from tests.packer.exact.tiny import best_key, check_assignment, random_problem

UNBOUNDED = BudgetMeter(np.inf, np.inf)


def broken(problem: PackingProblem, residual: ResidualInstance, assignment: IntArray) -> int:
    """The tables' counts with the copies in place; all are zero once the copies are removed."""
    bonds = build_rule_energies(problem, residual)
    if not len(bonds):
        return 0
    part = residual.to_residual(assignment)
    copies = [
        (c, n, copy >= residual.running[c, n])
        for c, n in zip(*map(np.ndarray.tolist, np.nonzero(part)), strict=True)
        for copy in range(part[c, n])
    ]
    for c, n, arrived in copies:
        update_rule_energy(bonds, c, n, 1, arrived)
    there = int(bonds[BROKEN])
    settled = bonds.copy()
    energy = sum(update_rule_energy(bonds, c, n, -1, arrived) for c, n, arrived in reversed(copies))
    energy += sum(update_rule_energy(bonds, c, n, 1, arrived) for c, n, arrived in copies)
    assert bonds.tolist() == settled.tolist() and abs(energy) < 1e-6
    return there


def test_whatever_obeys_is_sound_in_the_tables(seeds):
    sound = 0
    for seed in seeds(120):
        problem = random_problem(seed, headroom=False, most_pods=5)
        residual = fix_running_copies(build_instance(problem))
        for chosen in product(range(-1, problem.node_count), repeat=problem.pod_count):
            pod_node = np.array(chosen, dtype=np.int64)
            assignment = count_copies(problem, pod_node)
            if not (assignment >= residual.fixed).all() or (residual.to_residual(assignment) > residual.limits).any():
                continue
            if check_assignment(problem, pod_node):
                assert broken(problem, residual, assignment) == 0, (seed, chosen)
                sound += 1
    assert sound


def test_finds_what_is_best_of_all_as_a_rule(seeds):
    best = tried = 0
    for seed in seeds(60):
        problem = random_problem(seed, headroom=False)
        assignment = count_copies(problem, problem.pod_node)
        search = AnnealingSearch(problem, 1)
        entries = len(compute_figures(problem, problem.pod_node).get_key(problem.objective))
        for entry in (*range(entries), *range(entries)):
            found = search.anneal(assignment, entry, UNBOUNDED)
            if check_assignment(problem, match_pods_to_nodes(problem, found)):
                assignment = found
        key = compute_figures(problem, match_pods_to_nodes(problem, assignment)).get_key(problem.objective)
        most = best_key(problem)
        assert key <= most
        best += key == most
        tried += 1
    assert best >= 0.8 * tried
