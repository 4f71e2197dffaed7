"""Removal of nodes by consolidation: when and which; nodes of 1000 millicores."""

import numpy as np

from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import (
    NO_CONTAINERS,
    ConsolidationSizeBasis,
    ContainerSizes,
    ReplayClusterView,
    ReplayDecision,
    ReplayOptions,
)
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.arrays import Int64Array
from cruise.domain.resources import MEBIBYTE, Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.policies import FixedSizesPolicy, get_placements, sizes

TERMS = ReplayOptions(node=Resources(1000, 1000 * MEBIBYTE))
HOUR = 3600


def recording(containers: int, hours: float) -> UsageRecording:
    use = np.ones((int(hours * 12), containers))
    return make_recording(use, use)


def millicores(*values: int) -> ContainerSizes:
    return sizes(*((value, MEBIBYTE, 0) for value in values))


def shrunk_at(at: int, *values: int) -> dict[int, ReplayDecision]:
    return {at: ReplayDecision(get_placements(*range(len(values))), millicores(*values), NO_CONTAINERS)}


class Shrinking(FixedSizesPolicy):
    """Decreases requests at given times; by default creates pods with their present sizes."""

    def __init__(
        self, first: ContainerSizes, decisions: dict[int, ReplayDecision], again: ContainerSizes | None = None
    ) -> None:
        super().__init__(first, decisions)
        self._again = again
        self.asked_of: list[tuple[int, ...]] = []

    def admit(self, containers: Int64Array, view: ReplayClusterView) -> ContainerSizes:
        if (view.creation_count[containers] == 1).all() and (view.node[containers] < 0).all():
            return super().admit(containers, view)
        if (view.node[containers] >= 0).all():
            self.asked_of.append(tuple(containers.tolist()))
        if self._again is not None:
            return self._again.select(containers)
        return view.sizes.select(containers)


def nodes_by_hour(policy: FixedSizesPolicy) -> dict[int, int]:
    return {view.time // HOUR: int(view.node_exists.sum()) for view in policy.views}


def moves_of(policy: FixedSizesPolicy) -> list[int]:
    return [int(creation_count) - 1 for creation_count in policy.views[-1].creation_count]


def test_no_node_is_drained_in_the_first_six_hours():
    policy = Shrinking(millicores(600, 600), shrunk_at(HOUR, 400, 400))
    score = replay_policy(recording(2, 8), policy, TERMS)
    by_hour = nodes_by_hour(policy)
    assert (by_hour[5], by_hour[7]) == (2, 1)
    assert moves_of(policy) == [0, 1]
    assert score.evictions_per_1000_pod_days * score.container_days / 1000 == 1


def test_the_least_requested_node_is_drained():
    policy = Shrinking(millicores(600, 700, 800), shrunk_at(HOUR, 400, 300, 500))
    replay_policy(recording(3, 8), policy, TERMS)
    assert moves_of(policy) == [0, 1, 0]
    assert policy.views[-1].node_exists.tolist() == [True, False, True]


def test_as_many_nodes_as_possible_are_drained_together_and_no_pod_moves_twice():
    policy = Shrinking(millicores(*[600] * 9), shrunk_at(HOUR, *[110] * 9))
    replay_policy(recording(9, 8), policy, TERMS)
    assert policy.views[-1].node_exists.tolist() == [True] + [False] * 8
    assert moves_of(policy) == [0] + [1] * 8


def test_there_is_one_consolidation_in_24_hours():
    decisions = shrunk_at(HOUR, 400, 400, 600) | shrunk_at(10 * HOUR, 100, 100, 100)
    policy = Shrinking(millicores(600, 600, 600), decisions)
    replay_policy(recording(3, 36), policy, TERMS)
    by_hour = nodes_by_hour(policy)
    assert (by_hour[5], by_hour[7], by_hour[29], by_hour[31]) == (3, 2, 2, 1)


def test_a_step_that_is_not_possible_yet_is_done_once_it_is():
    policy = Shrinking(millicores(600, 600), shrunk_at(10 * HOUR + 300, 400, 400))
    replay_policy(recording(2, 14), policy, TERMS)
    by_hour = nodes_by_hour(policy)
    assert (by_hour[9], by_hour[12]) == (2, 1)


def test_no_pod_moves_if_its_replacement_needs_the_drained_node():
    policy = Shrinking(millicores(600, 600), shrunk_at(HOUR, 400, 400), again=millicores(700, 700))
    score = replay_policy(recording(2, 30), policy, TERMS)
    assert policy.asked_of
    assert (score.nodes_mean, moves_of(policy)) == (2.0, [0, 0])


def test_by_requests_pods_with_larger_replacements_move_every_hour():
    shrinks = shrunk_at(HOUR, 400, 400)
    for hour in range(6, 12):
        shrinks |= shrunk_at(hour * HOUR + 1800, 400, 400)
    policy = Shrinking(millicores(600, 600), shrinks, again=millicores(700, 700))
    score = replay_policy(recording(2, 12), policy, TERMS, consolidation=ConsolidationSizeBasis.REQUESTS)
    assert sum(moves_of(policy)) == 6
    assert score.nodes_mean == 2.0
    assert score.moves_per_1000_pod_days == score.evictions_per_1000_pod_days > 0
    assert score.own_evictions_per_1000_pod_days == 0


def test_by_requests_a_tenth_of_the_nodes_is_removed_each_hour():
    policy = Shrinking(millicores(*[600] * 20), shrunk_at(HOUR, *[110] * 20))
    replay_policy(recording(20, 10), policy, TERMS, consolidation=ConsolidationSizeBasis.REQUESTS)
    by_hour = nodes_by_hour(policy)
    assert [by_hour[hour] for hour in (5, 6, 7, 8)] == [20, 18, 17, 16]


def test_a_node_that_cannot_be_drained_does_not_stop_the_next():
    policy = Shrinking(millicores(900, 600, 400, 700), shrunk_at(HOUR, 500, 300, 300, 700))
    replay_policy(recording(4, 8), policy, TERMS)
    assert moves_of(policy) == [0, 1, 1, 0]
    assert policy.views[-1].node.tolist() == [0, 0, 2, 2]


def test_a_single_node_is_not_drained():
    policy = Shrinking(millicores(100), {})
    assert replay_policy(recording(1, 8), policy, TERMS).nodes_mean == 1.0
