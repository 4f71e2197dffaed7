"""Exclusions by node expressed as resources: the same assignments are valid."""

from dataclasses import replace

import numpy as np

from cruise.packer.problem import ExclusionRule, PackingProblem, SpreadRule
from cruise.packer.rules.by_class import merge_exclusions
from cruise.packer.verification import find_rule_violations
from tests.packer.drawn_problems import draw_problem


def with_ports(problem: PackingProblem, seed: int) -> PackingProblem:
    """The problem with two host ports, each used by several classes, and some classes spread over nodes."""
    source = np.random.default_rng(seed)
    ports = [np.flatnonzero(source.random(problem.class_count) < 0.4) for _ in range(2)]
    held = [ExclusionRule(0, c, users) for users in ports for c in users.tolist()]
    rules = problem.rules
    eligible = source.random(problem.node_count) < 0.9
    spreads = [
        SpreadRule(0, c, np.array([c]), int(source.integers(1, 3)), 0, eligible)
        for c in np.flatnonzero(source.random(problem.class_count) < 0.5).tolist()
    ]
    rules = replace(rules, exclusions=(*rules.exclusions, *held), spreads=(*rules.spreads, *spreads))
    return replace(problem, rules=rules)


def test_the_same_assignments_obey(seeds):
    obeyed = dropped = counted = 0
    for seed in seeds(60):
        problem = with_ports(draw_problem(seed, nodes=3, classes=5), seed)
        simpler = merge_exclusions(problem)
        dropped += len(problem.rules.exclusions) - len(simpler.rules.exclusions)
        counted += len(problem.rules.spreads) - len(simpler.rules.spreads)
        source = np.random.default_rng(seed)
        for _ in range(20):
            moved = source.random(problem.pod_count) < 0.15
            pod_node = np.where(moved, source.integers(-1, problem.node_count, problem.pod_count), problem.pod_node)
            sound = find_rule_violations(problem, pod_node) == ()
            assert sound == (find_rule_violations(simpler, pod_node) == ())
            obeyed += sound
    assert obeyed and dropped and counted


def test_a_rule_that_only_one_of_two_pods_states_remains_a_rule():
    problem = draw_problem(3, nodes=4, classes=3, ruled=False)
    one_sided = ExclusionRule(0, 0, np.array([1]))
    by_zone = ExclusionRule(1, 2, np.array([2]))
    ruled = replace(problem, rules=replace(problem.rules, exclusions=(one_sided, by_zone)))
    assert merge_exclusions(ruled).rules.exclusions == (one_sided, by_zone)
