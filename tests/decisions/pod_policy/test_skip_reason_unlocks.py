"""Every skip reason has an unlock that names existing settings and annotations with that effect."""

import pytest

from cruise.decisions.pod_policy.skip_reason_unlocks import UNLOCKS, EligibilityInputs, SkipReasonUnlockKind
from cruise.domain.actions import ReasonCode
from cruise.domain.annotations import OVERRIDES, PREFIX
from cruise.domain.cluster import ClusterSnapshot
from cruise.domain.policy import Mode, Policy
from cruise.settings import load_settings
from cruise.settings.settings import SETTING_TYPES

# Why an action is taken, or how a node is: nothing is skipped for these.
NO_SKIPS = {
    ReasonCode.UNDER_PRESSURE,
    ReasonCode.OVERCOMMITTED,
    ReasonCode.RIGHTSIZED,
    ReasonCode.NODE_OVER_CAPACITY,
    ReasonCode.WITHDRAWN,
    ReasonCode.START_COMPLETED,
    ReasonCode.OOM_KILLED,
    ReasonCode.OVERLOADED,
    ReasonCode.LOAD_NORMAL,
    ReasonCode.LOAD_UNKNOWN,
    ReasonCode.TOO_MANY_TAINTS,
    ReasonCode.TAINTING_DISABLED,
    ReasonCode.REVERTED,
    ReasonCode.FREED_CAPACITY_FOR_PENDING_PODS,
}
SETTINGS = [reason for reason, one in UNLOCKS.items() if one.kind is SkipReasonUnlockKind.SETTING]


def test_every_skip_reason_has_an_entry():
    assert UNLOCKS.keys() | NO_SKIPS == set(ReasonCode)
    assert not UNLOCKS.keys() & NO_SKIPS
    assert all(one.description for one in UNLOCKS.values())


def test_values_are_plain_texts_so_that_every_format_can_write_them():
    for one in UNLOCKS.values():
        assert {type(text) for text in (one.description, one.setting, one.value, one.annotation)} == {str}


@pytest.mark.parametrize("reason", [reason for reason, one in UNLOCKS.items() if one.setting])
def test_a_setting_of_the_table_exists(reason):
    assert UNLOCKS[reason].setting in SETTING_TYPES


@pytest.mark.parametrize("reason", [reason for reason, one in UNLOCKS.items() if one.annotation])
def test_an_annotation_of_the_table_exists_and_can_be_read(reason):
    for stated in UNLOCKS[reason].annotation.split(", "):
        name, _, value = stated.partition(": ")
        override = OVERRIDES[name.removeprefix(PREFIX)]
        if value:
            override.read(value)


@pytest.mark.parametrize("reason", SETTINGS)
def test_a_setting_does_what_the_decision_assumes_of_it(reason):
    unlock = UNLOCKS[reason]
    assert unlock.value
    if unlock.apply is None:
        return
    namespace = "kube-system" if reason is ReasonCode.EXCLUDED_NAMESPACE else "shop"
    value = unlock.value.replace("NAMESPACE", namespace)
    settings = load_settings({"CRUISE_" + unlock.setting.upper(): value, "CRUISE_DATABASE_URL": "postgresql://db/x"})
    policy = unlock.apply(EligibilityInputs(ClusterSnapshot(), {}, Policy(mode=Mode.OBSERVE))).policy
    if reason is ReasonCode.EXCLUDED_NAMESPACE:
        assert not settings.to_policy().excludes_namespace("kube-system")
        assert not policy.excludes_namespace("kube-system")
    elif reason is ReasonCode.NAMESPACE_NOT_INCLUDED:
        assert settings.to_policy().includes_namespace(namespace, {})
        assert policy.includes_namespace(namespace, {})
    else:
        assert getattr(settings.to_policy(), unlock.setting) == getattr(policy, unlock.setting)
