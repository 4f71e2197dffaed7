"""What holds for every plan whatever the headroom model, on whole clusters drawn at random."""

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from cruise.decisions.sizing.headroom.joint_peak import JointPeak
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk import Risk
from cruise.decisions.sizing.headroom.scores import Margin
from cruise.decisions.sizing.headroom.shared_max import SHARED_MAX
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.resources import ResourceName
from tests.builders import NOW
from tests.decisions.sizing.test_laws import FULL, applied, counted_on, each, situations


@st.composite
def models(draw, table):
    """Draw a model prepared for a table: pods demanded up to twice their peaks, or were not sampled."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    peaks = {ResourceName.CPU: table.cpu_peak_millicores, ResourceName.MEMORY: table.memory_peak_bytes}

    def demanded(columns):
        found = {one: peak[:, None] * random.uniform(0, 2, (len(peak), columns)) for one, peak in peaks.items()}
        for values in found.values():
            values[random.random(values.shape) < 0.1] = np.nan
        return {one: values.astype(np.float32) for one, values in found.items()}

    past = PastDemand(demanded(12), demanded(draw(st.integers(0, 14))))
    margins = {one: Margin(draw(st.floats(1e-3, 50)), draw(st.booleans())) for one in ResourceName}
    return draw(st.sampled_from([SHARED_MAX, JointPeak(past), Risk(past, margins)]))


@given(situations(), st.data())
def test_nodes_fit_and_hold_what_is_written_and_evict_whom_they_would_evict_anyway(cluster, data):
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
def test_nodes_are_decided_apart_from_each_other(cluster, data):
    snapshot, table = cluster
    model = data.draw(models(table))
    plans = decide_node_plans(snapshot, table, FULL, NOW, headroom=model)
    one_by_one = [
        plan
        for node in sorted(node.name for node in snapshot.nodes)
        for plan in decide_node_plans(snapshot, table, FULL, NOW, headroom=model, nodes=frozenset({node}))
    ]
    assert [(plan.node, plan.resize, plan.evict) for plan in plans] == [
        (plan.node, plan.resize, plan.evict) for plan in one_by_one
    ]
