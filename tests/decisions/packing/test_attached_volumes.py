"""Volumes that are still attached for deleted pods count against attach limits, and cause no evictions."""

import pytest

from cruise.domain.packing_plan import PackingProposal
from cruise.packer.answer import PackingStatus
from tests.builders import Json
from tests.decisions.packing.test_truth_at_the_edges import OBJECTIVES, a_node, a_pod, on_claim, placed, planned, said
from tests.storage_builders import (
    make_attachment_json,
    make_claim_json,
    make_drivers_json,
    make_storage_class_json,
    make_volume_json,
)

FULL = [a_node("n1", labels={"disk": "ssd"}), a_node("n2", cpu="4"), a_pod("app-1", "n1", cpu="900m")]
CLAIMS = [
    make_storage_class_json(),
    make_volume_json("old"),
    make_claim_json("old", volume="old", storage="fast"),
    make_claim_json("data", storage="fast"),
]
WANTS_IN = a_pod("web-1", cpu="500m", nodeSelector={"disk": "ssd"}, volumes=[on_claim("data")])


def limits(count: int) -> list[Json]:
    return [make_drivers_json(node, ebs_csi_aws_com=count) for node in ("n1", "n2")]


def with_attachments(count: int, *attachments: Json, objective) -> PackingProposal:
    return planned(*FULL, *CLAIMS, *limits(count), *attachments, WANTS_IN, objective=objective)


@OBJECTIVES
@pytest.mark.parametrize(
    ("count", "attachments", "moves"),
    [
        (1, [], ["app-1"]),
        (1, [make_attachment_json("old", "n1")], []),
        (1, [make_attachment_json("old", "n2")], ["app-1"]),
        (2, [make_attachment_json("old", "n1")], ["app-1"]),
        (1, [make_attachment_json("old", "n1", attacher="other.csi")], ["app-1"]),
        (1, [make_attachment_json("gone", "n1")], ["app-1"]),
    ],
)
def test_no_pod_is_evicted_for_one_that_the_attach_limit_still_refuses(objective, count, attachments, moves):
    plan = with_attachments(count, *attachments, objective=objective)
    assert [one.pod for one in plan.moves] == moves
    assert placed(plan) == ({"web-1": "n1"} if moves else {})
    if not moves:
        assert said(plan)["web-1"][0] == ("attach-limit",)


def test_a_volume_in_use_on_the_node_counts_with_its_pod_and_moves_with_it():
    user = a_pod("app-1", "n1", cpu="900m", volumes=[on_claim("old")])
    items = [*FULL[:2], user, *CLAIMS, *limits(1), make_attachment_json("old", "n1"), WANTS_IN]
    plan = planned(*items)
    assert ([one.pod for one in plan.moves], placed(plan)) == (["app-1"], {"web-1": "n1"})


def test_a_volume_left_attached_counts_separately_from_a_pod_that_returns_to_it():
    back = a_pod("web-1", nodeSelector={"disk": "ssd"}, volumes=[on_claim("old")])
    items = [*FULL[:2], *CLAIMS, make_attachment_json("old", "n1"), back]
    assert placed(planned(*items, *limits(1))) == {}
    assert placed(planned(*items, *limits(2))) == {"web-1": "n1"}


def test_nothing_is_proved_if_a_returning_pod_makes_its_volume_count_once():
    back = a_pod("web-1", cpu="100m", nodeSelector={"disk": "ssd"}, volumes=[on_claim("old")])
    other = a_pod("web-2", cpu="100m", nodeSelector={"disk": "ssd"}, volumes=[on_claim("data")])
    plan = planned(*FULL[:2], *CLAIMS, *limits(2), make_attachment_json("old", "n1"), back, other)
    assert plan.status is not PackingStatus.OPTIMAL or len(placed(plan)) == 2
    assert not any(one.impossible for one in plan.unplaced)
