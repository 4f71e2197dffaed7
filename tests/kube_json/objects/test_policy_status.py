"""The status of policy objects as JSON: conditions keep their time as long as they say the same."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from cruise.domain.annotations import Overrides
from cruise.domain.policy import Mode
from cruise.domain.rightsizing_policies import PolicyConflict, PolicyStatus, RightsizingPolicy
from cruise.kube_json.objects.rightsizing_policies import build_policy_status, decode_policy
from cruise.kube_json.wire.policy_json import RightsizingPolicyObject
from tests.builders import NOW

FINE = PolicyStatus(3)
CONFLICT = PolicyStatus(4, conflicts=(PolicyConflict("RightsizingPolicy shop/b", "a", ("mode",), "Deployment/web"),))
UNREADABLE = PolicyStatus(5, problem="spec.mode: is wrong")


def write(policy: RightsizingPolicy, status: PolicyStatus, minutes: int) -> dict[str, Any]:
    return build_policy_status(policy, status, NOW + timedelta(minutes=minutes))


def read_again(policy: RightsizingPolicy, document: dict[str, Any]) -> RightsizingPolicy:
    """The policy as a later pass reads it."""
    found = msgspec.convert({**document, "spec": {}}, RightsizingPolicyObject)
    return replace(policy, conditions=decode_policy(found).conditions)


def minutes_of(document: dict[str, Any]) -> list[int]:
    """Minutes after NOW at which Accepted and Conflicted last changed."""
    told = [datetime.fromisoformat(one["lastTransitionTime"]) for one in document["status"]["conditions"]]
    return [round((one - NOW).total_seconds() / 60) for one in told]


def test_a_condition_changes_its_time_with_its_status_only():
    policy = RightsizingPolicy("shop", "a")
    seen = []
    for minutes, status in enumerate((FINE, replace(FINE, workloads=2), CONFLICT, UNREADABLE, FINE)):
        document = write(policy, status, minutes)
        seen.append(minutes_of(document))
        assert {one["observedGeneration"] for one in document["status"]["conditions"]} == {status.generation}
        policy = read_again(policy, document)
    assert seen == [[0, 0], [0, 0], [0, 2], [3, 3], [4, 3]]


@pytest.mark.parametrize("conditions", [[{"type": "Accepted", "status": "True"}], "none", [7]])
def test_a_status_of_another_shape_hides_no_policy(conditions: object):
    document = {**write(RightsizingPolicy("shop", "a"), FINE, 0), "spec": {"mode": "off"}}
    document["status"]["conditions"] = conditions
    policy = decode_policy(msgspec.convert(document, RightsizingPolicyObject))
    assert policy.conditions == {}
    assert policy.overrides == Overrides(mode=Mode.OFF)
