"""Memory limits: admission and OOM reactions agree with the node pass."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.oom import build_oom_record
from cruise.decisions.pod_policy.container_bounds import ContainerBounds
from cruise.decisions.sizing.memory_limit import (
    MemoryLimitConstraints,
    compute_admission_limit,
    compute_limit_after_oom_kill,
    compute_limit_ceilings_from_templates,
    compute_limit_demand,
    compute_memory_limits,
    compute_min_admission_limit,
    detect_memory_leaks,
)
from cruise.domain.arrays import UNBOUNDED
from cruise.domain.cluster import OomKill
from cruise.domain.policy import SEED_RULES, Policy
from cruise.domain.resources import MEBIBYTE
from tests.builders import NOW, NOW_SECONDS, make_node, make_ref, make_statistic, make_table

sizes = st.integers(1, 4 << 30)
whole_sizes = st.integers(1, 4096).map(lambda mebibytes: mebibytes * MEBIBYTE)
policies = st.builds(
    Policy,
    memory_limit_factor=st.sampled_from([1.0, 1.5, 2.0, 3.0]),
    working_set_margin=st.sampled_from([1.1, 1.2, 2.0]),
)
DEFAULT = Policy()
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
    most = min(bounds.whole_unit_bounds[5], int(min(request * bounds.ratios[1], UNBOUNDED)))
    now, asked, allowed = (np.array([value], dtype=np.int64) for value in (stated or 0, request, most))
    demand, always, never = compute_limit_demand(table, np.array([0]), policy), np.array([True]), np.array([False])
    terms = None
    if policy.rules.memory_limit_safeguards:
        least = compute_min_admission_limit(statistic, stated, bounds, policy, UNBOUNDED, adds_limit=True)
        terms = MemoryLimitConstraints(np.array([least], dtype=np.int64), adds_missing=always, keeps_existing=never)
    [limit] = compute_memory_limits(demand, now, asked, allowed, always, terms=terms).tolist()
    return limit


@given(statistics, whole_sizes, st.none() | whole_sizes, all_bounds, policies)
def test_a_pod_is_created_with_the_limit_that_the_node_pass_would_give_it(statistic, request, stated, bounds, policy):
    created = replace(statistic, memory_last_bytes=0)  # it uses nothing yet
    limit = compute_admission_limit(created, request, stated, bounds, policy)
    assert limit == in_node_pass(created, request, stated, bounds, policy)


@given(statistics, whole_sizes, st.none() | whole_sizes, policies.map(lambda policy: replace(policy, rules=SEED_RULES)))
def test_without_ceilings_a_kill_gives_the_limit_of_the_node_pass_and_never_a_lower_one(
    statistic, request, stated, policy
):
    kill = OomKill("shop", "web-1", "uid", "app", make_ref("Deployment/web"), "", "n1", NOW, stated, request, None)
    record = build_oom_record(kill, statistic)
    learned = replace(statistic, oom_memory_bytes=record.oom_memory_bytes, history_since=0)
    limit = compute_limit_after_oom_kill(record, statistic, request, stated, make_node(), FREE, policy)
    assert limit == max(in_node_pass(learned, request, stated, FREE, policy), stated or 0)


# ---- how far a limit rises ----

GIB = 1024 * MEBIBYTE
NODE_MEMORY = 16 * GIB


def risen(
    policy=DEFAULT,
    *,
    stated: int = GIB,
    template: int = GIB,
    seen: int = 900 * MEBIBYTE,
    killed: int = 0,
    request: int = 500 * MEBIBYTE,
    last: int = 0,
    base: int = 0,
) -> int:
    """The limit in a node pass on a node of 16 GiB; a template of -1 is unknown."""
    statistic = replace(
        make_statistic(),
        memory_7d_max_bytes=seen,
        oom_memory_bytes=killed,
        memory_last_bytes=last,
        memory_base_bytes=base or last,
        history_since=NOW_SECONDS - 3600,
    )
    demand = compute_limit_demand(make_table(statistic), np.array([0]), policy)
    now, asked, allowed, ours = (np.array([value]) for value in (stated, request, UNBOUNDED, template))
    found = compute_limit_ceilings_from_templates(ours, now, policy).cap_to_nodes(np.array([NODE_MEMORY]))
    [limit] = compute_memory_limits(demand, now, asked, allowed, np.array([True]), found).tolist()
    return int(limit)


def test_without_cause_a_limit_rises_at_most_to_its_template():
    assert risen() == GIB
    assert risen(stated=GIB // 2) == GIB
    assert risen(stated=GIB // 2, seen=300 * MEBIBYTE) == 600 * MEBIBYTE
    assert risen(last=GIB) == GIB


def test_varying_use_may_raise_a_limit_above_its_template_and_rising_use_may_not():
    assert risen(last=900 * MEBIBYTE) == GIB
    assert risen(last=899 * MEBIBYTE) == 1800 * MEBIBYTE
    assert risen(last=900 * MEBIBYTE, base=720 * MEBIBYTE) == GIB
    assert risen(last=900 * MEBIBYTE, base=719 * MEBIBYTE) == 1800 * MEBIBYTE
    assert risen(last=2 * GIB, seen=3 * GIB) == 2 * GIB


def test_after_a_kill_or_for_a_request_it_rises_to_twice_the_templates():
    assert risen(request=GIB + MEBIBYTE) == 1800 * MEBIBYTE
    assert risen(killed=GIB) == 2 * GIB
    assert risen(killed=3 * GIB, stated=2 * GIB) == 2 * GIB


def test_it_is_never_under_the_request_whatever_its_ceiling():
    assert risen(request=3 * GIB) == 3 * GIB


def test_without_a_limit_in_the_template_it_ends_at_the_node():
    assert risen(template=UNBOUNDED) == 1800 * MEBIBYTE
    assert risen(template=UNBOUNDED, seen=30 * GIB) == NODE_MEMORY


def test_a_limit_with_an_unknown_template_is_kept():
    assert risen(template=-1, killed=GIB, seen=3 * GIB) == GIB


def test_a_limit_over_its_ceiling_is_not_lowered_for_it():
    assert risen(stated=34 * GIB, seen=33 * GIB) == 34 * GIB


def test_the_ceiling_is_a_setting():
    assert risen(replace(DEFAULT, memory_limit_ceiling=1.5), killed=GIB) == GIB + GIB // 2


def test_use_that_grows_by_a_tenth_every_five_minutes_meets_its_limit():
    """Without the ceiling its limit would be 34 GiB after three hours, on a node of 16 GiB."""
    limit, use, killed = GIB, 300 * MEBIBYTE, 0
    for _ in range(288):
        use = min(int(use * 1.1), limit)
        killed = limit if use == limit else killed
        request = min(int(use * 1.2), limit)
        limit = risen(stated=limit, seen=use, last=use, base=int(use / 1.1**1.5), request=request, killed=killed)
        assert limit <= 2 * GIB
    assert use == limit == 2 * GIB


def test_memory_grows_where_use_is_at_its_highest_and_nearer_to_its_limit_than_the_margin():
    statistic = replace(make_statistic(), memory_base_bytes=80, memory_7d_max_bytes=100, memory_last_bytes=100)
    table = make_table(
        statistic,
        replace(statistic, memory_7d_max_bytes=101),
        replace(statistic, memory_base_bytes=100),
        statistic,
        statistic,
    )
    demand = compute_limit_demand(table, np.arange(5), DEFAULT)
    assert detect_memory_leaks(demand, np.array([119, 119, 119, 120, 0])).tolist() == [True, False, False, False, False]
