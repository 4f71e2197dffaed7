"""The slow starts of a scan: what `startup: learn` would give, before anybody sets it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.scan.slow_starts import LEAST_MILLICORES, LEAST_RATIO, SlowStart, find_slow_starts
from cruise.domain.policy import Mode, Policy
from cruise.domain.startup_boosts import find_startup_boosts
from cruise.runtime.admission import PodAdmitter
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL)


def make_cluster(annotations=None, pods=2, **more):
    running = [
        make_pod(f"web-{number}", containers=(make_container(cpu=300),), annotations=annotations or {})
        for number in range(pods)
    ]
    return make_snapshot(running, nodes=(make_node(),), workloads=[make_workload()], **more)


def find(snapshot=None, policy=FULL, **statistic):
    values = {"cpu_base": 50, "cpu_peak": 400, "cpu_start": 1500} | statistic
    return find_slow_starts(snapshot or make_cluster(), make_table(make_statistic("", **values)), policy, NOW)


def test_a_workload_whose_starts_need_far_more_is_found():
    assert find() == (SlowStart("shop", "Deployment/web", "app", 2, 1500, 400),)


OTHERS = {
    "little more": find(cpu_start=450),
    "unknown": find(cpu_start=0),
    "stale": find(updated_at=NOW_SECONDS - 3600),
    "no pods": find(make_cluster(pods=0)),
    "stated": find(make_cluster({"cruise.io/startup-cpu": "2x"})),
    "switched off": find(make_cluster({"cruise.io/startup-cpu": "off"})),
    "not sized": find(make_cluster({"cruise.io/mode": "off"})),
    "HPA": find(make_cluster(autoscalers=(make_autoscaler(),))),
}


@pytest.mark.parametrize("found", OTHERS.values(), ids=OTHERS)
def test_others_are_not_listed(found):
    assert found == ()


@given(st.integers(0, 4000), st.integers(10, 2000))
def test_the_scan_says_what_admission_does(start, peak):
    table = make_table(make_statistic("", cpu_base=10, cpu_peak=peak, cpu_start=start))
    snapshot = make_cluster()
    found = find_slow_starts(snapshot, table, FULL, NOW)
    pod = replace(snapshot.pods[0], node=None, name="")
    learn = make_cluster({"cruise.io/startup-cpu": "learn"})
    created, _ = PodAdmitter(learn, table, {}, FULL, NOW).admit(
        replace(pod, annotations={"cruise.io/startup-cpu": "learn"})
    )
    boosts = find_startup_boosts(created)
    assert [(one.boosted, one.settled) for one in found] == [
        (one.boosted_request, one.request)
        for one in boosts
        if one.boosted_request >= LEAST_RATIO * one.request and one.boosted_request - one.request >= LEAST_MILLICORES
    ]
