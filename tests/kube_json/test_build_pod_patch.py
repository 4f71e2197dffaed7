"""Patches: minimal, escaped, with missing parents, and applied by an independent RFC 6902 implementation."""

import copy
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.domain.cluster import Pod, QosClass
from cruise.domain.scheduling import TaintEffect, Toleration
from cruise.errors import BadInputError
from cruise.kube_json.objects.pod import decode_pod
from cruise.kube_json.patches import apply_patch_in_place, build_pod_patch, build_verified_patch
from tests.admission_reviews import apply_response_patch, build_submitted_pods
from tests.builders import make_amounts, make_container_json, make_pod_json

KEY = "cruise.io/original-resources"


def submitted(**fields):
    return make_pod_json(node=None, **fields)


def sized(pod: Pod, requests=None, limits=None, index=0) -> Pod:
    containers = list(pod.containers)
    containers[index] = replace(
        containers[index],
        requests=requests or make_amounts(400, 300),
        limits=limits if limits is not None else make_amounts(None, 700),
    )
    return replace(pod, containers=tuple(containers))


def patch_of(document, change=sized, **annotations):
    before = decode_pod(document)
    after = change(before)
    return build_pod_patch(document, before, replace(after, annotations={**before.annotations, **annotations}))


def test_only_changed_values_are_written_and_others_keep_their_notation():
    document = submitted(containers=[make_container_json(cpu="0.4", memory="1e3", cpu_limit="1")])
    document["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"] = "1Gi"
    assert patch_of(document, lambda pod: sized(pod, make_amounts(400, 300))) == [
        {
            "op": "add",
            "path": "/spec/containers/0/resources/requests",
            "value": {"cpu": "0.4", "memory": "300Mi", "ephemeral-storage": "1Gi"},
        },
        {"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"memory": "700Mi"}},
    ]
    settled = submitted(containers=[make_container_json(cpu="0.4", memory="300Mi", cpu_limit="1")])
    assert patch_of(settled) == [
        {"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"memory": "700Mi"}}
    ]


@pytest.mark.parametrize(
    "stated", [None, [], [{"key": "own", "operator": "Odd"}, {"operator": "Exists", "effect": "NoExecute"}]]
)
def test_tolerations_are_added_behind_those_that_are_there(stated):
    document = submitted(spec={"tolerations": stated})
    before = decode_pod(document)
    added = (
        Toleration("a", exists=True, effect=TaintEffect.PREFER_NO_SCHEDULE),
        Toleration("b", value="c"),
    )
    placement = replace(before.placement, tolerations=(*before.placement.tolerations, *added))
    patch = build_verified_patch(document, before, replace(before, placement=placement), decode_pod)
    assert json.loads(patch) == [
        {
            "op": "add",
            "path": "/spec/tolerations",
            "value": [
                *(stated or ()),
                {"key": "a", "operator": "Exists", "effect": "PreferNoSchedule"},
                {"key": "b", "operator": "Equal", "value": "c"},
            ],
        }
    ]


@pytest.mark.parametrize("resources", [None, "absent"])
def test_resources_that_are_missing_or_null_are_added_whole(resources):
    container = {"name": "app", "image": "x"} | ({} if resources == "absent" else {"resources": resources})
    whole = {"requests": {"cpu": "400m", "memory": "300Mi"}, "limits": {"memory": "700Mi"}}
    assert patch_of(submitted(containers=[container])) == [
        {"op": "add", "path": "/spec/containers/0/resources", "value": whole}
    ]


@pytest.mark.parametrize("requests", [None, "absent"])
def test_requests_that_are_missing_or_null_are_added(requests):
    resources = {"limits": {"memory": "700Mi"}} | ({} if requests == "absent" else {"requests": requests})
    document = submitted(containers=[{"name": "app", "resources": resources}])
    assert patch_of(document) == [
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": {"cpu": "400m", "memory": "300Mi"}}
    ]


def test_a_request_that_followed_its_limit_is_written_down():
    document = submitted(containers=[make_container_json(cpu="400m", memory=None, memory_limit="300Mi")])
    requests = {"cpu": "400m", "memory": "300Mi"}
    assert patch_of(document) == [
        {"op": "add", "path": "/spec/containers/0/resources/requests", "value": requests},
        {"op": "add", "path": "/spec/containers/0/resources/limits", "value": {"memory": "700Mi"}},
    ]


def test_a_sidecar_is_among_the_init_containers():
    sidecar = make_container_json("proxy", restartPolicy="Always")
    document = submitted(init_containers=[make_container_json("setup"), sidecar])
    paths = [operation["path"] for operation in patch_of(document, lambda pod: sized(pod, index=1))]
    assert paths
    assert all(path.startswith("/spec/initContainers/1/resources/") for path in paths)


def test_annotations_are_escaped_and_their_parent_is_added_where_it_is_missing():
    document = submitted(annotations={"x": "y"})
    assert patch_of(document, lambda pod: pod, **{KEY: "{}", "a~b": "c"}) == [
        {"op": "add", "path": "/metadata/annotations/cruise.io~1original-resources", "value": "{}"},
        {"op": "add", "path": "/metadata/annotations/a~0b", "value": "c"},
    ]
    for absent in ({}, {"annotations": None}):
        document = submitted()
        document["metadata"].pop("annotations", None)
        document["metadata"] |= absent
        assert patch_of(document, lambda pod: pod, **{KEY: "{}"}) == [
            {"op": "add", "path": "/metadata/annotations", "value": {KEY: "{}"}}
        ]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/spec/containers/7/resources", "no 7"),
        ("/spec/containers/x/resources", "no x"),
        ("/spec/containers/0", "0 has no parent"),
        ("/spec/nothing/there", "no nothing"),
        ("/spec/containers/0/name/first/x", "no first"),
        ("/spec/containers/0/name/first", "first has no parent"),
    ],
)
def test_what_does_not_apply_is_rejected(path, words):
    with pytest.raises(BadInputError, match=words):
        apply_patch_in_place(submitted(), [{"op": "add", "path": path, "value": 1}])


