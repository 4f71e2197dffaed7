"""The registry of policies."""

from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.replay.policy import ReplayOptions
from tests.backtest.replay.test_replay import made_up

ORDER = [
    "as-requested",
    "vpa",
    "cruisekube",
    "autopilot",
    "eks",
    "cruise",
    "cruise-seeds",
    "cruise-shared-max",
    "cruise-joint-peak",
    "cruise-risk",
    "clairvoyant-1h",
    "clairvoyant",
    "clairvoyant-24h",
    "oracle",
]


def test_policies_are_in_the_order_of_the_table():
    assert list(POLICIES) == [name for name in ORDER if name in POLICIES]


def test_a_policy_has_its_registered_name():
    recording = made_up(hours=1)
    assert {name: make(recording, ReplayOptions()).name for name, make in POLICIES.items()} == {
        name: name for name in POLICIES
    }
