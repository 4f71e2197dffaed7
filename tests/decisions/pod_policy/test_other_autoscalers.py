"""HPAs and VPAs: pods that certainly or possibly belong to them, and what is skipped."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod, decide_admission
from cruise.decisions.admission.node_index import NodeIndex
from cruise.decisions.pod_policy.eligibility import Eligibility
from cruise.decisions.pod_policy.other_autoscalers import NO_AUTOSCALER_CLAIMS, AutoscalerIndex
from cruise.decisions.pod_policy.resizable_pod import ResizablePod
from cruise.domain.actions import ReasonCode, SkippedPod
from cruise.domain.autoscalers import VpaContainerPolicy
from cruise.domain.cluster import (
    ClusterSnapshot,
    HorizontalPodAutoscaler,
    Pod,
    VerticalPodAutoscaler,
    Workload,
    WorkloadRef,
)
from cruise.domain.policy import SEED_RULES, Mode, Policy
from cruise.domain.reasons import ReasonDetailCode
from cruise.domain.resources import ResourceName
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from tests.builders import (
    NOW,
    make_autoscaler,
    make_container,
    make_node,
    make_pod,
    make_ref,
    make_snapshot,
    make_statistic,
    make_table,
    make_workload,
)

FULL = Policy(mode=Mode.FULL)
WEB = make_ref("Deployment/web")
VPA = VerticalPodAutoscaler("shop", "web", WEB, "InPlaceOrRecreate")
# As the operators of these kinds do it.
CONNECT = make_pod("web-connect-0", workload="StrimziPodSet/web-connect", labels={"strimzi.io/cluster": "web"})
CONFIG = make_pod("web-3-x2x4z", workload="ReplicationController/web-3", labels={"deploymentconfig": "web"})
CPU = frozenset({ResourceName.CPU})


def snapshot(
    *pods: Pod,
    autoscalers: Iterable[HorizontalPodAutoscaler] = (),
    vertical: Iterable[VerticalPodAutoscaler] = (),
    workloads: Iterable[Workload] | None = None,
    scales: dict[str, LabelSelector | None] | None = None,
    namespaces: frozenset[str] | None = None,
    unreadable: Iterable[str] = (),
) -> ClusterSnapshot:
    found = make_snapshot(pods, [make_node()], workloads, autoscalers=autoscalers)
    selectors = {("shop", make_ref(target)): selector for target, selector in (scales or {}).items()}
    return replace(
        found,
        vertical_autoscalers=tuple(vertical),
        scales=selectors,
        namespaces=namespaces,
        unreadable_scales={("shop", make_ref(target)): "forbidden" for target in unreadable},
    )


def verdict(pod: Pod, world: ClusterSnapshot) -> ResizablePod | SkippedPod:
    rows = [make_statistic(pod.name, workload=str(pod.workload))]
    return Eligibility(world, make_table(*rows), {}, FULL, NOW).check(pod)


def label(key: str, value: str) -> LabelSelector:
    return LabelSelector((LabelRequirement(key, SelectorOperator.IN, (value,)),))


@pytest.mark.parametrize(("target", "pod"), [("KafkaConnect/web", CONNECT), ("DeploymentConfig/web", CONFIG)])
def test_pods_of_a_kind_that_is_not_read_are_found_by_its_scale(target: str, pod: Pod) -> None:
    [(key, value)] = pod.labels.items()
    other = replace(pod, name="other", uid="other", labels={key: "other"})
    world = snapshot(pod, other, autoscalers=[make_autoscaler(target)], scales={target: label(key, value)})
    found = verdict(pod, world)
    assert isinstance(found, ResizablePod)
    assert (found.manages_cpu, found.manages_memory) == (False, True)
    found = verdict(other, world)
    assert isinstance(found, ResizablePod)
    assert found.manages_cpu


UNANSWERED = [make_autoscaler("KafkaConnect/web")], [replace(VPA, target=WorkloadRef("KafkaConnect", "web"))]


@pytest.mark.parametrize(("autoscalers", "vertical"), [(UNANSWERED[0], []), ([], UNANSWERED[1])])
@pytest.mark.parametrize(
    "pod",
    [
        CONNECT,
        make_pod("workers-1", workload="Deployment/workers", labels={"app": "workers"}),
        make_pod("db-0", workload="StatefulSet/db"),
    ],
)
def test_until_a_scale_is_read_every_pod_of_the_namespace_is_skipped(pod, autoscalers, vertical):
    workloads = [make_workload(str(pod.workload))]
    world = snapshot(pod, autoscalers=autoscalers, vertical=vertical, workloads=workloads)
    detail = ReasonDetailCode.SCALE_NOT_READ.create("KafkaConnect/web")
    assert verdict(pod, world) == SkippedPod("shop", pod.name, ReasonCode.LOOKUP_PENDING, detail)
    table = make_table(make_statistic("", workload=str(pod.workload)))
    created = replace(pod, node=None, phase="Pending")
    eligibility = Eligibility(world, table, {}, FULL, NOW)
    decision = decide_admission(created, eligibility, table, NodeIndex(world.nodes), (), FULL)
    assert decision == LeaveUnchanged(ReasonCode.LOOKUP_PENDING, detail)
    answered = replace(world, scales={("shop", WorkloadRef("KafkaConnect", "web")): label("app", "else")})
    assert isinstance(verdict(pod, answered), ResizablePod)


def test_an_unreadable_scale_excludes_only_the_resource_of_the_hpa():
    target = "KafkaConnect/web"
    workers = make_pod("workers-1", workload="Deployment/workers", labels={"app": "workers"})
    world = snapshot(CONNECT, workers, autoscalers=[make_autoscaler(target)], unreadable=[target])
    for pod in (CONNECT, workers):
        found = verdict(pod, world)
        assert isinstance(found, ResizablePod)
        assert (found.manages_cpu, found.manages_memory) == (False, True)
    assert AutoscalerIndex(world).find_for_pod(workers).scaled_by == ReasonDetailCode.SCALE_UNREADABLE.create(target)
    # The pods that a VPA on it sizes are unknown.
    sized = snapshot(workers, vertical=UNANSWERED[1], unreadable=[target])
    assert verdict(workers, sized) == SkippedPod(
        "shop", "workers-1", ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, ReasonDetailCode.SCALE_UNREADABLE.create(target)
    )


def test_an_unreadable_scale_of_a_known_controller_affects_no_other_pods():
    target = "CloneSet/web"
    own = make_pod("web-1", workload=target, owner_kind="CloneSet", owner_name="web")
    workers = make_pod("workers-1", workload="Deployment/workers")
    world = snapshot(own, workers, autoscalers=[make_autoscaler(target)], unreadable=[target])
    for pod, managed in ((own, False), (workers, True)):
        found = verdict(pod, world)
        assert isinstance(found, ResizablePod)
        assert (found.manages_cpu, found.manages_memory) == (managed, True)


def test_pods_that_cannot_belong_to_a_target_are_not_skipped_for_its_scale():
    other = make_pod("other-0", workload="KafkaConnect/other")
    elsewhere = make_pod("web-0", namespace="data")
    world = snapshot(other, elsewhere, autoscalers=[make_autoscaler("KafkaConnect/web")])
    assert isinstance(verdict(other, world), ResizablePod)
    assert AutoscalerIndex(world).find_for_pod(elsewhere) == NO_AUTOSCALER_CLAIMS


def test_pods_of_an_unseen_namespace_or_owner_are_skipped():
    pod = make_pod(workload="Deployment/web", owner_kind="ReplicaSet", owner_name="web-5d")
    known = snapshot(pod, workloads=[make_workload("Deployment/web")], namespaces=frozenset({"shop"}))
    assert isinstance(verdict(pod, known), ResizablePod)
    unseen = replace(known, namespaces=frozenset({"bank"}))
    assert verdict(pod, unseen) == SkippedPod(
        "shop", "web-1", ReasonCode.LOOKUP_PENDING, ReasonDetailCode.NAMESPACE_NOT_SEEN
    )
    for owner in ("Deployment/web", "ReplicaSet/web-5d", "Job/web"):
        kind = "Job" if owner.startswith("Job/") else "ReplicaSet"
        orphan = make_pod(workload=owner, owner_kind=kind, owner_name="web-5d")
        world = snapshot(orphan, workloads=[], namespaces=frozenset({"shop"}))
        detail = ReasonDetailCode.OWNER_NOT_SEEN.create(owner)
        assert verdict(orphan, world) == SkippedPod("shop", "web-1", ReasonCode.LOOKUP_PENDING, detail)
        # A snapshot from a file has no pending lookups.
        assert isinstance(verdict(orphan, replace(world, namespaces=None)), ResizablePod)


@pytest.mark.parametrize(("target", "pod"), [("KafkaConnect/web", CONNECT), ("DeploymentConfig/web", CONFIG)])
def test_without_a_scale_every_pod_that_the_target_could_own_is_skipped(target: str, pod: Pod) -> None:
    both = make_autoscaler(target, "shop", ResourceName.CPU, ResourceName.MEMORY)
    world = snapshot(pod, autoscalers=[both], scales={target: None})
    assert verdict(pod, world) == SkippedPod(
        "shop", pod.name, ReasonCode.MANAGED_BY_HPA, ReasonDetailCode.UTILISATION_MAY_BE_TARGETED.create("web")
    )


NO_SCALE: dict[str, LabelSelector | None] = {"KafkaConnect/web": None}
NOT_OWNED = {
    "a Deployment that nothing controls, of another name": (
        make_pod(workload="Deployment/shop"),
        [make_workload("Deployment/shop")],
    ),
    "another of the same kind": (make_pod(workload="KafkaConnect/other"), []),
    "of an operator of the same kind": (
        make_pod(workload="Deployment/other-connect"),
        [replace(make_workload("Deployment/other-connect"), controller=make_ref("KafkaConnect/other"))],
    ),
    "in another namespace": (make_pod(namespace="data", workload="StrimziPodSet/web"), []),
    "a bare pod": (make_pod(workload=None), []),
}
MAY_BE_OWNED = {
    "a Deployment named after it": (
        make_pod(workload="Deployment/web-connect"),
        [make_workload("Deployment/web-connect")],
    ),
    "a Deployment whose pods are labelled after it": (
        make_pod(workload="Deployment/x", labels={"strimzi.io/cluster": "web"}),
        [make_workload("Deployment/x")],
    ),
    "of another operator's kind": (make_pod(workload="StrimziPodSet/any"), []),
    "a Deployment that such a kind controls": (
        make_pod(workload="Deployment/any"),
        [replace(make_workload("Deployment/any"), controller=make_ref("Cluster/any"))],
    ),
    "a Deployment that was not seen": (make_pod(workload="Deployment/any"), []),
}


@pytest.mark.parametrize("case", NOT_OWNED)
def test_a_pod_that_certainly_belongs_to_another_target_is_sized(case: str) -> None:
    pod, workloads = NOT_OWNED[case]
    world = snapshot(pod, autoscalers=[make_autoscaler("KafkaConnect/web")], workloads=workloads, scales=NO_SCALE)
    assert AutoscalerIndex(world).find_for_pod(pod) == NO_AUTOSCALER_CLAIMS


@pytest.mark.parametrize("case", MAY_BE_OWNED)
def test_a_pod_that_may_belong_to_the_target_is_not_sized(case: str) -> None:
    pod, workloads = MAY_BE_OWNED[case]
    world = snapshot(pod, autoscalers=[make_autoscaler("KafkaConnect/web")], workloads=workloads, scales=NO_SCALE)
    assert AutoscalerIndex(world).find_for_pod(pod).scaled == CPU


def test_a_target_owns_the_pods_that_it_controls_at_any_level() -> None:
    pod = make_pod(workload="Deployment/web-connect", owner_kind="ReplicaSet", owner_name="web-connect-5d")
    owned = replace(make_workload("Deployment/web-connect"), controller=make_ref("KafkaConnect/web"))
    for target in ("ReplicaSet/web-connect-5d", "Deployment/web-connect", "KafkaConnect/web"):
        world = snapshot(pod, autoscalers=[make_autoscaler(target)], workloads=[owned])
        assert AutoscalerIndex(world).find_for_pod(pod).scaled_by == ReasonDetailCode.UTILISATION_TARGETED.create("web")


def test_a_plain_kind_has_its_own_pods_and_no_others() -> None:
    pods = make_pod(workload="Deployment/web"), make_pod("web-x", workload="StrimziPodSet/web")
    world = snapshot(*pods, autoscalers=[make_autoscaler("Deployment/web")])
    assert [AutoscalerIndex(world).find_for_pod(pod).scaled for pod in pods] == [CPU, frozenset()]


def test_an_hpa_that_targets_no_utilisation_claims_nothing() -> None:
    scaler = HorizontalPodAutoscaler("shop", "web", make_ref("KafkaConnect/web"), frozenset())
    assert AutoscalerIndex(snapshot(CONNECT, autoscalers=[scaler])).find_for_pod(CONNECT) == NO_AUTOSCALER_CLAIMS


@pytest.mark.parametrize("mode", ["", "Auto", "Recreate", "Initial", "InPlaceOrRecreate", "InPlace"])
def test_a_pod_that_a_vpa_sizes_is_skipped_and_created_unchanged(mode: str) -> None:
    pod = make_pod()
    world = snapshot(pod, vertical=[replace(VPA, mode=mode)])
    detail = ReasonDetailCode.SIZED_BY_VPA.create("web")
    assert verdict(pod, world) == SkippedPod("shop", "web-1", ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, detail)
    statistics = make_table(make_statistic(""))
    eligibility = Eligibility(world, statistics, {}, FULL, NOW)
    created = replace(pod, node=None, phase="Pending")
    decision = decide_admission(created, eligibility, statistics, NodeIndex(world.nodes), (), FULL)
    assert decision == LeaveUnchanged(ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, detail)


@pytest.mark.parametrize(
    "harmless",
    [
        replace(VPA, mode="Off"),
        replace(VPA, is_own=True),
        replace(VPA, target=None),
        replace(VPA, target=make_ref("Deployment/other")),
        replace(VPA, namespace="data"),
    ],
)
def test_a_vpa_that_does_not_size_a_pod_skips_nothing(harmless: VerticalPodAutoscaler) -> None:
    assert isinstance(verdict(make_pod(), snapshot(make_pod(), vertical=[harmless])), ResizablePod)


def test_a_vpa_on_an_unread_kind_skips_the_pods_that_it_may_size() -> None:
    vertical = replace(VPA, target=WorkloadRef("KafkaConnect", "web"))
    assert verdict(CONNECT, snapshot(CONNECT, vertical=[vertical], scales=NO_SCALE)) == SkippedPod(
        "shop", CONNECT.name, ReasonCode.MANAGED_BY_OTHER_AUTOSCALER, ReasonDetailCode.MAY_BE_SIZED_BY_VPA.create("web")
    )
    known: dict[str, LabelSelector | None] = {"KafkaConnect/web": label("strimzi.io/cluster", "else")}
    assert isinstance(verdict(CONNECT, snapshot(CONNECT, vertical=[vertical], scales=known)), ResizablePod)


def test_a_vpa_next_to_an_hpa_skips_the_whole_pod() -> None:
    world = snapshot(make_pod(), autoscalers=[make_autoscaler()], vertical=[VPA])
    found = verdict(make_pod(), world)
    assert isinstance(found, SkippedPod)
    assert found.reason is ReasonCode.MANAGED_BY_OTHER_AUTOSCALER


BOTH, MEMORY = frozenset(ResourceName), frozenset({ResourceName.MEMORY})
NONE: frozenset[ResourceName] = frozenset()
# Rules of a VPA, and what it leaves of the containers app and proxy.
LEFT = {
    "no rules": ((), NONE, NONE),
    "one container off": ((VpaContainerPolicy("proxy", is_off=True),), NONE, BOTH),
    "all others off": ((VpaContainerPolicy(is_off=True), VpaContainerPolicy("app")), NONE, BOTH),
    "one resource": ((VpaContainerPolicy(controlled_resources=CPU),), MEMORY, MEMORY),
    "one resource of one container": ((VpaContainerPolicy("app", controlled_resources=CPU),), MEMORY, NONE),
    "its own rule comes first": (
        (VpaContainerPolicy(controlled_resources=CPU), VpaContainerPolicy("app")),
        NONE,
        MEMORY,
    ),
    "no resource": ((VpaContainerPolicy("app", controlled_resources=NONE),), BOTH, NONE),
    "another container": ((VpaContainerPolicy("other", is_off=True),), NONE, NONE),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_a_vpa_does_not_control_is_sized(name: str) -> None:
    rules, app, proxy = LEFT[name]
    pod = make_pod(containers=(make_container(), make_container("proxy")))
    world = snapshot(pod, vertical=[replace(VPA, rules=rules)])
    rows = [make_statistic(pod_name, container=one) for pod_name in ("web-1", "") for one in ("app", "proxy")]
    statistics = make_table(*rows)
    eligibility = Eligibility(world, statistics, {}, FULL, NOW)
    found = eligibility.check(pod)
    expected = {one: own for one, own in (("app", app), ("proxy", proxy)) if own}
    created = replace(pod, node=None, phase="Pending")
    decision = decide_admission(created, eligibility, statistics, NodeIndex(world.nodes), (), FULL)
    if not expected:
        assert isinstance(found, SkippedPod)
        assert (found.reason, found.detail) == (
            ReasonCode.MANAGED_BY_OTHER_AUTOSCALER,
            ReasonDetailCode.SIZED_BY_VPA.create("web"),
        )
        assert decision == LeaveUnchanged(found.reason, found.detail)
        return
    assert isinstance(found, ResizablePod)
    managed = found.managed_by_container or [expected[found.sized[0].name]] * len(found.sized)
    assert {one.name: own for one, own in zip(found.sized, managed, strict=True)} == expected
    assert isinstance(decision, MutatePod)
    for target in decision.containers:
        stated = next(one for one in pod.containers if one.name == target.container)
        for resource in BOTH - expected[target.container]:
            assert target.requests.get(resource) == stated.requests.get(resource)
            assert target.limits.get(resource) == stated.limits.get(resource)
    assert {one.container for one in decision.containers} == expected.keys()
    # What the VPA will request elsewhere is not known.
    assert eligibility.explain_not_evictable_for_sizing(pod, found.effective_policy)
    if expected != {"proxy": BOTH}:
        return
    # The first rule set skips the pod, and so does a VPA that only may size it, or a second one.
    assert isinstance(Eligibility(world, statistics, {}, replace(FULL, rules=SEED_RULES), NOW).check(pod), SkippedPod)
    two = snapshot(pod, vertical=[replace(VPA, rules=rules), replace(VPA, name="second", rules=rules)])
    assert isinstance(Eligibility(two, statistics, {}, FULL, NOW).check(pod), SkippedPod)
