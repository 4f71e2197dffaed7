"""Which pods get a placement hint, for which node, and with which sizes."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.admission import LeaveUnchanged, MutatePod
from cruise.decisions.admission.placement_hints import (
    apply_placement_hint,
    find_placement_hint,
    tolerate_preferred_taints,
)
from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import PLACEMENT_HINT, parse_placement_hint
from cruise.domain.autoscalers import LimitRangeItem
from cruise.domain.cluster import ContainerRole
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.resources import NOTHING_STATED
from cruise.domain.scheduling import (
    UNCONSTRAINED_SCHEDULING,
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    TaintEffect,
    Toleration,
)
from tests.builders import NOW, make_amounts, make_container, make_pod

TARGET = ContainerTarget("app", ContainerRole.MAIN, make_amounts(300, 200), make_amounts(None, 400))
ONE = PlacementHint("plan", "uid-old", "shop", "ReplicaSet", "web-1", None, "n7", NOW + timedelta(minutes=1))
POD = make_pod("", node=None, owner_kind="ReplicaSet", owner_name="web-1")
MUTATED = MutatePod(())


@pytest.mark.parametrize(
    "change",
    [
        {"namespace": "other"},
        {"owner_name": "web-2"},
        {"owner_kind": "StatefulSet"},
        {"owner_name": None},
        {"annotations": {PLACEMENT_HINT: "uid-old n7"}},
        {"node": "n1"},
        {
            "placement": SchedulingConstraints(
                terms=(NodeSelectorTerm(fields=(LabelRequirement("metadata.name", SelectorOperator.IN, ("n1",)),)),)
            )
        },
    ],
    ids=str,
)
def test_a_hint_applies_only_to_unbound_pods_of_its_owner(change):
    assert find_placement_hint(POD, [ONE], NOW) is ONE
    assert find_placement_hint(replace(POD, **change), [ONE], NOW) is None


def test_an_expired_hint_does_not_apply():
    assert find_placement_hint(POD, [replace(ONE, expires_at=NOW)], NOW) is None


def test_a_hint_for_a_stateful_set_applies_by_pod_name():
    one = replace(ONE, owner_kind="StatefulSet", pod="db-1")
    pod = replace(POD, owner_kind="StatefulSet", name="db-1")
    assert find_placement_hint(pod, [one], NOW) is one
    assert find_placement_hint(replace(pod, name="db-2"), [one], NOW) is None


def test_a_hinted_pod_names_the_replaced_pod_and_gets_no_second_hint():
    found = apply_placement_hint(POD, POD, MUTATED, ONE)
    assert found is not None
    assert found.annotations[PLACEMENT_HINT] == "uid-old n7"
    assert parse_placement_hint(found.annotations[PLACEMENT_HINT])[1] == "n7"
    assert find_placement_hint(found, [ONE], NOW) is None
    assert replace(found, annotations={}) == POD


@pytest.mark.parametrize(
    "reason", [ReasonCode.MODE_OFF, ReasonCode.EXCLUDED_NAMESPACE, ReasonCode.UNREADABLE_ANNOTATION]
)
def test_a_skipped_pod_gets_no_hint(reason):
    assert apply_placement_hint(POD, POD, LeaveUnchanged(reason), ONE) is None


@given(
    cpu=st.integers(1, 3000),
    limit=st.none() | st.integers(1, 3000),
    decision=st.sampled_from(
        [MUTATED, LeaveUnchanged(ReasonCode.NO_CHANGE_NEEDED), LeaveUnchanged(ReasonCode.NO_STATISTICS)]
    ),
)
def test_planned_sizes_replace_the_peaks_and_no_request_exceeds_its_limit(cpu, limit, decision):
    created = replace(POD, containers=(make_container(cpu=cpu, cpu_limit=limit, memory_mib=100, memory_limit_mib=100),))
    found = apply_placement_hint(POD, created, decision, replace(ONE, containers=(TARGET,)))
    assert found is not None
    [container] = found.containers
    if isinstance(decision, LeaveUnchanged) and decision.reason is ReasonCode.NO_STATISTICS:
        assert container == created.containers[0]
        return
    if container == created.containers[0]:
        # Only if the sizes would make the pod Guaranteed.
        assert limit is not None
        return
    assert (container.requests.cpu_millicores, container.requests.memory_bytes) == (300, 200 << 20)
    assert container.limits.memory_bytes == 400 << 20
    assert container.limits.cpu_millicores == (None if limit is None else max(limit, 300))


def test_planned_sizes_that_violate_a_limit_range_are_omitted_and_the_node_is_not():
    ranges = (LimitRangeItem(False, maximum=make_amounts(200, 10_000)),)
    found = apply_placement_hint(POD, POD, MUTATED, replace(ONE, containers=(TARGET,)), ranges)
    assert found is not None
    assert (found.containers, parse_placement_hint(found.annotations[PLACEMENT_HINT])[1]) == (POD.containers, "n7")


def test_unplanned_sizes_stay():
    target = replace(TARGET, requests=make_amounts(300), limits=NOTHING_STATED)
    found = apply_placement_hint(POD, POD, MUTATED, replace(ONE, containers=(target,)))
    assert found is not None
    assert found.containers[0].requests == make_amounts(300, 128)


def test_prefer_no_schedule_taints_do_not_outweigh_the_node():
    avoid, forbid = (Taint("a", "x", TaintEffect.PREFER_NO_SCHEDULE), Taint("b", "y", TaintEffect.NO_SCHEDULE))
    found = apply_placement_hint(POD, POD, MUTATED, ONE, taints=(avoid, avoid, forbid))
    assert found is not None
    # Taints with effect NoSchedule are not tolerated.
    assert found.placement.tolerations == (Toleration("a", exists=True, effect=TaintEffect.PREFER_NO_SCHEDULE),)
    assert tolerate_preferred_taints(found.placement, (avoid, forbid)) is found.placement
    assert tolerate_preferred_taints(UNCONSTRAINED_SCHEDULING, (forbid,)) is UNCONSTRAINED_SCHEDULING
