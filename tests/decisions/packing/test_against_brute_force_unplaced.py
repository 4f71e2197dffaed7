"""A pod that is reported as pending in any plan is pending in every plan."""

import pytest

from cruise.decisions.packing.eviction_rules import EvictionRules
from cruise.decisions.packing.problem import build_packing_problem
from cruise.decisions.packing.unschedulable import explain_unplaced_pods
from cruise.decisions.packing.verification import FULL_MODE_POLICY
from cruise.decisions.scheduling.placements import get_pod_key, is_waiting_for_scheduling
from cruise.domain.cluster import ClusterSnapshot
from cruise.interfaces.packing.unschedulable import describe_unplaced_pod
from cruise.packer.greedy import pack_quickly
from cruise.packer.problem import PackingObjective
from tests.decisions.packing.brute_force_cluster import best_plan, can_be_placed
from tests.decisions.packing.brute_force_trials import SIZES, pack_trial
from tests.decisions.packing.clusters import cluster_of


def usable(snapshot: ClusterSnapshot) -> set[tuple[str, str]]:
    """Pending pods that may be placed, as far as gates and claims go."""
    leaving = EvictionRules(snapshot, FULL_MODE_POLICY, {})
    waiting = [pod for pod in snapshot.pods if is_waiting_for_scheduling(pod)]
    return {get_pod_key(pod) for pod in waiting if leaving.explain_unusable_claims(pod) is None}


@pytest.mark.parametrize("objective", [PackingObjective.PAPER, PackingObjective.OPERATOR])
def test_everybody_without_a_place_has_words_and_what_is_called_impossible_is(objective, seeds):
    for seed in seeds(200):
        snapshot = cluster_of(seed)
        built = build_packing_problem(snapshot, sizes=SIZES[objective])
        priorities = {get_pod_key(pod): pod.priority for pod in snapshot.pods}
        waiting = usable(snapshot)
        best = best_plan(snapshot, objective).key
        for packing in (pack_quickly(built.problem), pack_trial(snapshot, objective).packing):
            tiers = [tier.priority for tier in packing.planned.priorities]
            for lost in explain_unplaced_pods(built, packing):
                assert describe_unplaced_pod(lost) and "\n" not in describe_unplaced_pod(lost), (seed, lost)
                assert lost.blocked_by or not lost.impossible, (seed, lost)
                key = (lost.namespace, lost.pod)
                if not lost.impossible or key not in waiting:
                    continue
                step = 2 if objective is PackingObjective.PAPER else 1
                until = tiers.index(priorities[key]) * step + 1
                as_good = packing.planned.get_key(objective)[:until] == best[:until]
                assert as_good or not can_be_placed(snapshot, key, objective), (seed, lost)
