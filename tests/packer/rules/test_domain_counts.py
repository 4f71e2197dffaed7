"""Counts of rules: the kernels' tables give the same answers while pods are added and removed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.packer.kernels import rule_counts as kernels
from cruise.packer.rules.by_class import build_rules_by_class
from cruise.packer.rules.domain_counts import RuleCounts
from cruise.packer.rules.kernel_tables import build_kernel_tables
from tests.packer.drawn_problems import problems
from tests.tiers import examples


@examples(150)
@given(problems(), st.integers(0, 2**32))
def test_kernels_and_counts_allow_the_same_arrivals(problem, seed):
    rules = build_rules_by_class(problem)
    counts, tables = RuleCounts(problem, rules, problem.pod_node), build_kernel_tables(problem, rules)
    for pod in np.flatnonzero(problem.pod_node >= 0).tolist():
        kernels.update_rule_counts(tables, problem.pod_class[pod], problem.pod_node[pod], 1, False)
    source = np.random.default_rng(seed)
    for pod in source.permutation(problem.pod_count).tolist()[:6]:
        c, was = problem.pod_class[pod], counts.pod_node[pod]
        if was >= 0:
            counts.evict(pod)
            kernels.update_rule_counts(tables, c, was, -1, was != problem.pod_node[pod])
        open_nodes = np.flatnonzero(counts.get_allowed_nodes(c))
        if len(open_nodes):
            node = int(source.choice(open_nodes))
            counts.place(pod, node)
            kernels.update_rule_counts(tables, c, node, 1, node != problem.pod_node[pod])
    for c in range(problem.class_count):
        allowed = counts.get_allowed_nodes(c)
        for node in range(problem.node_count):
            by_kernels = _allows(tables, problem, counts, c, node)
            assert allowed[node] or not by_kernels, (c, node)
            # On nodes that do not count for a spread, kernels are more careful than they would have to be.
            spreads = [*rules.spread.get(c, ()), *rules.counted.get(c, ())]
            assert by_kernels or not allowed[node] or not all(rule.eligible[node] for _, rule in spreads), (c, node)
            assert counts.allows(c, node) == all(bool(rule.get_allowed_nodes()[node]) for rule in counts.get_checks(c))


def _allows(tables, problem, counts, c, node):
    if not kernels.may_arrive(tables, c, node, False):
        return False
    # What shares a node is in the kernels' lists of pods, not in their counts.
    starts, entries = tables[kernels.SHUNNED_STARTS], tables[kernels.SHUNNED]
    shunned = tables[entries + tables[starts + c] : entries + tables[starts + c + 1]]
    return not np.isin(problem.pod_class[counts.pod_node == node], shunned).any()


@examples(50)
@given(problems(), st.integers(0, 2**32))
def test_counts_kept_in_step_equal_counts_made_anew(problem, seed):
    rules = build_rules_by_class(problem)
    counts = RuleCounts(problem, rules, problem.pod_node)
    for c in range(problem.class_count):
        counts.get_allowed_nodes(c)
    source = np.random.default_rng(seed)
    for pod in source.integers(0, problem.pod_count, 12).tolist():
        if counts.pod_node[pod] >= 0:
            counts.evict(pod)
        else:
            counts.place(pod, int(source.integers(problem.node_count)))
    fresh = RuleCounts(problem, rules, counts.pod_node)
    for c in range(problem.class_count):
        assert (counts.get_allowed_nodes(c) == fresh.get_allowed_nodes(c)).all()
