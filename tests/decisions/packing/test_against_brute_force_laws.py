"""What holds of any cluster: the judge lets its plans pass, names change no answer, and more room makes none worse."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.judging import find_objections
from cruise.decisions.packing.proposing import propose
from cruise.domain.cluster import Snapshot
from cruise.domain.packing import Proposal
from cruise.packer.pack import quick_packing
from cruise.packer.problem import Objective
from tests.decisions.packing.brute_force_trials import SIZES, packed
from tests.decisions.packing.cluster_changes import RELAXATIONS, renamed, with_another_node
from tests.decisions.packing.clusters import clusters
from tests.packer.problems import WITHOUT_FLEET

objectives = st.sampled_from(WITHOUT_FLEET)
some = settings(suppress_health_check=[HealthCheck.too_slow])


@some
@given(clusters, objectives)
def test_any_plan_passes_the_judge(snapshot: Snapshot, objective: Objective):
    built = build_problem(snapshot, sizes=SIZES[objective])
    for packing in (quick_packing(built.problem), packed(snapshot, objective).packing):
        proposal = propose(built, packing)
        assert isinstance(proposal, Proposal)
        assert find_objections(snapshot, proposal) == ()


@some
@given(clusters, objectives, st.integers(0, 1 << 20))
def test_other_names_change_no_proved_answer(snapshot: Snapshot, objective: Objective, seed: int):
    here, there = packed(snapshot, objective), packed(renamed(snapshot, random.Random(seed)), objective)
    assert here.proved and there.proved
    assert here.packing.after == there.packing.after


@some
@given(clusters, objectives)
def test_another_node_never_costs_a_place(snapshot: Snapshot, objective: Objective):
    before, after = packed(snapshot, objective), packed(with_another_node(snapshot), objective)
    assert before.proved and after.proved
    assert _reaches(after.packing.after.key(objective), before.packing.after.key(objective))


@some
@given(clusters, objectives, st.sampled_from(sorted(RELAXATIONS)))
def test_one_constraint_less_never_costs_a_place(snapshot: Snapshot, objective: Objective, relaxed: str):
    before, after = packed(snapshot, objective), packed(RELAXATIONS[relaxed](snapshot), objective)
    assert before.proved and after.proved
    assert _reaches(after.packing.after.key(objective), before.packing.after.key(objective))


def _reaches(key: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a key is at least as good as another."""
    return len(key) == len(other) and key >= other
