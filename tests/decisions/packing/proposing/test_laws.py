"""Every proposal of a random cluster passes the judge."""

from hypothesis import given, settings
from hypothesis import strategies as st

from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.judging.objections import find_objections
from cruise.decisions.packing.pack import quick_packing
from cruise.decisions.packing.proposal import Proposal
from cruise.decisions.packing.proposing import propose
from tests.decisions.packing.clusters import cluster_of


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_the_judge_has_no_objection_to_a_proposal(seed: int) -> None:
    snapshot = cluster_of(seed)
    built = build_problem(snapshot)
    found = propose(built, quick_packing(built.problem))
    assert isinstance(found, Proposal)
    assert find_objections(snapshot, found) == ()
