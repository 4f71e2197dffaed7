"""Each expected pod gets its placement hint once, whatever the order of reviews."""

import copy
from dataclasses import replace
from datetime import datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.actions import ContainerTarget, ReasonCode
from cruise.domain.annotations import PLACEMENT_HINT
from cruise.domain.cluster import ContainerRole
from cruise.domain.packing_plan import PlacementHint
from cruise.domain.policy import Mode, Policy
from cruise.domain.scheduling import Taint, TaintEffect
from cruise.kube_json.objects.owners import NO_OWNERS
from cruise.runtime.admission import ExpectedPods, PodAdmitter
from cruise.runtime.admission_reviewer import HINTED as STEERED_VERDICT
from cruise.runtime.admission_reviewer import PATCH_DIFFERS, AdmissionReviewer
from tests.admission_reviews import (
    TABLE,
    apply_response_patch,
    build_submitted_pods,
    decode_response,
    encode_review,
    get_patch,
    make_admitter,
    make_review,
)
from tests.builders import NOW, make_amounts, make_node, make_pod_json, make_snapshot

TARGET = ContainerTarget("app", ContainerRole.MAIN, make_amounts(120, 200), make_amounts())


def steering(number: int = 0, owner: str = "web-7d9f8b6c5d", **fields) -> PlacementHint:
    one = PlacementHint(
        "plan", f"uid-{number}", "shop", "ReplicaSet", owner, None, f"n{number}", NOW + timedelta(minutes=1)
    )
    return replace(one, **fields)


class Desk:
    """A reviewer in mode full with a clock, and what it expects."""

    def __init__(self, *steerings: PlacementHint, mode: Mode = Mode.FULL, unpatched: ReasonCode | None = None) -> None:
        self.now: datetime = NOW
        self.expected = ExpectedPods(lambda: self.now, lambda: self.now.timestamp())
        self.expected.replace(steerings)
        self.reviewer = AdmissionReviewer(self.expected, budget_seconds=60)
        self.reviewer.set_state(make_admitter(mode=mode), NO_OWNERS, unpatched)

    def ask(self, pod, **request):
        """The pod as it is created, and the response."""
        response = decode_response(self.reviewer.review(encode_review(make_review(pod, **request))))
        return apply_response_patch(pod, get_patch(response))


def submitted(**fields):
    return make_pod_json(name="", node=None, **fields)


def node_of(pod) -> str | None:
    """The node that a pod prefers by name."""
    terms = (
        pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get("preferredDuringSchedulingIgnoredDuringExecution")
    )
    return terms[-1]["preference"]["matchFields"][0]["values"][0] if terms else None


def test_only_as_many_pods_get_placement_hints_as_are_expected():
    desk = Desk(steering(1), steering(2))
    assert [node_of(desk.ask(submitted())) for _ in range(3)] == ["n1", "n2", None]
    assert desk.reviewer.counts.answers[STEERED_VERDICT] == 2


def test_a_dry_run_takes_nobodys_place():
    desk = Desk(steering(1))
    assert [node_of(desk.ask(submitted(), dryRun=True)) for _ in range(3)] == ["n1", "n1", "n1"]
    assert [node_of(desk.ask(submitted())) for _ in range(2)] == ["n1", None]


def test_a_pod_gets_only_one_placement_hint():
    desk = Desk(steering(1), steering(2))
    created = desk.ask(submitted())
    again = desk.ask(copy.deepcopy(created))
    assert again == created
    assert node_of(desk.ask(submitted())) == "n2"


def test_a_pod_that_was_never_created_leaves_its_place_to_the_next():
    desk = Desk(steering(1))
    assert node_of(desk.ask(submitted())) == "n1"
    desk.now += timedelta(seconds=5)
    assert node_of(desk.ask(submitted())) is None
    desk.now += timedelta(seconds=6)
    assert node_of(desk.ask(submitted())) == "n1"
    desk.expected.replace(())
    desk.now += timedelta(seconds=20)
    assert node_of(desk.ask(submitted())) is None


def test_below_mode_full_and_while_paused_no_pod_gets_a_placement_hint():
    assert node_of(Desk(steering(1), mode=Mode.RESIZE).ask(submitted())) is None
    assert node_of(Desk(steering(1), unpatched=ReasonCode.PAUSED).ask(submitted())) is None


def test_planned_sizes_are_those_it_is_created_with():
    desk = Desk(steering(1, containers=(TARGET,)))
    created = desk.ask(submitted())
    assert created["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "120m", "memory": "200Mi"}
    assert created["metadata"]["annotations"][PLACEMENT_HINT] == "uid-1 n1"


def test_others_are_answered_from_memory_as_before():
    desk = Desk(steering(1, owner="api-1"))
    for _ in range(3):
        assert node_of(desk.ask(submitted())) is None
    assert desk.reviewer.counts.from_cache == 2


@given(build_submitted_pods())
def test_any_submitted_pod_gets_a_valid_placement_hint_or_none(pod):
    pod["metadata"]["ownerReferences"] = submitted()["metadata"]["ownerReferences"]
    desk = Desk(steering(1))
    before = copy.deepcopy(pod)
    created = desk.ask(pod)
    assert not desk.reviewer.counts.answers[PATCH_DIFFERS]
    if node_of(created) is not None:
        created["metadata"]["annotations"].pop(PLACEMENT_HINT)
        assert created["spec"].get("nodeSelector") == before["spec"].get("nodeSelector")


@given(st.booleans())
def test_a_pinned_pod_gets_no_placement_hint(nested):
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n9"]}]
    required = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    created = Desk(steering(1)).ask(submitted(spec={"affinity": affinity} | ({"priority": 3} if nested else {})))
    assert node_of(created) is None


def test_a_prefer_no_schedule_taint_does_not_block_a_hinted_pod():
    avoid = Taint("spot", "yes", TaintEffect.PREFER_NO_SCHEDULE)
    snapshot = make_snapshot([], nodes=[make_node("n1", taints=(avoid,))])
    admitter = PodAdmitter(snapshot, TABLE, {}, Policy(mode=Mode.FULL), NOW)
    desk = Desk(steering(1), steering(2))
    desk.reviewer.set_state(admitter, NO_OWNERS, None)
    tolerated = {"key": "spot", "operator": "Exists", "effect": "PreferNoSchedule"}
    assert desk.ask(submitted())["spec"]["tolerations"] == [tolerated]
    # The other pod's node has no such taint, and there is no node of that name.
    assert "tolerations" not in desk.ask(submitted())["spec"]
