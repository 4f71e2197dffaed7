"""Policies are parsed as annotations are; the message about an invalid one names the place and the fix."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.annotations import OVERRIDES, ContainerOverrides, Overrides, UnreadableAnnotations
from cruise.domain.cluster import WorkloadRef
from cruise.domain.overrides import format_settings
from cruise.domain.policy import EvictionRanking, Mode, RequestBounds, ResizeDirection
from cruise.domain.resources import ResourceName
from cruise.domain.rightsizing_policies import PolicySelector, RightsizingPolicy
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.domain.startup_cpu import StartupCpu
from cruise.domain.written_policies import PolicyScope, get_workload_policy_name
from cruise.kube_json.objects.rightsizing_policies import build_written_policy, decode_policy
from cruise.kube_json.wire.policy_json import ClusterRightsizingPolicyObject, RightsizingPolicyObject
from tests.builders import make_amounts

Json = dict[str, Any]

_IN_TEAM = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["shop"]}]}
# Specs that both the API server and cruise take.
READABLE: dict[str, Json] = {
    "nothing": {},
    "all settings": {
        "selector": {"kinds": ["Deployment"], "names": ["web", "work-*"], **_IN_TEAM},
        "mode": "resize",
        "resources": ["cpu", "memory"],
        "headroomFactor": 1.5,
        "memoryLimits": "never",
        "cpuLimits": "keep",
        "direction": "grow",
        "startupCpu": "1.5x",
        "minAllowed": {"cpu": "100m", "memory": "64Mi"},
        "maxAllowed": {"cpu": 2, "memory": "4Gi"},
        "evictionRanking": "high",
        "guaranteed": "resize",
        "bestEffort": "adopt",
        "hpa": "hold",
        "containers": [{"name": "app", "mode": "off", "startupCpu": 2}, {"name": "proxy", "minAllowed": {"cpu": 0}}],
        "freeze": [{"schedule": "0 18 * * 5", "duration": "62h", "timeZone": "Europe/Berlin"}],
    },
    "a workload of a run": {"selector": {"kinds": ["Workload"], "names": ["etl_Daily.v2:load_orders"]}, "mode": "off"},
    "all containers by an item": {
        "selector": {"kinds": ["Deployment"], "names": ["web"], "matchLabels": {"tier": "web"}},
        "mode": "resize",
        "resources": ["cpu", "memory"],
        "containers": [
            {"name": "*", "minAllowed": {"cpu": "50m"}, "maxAllowed": {"memory": "4Gi"}, "mode": "off"},
            {"name": "app", "direction": "grow"},
        ],
    },
    "starts that are learned": {"startupCpu": "learn", "containers": [{"name": "proxy", "startupCpu": "off"}]},
    "both bounds of a container": {
        "minAllowed": {"cpu": "500m"},
        "containers": [{"name": "app", "minAllowed": {"cpu": "10m"}, "maxAllowed": {"cpu": "100m"}}],
    },
}
# Specs that both reject: cruise's message, and a part of the API server's.
UNREADABLE: dict[str, tuple[Json, str, str]] = {
    "no mode": (
        {"mode": "sometimes"},
        'spec.mode: "sometimes" is no mode; write one of off, observe, initial, resize, full',
        'spec.mode: Unsupported value: "sometimes": supported values: "off", "observe", "initial", "resize", "full"',
    ),
    "a boolean for a mode": (
        {"mode": False},
        "spec.mode: is true or false instead of a text; write a text",
        'spec.mode: Invalid value: "boolean"',
    ),
    "no factor": (
        {"startupCpu": "11x"},
        'spec.startupCpu: "11x" is no factor; write one from 1x to 10x, such as 2x, an amount, learn or off',
        "write a factor from 1x to 10x",
    ),
    "no start": (
        {"startupCpu": "twice"},
        'spec.startupCpu: "twice" is not a quantity; write e.g. 500m',
        '"twice" is neither a factor nor a quantity; write e.g. 2x, 500m, learn or off',
    ),
    "no quantity": (
        {"maxAllowed": {"cpu": "lots"}},
        'spec.maxAllowed.cpu: "lots" is not a quantity; write e.g. 500m',
        'spec.maxAllowed.cpu: Invalid value: "lots": "lots" is not a quantity; write e.g. 500m',
    ),
    "too small": (
        {"minAllowed": {"memory": "1Mi"}},
        'spec.minAllowed.memory: "1Mi" is below 16Mi, the smallest request; write e.g. 512Mi',
        '"1Mi" is below 16Mi, the smallest request; write e.g. 512Mi',
    ),
    "too small for a container": (
        {"containers": [{"name": "app", "maxAllowed": {"cpu": "5m"}}]},
        'spec.containers[app].maxAllowed.cpu: "5m" is below 10m, the smallest request; write e.g. 500m',
        'spec.containers[0].maxAllowed.cpu: Invalid value: "5m": "5m" is below 10m, the smallest request',
    ),
    "no maximum": (
        {"maxAllowed": {"cpu": 0}},
        'spec.maxAllowed.cpu: "0" is below 10m, the smallest request; write e.g. 500m',
        '"0" is below 10m, the smallest request',
    ),
    "a wrong unit": (
        {"maxAllowed": {"cpu": 4000}},
        'spec.maxAllowed.cpu: "4000" is more than any node has (at most 2048); did you mean 4?',
        '"4000" is more than any node has (at most 2048)',
    ),
    "below zero": (
        {"minAllowed": {"cpu": "-1"}},
        'spec.minAllowed.cpu: "-1" is negative',
        '"-1" is below 10m',
    ),
    "bounds in the wrong order": (
        {"minAllowed": {"cpu": "2"}, "maxAllowed": {"cpu": "1"}},
        "spec.minAllowed: the minimum is above the maximum",
        "minAllowed.cpu is above maxAllowed.cpu",
    ),
    "a container's bounds in the wrong order": (
        {"containers": [{"name": "app", "minAllowed": {"memory": "2Gi"}, "maxAllowed": {"memory": "1Gi"}}]},
        "spec.containers[app].minAllowed: the minimum is above the maximum",
        "minAllowed.memory is above maxAllowed.memory",
    ),
    "a container's minimum above all containers' maximum": (
        {"maxAllowed": {"cpu": "1"}, "containers": [{"name": "app", "minAllowed": {"cpu": "2"}}]},
        "spec.containers[app].minAllowed: the minimum is above the maximum",
        "minAllowed.cpu of a container and maxAllowed.cpu of all containers: the minimum is above the maximum",
    ),
    "a factor": (
        {"headroomFactor": 11},
        'spec.headroomFactor: "11" is no factor; write a number from 0 to 10, such as 1.5',
        "spec.headroomFactor in body should be less than or equal to 10",
    ),
    "a ranking": (
        {"evictionRanking": "last"},
        'spec.evictionRanking: "last" is no ranking; write one of low, medium, high, never, no-eviction',
        'supported values: "low", "medium", "high", "never"',
    ),
    "a resource": (
        {"resources": ["disk"]},
        'spec.resources: "disk" names no resources; write cpu, memory or cpu,memory',
        'spec.resources[0]: Unsupported value: "disk"',
    ),
    "names that are excluded": (
        {"selector": {"names": ["!web*"]}},
        'spec.selector.names: "!web*" matches no name; write those that the policy selects',
        "spec.selector.names[0] in body should match",
    ),
    "a requirement without values": (
        {"selector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
        "spec.selector",
        "In and NotIn need values",
    ),
    "containers by a pattern": (
        {"containers": [{"name": "app*", "mode": "off"}]},
        'spec.containers: "app*" is no name of a container; write one, or "*" for all containers',
        "spec.containers[0].name in body should match",
    ),
    "a bound of all containers stated twice": (
        {"minAllowed": {"cpu": "1"}, "containers": [{"name": "*", "minAllowed": {"memory": "1Gi"}}]},
        "spec.containers[*].minAllowed: spec states it as well; write it once",
        "containers[*].minAllowed: spec states it as well; write it once",
    ),
    "a container without a name": (
        {"containers": [{"mode": "off"}]},
        'spec.containers: "" is no name of a container',
        "spec.containers[0].name: Required value",
    ),
    "a container stated twice": (
        {"containers": [{"name": "app", "mode": "off"}, {"name": "app", "mode": "full"}]},
        "spec.containers[app]: it is stated twice; write one item for each container",
        "spec.containers[1]: Duplicate value",
    ),
}


def policy_json(spec: Json, name: str = "web", namespace: str = "") -> Json:
    """A policy as in a file, of the cluster without a namespace."""
    kind = "RightsizingPolicy" if namespace else "ClusterRightsizingPolicy"
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "cruise.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def read(spec: Json, namespace: str = "shop") -> RightsizingPolicy:
    struct = RightsizingPolicyObject if namespace else ClusterRightsizingPolicyObject
    return decode_policy(msgspec.convert(policy_json(spec, namespace=namespace), struct))


def test_every_setting_has_a_field():
    policy = read(READABLE["all settings"])
    assert isinstance(policy.overrides, Overrides)
    assert {name for name in format_settings(policy.overrides) if "." not in name} == set(OVERRIDES)
    assert policy.overrides.mode is Mode.RESIZE
    assert policy.overrides.ranking is EvictionRanking.HIGH
    assert policy.overrides.resources == frozenset(ResourceName)
    assert policy.overrides.bounds == RequestBounds(make_amounts(100, 64), make_amounts(2000, 4096))
    assert policy.overrides.containers == {
        "app": ContainerOverrides(mode=Mode.OFF, startup_cpu=StartupCpu(cpu_millicores=2000)),
        "proxy": ContainerOverrides(bounds=RequestBounds(make_amounts(0))),
    }
    assert policy.selector == PolicySelector(
        frozenset({"Deployment"}),
        frozenset({"web", "work-*"}),
        LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("shop",)),)),
    )


def test_an_item_for_all_containers_states_what_the_spec_may_state():
    policy = read(READABLE["all containers by an item"])
    assert policy.overrides == Overrides(
        mode=Mode.OFF,
        resources=frozenset(ResourceName),
        bounds=RequestBounds(make_amounts(50), make_amounts(None, 4096)),
        containers={"app": ContainerOverrides(direction=ResizeDirection.GROW)},
    )
    assert policy.selector.pod_labels == LabelSelector((LabelRequirement("tier", SelectorOperator.IN, ("web",)),))


@pytest.mark.parametrize("name", READABLE)
def test_what_the_api_server_takes_can_be_read(name: str):
    assert isinstance(read(READABLE[name]).overrides, Overrides)


@pytest.mark.parametrize("name", UNREADABLE)
def test_what_cannot_be_read_says_where_and_what_to_write(name: str):
    spec, told, _ = UNREADABLE[name]
    overrides = read(spec).overrides
    assert isinstance(overrides, UnreadableAnnotations)
    assert told in overrides.detail


def test_a_pattern_excludes_no_namespaces():
    overrides = read({"selector": {"namespaces": ["!kube*"]}}, namespace="").overrides
    assert isinstance(overrides, UnreadableAnnotations)
    assert 'spec.selector.namespaces: "!kube*" matches no name' in overrides.detail


_OBJECT_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_WORKLOAD_NAMES = st.from_regex(r"[Aa0]([-._:Aa0]{0,8}[Aa0])?", fullmatch=True) | st.builds(
    lambda length, end: "a" * length + end, st.integers(235, 300), st.sampled_from(("a", "_b", "-b", ".b"))
)


@given(st.lists(st.tuples(st.sampled_from(("Deployment", "Workload")), _WORKLOAD_NAMES), min_size=2, unique=True))
def test_each_workload_has_a_unique_and_valid_policy_name(workloads: list[tuple[str, str]]):
    names = [get_workload_policy_name(kind, name) for kind, name in workloads]
    assert len(set(names)) == len(names)
    for (kind, workload), name in zip(workloads, names, strict=True):
        assert len(name) <= 253
        assert re.fullmatch(_OBJECT_NAME, name)
        if len(workload) < 200 and re.fullmatch(_OBJECT_NAME, workload):
            assert name == f"{kind.lower()}-{workload}"


@pytest.mark.parametrize("name", READABLE)
def test_what_is_written_is_read_again(name: str):
    overrides = read(READABLE[name]).overrides
    assert isinstance(overrides, Overrides)
    written = build_written_policy(PolicyScope("shop", WorkloadRef("Deployment", "web")), overrides)
    policy = decode_policy(msgspec.convert(written, RightsizingPolicyObject))
    assert policy.overrides == overrides
    assert policy.selector == PolicySelector(frozenset({"Deployment"}), frozenset({"web"}))


@pytest.mark.parametrize("name", ["web", "web.v2", "etl_Daily.v2:load_orders", "Extract__all"])
def test_a_policy_for_any_workload_is_one_that_the_api_server_takes(name: str):
    definition = yaml.safe_load(Path("deploy/chart/files/crds/rightsizingpolicies.yaml").read_text())
    spec = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    pattern = spec["selector"]["properties"]["names"]["items"]["pattern"]
    written = build_written_policy(PolicyScope("shop", WorkloadRef("Workload", name)), Overrides(mode=Mode.OFF))
    assert written["spec"]["selector"]["names"] == [name] and re.search(pattern, name)
    assert re.fullmatch(_OBJECT_NAME, written["metadata"]["name"])


def test_a_selector_that_cannot_be_read_selects_all_that_it_could():
    misspelt: Json = {"matchLabel": {"team": "shop"}}
    for spec in (
        {"selector": {"names": "web"}},
        {"selector": {"name": ["web"]}},
        {"selector": misspelt},
        {"modde": "off"},
    ):
        policy = read(spec)
        assert policy.selector == PolicySelector()
        assert isinstance(policy.overrides, UnreadableAnnotations)
    assert isinstance(read({"selector": {"namespaces": ["shop"]}}).overrides, UnreadableAnnotations)
    assert read({"selector": {"namespaces": ["shop"]}}, namespace="").selector.namespaces == {"shop"}
    labels: Json = {"namespaceSelector": {"matchLabels": {"team": "shop"}}}
    assert isinstance(read(labels).overrides, UnreadableAnnotations)
    assert read(labels, namespace="").selector.namespace_labels is not None


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"modde": "off"}, "spec.modde: no such field; did you mean mode?"),
        ({"headroom_factor": 2}, "spec.headroom_factor: no such field; did you mean headroomFactor?"),
        ({"selector": {"kind": ["Job"]}}, "spec.selector.kind: no such field; did you mean kinds?"),
        (
            {"namespaceSelector": {"matchLabel": {"team": "shop"}}},
            "spec.namespaceSelector.matchLabel: no such field; did you mean matchLabels?",
        ),
        (
            {"containers": [{"name": "app"}, {"name": "proxy", "minAlowed": {"cpu": "50m"}}]},
            "spec.containers[1].minAlowed: no such field; did you mean minAllowed?",
        ),
        ({"freeze": [{"timezone": "UTC"}]}, "spec.freeze[0].timezone: no such field; did you mean timeZone?"),
        ({"zzz": 1}, "spec.zzz: no such field; remove it"),
    ],
)
def test_an_unknown_field_is_named_by_its_path_with_the_nearest_known_one(spec, problem):
    document = {"metadata": {"name": "p"}, "spec": spec}
    policy = decode_policy(msgspec.convert(document, ClusterRightsizingPolicyObject))
    assert isinstance(policy.overrides, UnreadableAnnotations)
    assert problem in str(policy.overrides)
