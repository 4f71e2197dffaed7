"""AdmissionReviews: requests, the inputs of a response, and its encoding."""

import json

import msgspec
import pytest
from hypothesis import given

from cruise.errors import BadInputError
from cruise.kube_json.admission_review import (
    RawContainer,
    RawMetadata,
    RawPodJson,
    RawSpec,
    ReviewResponse,
    decode_request,
    decode_submitted_pod,
    decode_summary,
    find_uid,
    get_created_pod,
)
from cruise.kube_json.wire import pod_json
from tests.admission_reviews import UID, build_submitted_pods, decode_response, encode_review, make_review
from tests.builders import make_container_json, make_pod_json


def review(pod=None, **request):
    return encode_review(make_review(pod or make_pod_json(name="", node=None), **request))


def digest_of(pod, **request) -> bytes:
    seen = decode_summary(review(pod, **request))
    assert seen is not None
    return seen[1]


def fields_of(struct) -> set[str]:
    return {field.name for field in msgspec.structs.fields(struct)}


def test_the_pod_is_where_the_request_says_and_has_no_status_yet():
    pod = make_pod_json(name="", namespace="elsewhere", node=None, phase="Succeeded")
    question = decode_request(review(pod, namespace="shop"))
    document = get_created_pod(question)
    assert (question.uid, question.creates_pod) == (UID, True)
    assert (document.metadata.namespace, document.metadata.name, document.status) == ("shop", "", None)


@pytest.mark.parametrize(
    "request_fields",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE", "object": None},
        {"subResource": "binding"},
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        {"kind": {"group": "", "version": "v2", "kind": "Pod"}},
        {"kind": None},
    ],
)
def test_anything_but_a_new_pod_is_reported_separately(request_fields):
    body = review(**request_fields)
    assert decode_summary(body) is None
    assert not decode_request(body).creates_pod


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"\x00\xff", "not JSON"),
        (b'{"request":{"uid":1,"a":' + b"[" * 100_000, "AdmissionReview: "),
        (b"[]", "is a list instead of an object"),
        (b"{}", "has no request"),
        (b'{"request":{}}', '"" is not supported; send admission.k8s.io/v1 AdmissionReview'),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1beta1","request":{}}', "v1beta1"),
    ],
)
def test_what_is_no_review_is_rejected_in_one_line(body, words):
    assert decode_summary(body) is None
    with pytest.raises(BadInputError) as refused:
        decode_request(body)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("pod", [{}, [], None, {"metadata": {}, "spec": {}}, {"kind": "Node", "metadata": {}}])
def test_what_is_no_pod_is_rejected(pod):
    question = decode_request(encode_review(make_review(pod)))
    with pytest.raises(BadInputError, match="Pod: "):
        get_created_pod(question)


def test_the_digest_sees_every_field_that_a_decision_can_depend_on():
    assert fields_of(RawContainer) == fields_of(pod_json.ContainerSpec)
    assert fields_of(RawSpec) == fields_of(pod_json.PodSpec)
    assert fields_of(RawMetadata) == fields_of(pod_json.Metadata)
    # The kind is the struct's tag.
    assert fields_of(RawPodJson) == fields_of(pod_json.PodObject) | {"kind"}


# One value for each field that differs from what `make_pod_json` writes.
CHANGES: dict[str, dict[str, object]] = {
    "metadata": {
        "name": "web-0",
        "uid": "u-2",
        "resourceVersion": "7",
        "labels": {"app": "other"},
        "annotations": {"cruise.io/mode": "off"},
        "creationTimestamp": "2026-01-02T00:00:00Z",
        "deletionTimestamp": "2026-01-02T00:00:00Z",
        "ownerReferences": [],
    },
    "spec": {
        "containers": [make_container_json("other")],
        "initContainers": [make_container_json("other")],
        "nodeName": "n9",
        "priority": 5,
        "overhead": {"cpu": "1m"},
        "resources": {"requests": {"cpu": "1"}},
        "os": {"name": "windows"},
        "nodeSelector": {"a": "b"},
        "affinity": {"nodeAffinity": {}},
        "tolerations": [{"operator": "Exists"}],
        "schedulingGates": [{"name": "g"}],
        "priorityClassName": "high",
        "preemptionPolicy": "Never",
        "hostNetwork": True,
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
        ],
        "resourceClaims": [{"name": "gpu"}],
        "schedulerName": "other",
        "restartPolicy": "Never",
        "hostUsers": False,
        "schedulingGroup": {"podGroupName": "g"},
    },
}


