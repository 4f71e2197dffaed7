"""Invariants of every plan under every headroom model, on random clusters."""

from hypothesis import event, given
from hypothesis import strategies as st

from cruise.decisions.sizing.node_plans import decide_node_plans
from tests.builders import NOW
from tests.decisions.sizing.models import models
from tests.decisions.sizing.test_laws import FULL, USER_MINIMUMS_COUNT, applied, counted_on, each, situations


@given(situations(), st.data())
def test_headroom_models_change_neither_fit_nor_evictions(cluster, data):
    snapshot, table = cluster
    model = data.draw(models(table))
    event(type(model).__name__)
    plans = decide_node_plans(snapshot, table, FULL, NOW, headroom=model)
    plain = decide_node_plans(snapshot, table, FULL, NOW)
    after = applied(snapshot, plans)
    for plan, other in zip(plans, plain, strict=True):
        assert (plan.fits, plan.evict, plan.base) == (other.fits, other.evict, other.base)
        assert min(each(plan.headroom)) >= 0
        if plan.fits:
            assert (plan.base + plan.headroom).fits_in(plan.available)
        for room, was, now in zip(
            each(plan.allocatable),
            each(counted_on(snapshot, plan.node)),
            each(counted_on(after, plan.node)),
            strict=True,
        ):
            assert now <= max(room, was)


@given(situations(), st.data())
def test_nodes_are_decided_independently(cluster, data):
    snapshot, table = cluster
    model = data.draw(models(table))
    policy = FULL
    if any(plan.evict for plan in decide_node_plans(snapshot, table, FULL, NOW, headroom=model)):
        # Replacements may go to any node, so no node grants its own pods anything new.
        policy = USER_MINIMUMS_COUNT
    plans = decide_node_plans(snapshot, table, policy, NOW, headroom=model)
    one_by_one = [
        plan
        for node in sorted(node.name for node in snapshot.nodes)
        for plan in decide_node_plans(snapshot, table, policy, NOW, headroom=model, nodes=frozenset({node}))
    ]
    assert [(plan.node, plan.resize, plan.evict) for plan in plans] == [
        (plan.node, plan.resize, plan.evict) for plan in one_by_one
    ]
