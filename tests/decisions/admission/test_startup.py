"""The CPU that new pods start with: more than their size, and only what an in-place resize can take back."""

import json
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.admission.replacement_pods import decide_unschedulable_pods, recreate_from_template
from cruise.decisions.explanation.pod_explanation import explain_startup_cpu_of_pod
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES, STARTUP_BOOST
from cruise.domain.autoscalers import LimitRangeItem, ResourceQuota
from cruise.domain.cluster import QosClass
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.pod_resources import get_qos_class
from cruise.domain.policy import CpuLimitPolicy, GuaranteedPolicy, MemoryLimitPolicy, Mode, Policy, StartupPolicy
from cruise.domain.resources import ResourceName, StatedResources
from cruise.domain.startup_boosts import StartupBoost, find_startup_boosts, format_startup_boosts, settle_boosted_pod
from cruise.runtime.admission import PodAdmitter
from tests.builders import (
    NOW,
    NOW_SECONDS,
    make_amounts,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

RESIZE = Policy(mode=Mode.RESIZE)
TWICE = {"cruise.io/startup-cpu": "2x"}


def use(cpu=400, container="app", **more):
    """The peaks of a workload's container."""
    return make_statistic(
        "", container=container, cpu_base=1, cpu_peak=cpu, memory_base_mib=1, memory_peak_mib=100, **more
    )


def new_pod(*containers, annotations=TWICE, **fields):
    """A pod in creation."""
    containers = containers or (make_container(cpu=300, settled=False),)
    pod = make_pod("", node=None, containers=containers, annotations=annotations, **fields)
    return replace(pod, qos=get_qos_class(pod))


class Cluster:
    """What decides about a new pod."""

    def __init__(self, *rows, nodes=None, policy=RESIZE, ranges=(), quotas=(), **snapshot):
        nodes = (make_node(),) if nodes is None else nodes
        self.snapshot = make_snapshot([], nodes=nodes, workloads=[make_workload()], **snapshot)
        self.table, self.policy, self.ranges, self.quotas = make_table(*rows), policy, ranges, quotas
        self.eligibility = Eligibility(self.snapshot, self.table, {}, policy, NOW)

    def decide(self, pod):
        nodes = NodeIndex(self.snapshot.nodes)
        return decide_admission(pod, self.eligibility, self.table, nodes, self.ranges, self.policy, self.quotas)

    def create(self, pod):
        """The pod as the webhook creates it."""
        ranges = {pod.namespace: self.ranges} if self.ranges else {}
        snapshot = replace(self.snapshot, limit_ranges=ranges, quotas={pod.namespace: tuple(self.quotas)})
        created, _ = PodAdmitter(snapshot, self.table, {}, self.policy, NOW).admit(pod)
        return created

    def explain(self, pod):
        """The reasons for no boost, by container."""
        ranges = {pod.namespace: self.ranges} if self.ranges else {}
        snapshot = replace(self.snapshot, limit_ranges=ranges, quotas={pod.namespace: tuple(self.quotas)})
        found = explain_startup_cpu_of_pod(pod, snapshot, self.eligibility, self.policy)
        return {} if found is None else {one.container: one.reason for one in found.steps}


def cpus(decision):
    """CPU request and limit by container."""
    assert isinstance(decision, MutatePod), decision
    return {one.container: (one.requests.cpu_millicores, one.limits.cpu_millicores) for one in decision.containers}


def test_a_pod_starts_with_twice_its_size_and_records_its_later_size():
    cluster = Cluster(use(400))
    created = cluster.create(new_pod())
    assert created.containers[0].requests == make_amounts(800, 100)
    [boost] = find_startup_boosts(created)
    assert (boost.boosted_request, boost.request) == (800, 400)
    assert json.loads(created.annotations[STARTUP_BOOST]) == {"app": {"boosted": "800m", "request": "400m"}}
    assert json.loads(created.annotations[ORIGINAL_RESOURCES])["app"]["requests"]["cpu"] == "300m"


def test_a_container_may_have_its_own_and_others_none():
    pod = new_pod(
        make_container(cpu=300, settled=False),
        make_container("proxy", cpu=50, settled=False),
        annotations={"cruise.io/startup-cpu.app": "1500m"},
    )
    decision = Cluster(use(400), use(100, "proxy")).decide(pod)
    assert cpus(decision) == {"app": (1500, None), "proxy": (100, None)}


@pytest.mark.parametrize("rows", [(), (use(300),)], ids=["unknown", "no change needed"])
def test_a_pod_that_is_not_sized_starts_with_more_than_it_states(rows):
    pod = new_pod(make_container(cpu=300, memory_mib=100, settled=False))
    decision = Cluster(*rows).decide(pod)
    assert cpus(decision) == {"app": (600, None)}
    assert decision.admission_size is None


NO_BOOST = {
    "mode": (Cluster(use(), policy=replace(RESIZE, mode=Mode.INITIAL)), new_pod(), ReasonCode.MODE_INITIAL),
    "one container": (
        Cluster(use()),
        new_pod(annotations={**TWICE, "cruise.io/mode.app": "initial"}),
        ReasonCode.MODE_INITIAL,
    ),
    "memory only": (
        Cluster(use()),
        new_pod(annotations={**TWICE, "cruise.io/resources": "memory"}),
        ReasonCode.CPU_NOT_MANAGED,
    ),
    "grow": (Cluster(use()), new_pod(annotations={**TWICE, "cruise.io/direction": "grow"}), ReasonCode.CPU_NOT_MANAGED),
    "kubelet": (
        Cluster(use(), nodes=(make_node(), make_node("old", kubelet_version=(1, 32)))),
        new_pod(),
        ReasonCode.RESIZE_UNSUPPORTED,
    ),
    "restart": (
        Cluster(use()),
        new_pod(make_container(cpu=300, settled=False, cpu_resize_restarts=True)),
        ReasonCode.RESIZE_RESTARTS,
    ),
    "hpa": (Cluster(use(), autoscalers=[make_autoscaler()]), new_pod(), ReasonCode.MANAGED_BY_HPA),
    "node": (Cluster(use(), nodes=(make_node(cpu=700),)), new_pod(), ReasonCode.INSUFFICIENT_CAPACITY),
    "maximum": (Cluster(use()), new_pod(annotations={**TWICE, "cruise.io/cpu-max": "400m"}), ReasonCode.AT_MAXIMUM),
    "limit range": (
        Cluster(use(300), ranges=(LimitRangeItem(True, maximum=make_amounts(cpu_millicores=500)),)),
        new_pod(make_container(cpu=300, cpu_limit=300, settled=False)),
        ReasonCode.LIMIT_RANGE,
    ),
    "kept limit": (
        Cluster(use(400), policy=replace(RESIZE, cpu_limits=CpuLimitPolicy.KEEP)),
        new_pod(make_container(cpu=300, cpu_limit=400, settled=False)),
        ReasonCode.AT_MAXIMUM,
    ),
}


@pytest.mark.parametrize("name", NO_BOOST)
def test_no_pod_starts_with_a_boost_that_could_not_be_taken_back(name):
    cluster, pod, reason = NO_BOOST[name]
    decision = cluster.decide(pod)
    plain = cluster.decide(
        replace(pod, annotations={key: one for key, one in pod.annotations.items() if key not in TWICE})
    )
    assert decision == plain
    assert STARTUP_BOOST not in cluster.create(pod).annotations
    assert cluster.explain(pod) == {"app": reason}


def test_a_quota_without_capacity_for_the_start_allows_only_the_size():
    cluster = Cluster(use(), quotas=(ResourceQuota(StatedResources(cpu_millicores=500)),))
    assert cpus(cluster.decide(new_pod())) == {"app": (400, None)}
    assert cluster.explain(new_pod()) == {"app": ReasonCode.QUOTA_EXCEEDED}


def test_a_limit_rises_with_the_request_unless_it_is_kept():
    pod = new_pod(make_container(cpu=300, cpu_limit=600, settled=False))
    raised = Cluster(use(400), policy=replace(RESIZE, cpu_limits=CpuLimitPolicy.RAISE))
    [boost] = find_startup_boosts(raised.create(pod))
    assert (boost.boosted_request, boost.boosted_limit, boost.request, boost.limit) == (800, 1200, 400, 600)
    kept = Cluster(use(400), policy=replace(RESIZE, cpu_limits=CpuLimitPolicy.KEEP))
    assert cpus(kept.decide(pod)) == {"app": (600, 600)}


def test_a_guaranteed_pod_is_still_guaranteed():
    policy = replace(RESIZE, guaranteed=GuaranteedPolicy.RESIZE, memory_limits=MemoryLimitPolicy.ALWAYS)
    pod = new_pod(make_container(cpu=300, memory_mib=128, cpu_limit=300, memory_limit_mib=128, settled=False))
    assert pod.qos is QosClass.GUARANTEED
    created = Cluster(use(400), policy=policy).create(pod)
    [container] = created.containers
    assert created.qos is QosClass.GUARANTEED
    assert container.requests == container.limits
    assert container.requests.resources.cpu_millicores > 700
    static = make_node(static_managers=frozenset({ResourceName.CPU}))
    assert not find_startup_boosts(Cluster(use(400), policy=policy, nodes=(static,)).create(pod))
    # Unsized Guaranteed pods are left alone as a whole.
    assert isinstance(Cluster(use(400)).decide(pod), LeaveUnchanged)


@given(st.sampled_from(["1x", "2x", "3.3x", "10m", "700m", "2", "8"]), st.integers(10, 3000), st.booleans())
def test_deciding_again_changes_nothing(stated, peak, is_known):
    cluster = Cluster(*([use(peak)] if is_known else []))
    pod = new_pod(annotations={"cruise.io/startup-cpu": stated})
    created = cluster.create(pod)
    again = cluster.decide(created)
    assert isinstance(again, LeaveUnchanged)
    assert again.reason in (ReasonCode.NO_CHANGE_NEEDED, ReasonCode.NO_STATISTICS)
    assert cluster.create(created) == created
    # Another webhook adds a container: the start is not added twice.
    injected = replace(created, containers=(*created.containers, make_container("proxy", settled=False)))
    assert (
        cluster.create(injected).containers[0].requests.cpu_millicores <= created.containers[0].requests.cpu_millicores
    )


def test_a_pod_that_fits_no_node_does_not_wait_for_the_cpu_of_its_start():
    cluster = Cluster(use(400))
    created = replace(cluster.create(new_pod()), name="web-1", unschedulable_since=NOW)
    snapshot = replace(cluster.snapshot, pods=(created,))
    [resize], skipped = decide_unschedulable_pods(snapshot, cluster.table, RESIZE, NOW)
    assert not skipped
    assert [one.requests.cpu_millicores for one in resize.containers] == [400]


def test_a_pod_that_a_plan_places_starts_with_the_size_in_the_plan():
    pod = new_pod(owner_kind="ReplicaSet", owner_name="web-1")
    hint = PlacementHint("plan", "uid", "shop", "ReplicaSet", "web-1", None, "n1", NOW + timedelta(minutes=1))
    policy = replace(RESIZE, mode=Mode.FULL)
    for rows, size in (((use(),), 400), ((), 300)):
        admitter = PodAdmitter(Cluster().snapshot, make_table(*rows), {}, policy, NOW)
        assert admitter.admit(pod)[0].containers[0].requests.cpu_millicores == 2 * size
        placed, is_hinted = admitter.admit_with_placement_hint(pod, hint)
        assert is_hinted
        assert placed.containers[0].requests.cpu_millicores == size
        assert STARTUP_BOOST not in placed.annotations


def test_the_boost_of_a_pod_is_no_part_of_its_template():
    # It was sized to 400m, and started with the 1000m of its template.
    record = format_startup_boosts([StartupBoost("app", 1000, None, 400, None)])
    pod = make_pod(containers=(make_container(cpu=400),), annotations={STARTUP_BOOST: record})
    workload = make_workload(requests={"app": make_amounts(1000, 128)})
    created = recreate_from_template(pod, make_snapshot([pod], workloads=[workload]))
    assert settle_boosted_pod(created) is created
    assert created.containers[0].requests.cpu_millicores == 1000


LEARN = {"cruise.io/startup-cpu": "learn"}
LEARN_ALL = replace(RESIZE, startup=StartupPolicy.LEARN)


@pytest.mark.parametrize(
    ("policy", "annotations", "cpu"),
    [
        (RESIZE, LEARN, 1500),
        (LEARN_ALL, {}, 1500),
        (LEARN_ALL, {"cruise.io/startup-cpu": "2x"}, 800),
        (LEARN_ALL, {"cruise.io/startup-cpu": "off"}, 400),
        (LEARN_ALL, {"cruise.io/startup-cpu.app": "off"}, 400),
        (LEARN_ALL, {"cruise.io/cpu-max": "1"}, 1000),
        (RESIZE, {}, 400),
    ],
)
def test_a_pod_starts_with_what_earlier_starts_used_if_that_is_asked_for(policy, annotations, cpu):
    assert cpus(Cluster(use(400, cpu_start=1500), policy=policy).decide(new_pod(annotations=annotations))) == {
        "app": (cpu, None)
    }


NOT_LEARNED = {
    "unknown workload": ((), ReasonCode.NO_STATISTICS),
    "too few starts": ((use(),), ReasonCode.START_UNKNOWN),
    "no more than the size": ((use(400, cpu_start=300),), ReasonCode.NO_CHANGE_NEEDED),
    "stale": ((use(400, cpu_start=900, updated_at=NOW_SECONDS - 3600),), ReasonCode.STALE_STATISTICS),
    "implausible": ((use(400, cpu_start=900, rejected_percent=50),), ReasonCode.IMPLAUSIBLE_USAGE),
    "new workload": ((use(400, cpu_start=900, history_since=NOW_SECONDS - 60),), ReasonCode.NEW_WORKLOAD),
}


@pytest.mark.parametrize(("rows", "reason"), NOT_LEARNED.values(), ids=NOT_LEARNED)
def test_what_is_not_known_changes_nothing_and_says_why(rows, reason):
    cluster, pod = Cluster(*rows), new_pod(annotations=LEARN)
    plain = cluster.decide(replace(pod, annotations={}))
    assert cluster.decide(pod) == plain
    assert cluster.explain(pod) == {"app": reason}


@given(st.integers(0, 3500), st.integers(10, 3000), st.integers(10, 3000))
def test_a_learned_start_is_never_below_the_size_and_is_taken_back_to_it(start, peak, stated):
    cluster = Cluster(use(peak, cpu_start=start), policy=LEARN_ALL)
    pod = new_pod(make_container(cpu=stated, settled=False), annotations={})
    created = cluster.create(pod)
    settled = Cluster(use(peak, cpu_start=start)).create(pod)
    assert created.containers[0].requests.cpu_millicores == max(start, settled.containers[0].requests.cpu_millicores)
    assert settle_boosted_pod(created).containers == settled.containers