def test_each_change_of_such_a_field_changes_the_digest():
    # The namespace is the request's. Each pod has a volume with a unique name, and no size depends on volumes.
    assert {key for part in CHANGES.values() for key in part} | {"namespace", "volumes"} == {
        field.encode_name for struct in (RawMetadata, RawSpec) for field in msgspec.structs.fields(struct)
    }
    pod = make_pod_json(name="", node=None)
    digests = [digest_of(pod), digest_of(pod, namespace="bank"), digest_of(pod | {"kind": "pod"})]
    for part, fields in CHANGES.items():
        for key, value in fields.items():
            digests.append(digest_of(pod | {part: pod[part] | {key: value}}))
    for change in (
        {"name": "log"},
        {"ports": [{"containerPort": 80, "hostPort": 80}]},
        {"resources": {"requests": {"cpu": "101m", "memory": "128Mi"}}},
        {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
        {"restartPolicy": "Always"},
    ):
        container = make_container_json() | change
        digests.append(digest_of(pod | {"spec": pod["spec"] | {"containers": [container]}}))
        # The same container in another place is another pod.
        spec = pod["spec"] | {"containers": [], "initContainers": [container]}
        digests.append(digest_of(pod | {"spec": spec}))
        spec = pod["spec"] | {"containers": [make_container_json(), container]}
        digests.append(digest_of(pod | {"spec": spec}))
    assert len(set(digests)) == len(digests)


def test_fields_that_distinguish_replicas_do_not_change_the_digest():
    def replica(suffix: str):
        mount = {"name": f"kube-api-access-{suffix}", "mountPath": "/var/run/secrets"}
        pod = make_pod_json(name="", node=None, containers=[make_container_json(volumeMounts=[mount])])
        pod["metadata"]["namespace"] = suffix
        pod["spec"]["volumes"] = [{"name": f"kube-api-access-{suffix}"}]
        return pod | {"status": {"phase": suffix}}

    assert digest_of(replica("x2x4z"), uid="1") == digest_of(replica("b7b9q"), uid="2")


@given(build_submitted_pods())
def test_the_summary_has_the_pod_as_it_was_sent(pod):
    pod["spec"]["volumes"] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}, "hostPath": {"path": "/"}}
    ]
    pod["spec"]["tolerations"] = [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]
    body = review(pod, dryRun=True)
    whole, seen = decode_request(body), decode_summary(body)
    assert seen is not None
    question = seen[0].to_request()
    assert get_created_pod(question) == get_created_pod(whole)
    assert (question.uid, question.creates_pod, question.dry_run) == (whole.uid, True, True)
    # All that a patch touches is there, in its place and in its own notation.
    part, sent = decode_submitted_pod(question), decode_submitted_pod(whole)
    assert part["metadata"].get("annotations", "none") == sent["metadata"].get("annotations", "none")
    assert part["spec"]["tolerations"] == sent["spec"]["tolerations"]
    for field in ("containers", "initContainers"):
        resources = [
            [one.get("resources", "none") for one in spec.get(field) or ()] for spec in (part["spec"], sent["spec"])
        ]
        assert resources[0] == resources[1]


def test_an_answer_has_the_requests_uid_whatever_it_holds():
    for uid in (UID, "", 'a"b\\c\n', "é"):
        response = decode_response(ReviewResponse(b"[]").render_for_request(uid))
        assert response == {"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": "W10="}
    assert decode_response(ReviewResponse().render_for_request("1")) == {"uid": "1", "allowed": True}


def test_a_warning_fits_into_a_header():
    warning = "é\r\nSet-Cookie: " + "x" * 1000
    [told] = decode_response(ReviewResponse(warnings=[warning]).render_for_request("1"))["warnings"]
    assert told.startswith("???Set-Cookie: x")
    assert (len(told), told.isascii(), told.isprintable()) == (200, True, True)


@pytest.mark.parametrize(
    ("body", "uid"),
    [
        (b'{"request": {"uid" : "705ab4f5", "object"', "705ab4f5"),
        (b'{"uid":"a"}{"uid":"b"}', "a"),
        (b'{"uid":"' + b"a" * 200 + b'"}', ""),
        (b'{"uid":7}', ""),
        (b"", ""),
    ],
)
def test_the_uid_is_found_in_what_is_no_json(body, uid):
    assert find_uid(body) == uid


def test_answers_are_json():
    assert json.loads(ReviewResponse(warnings=["w"]).render_for_request("1"))["response"]["warnings"] == ["w"]
