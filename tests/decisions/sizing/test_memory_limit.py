"""One rule for memory limits: admission and the reaction to a kill agree with the node pass."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.guidance.container_bounds import ContainerBounds
from cruise.decisions.oom import learn_from
from cruise.decisions.sizing.memory_limit import limit_after_kill, limit_at_admission, limit_demand, memory_limits
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import OomKill
from cruise.domain.policy import Policy
from cruise.domain.resources import MEBIBYTE
from tests.builders import NOW, NOW_SECONDS, make_node, make_ref, make_statistic, make_table

sizes = st.integers(1, 4 << 30)
whole_sizes = st.integers(1, 4096).map(lambda mebibytes: mebibytes * MEBIBYTE)
policies = st.builds(
    Policy,
    memory_limit_factor=st.sampled_from([1.0, 1.5, 2.0, 3.0]),
    working_set_margin=st.sampled_from([1.1, 1.2, 2.0]),
)
FREE = ContainerBounds((0, UNBOUNDED, 0, UNBOUNDED, UNBOUNDED, UNBOUNDED), (math.inf, math.inf))
all_bounds = st.builds(
    lambda cap, ratio: ContainerBounds((0, UNBOUNDED, 0, UNBOUNDED, UNBOUNDED, cap), (math.inf, ratio)),
    whole_sizes | st.just(UNBOUNDED),
    st.sampled_from([1.5, 3.0, math.inf]),
)
statistics = st.builds(
    lambda seen, killed, last, hours: replace(
        make_statistic(),
        memory_7d_max_bytes=seen,
        oom_memory_bytes=killed,
        memory_last_bytes=last,
        history_since=NOW_SECONDS - 3600 * hours if hours else 0,
    ),
    sizes,
    sizes | st.just(0),
    sizes,
    st.sampled_from([0, 10, 24 * 27, 24 * 29]),
)


def in_node_pass(statistic, request, stated, bounds, policy):
    table = make_table(statistic)
    most = min(bounds.whole[5], int(min(request * bounds.ratios[1], UNBOUNDED)))
    now, asked, allowed = (np.array([value], dtype=np.int64) for value in (stated or 0, request, most))
    [limit] = memory_limits(limit_demand(table, np.array([0]), policy), now, asked, allowed, np.array([True])).tolist()
    return limit


@given(statistics, whole_sizes, st.none() | whole_sizes, all_bounds, policies)
def test_a_pod_is_created_with_the_limit_that_the_node_pass_would_give_it(statistic, request, stated, bounds, policy):
    created = replace(statistic, memory_last_bytes=0)  # it uses nothing yet
    limit = limit_at_admission(created, request, stated, bounds, policy)
    assert limit == in_node_pass(created, request, stated, bounds, policy)


@given(statistics, whole_sizes, st.none() | whole_sizes, policies)
def test_after_a_kill_a_limit_is_what_the_node_pass_would_give_and_never_lower(statistic, request, stated, policy):
    kill = OomKill("shop", "web-1", "uid", "app", make_ref("Deployment/web"), "", "n1", NOW, stated, request, None)
    record = learn_from(kill, statistic)
    learned = replace(statistic, oom_memory_bytes=record.oom_memory_bytes, history_since=0)
    limit = limit_after_kill(record, statistic, request, stated, make_node(), FREE, policy)
    assert limit == max(in_node_pass(learned, request, stated, FREE, policy), stated or 0)
