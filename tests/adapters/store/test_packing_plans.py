"""Packing plans as documents: those that releases before this one stored are read as well."""

from dataclasses import replace

import msgspec

from cruise.adapters.store.packing_plans import (
    deserialize_condition,
    deserialize_notes,
    deserialize_unplaced,
    serialize_proposal,
)
from cruise.domain.packing_plan import PlanPhase
from cruise.domain.reasons import UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.interfaces.packing.descriptions import describe_note, describe_plan_condition
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from tests.interfaces.packing.packing_plans import PLAN


def test_what_was_stored_in_words_is_read_as_stated() -> None:
    document = {"namespace": "shop", "pod": "a", "blocked_by": ["cpu"], "words": "no node has it", "impossible": True}
    one = deserialize_unplaced(document)
    assert one == UnplacedPod(
        "shop", "a", ("cpu",), UnschedulableReason(UnschedulableCode.OTHER, message="no node has it"), True
    )
    assert describe_unplaced_pod(one) == "no node has it"


def test_releases_before_this_one_find_lists_of_what_the_stages_do() -> None:
    proposal = PLAN.proposal
    document = serialize_proposal(msgspec.to_builtins(proposal), proposal)
    found = [[one["pod"] for one in document[name]] for name in ("placed", "moves", "preempted", "resizes")]
    assert found == [["late-1"], ["web-1"], ["low"], ["api-1"]]


def test_notes_that_were_stored_in_words_keep_them() -> None:
    [note] = deserialize_notes({"notes": ["a packing was dropped"]})
    assert describe_note(note) == "a packing was dropped"


def test_why_a_plan_goes_no_further_is_read_in_words_too() -> None:
    words = describe_plan_condition(
        replace(PLAN, phase=PlanPhase.ADVISORY, condition=deserialize_condition({"detail": "paused: shown only"}))
    )
    assert words == "paused: shown only"
    assert deserialize_condition({"detail": ""}) is None
    assert deserialize_condition({"halt": {"code": "binding", "subject": "shop/web-1"}}) == PLAN.condition
