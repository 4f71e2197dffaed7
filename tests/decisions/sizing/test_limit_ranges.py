"""Sizes under LimitRanges: no limit below known usage, none rejected, no pod skipped needlessly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Pod
from cruise.domain.pod_resources import replace_spec_resources
from cruise.domain.policy import MemoryLimitPolicy, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import Statistic
from cruise.simulation.cluster.api_server import find_violated_bound
from tests.builders import (
    NOW,
    NOW_SECONDS,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
    make_workload,
)
from tests.tiers import examples

MANY_GIB = 1 << 20
LONG, SHORT = NOW_SECONDS - 40 * 86400, NOW_SECONDS - 86400


@dataclass(frozen=True)
class Use:
    """A container's stated sizes (None: no limit) and usage in MiB, and the start of its history."""

    request: int
    limit: int | None
    base: int
    peak: int
    most: int
    last: int
    since: int

    @property
    def known(self) -> int:
        """The largest known use, in whole MiB."""
        return max(self.most, -(-self.last * 12 // 10))

    def least_limit(self, policy: Policy) -> int:
        """The least that a stated limit may be lowered to."""
        assert self.limit is not None
        falls = self.since == LONG and policy.memory_limits is not MemoryLimitPolicy.NEVER
        return min(self.known, self.limit) if falls else self.limit


@dataclass(frozen=True)
class Range:
    """The memory of a LimitRange's item in MiB; 0 for no bound."""

    least: int = 0
    most: int = 0
    ratio: float = 0

    def item(self, of_pod: bool) -> LimitRangeItem:
        """Return the entry."""
        return LimitRangeItem(
            of_pod,
            make_amounts(None, self.least or None),
            make_amounts(None, self.most or None),
            max_memory_ratio=self.ratio or None,
        )

    @property
    def demands(self) -> bool:
        """Return whether a limit must be stated."""
        return bool(self.most or self.ratio)


@st.composite
def uses(draw: st.DrawFn) -> Use:
    base = draw(st.integers(20, 500))
    peak = base + draw(st.integers(0, 500))
    most = peak + draw(st.integers(0, 800))
    request = draw(st.integers(16, 1200))
    limit = draw(st.none() | st.integers(request, 3000))
    # A container with a limit has not used more.
    if limit is not None:
        base, peak, most = (min(one, limit) for one in (base, peak, most))
    last = draw(st.integers(1, most))
    return Use(request, limit, base, peak, most, last, draw(st.sampled_from([LONG, SHORT, 0])))


ranges = st.builds(
    Range,
    st.sampled_from([0, 0, 100, 400]),
    st.sampled_from([0, 0, 500, 1000, 2500, 5000]),
    st.sampled_from([0, 0, 1.0, 1.5, 2.0, 4.0]),
).filter(lambda one: not one.most or one.least <= one.most)
policies = st.builds(
    lambda rules, limits: Policy(mode=Mode.FULL, memory_limits=limits, **rules),
    st.sampled_from([{"rules": TRACKING}, {}]),
    st.sampled_from(list(MemoryLimitPolicy)),
)


def pod_of(found: Sequence[Use]) -> Pod:
    """A pod of containers that state and use that; no CPU limit, so that it stays Burstable."""
    names = "abc"
    containers = [
        make_container(name, cpu=100, memory_mib=use.request, memory_limit_mib=use.limit)
        for name, use in zip(names, found, strict=False)
    ]
    return make_pod(containers=containers)


def row_of(pod: Pod, at: int, use: Use) -> Statistic:
    """The statistic of one container."""
    return replace(
        make_statistic_for(
            pod,
            pod.containers[at].name,
            cpu_base=100,
            cpu_peak=100,
            memory_base_mib=use.base,
            memory_peak_mib=use.peak,
            memory_7d_max_mib=use.most,
            memory_last_mib=use.last,
        ),
        history_since=use.since,
    )


def plan(found: Sequence[Use], items: Sequence[LimitRangeItem], policy: Policy, pod: Pod | None = None) -> NodePlan:
    """The plan of a large node with one pod; its template states what the pod does."""
    pod = pod or pod_of(found)
    template = {one.name: one.limits.memory_bytes for one in pod.containers if one.limits.memory_bytes}
    workload = replace(make_workload(), memory_limits=template)
    snapshot = make_snapshot([pod], nodes=[make_node(memory_mib=MANY_GIB)], workloads=[workload])
    snapshot = replace(snapshot, limit_ranges={"shop": tuple(items)})
    table = make_table(*(row_of(pod, at, use) for at, use in enumerate(found)))
    [decided] = decide_node_plans(snapshot, table, policy, NOW)
    return decided


def admission(found: Sequence[Use], items: Sequence[LimitRangeItem], policy: Policy) -> MutatePod | LeaveUnchanged:
    """The admission decision for a pod with these sizes and usage."""
    pod = replace(pod_of(found), node=None, phase="Pending")
    snapshot = replace(
        make_snapshot([pod], nodes=[make_node(memory_mib=MANY_GIB)]), limit_ranges={"shop": tuple(items)}
    )
    rows = [row_of(pod, at, use) for at, use in enumerate(found)]
    table = make_table(*(replace(row, key=row.key._replace(pod="")) for row in rows))
    eligibility = Eligibility(snapshot, table, {}, policy, NOW)
    return decide_admission(pod, eligibility, table, NodeIndex(snapshot.nodes), tuple(items), policy)


def admissible(found: Sequence[Use], container: Range, of_pod: Range, policy: Policy) -> bool:
    """Return whether some sizes satisfy the ranges without a limit that is lowered too far, or may not be there.

    Requests that equal their limits satisfy every ratio, so only sums and single bounds have to be looked at.
    """
    limits, unlimited = [], 0
    for use in found:
        if use.limit is not None:
            limits.append(max(use.least_limit(policy), container.least))
        elif policy.memory_limits is MemoryLimitPolicy.ALWAYS or (
            container.demands and policy.memory_limits is MemoryLimitPolicy.EXISTING
        ):
            limits.append(max(use.known, container.least))
        elif container.demands:
            return False
        else:
            unlimited += 1
    if container.most and any(limit > container.most for limit in limits):
        return False
    if of_pod.demands and not limits:
        return False
    if of_pod.most and sum(limits) + unlimited * max(container.least, 1) > of_pod.most:
        return False
    if limits and of_pod.least and sum(limits) < of_pod.least:
        # A sum of limits that is too small must be raised, possibly above a ceiling.
        return False
    return policy.memory_limits is not MemoryLimitPolicy.NEVER or not any(
        use.limit is not None and use.limit < container.least for use in found
    )


def check_sizes(
    found: Sequence[Use], targets: Sequence[ContainerTarget], items: Sequence[LimitRangeItem], policy: Policy
) -> None:
    """Check sizes that are written."""
    pod = pod_of(found)
    assert find_violated_bound(replace_spec_resources(pod, targets), items) is None
    for use, target in zip(found, targets, strict=True):
        limit = target.limits.memory_bytes
        if limit is not None:
            least = use.known if use.limit is None else use.least_limit(policy)
            assert limit >= least * MEBIBYTE
            assert limit >= (target.requests.memory_bytes or 0)
        else:
            assert use.limit is None


def test_what_a_containers_largest_request_leaves_open_the_others_request():
    found = [Use(16, None, 20, 20, 20, 1, LONG), Use(65, 523, 20, 20, 20, 1, LONG), Use(190, None, 20, 20, 20, 1, LONG)]
    policy = Policy(mode=Mode.FULL, rules=TRACKING, memory_limits=MemoryLimitPolicy.NEVER)
    items = (Range(most=1000, ratio=2.0).item(True),)
    decided = plan(found, items, policy)
    assert not decided.skipped
    [resize] = decided.resize
    check_sizes(found, resize.containers, items, policy)


@examples(400)
@given(st.lists(uses(), min_size=1, max_size=3), ranges, ranges, policies)
def test_a_pass_writes_what_is_admitted_and_no_limit_under_known_use(found, container, of_pod, policy):
    items = (container.item(False), of_pod.item(True))
    decided = plan(found, items, policy)
    for resize in decided.resize:
        check_sizes(found, resize.containers, items, policy)
    if policy.rules is TRACKING and admissible(found, container, of_pod, policy):
        assert not decided.skipped


@examples(400)
@given(st.lists(uses(), min_size=1, max_size=3), ranges, ranges, policies)
def test_a_new_pod_gets_what_is_admitted_and_no_limit_under_known_use(found, container, of_pod, policy):
    items = (container.item(False), of_pod.item(True))
    decided = admission(found, items, policy)
    if isinstance(decided, MutatePod):
        check_sizes(found, decided.containers, items, policy)
    elif decided.reason is ReasonCode.LIMIT_RANGE:
        assert not admissible(found, container, of_pod, policy)


# ---- by hand ----

CALM = Policy(mode=Mode.FULL)
NIGHT = Use(request=1024, limit=1024, base=200, peak=300, most=900, last=210, since=LONG)


def sizes(decided: NodePlan) -> list[tuple[int, int]]:
    """Memory request and limit of each container, in MiB."""
    return [(one.memory_bytes // MEBIBYTE, one.memory_limit_bytes // MEBIBYTE) for one in decided.targets]


@pytest.mark.parametrize("policy", [CALM, Policy(mode=Mode.FULL, rules=TRACKING)])
@pytest.mark.parametrize(
    ("ratio", "since", "expected"),
    [
        (1.0, LONG, (900, 900)),
        (2.0, LONG, (450, 900)),
        # It is not lowered on a short or unknown history either.
        (1.0, SHORT, (1024, 1024)),
        (2.0, 0, (512, 1024)),
    ],
)
def test_the_request_rises_to_what_the_limit_needs(policy, ratio, since, expected):
    decided = plan([replace(NIGHT, since=since)], [Range(ratio=ratio).item(False)], policy)
    assert sizes(decided) == [expected]
    assert not decided.skipped


def test_a_maximum_limit_below_known_use_skips_the_pod():
    decided = plan([NIGHT], [Range(most=800).item(False)], Policy(mode=Mode.FULL, rules=TRACKING))
    assert [hold.reason for hold in decided.skipped] == [ReasonCode.LIMIT_RANGE]
    assert sizes(decided)[0][1] >= 900


def test_limits_share_what_a_limit_range_of_type_pod_allows():
    pair = [
        Use(request=400, limit=500, base=200, peak=300, most=400, last=200, since=LONG),
        Use(request=200, limit=300, base=50, peak=100, most=100, last=60, since=LONG),
    ]
    [decided] = [plan(pair, [Range(most=800).item(True)], Policy(mode=Mode.FULL, rules=TRACKING))]
    [(_, first), (_, second)] = sizes(decided)
    assert (first >= 400, second >= 100, first + second <= 800, len(decided.resize)) == (True, True, True, 1)


FREE = Use(request=128, limit=None, base=200, peak=300, most=400, last=210, since=LONG)


@pytest.mark.parametrize(
    ("setting", "annotations", "limited"),
    [
        (MemoryLimitPolicy.EXISTING, {}, 0),
        (MemoryLimitPolicy.ALWAYS, {}, 800),
        (MemoryLimitPolicy.NEVER, {}, 0),
        (MemoryLimitPolicy.EXISTING, {"cruise.io/memory-limits": "always"}, 800),
        (MemoryLimitPolicy.EXISTING, {"cruise.io/memory-limits.a": "always"}, 800),
        (MemoryLimitPolicy.ALWAYS, {"cruise.io/memory-limits": "always", "cruise.io/memory-limits.a": "existing"}, 0),
    ],
)
def test_a_container_without_a_limit_gets_one_if_required(setting, annotations, limited):
    policy = Policy(mode=Mode.FULL, rules=TRACKING, memory_limits=setting)
    decided = plan([FREE], (), policy, replace(pod_of([FREE]), annotations=annotations))
    assert sizes(decided) == [(300, limited)]
    created = admission([FREE], (), policy)
    assert isinstance(created, MutatePod)
    assert (created.containers[0].limits.memory_bytes is not None) is (setting is MemoryLimitPolicy.ALWAYS)


def test_never_keeps_a_limit_until_a_request_exceeds_it():
    never = Policy(mode=Mode.FULL, rules=TRACKING, memory_limits=MemoryLimitPolicy.NEVER)
    high = replace(NIGHT, limit=4000)
    assert sizes(plan([high], (), never)) == [(300, 4000)]
    assert sizes(plan([replace(NIGHT, request=100, limit=910)], (), never)) == [(300, 910)]
    least = replace(pod_of([high]), annotations={"cruise.io/memory-min": "5000Mi"})
    assert sizes(plan([high], (), never, least)) == [(5000, 5000)]


def test_a_default_that_the_api_server_would_add_is_stated_above_known_use():
    default = LimitRangeItem(False, default_limits=make_amounts(None, 64))
    tracking = Policy(mode=Mode.FULL, rules=TRACKING)
    assert sizes(plan([FREE], [default], tracking)) == [(300, 800)]
    never = replace(tracking, memory_limits=MemoryLimitPolicy.NEVER)
    assert [hold.reason for hold in plan([FREE], [default], never).skipped] == [ReasonCode.LIMIT_RANGE]


def test_a_cpu_limit_is_not_lowered_below_the_peak_for_a_ratio():
    pod = make_pod(containers=[make_container("a", cpu=1000, cpu_limit=1000, memory_mib=1024, memory_limit_mib=2048)])
    row = replace(row_of(pod, 0, NIGHT), cpu_base_millicores=100, cpu_peak_millicores=600)
    items = (LimitRangeItem(False, max_cpu_ratio=1.0),)
    snapshot = make_snapshot([pod], nodes=[make_node(memory_mib=MANY_GIB)], workloads=[make_workload()])
    table = make_table(row, replace(row, key=row.key._replace(pod="other")))
    snapshot = replace(snapshot, limit_ranges={"shop": items})
    [decided] = decide_node_plans(snapshot, table, Policy(mode=Mode.FULL, rules=TRACKING), NOW)
    [resize] = decided.resize
    assert resize.containers[0].requests.cpu_millicores == resize.containers[0].limits.cpu_millicores == 600
