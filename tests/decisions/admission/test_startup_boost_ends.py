"""When the CPU of a start is taken back, and from whom."""

from dataclasses import replace
from datetime import timedelta

import pytest

from cruise.decisions.admission.startup import decide_boost_ends, select_boosted_pods
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.startup_boosts import OVERDUE_TIME, get_boost_end
from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.actions import ReasonCode, RefusedResize
from cruise.domain.annotations import STARTUP_BOOST
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import ResizePending, ResizeState
from cruise.domain.startup_boosts import LONGEST_START, READY_TIME, StartupBoost, format_startup_boosts
from tests.builders import (
    NOW,
    TRACKING,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
)

RESIZE = Policy(mode=Mode.RESIZE)
RECORD = {STARTUP_BOOST: format_startup_boosts([StartupBoost("app", 1000, None, 400, None)])}


def make_boosted(ready_for=timedelta(0), started=timedelta(0), **more):
    """A pod with the CPU of its start, which became ready and started so long ago."""
    fields = {"containers": (make_container(cpu=1000),), "annotations": RECORD, **more}
    since = NOW - ready_for if ready_for is not None else None
    return make_pod(ready_since=since, started_at=NOW - started, **fields)


def decide(*pods, policy=RESIZE, refused=None, **snapshot):
    whole = make_snapshot(pods, **snapshot)
    eligibility = Eligibility(whole, make_table(), {}, policy, NOW)
    return decide_boost_ends(select_boosted_pods(whole, NOW), eligibility, refused or {}, NOW)


def test_it_is_taken_back_30_seconds_after_the_pod_is_ready():
    [resize] = decide(make_boosted(READY_TIME))
    assert resize.reason is ReasonCode.START_COMPLETED
    [target] = resize.containers
    # Memory is as it is now, whatever admission gave.
    assert target.requests == make_amounts(400, 128)
    assert not resize.needs_capacity
    assert not decide(make_boosted(READY_TIME - timedelta(seconds=1)))


def test_a_pod_that_is_never_ready_or_restarts_keeps_it_for_ten_minutes():
    assert not decide(make_boosted(None, LONGEST_START - timedelta(seconds=1), ready=False))
    assert decide(make_boosted(None, LONGEST_START, ready=False))
    # Ready again since a moment: its container restarted.
    assert decide(make_boosted(timedelta(seconds=1), LONGEST_START))
    assert get_boost_end(make_boosted(None, ready=False)) == NOW + LONGEST_START
    assert get_boost_end(replace(make_boosted(None), started_at=None)) is None


UNTOUCHED = {
    "in creation": make_boosted(READY_TIME, node=None),
    "terminating": make_boosted(READY_TIME, terminating=True),
    "finished": make_boosted(READY_TIME, phase="Succeeded"),
    "switched off since": make_boosted(READY_TIME, annotations={**RECORD, "cruise.io/mode": "off"}),
    "unreadable": make_boosted(READY_TIME, annotations={**RECORD, "cruise.io/mode": "of"}),
    "excluded namespace": make_boosted(READY_TIME, namespace="kube-system"),
    "another resize waits": make_boosted(READY_TIME, resize=ResizeState(ResizePending.DEFERRED, NOW)),
    "resized since": make_boosted(READY_TIME, containers=(make_container(cpu=900),)),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_others_keep_what_they_have(name):
    assert not decide(UNTOUCHED[name])


def test_nothing_is_tried_that_the_node_cannot_or_would_not_do():
    pod = make_boosted(READY_TIME)
    assert not decide(pod, nodes=[make_node(kubelet_version=(1, 32))])
    assert not decide(pod, nodes=[make_node(ready=False)])
    assert not decide(pod, policy=replace(RESIZE, mode=Mode.INITIAL))
    [resize] = decide(pod)
    refused = RefusedResize(pod.uid, resize.containers, ReasonCode.STATIC_CPU_MANAGER, NOW)
    assert not decide(pod, refused={pod.uid: refused})


def test_a_node_pass_leaves_the_cpu_of_the_start_and_sizes_memory():
    pod, other = make_boosted(), make_pod("web-2", containers=(make_container(cpu=1000),))
    rows = [make_statistic(one.name, memory_peak_mib=100) for one in (pod, other)]
    rows.append(make_statistic("", memory_peak_mib=100))
    policy = replace(RESIZE, rules=TRACKING)
    [plan] = decide_node_plans(make_snapshot([pod, other]), make_table(*rows), policy, NOW)
    sizes = {one.pod: one.containers[0].requests.resources for one in plan.resize}
    assert sizes["web-1"].cpu_millicores == 1000
    assert sizes["web-1"].memory_bytes < 128 << 20
    assert sizes["web-2"].cpu_millicores < 1000
    # What the start gets does not count against the node's other pods.
    assert plan.available.cpu_millicores == 4000 - 400
    assert plan.counted.cpu_millicores == 2000
    only_cpu = replace(pod, annotations={**RECORD, "cruise.io/resources": "cpu"})
    [plan] = decide_node_plans(make_snapshot([only_cpu]), make_table(*rows), policy, NOW)
    assert [(one.pod, one.reason) for one in plan.skipped] == [("web-1", ReasonCode.STARTING)]
    # Once it is taken back, it is a size like any other.
    settled = replace(pod, containers=(make_container(cpu=400),))
    [plan] = decide_node_plans(make_snapshot([settled]), make_table(*rows), policy, NOW)
    assert plan.resize[0].containers[0].requests.resources.cpu_millicores < 400


def test_an_hour_later_it_is_a_size_like_any_other():
    # A busy pod has grown to the CPU that it started with, or nobody could take it back.
    started = LONGEST_START + OVERDUE_TIME
    pod = make_boosted(started - timedelta(minutes=5), started)
    busy = make_statistic("web-1", cpu_base=2000, cpu_peak=2500, memory_peak_mib=100)
    idle = make_statistic("web-1", cpu_base=10, cpu_peak=20, memory_peak_mib=100)
    policy = replace(RESIZE, rules=TRACKING)
    for statistic, is_larger in ((busy, True), (idle, False)):
        [plan] = decide_node_plans(make_snapshot([pod]), make_table(statistic), policy, NOW)
        assert (plan.resize[0].containers[0].requests.resources.cpu_millicores > 1000) is is_larger
    assert not decide(pod)
    fixed = replace(pod, annotations={**RECORD, "cruise.io/mode": "off"})
    [plan] = decide_node_plans(make_snapshot([fixed]), make_table(busy), policy, NOW)
    assert plan.available.cpu_millicores == 4000 - 1000
