"""Affinity, ports and volumes of pods, from JSON as kubectl prints it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.scheduling import (
    UNCONSTRAINED,
    HostPort,
    LabelRequirement,
    LabelSelector,
    PodAffinityTerm,
    PodConstraints,
    SelectorOperator,
    TopologySpreadConstraint,
)
from cruise.errors import BadInputError
from cruise.kube_json.object_errors import convert_to_struct
from cruise.kube_json.objects.pod import PodDecoder, decode_pod
from cruise.kube_json.wire.pod_json import PodObject
from tests.builders import Json, make_container_json, make_pod_json

ZONE = "topology.kubernetes.io/zone"
APP_WEB = LabelRequirement("app", SelectorOperator.IN, ("web",))
HASH = LabelRequirement("pod-template-hash", SelectorOperator.IN, ("7d9f8b6c5d",))
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def constraints(**spec: Any) -> PodConstraints:
    return decode_pod(make_pod_json(spec=spec)).constraints


def anti(**term: Any) -> PodAffinityTerm:
    stated = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}} | term
    (read,) = constraints(affinity={"podAntiAffinity": {REQUIRED: [stated]}}).anti_affinity
    return read


def spread(**stated: Any) -> TopologySpreadConstraint:
    (read,) = constraints(topologySpreadConstraints=[spread_json(**stated)]).spread
    return read


def spread_json(**stated: Any) -> Json:
    whole = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    } | stated
    return {key: value for key, value in whole.items() if value is not ...}


def error_line(**spec: Any) -> str:
    with pytest.raises(BadInputError) as refused:
        constraints(**spec)
    return str(refused.value).removeprefix("Pod shop/web-7d9f8b6c5d-x2x4z: ")


def test_a_pod_that_asks_nothing():
    preferred = [{"weight": 1, "podAffinityTerm": {"topologyKey": ZONE}}]
    pods = [
        decode_pod(make_pod_json()),
        decode_pod(make_pod_json(spec={"volumes": [{"name": "cache", "emptyDir": {}}, {"name": "kube-api-access"}]})),
        decode_pod(
            make_pod_json(
                spec={
                    "affinity": {
                        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
                        "podAntiAffinity": {REQUIRED: None},
                    },
                    "topologySpreadConstraints": [spread_json(whenUnsatisfiable="ScheduleAnyway", maxSkew=0)],
                }
            )
        ),
    ]
    assert all(pod.constraints is UNCONSTRAINED for pod in pods)


# ---- neighbours ----


def test_a_term_is_about_the_pods_own_namespace():
    assert anti() == PodAffinityTerm(ZONE, LabelSelector((APP_WEB,)), frozenset({"shop"}))


@pytest.mark.parametrize(
    ("stated", "namespaces", "selector"),
    [
        ({"namespaces": []}, {"shop"}, None),
        ({"namespaces": ["bank", "zoo"]}, {"bank", "zoo"}, None),
        ({"namespaceSelector": {}}, set(), LabelSelector()),
        ({"namespaceSelector": {}, "namespaces": ["bank"]}, {"bank"}, LabelSelector()),
        (
            {"namespaceSelector": {"matchLabels": {"team": "a"}}},
            set(),
            LabelSelector((LabelRequirement("team", SelectorOperator.IN, ("a",)),)),
        ),
    ],
)
def test_other_namespaces_are_listed_or_selected(stated, namespaces, selector):
    term = anti(**stated)
    assert (term.namespaces, term.namespace_selector) == (frozenset(namespaces), selector)


def test_no_selector_selects_nothing_and_an_empty_one_everything():
    assert anti(labelSelector=None).selector is None
    assert anti(labelSelector={}).selector == LabelSelector()
    assert not anti(labelSelector=None).matches("shop", {}, {})
    assert anti(labelSelector={}).matches("shop", {}, {})


def test_label_keys_select_the_pods_own_values():
    matched = anti(matchLabelKeys=["pod-template-hash", "absent"])
    assert matched.selector == LabelSelector((APP_WEB, HASH))
    mismatched = anti(mismatchLabelKeys=["pod-template-hash"])
    other = LabelRequirement("pod-template-hash", SelectorOperator.NOT_IN, ("7d9f8b6c5d",))
    assert mismatched.selector == LabelSelector((APP_WEB, other))


def test_label_keys_that_the_server_has_resolved_already_stay_as_they_are():
    # Labels may have changed since.
    resolved = {"key": "pod-template-hash", "operator": "In", "values": ["earlier"]}
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": [resolved]}
    term = anti(matchLabelKeys=["pod-template-hash"], labelSelector=selector)
    assert term.selector == LabelSelector(
        (APP_WEB, LabelRequirement("pod-template-hash", SelectorOperator.IN, ("earlier",)))
    )


def test_affinity_and_anti_affinity_are_reported_separately():
    terms = [{"topologyKey": "a", "labelSelector": {}}, {"topologyKey": "b", "labelSelector": {}}]
    both = constraints(affinity={"podAffinity": {REQUIRED: terms[:1]}, "podAntiAffinity": {REQUIRED: terms}})
    assert [term.topology_key for term in both.affinity] == ["a"]
    assert [term.topology_key for term in both.anti_affinity] == ["a", "b"]


# ---- spread ----


def test_a_spread_constraint_with_defaults_and_with_everything_stated():
    assert spread() == TopologySpreadConstraint(ZONE, LabelSelector((APP_WEB,)), 1)
    stated = spread(
        maxSkew=3,
        minDomains=2,
        matchLabelKeys=["pod-template-hash"],
        nodeAffinityPolicy="Ignore",
        nodeTaintsPolicy="Honor",
    )
    assert stated == TopologySpreadConstraint(ZONE, LabelSelector((APP_WEB, HASH)), 3, 2, False, True)


def test_a_spread_constraint_without_a_selector_counts_no_pod():
    assert spread(labelSelector=...).selector is None
    # kube-scheduler counts no pods for an empty selector, unless label keys fill it.
    assert spread(labelSelector={}).selector is None
    assert spread(labelSelector={}, matchLabelKeys=["pod-template-hash"]).selector == LabelSelector((HASH,))


# ---- ports ----


def test_host_ports_are_those_of_what_keeps_running():
    def ports(*ports: Json) -> Json:
        return make_container_json(f"c{len(ports)}{ports[0].get('hostPort')}", ports=list(ports))

    pod = decode_pod(
        make_pod_json(
            containers=[
                ports({"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}),
                ports({"containerPort": 53, "hostPort": 53, "protocol": "UDP", "hostIP": "10.0.0.1"}),
            ],
            init_containers=[
                ports({"containerPort": 1, "hostPort": 1}),
                ports({"containerPort": 2, "hostPort": 2, "hostIP": "0.0.0.0"}) | {"restartPolicy": "Always"},
            ],
        )
    )
    assert pod.constraints.host_ports == (
        HostPort("TCP", 2),
        HostPort("TCP", 8080),
        HostPort("UDP", 53, "10.0.0.1"),
    )


def test_on_the_hosts_network_every_port_is_the_hosts():
    container = make_container_json(ports=[{"containerPort": 9100}, {"containerPort": 80, "hostPort": 80}])
    pod = decode_pod(make_pod_json(containers=[container], spec={"hostNetwork": True}))
    assert pod.constraints.host_ports == (HostPort("TCP", 80), HostPort("TCP", 9100))


# ---- volumes ----


def test_claims_are_found_by_name():
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "web-data"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "settings", "configMap": {"name": "settings"}},
        {"name": "again", "persistentVolumeClaim": {"claimName": "web-data", "readOnly": True}},
    ]
    assert constraints(volumes=volumes).claims == ("web-7d9f8b6c5d-x2x4z-scratch", "web-data")


@pytest.mark.parametrize(
    "source", [{"awsElasticBlockStore": {"volumeID": "v"}}, {"cinder": {"volumeID": "v"}}, {"azureDisk": {}}]
)
def test_unsupported_volumes_and_devices_are_no_claims(source):
    volumes = [{"name": "disk", **source}, {"name": "old", "nfs": {"path": "/"}}]
    found = constraints(volumes=volumes, resourceClaims=[{"name": "gpu", "resourceClaimName": "g"}])
    assert (found.claims, found.unsupported_constraints) == ((), ("device gpu", "disk disk"))


NEGATIVE = ("namespaceSelector with nothing but NotIn or DoesNotExist",)


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize(
    ("selector", "unjudged"),
    [
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, NEGATIVE),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, NEGATIVE),
        (
            {
                "matchExpressions": [
                    {"key": "team", "operator": "DoesNotExist"},
                    {"key": "env", "operator": "NotIn", "values": ["a"]},
                ]
            },
            NEGATIVE,
        ),
        # With a label that a namespace has to have, nothing is taken for all of them.
        ({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, ()),
        (
            {
                "matchExpressions": [
                    {"key": "team", "operator": "Exists"},
                    {"key": "env", "operator": "NotIn", "values": ["a"]},
                ]
            },
            (),
        ),
        ({}, ()),
        (None, ()),
    ],
)
def test_selectors_that_kube_scheduler_takes_for_all_namespaces_are_unsupported(kind, selector, unjudged):
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}, "namespaceSelector": selector}
    found = constraints(affinity={kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})
    assert found.unsupported_constraints == unjudged
    preferred = {"weight": 1, "podAffinityTerm": term}
    found = constraints(affinity={kind: {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]}})
    assert found.unsupported_constraints == ()


def test_features_that_a_node_has_to_declare_are_unsupported():
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    ends = {"name": "app", "restartPolicy": "Never", "restartPolicyRules": [rule]}
    restarts = ("node feature RestartAllContainersOnContainerExits",)
    assert constraints(containers=[ends]).unsupported_constraints == restarts
    assert constraints(initContainers=[ends | {"name": "first"}]).unsupported_constraints == restarts
    assert (
        constraints(containers=[ends | {"restartPolicyRules": [rule | {"action": "Restart"}]}]).unsupported_constraints
        == ()
    )
    on_host = ("node feature UserNamespacesHostNetworkSupport",)
    assert constraints(hostNetwork=True, hostUsers=False).unsupported_constraints == on_host
    assert (
        constraints(hostNetwork=True).unsupported_constraints
        == constraints(hostUsers=False).unsupported_constraints
        == ()
    )
    claims = [{"name": "gpu", "resourceClaimName": "g"}]
    assert constraints(hostNetwork=True, hostUsers=False, resourceClaims=claims).unsupported_constraints == (
        "device gpu",
        *on_host,
    )


@pytest.mark.parametrize(("operator", "unjudged"), [("Lt", ("toleration by Lt",)), ("Equal", ()), ("Exists", ())])
def test_a_toleration_that_compares_numbers_is_unsupported(operator, unjudged):
    assert (
        constraints(tolerations=[{"key": "sla", "operator": operator, "value": "5"}]).unsupported_constraints
        == unjudged
    )


def test_an_ephemeral_volume_is_its_own_claim():
    volumes = [{"name": "scratch", "ephemeral": {}}, {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    found = constraints(volumes=volumes)
    assert found.own_claims == tuple(name for name in found.claims if name != "data")
    assert len(found.own_claims) == 1


# ---- refusals ----


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"topologySpreadConstraints": [spread_json(maxSkew=-1)]},
            "spec.topologySpreadConstraints[0].maxSkew: -1 is too small; write 1 or more",
        ),
        (
            {"topologySpreadConstraints": [spread_json(), spread_json(minDomains=0)]},
            "spec.topologySpreadConstraints[1].minDomains: 0 is too small; write 1 or more",
        ),
        (
            {"topologySpreadConstraints": [spread_json(whenUnsatisfiable="Never")]},
            'spec.topologySpreadConstraints[0].whenUnsatisfiable: "Never" is unknown; '
            "write one of DoNotSchedule, ScheduleAnyway",
        ),
        (
            {"topologySpreadConstraints": [spread_json(nodeTaintsPolicy="honor")]},
            'spec.topologySpreadConstraints[0].nodeTaintsPolicy: "honor" is unknown; write one of Honor, Ignore',
        ),
        (
            {"topologySpreadConstraints": [spread_json(topologyKey="")]},
            "spec.topologySpreadConstraints[0]: has no topologyKey; name a label of nodes",
        ),
        (
            {"affinity": {"podAffinity": {REQUIRED: [{"labelSelector": {}}]}}},
            "spec.affinity.podAffinity[0]: has no topologyKey; name a label of nodes",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        REQUIRED: [
                            {
                                "topologyKey": "a",
                                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Gt"}]},
                            }
                        ]
                    }
                }
            },
            'spec.affinity.podAntiAffinity[0].labelSelector: "Gt" is not an operator; '
            "write one of DoesNotExist, Exists, In, NotIn",
        ),
        (
            {
                "affinity": {
                    "podAffinity": {
                        REQUIRED: [
                            {
                                "topologyKey": "a",
                                "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]},
                            }
                        ]
                    }
                }
            },
            "spec.affinity.podAffinity[0].namespaceSelector: In on team has no values; list at least one",
        ),
        (
            {"containers": [make_container_json(ports=[{"containerPort": 1, "hostPort": 70000}])]},
            "spec.containers[0].ports[0]: 70000 is not a port; write 1 to 65535",
        ),
        (
            {"containers": [make_container_json(ports=[{"hostPort": 7, "protocol": "tcp"}])]},
            'spec.containers[0].ports[0].protocol: "tcp" is unknown; write one of TCP, UDP, SCTP',
        ),
        (
            {"preemptionPolicy": "Always"},
            'spec.preemptionPolicy: "Always" is not a policy; write one of Never, PreemptLowerPriority',
        ),
        (
            {"volumes": [{"name": "data", "persistentVolumeClaim": {}}]},
            "spec.volumes[0].persistentVolumeClaim: has no claimName; add it",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_rejected_by_its_place(spec, words):
    assert error_line(**spec) == words


# ---- sharing ----


def replica(index: int, **spec: Any) -> PodObject:
    return convert_to_struct(make_pod_json(f"web-7d9f8b6c5d-{index}", spec=spec), PodObject)


def test_equal_constraints_are_one_object():
    reader = PodDecoder()
    spec = {
        "topologySpreadConstraints": [spread_json(matchLabelKeys=["pod-template-hash"])],
        "containers": [make_container_json(ports=[{"containerPort": 80, "hostPort": 80}])],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "shared"}}],
    }
    first, second = (reader.read(replica(index, **spec)).constraints for index in range(2))
    assert first is second
    own = {"volumes": [{"name": "data", "ephemeral": {}}]}
    third, fourth = (reader.read(replica(index, **spec | own)).constraints for index in range(2))
    assert third != fourth
    assert third.spread is fourth.spread is first.spread


def test_pods_that_differ_in_the_value_of_a_key_do_not_share():
    reader = PodDecoder()
    one = make_pod_json(spec={"topologySpreadConstraints": [spread_json(matchLabelKeys=["app"], labelSelector={})]})
    pods = [
        reader.read(convert_to_struct(one | {"metadata": one["metadata"] | {"labels": {"app": app}}}, PodObject))
        for app in ("web", "api")
    ]
    selectors = [pod.constraints.spread[0].selector for pod in pods]
    assert selectors == [
        LabelSelector((LabelRequirement("app", SelectorOperator.IN, (app,)),)) for app in ("web", "api")
    ]


_KEYS = st.sampled_from(["app", "tier"])
_SELECTORS = st.none() | st.fixed_dictionaries(
    {}, optional={"matchLabels": st.dictionaries(_KEYS, st.sampled_from("ab"), max_size=2)}
)
_TERMS = st.lists(
    st.fixed_dictionaries(
        {"topologyKey": st.sampled_from(["z", "h"]), "labelSelector": _SELECTORS},
        optional={
            "namespaces": st.lists(st.sampled_from(["shop", "bank"]), max_size=2),
            "namespaceSelector": _SELECTORS,
            "matchLabelKeys": st.lists(_KEYS, max_size=1),
        },
    ),
    max_size=2,
)
_SPECS = st.fixed_dictionaries(
    {},
    optional={
        "affinity": st.fixed_dictionaries({"podAffinity": st.fixed_dictionaries({REQUIRED: _TERMS})}),
        "hostNetwork": st.booleans(),
        "volumes": st.just([{"name": "v", "ephemeral": {}}]),
    },
)


@given(st.lists(st.tuples(_SPECS, st.sampled_from("ab"), st.sampled_from(["shop", "bank"])), max_size=12))
def test_a_shared_reader_reads_what_a_fresh_one_does(pods):
    reader = PodDecoder()
    for spec, app, namespace in pods:
        document = convert_to_struct(make_pod_json("p", namespace, labels={"app": app}, spec=spec), PodObject)
        assert reader.read(document) == PodDecoder().read(document)
