"""Policies from VerticalPodAutoscalers say the same as these, and are readable."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.vpa_export import PolicyExport, export_policies
from cruise.domain.annotations import Overrides
from cruise.domain.autoscalers import VpaContainerPolicy
from cruise.domain.cluster import VerticalPodAutoscaler
from cruise.domain.overrides import format_settings
from cruise.domain.resources import MEBIBYTE, NOTHING_STATED, ResourceName, StatedResources
from cruise.domain.vpa_overrides import get_vpa_overrides
from cruise.domain.written_policies import PolicyScope
from cruise.kube_json.objects.rightsizing_policies import build_written_policy, decode_policy
from cruise.kube_json.wire.policy_json import RightsizingPolicyObject
from tests.builders import make_amounts, make_ref, make_snapshot, make_workload

WEB = make_ref("Deployment/web")
TEMPLATE = make_workload(requests={"app": NOTHING_STATED, "logs": NOTHING_STATED, "proxy": NOTHING_STATED})


def vpa(*rules: VpaContainerPolicy, mode: str = "Auto", name: str = "sizes", **more) -> VerticalPodAutoscaler:
    return VerticalPodAutoscaler("shop", name, WEB, mode, rules=rules, **more)


def exported(*vpas: VerticalPodAutoscaler, workloads=(TEMPLATE,)) -> PolicyExport:
    return export_policies(replace(make_snapshot(workloads=workloads), vertical_autoscalers=vpas))


def settings(export: PolicyExport) -> dict[str, str]:
    [one] = export.policies
    return format_settings(one.overrides)


def test_the_mode_follows_the_update_mode():
    modes = {mode: settings(exported(vpa(mode=mode)))["mode"] for mode in ("Off", "Initial", "Recreate", "")}
    assert modes == {"Off": "observe", "Initial": "initial", "Recreate": "resize", "": "resize"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"namespace": "../../etc"},
        {"namespace": ".."},
        {"target": make_ref("Deployment/..")},
        {"target": make_ref("Deployment/w*")},
        {"target": make_ref("De*/web")},
    ],
)
def test_names_that_no_object_has_are_a_problem(wrong):
    """A file that was written by somebody else must not choose where policies are written, or whom they select."""
    found = exported(replace(vpa(), **wrong))
    assert found.policies == ()
    [problem] = found.problems
    assert problem.endswith("its namespace or its target has a name that no object has")


def test_bounds_and_resources_are_kept_and_pointless_bounds_dropped():
    found = exported(
        vpa(
            VpaContainerPolicy(minimum=make_amounts(5, 32), maximum=StatedResources(3_000_000, 4096 * MEBIBYTE)),
            VpaContainerPolicy(
                "app", controlled_resources=frozenset({ResourceName.MEMORY}), maximum=make_amounts(None, 512)
            ),
            VpaContainerPolicy("proxy", is_off=True, minimum=make_amounts(100)),
        )
    )
    assert settings(found) == {
        "mode": "resize",
        "memory-min": "32Mi",
        "memory-max": "4Gi",
        "resources.app": "memory",
        "memory-max.app": "512Mi",
        "mode.proxy": "off",
    }


def test_all_off_but_named_containers_names_the_others():
    rules = VpaContainerPolicy(is_off=True), VpaContainerPolicy("app", maximum=make_amounts(500))
    found = settings(exported(vpa(*rules)))
    assert {name: value for name, value in found.items() if name.startswith("mode")} == {
        "mode": "resize",
        "mode.logs": "off",
        "mode.proxy": "off",
    }
    unknown = exported(vpa(*rules), workloads=())
    assert unknown.policies == ()
    assert "the containers of its target are unknown" in unknown.problems[0]
    assert settings(exported(vpa(VpaContainerPolicy(is_off=True)), workloads=()))["mode"] == "off"


def test_one_workload_has_one_policy():
    found = exported(
        vpa(VpaContainerPolicy(maximum=make_amounts(1000))),
        vpa(VpaContainerPolicy(maximum=make_amounts(2000, 1024)), mode="Initial", name="other"),
    )
    assert settings(found) == {"mode": "initial", "cpu-max": "1", "memory-max": "1Gi"}
    assert found.policies[0].origins == ("VerticalPodAutoscaler shop/sizes", "VerticalPodAutoscaler shop/other")


def test_bounds_that_contradict_each_other_together_are_a_problem():
    found = exported(
        vpa(VpaContainerPolicy(maximum=make_amounts(1000))),
        vpa(VpaContainerPolicy(minimum=make_amounts(2000)), name="other"),
    )
    assert found.policies == ()
    assert "the minimum of shop Deployment/web is above the maximum" in found.problems[0]


def test_what_cruise_published_and_what_contradicts_itself_is_not_exported():
    found = exported(
        vpa(name="cruise-web", is_published=True),
        vpa(VpaContainerPolicy(minimum=make_amounts(200), maximum=make_amounts(100)), name="broken"),
    )
    assert found.policies == ()
    assert found.problems == ("VerticalPodAutoscaler shop/broken: minAllowed of * is above maxAllowed",)
    absurd = exported(vpa(VpaContainerPolicy("app", minimum=make_amounts(9_999_999))))
    assert absurd.problems == ("VerticalPodAutoscaler shop/sizes: minAllowed of app is more than any node has",)


AMOUNTS = st.none() | st.sampled_from((0, 1, 10, 250, 2000, 2_048_000, 9_999_999))
MEMORY = st.none() | st.sampled_from((0, 1, MEBIBYTE, 16 * MEBIBYTE, 4096 * MEBIBYTE, 1 << 50))
RULES = st.builds(
    VpaContainerPolicy,
    st.sampled_from(("", "app", "logs", "injected")),
    st.booleans(),
    st.none() | st.frozensets(st.sampled_from(ResourceName)),
    st.builds(StatedResources, AMOUNTS, MEMORY),
    st.builds(StatedResources, AMOUNTS, MEMORY),
)


@given(st.lists(RULES, max_size=4, unique_by=lambda one: one.container), st.sampled_from(("Off", "Initial", "Auto")))
def test_what_is_exported_can_be_read_and_says_the_same(rules, mode):
    one = vpa(*rules, mode=mode)
    for policy in exported(one).policies:
        document = build_written_policy(PolicyScope(policy.namespace, policy.workload), policy.overrides)
        read = decode_policy(msgspec.convert(document, RightsizingPolicyObject)).overrides
        assert read == policy.overrides
        assert isinstance(read, Overrides)
        assert isinstance(get_vpa_overrides(one), Overrides)
