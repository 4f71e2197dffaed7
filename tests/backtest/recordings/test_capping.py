"""Requests cut to what a node has."""

import numpy as np

from cruise.backtest.backtest import backtest
from cruise.backtest.recordings.capping import capped_to
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.terms import Terms
from cruise.domain.resources import Resources
from tests.backtest.baselines.recordings import recording_of

NODE = Resources(1000, 2000)


def provisioned(*requests: Resources) -> Recording:
    use = np.ones((2, len(requests)))
    return recording_of(use, use, requests=requests)


def test_each_resource_is_cut_to_the_nodes():
    asked = [Resources(1000, 2000), Resources(1001, 5), Resources(5, 9000), Resources(4000, 4000)]
    found, count = capped_to(provisioned(*asked), NODE)
    assert [one.requests for one in found.containers] == [
        Resources(1000, 2000),
        Resources(1000, 5),
        Resources(5, 2000),
        Resources(1000, 2000),
    ]
    assert count == 3


def test_a_recording_that_fits_stays_the_same_object():
    recording = provisioned(Resources(1000, 2000), Resources())
    assert capped_to(recording, NODE) == (recording, 0)


def test_nobody_is_pending_under_any_policy_for_having_been_provisioned_too_large():
    recording = provisioned(Resources(50, 50), Resources(4000, 9000))
    result = backtest(recording, ["as-requested", "cruise"], Terms(node=NODE))
    assert result.capped_containers == 1
    assert [score.pending_pod_minutes for score in result.policies.values()] == [0, 0]
