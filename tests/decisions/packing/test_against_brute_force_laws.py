"""Invariants of every cluster: plans pass verification, names do not matter, more capacity is never worse."""

import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.proposal import build_proposal
from cruise.decisions.packing.verification import find_plan_objections
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.packing_plan import PackingProposal
from cruise.packer.greedy import pack_quickly
from cruise.packer.problem import PackingObjective
from tests.decisions.packing.brute_force_trials import SIZES, pack_trial
from tests.decisions.packing.cluster_changes import RELAXATIONS, add_node, rename_objects
from tests.decisions.packing.clusters import clusters
from tests.packer.problems import WITHOUT_FLEET

objectives = st.sampled_from(WITHOUT_FLEET)
some = settings(suppress_health_check=[HealthCheck.too_slow])


@some
@given(clusters, objectives)
def test_any_plan_passes_the_judge(snapshot: ClusterSnapshot, objective: PackingObjective):
    built = build_packing_problem(snapshot, sizes=SIZES[objective])
    for packing in (pack_quickly(built.problem), pack_trial(snapshot, objective).packing):
        proposal = build_proposal(built, packing)
        assert isinstance(proposal, PackingProposal)
        assert find_plan_objections(snapshot, proposal) == ()


@some
@given(clusters, objectives, st.integers(0, 1 << 20))
def test_other_names_change_no_proved_answer(snapshot: ClusterSnapshot, objective: PackingObjective, seed: int):
    here, there = pack_trial(snapshot, objective), pack_trial(rename_objects(snapshot, random.Random(seed)), objective)
    assert here.proved and there.proved
    assert here.packing.planned == there.packing.planned


@some
@given(clusters, objectives)
def test_another_node_never_costs_a_place(snapshot: ClusterSnapshot, objective: PackingObjective):
    before, after = pack_trial(snapshot, objective), pack_trial(add_node(snapshot), objective)
    assert before.proved and after.proved
    assert _reaches(after.packing.planned.get_key(objective), before.packing.planned.get_key(objective))


@some
@given(clusters, objectives, st.sampled_from(sorted(RELAXATIONS)))
def test_one_constraint_less_never_costs_a_place(snapshot: ClusterSnapshot, objective: PackingObjective, relaxed: str):
    before, after = pack_trial(snapshot, objective), pack_trial(RELAXATIONS[relaxed](snapshot), objective)
    assert before.proved and after.proved
    assert _reaches(after.packing.planned.get_key(objective), before.packing.planned.get_key(objective))


def _reaches(key: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether a key is at least as good as another."""
    return len(key) == len(other) and key >= other
