"""Admission of one pod: mode, annotations, and that a second admission changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import ORIGINAL_RESOURCES, Overrides
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import Container, Pod, VerticalPodAutoscaler, WorkloadRef
from cruise.domain.original_resources import parse_original_resources, read_signed_original_resources
from cruise.domain.policy import Mode, Policy
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.runtime.admission import PodAdmitter
from tests.builders import (
    NOW,
    make_amounts,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

TABLE = make_table(make_statistic("", cpu_peak=400, memory_peak_mib=300, memory_7d_max_mib=350))


def new_pod(**fields) -> Pod:
    containers = [make_container(cpu=100, memory_mib=128, cpu_limit=200, settled=False)]
    return make_pod("", node=None, containers=containers, **fields)


def admit(pod: Pod, mode=Mode.INITIAL, paused=None, **snapshot) -> tuple[Pod, MutatePod | LeaveUnchanged]:
    whole = make_snapshot([], nodes=[make_node()], workloads=[make_workload()], **snapshot)
    return PodAdmitter(whole, TABLE, paused or {}, Policy(mode=mode), NOW).admit(pod)


def test_the_pod_is_created_with_other_sizes_and_its_own_record():
    pod = new_pod()
    created, decision = admit(pod)
    assert isinstance(decision, MutatePod)
    [container] = created.containers
    assert (container.requests, container.limits) == (make_amounts(400, 300), make_amounts())
    original = parse_original_resources(created.annotations[ORIGINAL_RESOURCES])
    assert original == {"app": (make_amounts(100, 128), make_amounts(200, None))}
    assert replace(created, containers=pod.containers, annotations={}) == pod


# Those that come with an operator of their own, and are found by its label.
VPA = VerticalPodAutoscaler("shop", "web", WorkloadRef("KafkaConnect", "web"), "Initial")
BOX = "StrimziPodSet/box"
BOX_TABLE = make_table(make_statistic("", workload=BOX, cpu_peak=400, memory_peak_mib=300))
LABELS: list[dict[str, str]] = [{}, {"app": "web"}, {"strimzi.io/cluster": "web"}]
ANNOTATIONS: list[dict[str, str]] = [{}, {"cruise.io/mode": "off"}, {"cruise.io/cpu-max": "150m"}]
pods = st.builds(
    lambda cpu, labels, annotations, owner: make_pod(
        "",
        node=None,
        containers=[make_container(cpu=cpu, memory_mib=128, settled=False)],
        labels=labels,
        annotations=annotations,
        owner_name=owner,
        workload=BOX,
    ),
    st.sampled_from([100, 400]),
    st.sampled_from(LABELS),
    st.sampled_from(ANNOTATIONS),
    st.sampled_from(["web-7d9f8b6c5d", "web-85f6c9d7b8", None]),
)


BY_LABEL = RightsizingPolicy(
    "shop",
    "web",
    PolicySelector(pod_labels=LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("web",)),))),
    Overrides(mode=Mode.OFF),
)


@given(st.lists(pods, max_size=8), st.sampled_from([(), (VPA,)]), st.sampled_from([(), (BY_LABEL,)]))
def test_what_was_decided_before_decides_nothing(drawn, vertical, policies):
    world = make_snapshot([], nodes=[make_node()], workloads=[make_workload(BOX)])
    world = replace(world, vertical_autoscalers=vertical, rightsizing_policies=policies)
    # Equal parts of pods are one object, as they are where pods are read.
    shared: dict[Container, Container] = {}
    policy = Policy(mode=Mode.INITIAL)
    several = PodAdmitter(world, BOX_TABLE, {}, policy, NOW)
    for number, pod in enumerate(drawn):
        containers = tuple(shared.setdefault(one, one) for one in pod.containers)
        one = replace(pod, containers=containers)
        if number == 5:
            several.forget_pods()
        eligibility = Eligibility(world, BOX_TABLE, {}, policy, NOW)
        alone = decide_admission(one, eligibility, BOX_TABLE, NodeIndex(world.known_nodes), (), policy)
        assert several.admit(one)[1] == alone


def test_a_revision_of_which_labels_and_owner_alone_are_new_is_decided_on_once():
    admitter = PodAdmitter(make_snapshot([], nodes=[make_node()]), TABLE, {}, Policy(mode=Mode.INITIAL), NOW)
    pod = new_pod()
    first, decision = admitter.admit(pod)
    created, again = admitter.admit(replace(pod, labels={"pod-template-hash": "x"}, owner_name="web-x"))
    assert again is decision
    assert created == replace(first, labels={"pod-template-hash": "x"}, owner_name="web-x")
    assert admitter.admit(replace(pod, annotations={"cruise.io/mode": "off"}))[1] == LeaveUnchanged(ReasonCode.MODE_OFF)


@pytest.mark.parametrize("mode", [Mode.OFF, Mode.OBSERVE])
def test_below_mode_initial_the_pod_is_created_unchanged(mode):
    pod = new_pod()
    created, decision = admit(pod, mode)
    assert created == pod
    assert isinstance(decision, LeaveUnchanged)


def test_a_second_admission_changes_nothing():
    created, _ = admit(new_pod())
    again, decision = admit(created)
    assert again == created
    assert decision == LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED)


def test_the_first_record_of_original_resources_is_kept():
    created, _ = admit(new_pod())
    grown = replace(created, containers=(make_container(cpu=900, memory_mib=900, settled=False),))
    again, decision = admit(grown)
    assert isinstance(decision, MutatePod)
    assert again.annotations[ORIGINAL_RESOURCES] == created.annotations[ORIGINAL_RESOURCES]


def test_what_was_replaced_is_signed_for_the_pods_of_one_controller():
    pod = new_pod()
    whole = make_snapshot([], nodes=[make_node()], workloads=[make_workload()])
    admitter = PodAdmitter(whole, TABLE, {}, Policy(mode=Mode.INITIAL), NOW, [b"new", b"old"])
    created, _ = admitter.admit(pod)
    assert read_signed_original_resources(created, [b"new"]) == {
        "app": (make_amounts(100, 128), make_amounts(200, None))
    }
    assert read_signed_original_resources(created, [b"old"]) is None
    for other in (
        replace(created, namespace="other"),
        replace(created, owner_name="web-2"),
        replace(created, owner_kind="Job"),
    ):
        assert read_signed_original_resources(other, [b"new"]) is None
    # The annotations of users are not signed afterwards.
    forged = replace(pod, annotations={ORIGINAL_RESOURCES: created.annotations[ORIGINAL_RESOURCES]})
    again, _ = admitter.admit(forged)
    assert again.annotations == forged.annotations
    # A later look keeps both.
    assert admitter.admit(created)[0] == created


def test_pauses_and_limit_ranges_of_the_namespace_count():
    paused = {("shop", make_ref("Deployment/web")): NOW}
    assert admit(new_pod(), paused=paused)[1] == LeaveUnchanged(ReasonCode.MODE_OBSERVE)
    ranges = {
        "shop": (LimitRangeItem(False, maximum=make_amounts(None, 400)),),
        "other": (LimitRangeItem(False, maximum=make_amounts(50, 50)),),
    }
    created, _ = admit(new_pod(), limit_ranges=ranges)
    assert created.containers[0].limits == make_amounts(None, 400)
    tight = {"shop": (LimitRangeItem(False, maximum=make_amounts(None, 200)),)}
    assert admit(new_pod(), limit_ranges=tight)[1] == LeaveUnchanged(ReasonCode.LIMIT_RANGE)
