"""Whoever is said to stay pending in any plan does: neither the quick method's word nor the packer's is wrong."""

import pytest

from cruise.decisions.packing.blocking import why_unplaced
from cruise.decisions.packing.building import build_problem
from cruise.decisions.packing.judging.leaving import Leaving
from cruise.decisions.packing.judging.objections import FULL_POLICY
from cruise.decisions.scheduling.board import key_of, waits_for_a_node
from cruise.domain.cluster import Snapshot
from cruise.interfaces.packing.unplaced_words import unplaced_words
from cruise.packer.pack import quick_packing
from cruise.packer.problem import Objective
from tests.decisions.packing.brute_force_cluster import best_plan, can_be_placed
from tests.decisions.packing.brute_force_trials import SIZES, packed
from tests.decisions.packing.clusters import cluster_of


def usable(snapshot: Snapshot) -> set[tuple[str, str]]:
    """Pending pods that may be placed, as far as gates and claims go."""
    leaving = Leaving(snapshot, FULL_POLICY, {})
    waiting = [pod for pod in snapshot.pods if waits_for_a_node(pod)]
    return {key_of(pod) for pod in waiting if leaving.why_claims_are_unusable(pod) is None}


@pytest.mark.parametrize("objective", [Objective.PAPER, Objective.OPERATOR])
def test_everybody_without_a_place_has_words_and_what_is_called_impossible_is(objective, seeds):
    for seed in seeds(200):
        snapshot = cluster_of(seed)
        built = build_problem(snapshot, sizes=SIZES[objective])
        priorities = {key_of(pod): pod.priority for pod in snapshot.pods}
        waiting = usable(snapshot)
        best = best_plan(snapshot, objective).key
        for packing in (quick_packing(built.problem), packed(snapshot, objective).packing):
            tiers = [tier.priority for tier in packing.after.tiers]
            for lost in why_unplaced(built, packing):
                assert unplaced_words(lost) and "\n" not in unplaced_words(lost), (seed, lost)
                assert lost.blocked_by or not lost.impossible, (seed, lost)
                key = (lost.namespace, lost.pod)
                if not lost.impossible or key not in waiting:
                    continue
                step = 2 if objective is Objective.PAPER else 1
                until = tiers.index(priorities[key]) * step + 1
                as_good = packing.after.key(objective)[:until] == best[:until]
                assert as_good or not can_be_placed(snapshot, key, objective), (seed, lost)
