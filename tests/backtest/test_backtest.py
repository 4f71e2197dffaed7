"""Several policies over one recording."""

from dataclasses import replace

import numpy as np
import pytest

from cruise.backtest.backtest import backtest_policies
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.recording import UsageRecording, cap_requests_to_node
from cruise.backtest.replay.policy import ConsolidationSizeBasis, ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import make_recording
from tests.backtest.replay.test_replay import made_up


def test_policies_are_replayed_one_after_the_other_in_the_order_asked():
    recording, options = made_up(hours=1, step=300), ReplayOptions()
    result = backtest_policies(recording, ["cruise", "as-requested"], options, watched_node="node-001")
    assert list(result.policies) == ["cruise", "as-requested"]
    assert (result.trace, result.containers, result.step_seconds) == ("made-up", 12, 300)
    assert (result.days, result.node) == (1 / 24, options.node)
    for score in result.policies.values():
        assert score.seconds > 0
        assert score.time_line is not None and score.time_line.node == "node-001"


def test_a_score_does_not_depend_on_earlier_replays():
    recording, options = made_up(hours=1), ReplayOptions()
    result = backtest_policies(recording, ["cruise", "as-requested"], options)
    alone = replay_policy(recording, POLICIES["as-requested"](recording, options), options)
    assert result.policies["as-requested"].cpu == alone.cpu
    assert result.policies["as-requested"].worst_containers == alone.worst_containers


def test_both_judgements_of_consolidation_are_shown():
    recording = made_up(hours=12, step=300)
    options = ReplayOptions(node=Resources(2000, 8 << 30))
    result = backtest_policies(recording, ["vpa"], options).policies["vpa"]
    other = replay_policy(
        recording, POLICIES["vpa"](recording, options), options, consolidation=ConsolidationSizeBasis.REQUESTS
    )
    assert result.nodes_peak > 1
    assert (result.nodes_mean_by_requests, result.moves_by_requests) == (
        other.nodes_mean,
        other.moves_per_1000_pod_days,
    )
    one = backtest_policies(recording, ["vpa"], replace(options, with_both_consolidations=False)).policies["vpa"]
    assert one.nodes_mean_by_requests is None
    assert one.nodes_mean == result.nodes_mean


def test_a_single_node_is_replayed_once():
    score = backtest_policies(made_up(hours=1), ["as-requested"], ReplayOptions()).policies["as-requested"]
    assert (score.nodes_peak, score.nodes_mean_by_requests, score.moves_by_requests) == (1, 1.0, 0.0)


def test_a_policy_that_does_not_exist_is_a_key_error():
    with pytest.raises(KeyError):
        backtest_policies(made_up(hours=1), ["guesswork"], ReplayOptions())


NODE = Resources(1000, 2000)


def provisioned(*requests: Resources) -> UsageRecording:
    use = np.ones((2, len(requests)))
    return make_recording(use, use, requests=requests)


def test_each_resource_is_cut_to_the_nodes():
    asked = [Resources(1000, 2000), Resources(1001, 5), Resources(5, 9000), Resources(4000, 4000)]
    found, count = cap_requests_to_node(provisioned(*asked), NODE)
    assert [one.requests for one in found.containers] == [
        Resources(1000, 2000),
        Resources(1000, 5),
        Resources(5, 2000),
        Resources(1000, 2000),
    ]
    assert count == 3


def test_a_recording_that_fits_is_returned_unchanged():
    recording = provisioned(Resources(1000, 2000), Resources())
    assert cap_requests_to_node(recording, NODE) == (recording, 0)


def test_no_pod_is_pending_under_any_policy_for_having_been_provisioned_too_large():
    recording = provisioned(Resources(50, 50), Resources(4000, 9000))
    result = backtest_policies(recording, ["as-requested", "cruise"], ReplayOptions(node=NODE))
    assert result.capped_containers == 1
    assert [score.pending_pod_minutes for score in result.policies.values()] == [0, 0]
