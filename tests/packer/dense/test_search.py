"""Annealing under rules between pods: what its tables call sound, and what it finds, against every assignment."""

from itertools import product

import numpy as np

from cruise.packer.answer import figures_of
from cruise.packer.arrays import IntArray
from cruise.packer.budget import Meter
from cruise.packer.dense.bonding import bonds_of
from cruise.packer.dense.classing import instance_of
from cruise.packer.dense.residual import Residual, residual_of
from cruise.packer.dense.search import Search
from cruise.packer.kernels.bonds import BROKEN, count_bonds
from cruise.packer.problem import Problem, copies_of
from cruise.packer.rules.matching import pod_node_of
from tests.packer.constrained.tiny import best_key, obeys, random_problem

UNBOUNDED = Meter(np.inf, np.inf)


def broken(problem: Problem, residual: Residual, assignment: IntArray) -> int:
    """What the tables count once the copies are in place, of which nothing is left once they are gone and back."""
    bonds = bonds_of(problem, residual)
    if not len(bonds):
        return 0
    part = residual.part(assignment)
    copies = [
        (c, n, copy >= residual.running[c, n])
        for c, n in zip(*map(np.ndarray.tolist, np.nonzero(part)), strict=True)
        for copy in range(part[c, n])
    ]
    for c, n, arrived in copies:
        count_bonds(bonds, c, n, 1, arrived)
    there = int(bonds[BROKEN])
    settled = bonds.copy()
    energy = sum(count_bonds(bonds, c, n, -1, arrived) for c, n, arrived in reversed(copies))
    energy += sum(count_bonds(bonds, c, n, 1, arrived) for c, n, arrived in copies)
    assert bonds.tolist() == settled.tolist() and abs(energy) < 1e-6
    return there


def test_whatever_obeys_is_sound_in_the_tables(seeds):
    sound = 0
    for seed in seeds(120):
        problem = random_problem(seed, headroom=False, most_pods=5)
        residual = residual_of(instance_of(problem))
        for chosen in product(range(-1, problem.node_count), repeat=problem.pod_count):
            pod_node = np.array(chosen, dtype=np.int64)
            assignment = copies_of(problem, pod_node)
            if not (assignment >= residual.nailed).all() or (residual.part(assignment) > residual.limits).any():
                continue
            if obeys(problem, pod_node):
                assert broken(problem, residual, assignment) == 0, (seed, chosen)
                sound += 1
    assert sound


def test_finds_what_is_best_of_all_as_a_rule(seeds):
    best = tried = 0
    for seed in seeds(60):
        problem = random_problem(seed, headroom=False)
        assignment = copies_of(problem, problem.pod_node)
        search = Search(problem, 1)
        entries = len(figures_of(problem, problem.pod_node).key(problem.objective))
        for entry in (*range(entries), *range(entries)):
            found = search.anneal(assignment, entry, UNBOUNDED)
            if obeys(problem, pod_node_of(problem, found)):
                assignment = found
        key = figures_of(problem, pod_node_of(problem, assignment)).key(problem.objective)
        most = best_key(problem)
        assert key <= most
        best += key == most
        tried += 1
    assert best >= 0.8 * tried
