"""Sizes beside LimitRanges: no limit under known use, every size admitted, and nothing held that could be sized."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import Leave, Mutate, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.guidance.eligibility import Eligibility
from cruise.decisions.sizing.node_plans import NodePlan, decide_node_plans
from cruise.domain.actions import ContainerTarget, Reason
from cruise.domain.cluster import LimitRangeItem, Pod
from cruise.domain.policy import MemoryLimits, Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.sizes import with_sizes
from cruise.domain.usage import Statistic
from cruise.simulation.cluster.limit_ranges import breach
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
    """What a container states (no limit: None) and uses, in MiB, and since when it is known."""

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
        """What a stated limit may not be lowered below."""
        assert self.limit is not None
        falls = self.since == LONG and policy.memory_limits is not MemoryLimits.NEVER
        return min(self.known, self.limit) if falls else self.limit


@dataclass(frozen=True)
class Range:
    """The memory of a LimitRange's entry, in MiB; 0 where it has no bound."""

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
        """Tell whether a limit must be stated."""
        return bool(self.most or self.ratio)


@st.composite
def uses(draw: st.DrawFn) -> Use:
    base = draw(st.integers(20, 500))
    peak = base + draw(st.integers(0, 500))
    most = peak + draw(st.integers(0, 800))
    request = draw(st.integers(16, 1200))
    limit = draw(st.none() | st.integers(request, 3000))
    # What has run under a limit has used no more.
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
    st.sampled_from(list(MemoryLimits)),
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


def admission(found: Sequence[Use], items: Sequence[LimitRangeItem], policy: Policy) -> Mutate | Leave:
    """What is decided of a new pod that states and uses that."""
    pod = replace(pod_of(found), node=None, phase="Pending")
    snapshot = replace(
        make_snapshot([pod], nodes=[make_node(memory_mib=MANY_GIB)]), limit_ranges={"shop": tuple(items)}
    )
    rows = [row_of(pod, at, use) for at, use in enumerate(found)]
    table = make_table(*(replace(row, key=row.key._replace(pod="")) for row in rows))
    eligibility = Eligibility(snapshot, table, {}, policy, NOW)
    return decide_admission(pod, eligibility, table, NodeIndex(snapshot.nodes), tuple(items), policy)


def admissible(found: Sequence[Use], container: Range, of_pod: Range, policy: Policy) -> bool:
    """Tell whether some sizes satisfy the ranges without a limit that is lowered too far, or may not be there.

    Requests that equal their limits satisfy every ratio, so only sums and single bounds have to be looked at.
    """
    limits, unlimited = [], 0
    for use in found:
        if use.limit is not None:
            limits.append(max(use.least_limit(policy), container.least))
        elif policy.memory_limits is MemoryLimits.ALWAYS or (
            container.demands and policy.memory_limits is MemoryLimits.EXISTING
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
        # A sum of limits that is too small has to be raised, which may need a ceiling to be passed.
        return False
    return policy.memory_limits is not MemoryLimits.NEVER or not any(
        use.limit is not None and use.limit < container.least for use in found
    )


def judge(
    found: Sequence[Use], targets: Sequence[ContainerTarget], items: Sequence[LimitRangeItem], policy: Policy
) -> None:
    """Check sizes that are written."""
    pod = pod_of(found)
    assert breach(with_sizes(pod, targets), items) is None
    for use, target in zip(found, targets, strict=True):
        limit = target.limits.memory_bytes
        if limit is not None:
            least = use.known if use.limit is None else use.least_limit(policy)
            assert limit >= least * MEBIBYTE
            assert limit >= (target.requests.memory_bytes or 0)
        else:
            assert use.limit is None


@examples(400)
@given(st.lists(uses(), min_size=1, max_size=3), ranges, ranges, policies)
def test_a_pass_writes_what_is_admitted_and_no_limit_under_known_use(found, container, of_pod, policy):
    items = (container.item(False), of_pod.item(True))
    decided = plan(found, items, policy)
    for resize in decided.resize:
        judge(found, resize.containers, items, policy)
    if policy.rules is TRACKING and admissible(found, container, of_pod, policy):
        assert not decided.hold


@examples(400)
@given(st.lists(uses(), min_size=1, max_size=3), ranges, ranges, policies)
def test_a_new_pod_gets_what_is_admitted_and_no_limit_under_known_use(found, container, of_pod, policy):
    items = (container.item(False), of_pod.item(True))
    decided = admission(found, items, policy)
    if isinstance(decided, Mutate):
        judge(found, decided.containers, items, policy)
    elif decided.reason is Reason.LIMIT_RANGE:
        assert not admissible(found, container, of_pod, policy)
