from dataclasses import replace

import pytest

from cruise.domain.actions import ActionResult, ContainerTarget, Outcome, PodEvent, ReasonCode, SkippedPod, TaintNode
from cruise.domain.cluster import Container, ContainerRole, Pod, WorkloadRef
from cruise.domain.resources import NOTHING_STATED
from cruise.domain.users import UserAction, UserActionKind
from cruise.interfaces.events import build_pod_events, describe_user_action
from tests.simulation.scenes import START, amounts, evict, resize

WEB = WorkloadRef("Deployment", "web")


def pod(name: str = "web-1", *containers: Container) -> Pod:
    there = containers or (Container("app", requests=amounts(500, 512), limits=amounts(None, 1024)),)
    return Pod("shop", name, f"uid-{name}", there, node="n1", workload=WEB)


def announced(*outcomes: Outcome, holds=(), of=None) -> list[PodEvent]:
    of = [pod()] if of is None else of
    return build_pod_events(outcomes, holds, {(one.namespace, one.name): one for one in of})


def done(action, verdict=ActionResult.DONE, reason=ReasonCode.RIGHTSIZED, detail="") -> Outcome:
    return Outcome(START, action, verdict, reason, detail)


def test_a_resize_says_what_it_changed_and_why():
    action = resize(pod(), amounts(130, 270), amounts(None, 1024))
    assert announced(done(action)) == [
        PodEvent(
            "shop",
            "web-1",
            "uid-web-1",
            ReasonCode.RIGHTSIZED,
            "cpu 500m -> 130m, memory 512Mi -> 270Mi: sized by its usage",
            False,
        )
    ]
    with_limit = resize(pod(), amounts(2000, 512), amounts(4000, 540))
    [told] = announced(done(replace(with_limit, reason=ReasonCode.OOM_KILLED), detail="for now"))
    assert told.message == (
        "cpu 500m -> 2000m, cpu limit 4000m, memory limit 1024Mi -> 540Mi: after an OOM kill (for now)"
    )


def test_containers_are_named_where_there_are_several():
    several = pod("web-1", *(Container(name, requests=amounts(500, 512)) for name in ("app", "proxy", "quiet")))
    targets = (
        ContainerTarget("app", ContainerRole.MAIN, amounts(100, 512), NOTHING_STATED),
        ContainerTarget("proxy", ContainerRole.MAIN, amounts(500, 100), NOTHING_STATED),
        ContainerTarget("quiet", ContainerRole.MAIN, amounts(500, 512), NOTHING_STATED),
    )
    [told] = announced(done(replace(resize(several), containers=targets)), of=[several])
    assert told.message == "app cpu 500m -> 100m; proxy memory 512Mi -> 100Mi: sized by its usage"


def test_of_many_containers_the_first_are_listed():
    many = pod("web-1", *(Container(f"c{number}", requests=amounts(500)) for number in range(9)))
    targets = tuple(ContainerTarget(one.name, one.role, amounts(10), NOTHING_STATED) for one in many.containers)
    [told] = announced(done(replace(resize(many), containers=targets)), of=[many])
    assert told.message.endswith("c3 cpu 500m -> 10m; and 5 more: sized by its usage")


@pytest.mark.parametrize("of", [(), (replace(pod(), uid="another"),)])
def test_without_the_previous_pod_only_the_new_sizes_are_reported(of):
    [told] = announced(done(resize(pod(), amounts(130, 270))), of=of)
    assert told.message == "cpu 130m, memory 270Mi: sized by its usage"


def test_an_eviction_and_refusals():
    [gone] = announced(done(evict(pod()), reason=ReasonCode.NODE_OVER_CAPACITY))
    assert (gone.message, gone.warning) == ("evicted: its node cannot hold all of its pods (memory)", False)
    [moved] = announced(
        done(
            replace(evict(pod()), reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS),
            reason=ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
        )
    )
    assert moved.message == "evicted: frees capacity for pending pods"
    [stays] = announced(
        done(evict(pod()), ActionResult.REFUSED, ReasonCode.POD_DISRUPTION_BUDGET, "would violate the budget")
    )
    assert (stays.message, stays.warning, stays.reason) == (
        "not evicted: would violate the budget",
        True,
        ReasonCode.POD_DISRUPTION_BUDGET,
    )
    [refused] = announced(
        done(resize(pod(), amounts(130)), ActionResult.REFUSED, ReasonCode.RESIZE_REFUSED, "is invalid")
    )
    assert refused.message == "not resized (cpu 500m -> 130m): is invalid"


def test_an_invalid_annotation_is_reported_on_the_pod():
    hold = SkippedPod(
        "shop", "web-1", ReasonCode.UNREADABLE_ANNOTATION, 'pod: cruise.io/cpu-max: "x" is not a quantity'
    )
    assert announced(holds=[hold, replace(hold, pod="unknown"), replace(hold, reason=ReasonCode.GUARANTEED)]) == [
        PodEvent(
            "shop",
            "web-1",
            "uid-web-1",
            ReasonCode.UNREADABLE_ANNOTATION,
            'not resized: annotation of the pod: cruise.io/cpu-max: "x" is not a quantity',
            True,
        )
    ]


def test_actions_that_were_not_done_and_nodes_get_no_event():
    action = resize(pod(), amounts(130))
    others = [done(action, verdict) for verdict in (ActionResult.OBSERVED, ActionResult.SKIPPED, ActionResult.FAILED)]
    assert announced(*others, done(TaintNode("n1", ReasonCode.OVERLOADED))) == []
    # The operator's business.
    assert announced(done(action, ActionResult.REFUSED, ReasonCode.FORBIDDEN)) == []


def test_one_line_a_pod_sorted_by_name_and_never_too_long():
    first, second = pod("a"), pod("b")
    refused = done(resize(second, amounts(1)), ActionResult.REFUSED, ReasonCode.RESIZE_REFUSED, "x" * 5000)
    hold = SkippedPod("shop", "a", ReasonCode.UNREADABLE_ANNOTATION, "y" * 5000)
    told = announced(refused, done(resize(second, amounts(2))), holds=[hold], of=[first, second])
    assert [one.pod for one in told] == ["a", "b"]
    assert told[1].reason is ReasonCode.RESIZE_REFUSED
    assert all(len(one.message.encode()) < 1024 for one in told)


@pytest.mark.parametrize(
    ("namespace", "workload", "subject"),
    [
        ("shop", WorkloadRef("Deployment", "web"), "this workload"),
        ("shop", None, "namespace shop"),
        (None, None, "all namespaces"),
    ],
)
def test_a_written_policy_names_what_it_selects(namespace, workload, subject):
    action = UserAction(START, "ann", UserActionKind.PUT_POLICY, namespace, workload, '{"mode":"off"}')
    assert describe_user_action(action) == f'ann wrote the policy of {subject}: {{"mode":"off"}}'