def test_a_patch_that_gives_something_else_than_was_decided_is_not_sent():
    document = submitted()
    before = decode_pod(document)
    with pytest.raises(BadInputError, match="differs from the decision"):
        build_verified_patch(document, before, sized(before), lambda patched: replace(decode_pod(patched), priority=7))


def test_a_patch_that_changes_the_class_of_service_is_not_sent():
    document = submitted()
    before = decode_pod(document)
    equal = make_amounts(400, 300)
    guaranteed = replace(sized(before, equal, equal), qos=QosClass.GUARANTEED)
    del document["status"]
    with pytest.raises(BadInputError, match="from Burstable to Guaranteed"):
        build_verified_patch(document, before, guaranteed, decode_pod)


def test_only_a_pod_without_requests_may_get_another_class():
    document = make_pod_json(containers=[{"name": "app"}])
    del document["status"]
    before = decode_pod(document)
    burstable = replace(sized(before, make_amounts(400, 300)), qos=QosClass.BURSTABLE)
    assert b'"requests":{"cpu":"400m","memory":"300Mi"}' in build_verified_patch(
        copy.deepcopy(document), before, burstable, decode_pod
    )
    equal = make_amounts(400, 300)
    guaranteed = replace(sized(before, equal, equal), qos=QosClass.GUARANTEED)
    with pytest.raises(BadInputError, match="from BestEffort to Guaranteed"):
        build_verified_patch(copy.deepcopy(document), before, guaranteed, decode_pod)


def test_a_request_over_its_limit_is_not_sent():
    document = submitted()
    before = decode_pod(document)
    with pytest.raises(BadInputError, match="request more than its limit"):
        build_verified_patch(document, before, sized(before, limits=make_amounts(None, 299)), decode_pod)


def test_nothing_to_change_is_no_patch():
    document = submitted()
    before = decode_pod(document)
    assert build_verified_patch(document, before, before, decode_pod) == b""


@given(build_submitted_pods(), st.data())
def test_a_patch_applies_and_gives_what_was_decided(document, data):
    before = decode_pod(document | {"status": {}})
    after = before
    for index, container in enumerate(before.containers):
        if data.draw(st.booleans()):
            memory = data.draw(st.integers(1, 1 << 12))
            limits = replace(container.limits, cpu_millicores=None, memory_bytes=(memory + 100) << 20)
            requests = make_amounts(data.draw(st.integers(1, 9000)), memory)
            after = sized(after, requests, limits, index)
    after = replace(after, annotations={**before.annotations, KEY: "{}"})
    kept = copy.deepcopy(document)
    operations = build_pod_patch(document, before, after)
    result = apply_response_patch(document, operations)
    assert decode_pod(result | {"status": {}}) == replace(after, qos=decode_pod(result | {"status": {}}).qos)
    assert document == kept
    apply_patch_in_place(document, operations)
    assert document == result
