"""Limits of AdmissionReviews, checked before the pod is decoded."""

import json

import pytest

from cruise.kube_json.admission_review import ReviewLimits, ReviewTooLargeError, check_element_counts, check_pod_size
from cruise.kube_json.object_errors import convert_to_struct
from cruise.kube_json.wire.pod_json import PodObject
from tests.admission_reviews import encode_review, make_review
from tests.builders import make_container_json, make_pod_json

BOUNDS = ReviewLimits(json_elements=2000, containers=3, terms=10, annotations=5, tolerations=4)
LABELS = {f"l-{number}": "x" for number in range(11)}
EXPRESSION = {"key": "zone", "operator": "In", "values": ["a", "b", "c"]}
WEB = {"labelSelector": {"matchLabels": LABELS}, "topologyKey": "zone"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def of_nodes(*terms):
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}}


def pod(annotations=None, labels=None, **spec):
    document = make_pod_json(name="", node=None)
    document["metadata"] |= {"annotations": annotations, "labels": labels}
    document["spec"] |= spec
    return convert_to_struct(document, PodObject)


def containers(count):
    return [make_container_json(f"c-{number}") for number in range(count)]


TOO_MUCH = {
    "containers": ({"containers": containers(4)}, "too-many-containers"),
    "init containers": ({"containers": containers(1), "initContainers": containers(3)}, "too-many-containers"),
    "annotations": ({"annotations": {f"a-{number}": "" for number in range(6)}}, "too-many-annotations"),
    "labels": (
        {"annotations": {"a": ""}, "labels": {f"a-{number}": "" for number in range(5)}},
        "too-many-annotations",
    ),
    "tolerations": ({"tolerations": [{"operator": "Exists"}] * 5}, "too-many-tolerations"),
    "terms": (of_nodes(*[{}] * 11), "too-many-affinity-terms"),
    "expressions": (of_nodes({"matchExpressions": [EXPRESSION] * 3}), "too-many-affinity-terms"),
    "fields": (of_nodes({"matchFields": [EXPRESSION] * 3}), "too-many-affinity-terms"),
    "node selector": ({"nodeSelector": LABELS}, "too-many-affinity-terms"),
    "neighbours": ({"affinity": {"podAffinity": {REQUIRED: [WEB]}}}, "too-many-affinity-terms"),
    "others": ({"affinity": {"podAntiAffinity": {REQUIRED: [WEB]}}}, "too-many-affinity-terms"),
    "spread": (
        {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **WEB}]},
        "too-many-affinity-terms",
    ),
}


@pytest.mark.parametrize("part", TOO_MUCH)
def test_what_is_too_much_is_reported(part):
    fields, reason = TOO_MUCH[part]
    with pytest.raises(ReviewTooLargeError) as refused:
        check_pod_size(pod(**fields), BOUNDS)
    assert refused.value.reason == reason


def test_as_much_as_may_be_is_read():
    check_pod_size(
        pod(
            annotations={"a": "", "b": ""},
            labels={"c": "", "d": "", "e": ""},
            containers=containers(3),
            tolerations=[{"operator": "Exists"}] * 4,
            **of_nodes({"matchExpressions": [EXPRESSION] * 2}, {}),
        ),
        BOUNDS,
    )


def test_elements_are_counted_before_anything_is_read():
    body = encode_review(make_review(make_pod_json(name="", node=None)))
    check_element_counts(body, BOUNDS)
    with pytest.raises(ReviewTooLargeError) as refused:
        check_element_counts(json.dumps([0] * 20_000).encode(), BOUNDS)
    assert refused.value.reason == "too-large"
