"""Error responses with the bodies that API servers send; test_actions.py and others cover those of a real server."""

import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.kube.responses import ERROR_MAPPINGS, create_error, find_failure_status
from cruise.errors import (
    ConflictError,
    CruiseError,
    ExpiredVersionError,
    NotFoundError,
    RefusedError,
    ThrottledError,
    UnavailableError,
)

ASKED = "PATCH /api/v1/namespaces/a/pods/p/resize"


def body(code: int, message: str, reason: str = "", **details: object) -> bytes:
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (400, RefusedError),
        (401, RefusedError),
        (403, RefusedError),
        (404, NotFoundError),
        (405, RefusedError),
        (408, UnavailableError),
        (409, ConflictError),
        (410, ExpiredVersionError),
        (413, RefusedError),
        (415, RefusedError),
        (422, RefusedError),
        (425, UnavailableError),
        (429, ThrottledError),
        (500, UnavailableError),
        (502, UnavailableError),
        (503, UnavailableError),
        (504, UnavailableError),
        (302, UnavailableError),
    ],
)
def test_codes_without_a_status_object(code: int, kind: type[CruiseError]):
    error = create_error(code, b"<html>no</html>", ASKED)
    assert type(error) is kind
    assert ASKED in str(error)


SAID = [
    (422, "Pod QOS Class may not change as a result of resizing", "QosClassChange"),
    (422, "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed", "ResourceRemoved"),
    (422, "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed", "ResourceRemoved"),
    (
        422,
        "memory limits cannot be decreased unless resizePolicy is RestartContainer",
        "MemoryLimitDecreased",
    ),
    (422, "memory limits cannot be added unless resizePolicy is RestartContainer", "MemoryLimitDecreased"),
    (422, "spec: Forbidden: Pod running on node without support for resize", "NodeWithoutResize"),
    (422, "[]: Forbidden: static pods cannot be resized", "StaticPod"),
    (422, "[]: Forbidden: windows pods cannot be resized", "UnsupportedPlatform"),
    (422, "[]: Forbidden: pods with pod-level resources cannot be resized", "PodLevelResources"),
    (
        422,
        "[]: Forbidden: resize of pods with pod-level resources is forbidden when "
        "InPlacePodLevelResourcesVerticalScalingEnabled feature gate is disabled",
        "PodLevelResources",
    ),
    (422, "spec: Forbidden: resources for non-sidecar init containers are immutable", "InitContainer"),
    (
        422,
        "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer "
        "cannot be resized",
        "InitContainer",
    ),
    (422, "spec: Forbidden: pods with node allocatable resource claims cannot be resized", "ResourceClaims"),
    (422, "spec: Forbidden: only cpu and memory resources are mutable", "OtherResource"),
    (
        422,
        "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable",
        "OtherResource",
    ),
    (422, "spec.containers: Forbidden: containers may not be added or removed on resize", "ContainerSet"),
    (422, 'Invalid value: "3": must be less than or equal to cpu limit of 2', "RequestAboveLimit"),
    (
        403,
        'pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "n1"',
        "NodeWithoutFeature",
    ),
    (
        403,
        'pods "p" is forbidden: User "system:serviceaccount:a:b" cannot patch resource "pods/resize" in API group '
        '"" in the namespace "a"',
        "Forbidden",
    ),
    (403, "exceeded quota: q, requested: requests.cpu=1, used: requests.cpu=1, limited: 1", "QuotaExceeded"),
    (403, "status unknown for quota: q, resources: requests.cpu", "QuotaExceeded"),
    (403, "maximum cpu usage per Container is 3, but limit is 3500m", "LimitRange"),
    (403, "minimum memory usage per Pod is 1Gi, but request is 5Mi", "LimitRange"),
    (
        403,
        "memory max limit to request ratio per Container is 10, but provided ratio is 16.000000",
        "LimitRange",
    ),
    (403, 'admission webhook "x.example.com" denied the request: no', "AdmissionDenied"),
    (422, "ValidatingAdmissionPolicy 'x' with binding 'x' denied request: no", "AdmissionDenied"),
    (403, 'poddisruptionbudgets.policy "b" is forbidden: pdb disruptions allowed is negative', "DisruptionBudget"),
    (
        500,
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        "MultipleDisruptionBudgets",
    ),
    (401, "Unauthorized", "Unauthorized"),
]


@pytest.mark.parametrize(("code", "message", "cause"), SAID)
def test_distinguishes_rejections(code: int, message: str, cause: str):
    error = create_error(code, body(code, message, "Invalid"), ASKED)
    assert isinstance(error, RefusedError)
    assert error.cause == cause


def test_every_refusal_that_is_known_has_an_example():
    known = [meaning for meaning in ERROR_MAPPINGS if meaning.error is RefusedError]
    unshown = [
        meaning
        for meaning in known
        if not any(code == meaning.code and re.search(meaning.text, said) for code, said, _ in SAID)
    ]
    assert known
    assert not unshown


@pytest.mark.parametrize(
    ("code", "details", "cause"),
    [
        (403, {"causes": [{"reason": "NodeCapacity", "message": ""}]}, "NodeCapacity"),
        (403, {"causes": [{"reason": "UnsupportedPlatform", "message": ""}]}, "UnsupportedPlatform"),
        (422, {"causes": [{"reason": "FieldValueForbidden", "field": "spec"}]}, "FieldValueForbidden"),
        (422, {"causes": [{"field": "spec"}, {"reason": "FieldValueInvalid"}]}, "FieldValueInvalid"),
        (403, {}, "SaidSo"),
        (400, {"causes": None}, "SaidSo"),
    ],
)
def test_an_unknown_rejection_keeps_the_servers_cause(code: int, details: dict[str, object], cause: str):
    error = create_error(code, body(code, "something new", "SaidSo", **details), ASKED)
    assert isinstance(error, RefusedError)
    assert error.cause == cause


def test_a_rejection_without_a_known_reason_is_not_a_missing_permission():
    said = body(403, 'pods "p" is forbidden: violates PodSecurity "restricted:latest"', "Forbidden")
    error = create_error(403, said, ASKED)
    assert isinstance(error, RefusedError)
    assert error.cause == "AdmissionDenied"


def test_a_rejection_without_a_reason_is_named_by_its_code():
    error = create_error(403, b"", ASKED)
    assert isinstance(error, RefusedError)
    assert error.cause == "HTTP 403"


def test_a_wrong_uid_is_a_conflict():
    said = body(
        422,
        'Pod "p" is invalid: metadata.uid: Invalid value: "0": field is immutable',
        "Invalid",
        causes=[{"reason": "FieldValueInvalid", "field": "metadata.uid"}],
    )
    assert isinstance(create_error(422, said, ASKED), ConflictError)


@pytest.mark.parametrize("http", [200, 201, 500])
def test_a_failure_counts_whatever_the_http_code(http: int):
    said = body(500, "This pod has more than one PodDisruptionBudget, which …")
    error = create_error(http, said, ASKED)
    assert isinstance(error, RefusedError)
    assert error.cause == "MultipleDisruptionBudgets"


def test_waits_are_read_from_the_header_and_else_from_the_details():
    said = body(429, "slow down", "TooManyRequests", retryAfterSeconds=10, causes=[{"reason": "DisruptionBudget"}])
    by_header, by_details = create_error(429, said, ASKED, "3"), create_error(429, said, ASKED)
    assert isinstance(by_header, ThrottledError)
    assert isinstance(by_details, ThrottledError)
    assert (by_header.retry_after_seconds, by_details.retry_after_seconds) == (3, 10)
    assert by_header.cause == "DisruptionBudget"


@pytest.mark.parametrize("header", ["Wed, 21 Oct 2026 07:28:00 GMT", "", "-1", "soon", "1.5"])
def test_waits_that_are_not_a_number_of_seconds_are_ignored(header: str):
    error = create_error(429, b"", ASKED, header)
    assert isinstance(error, ThrottledError)
    assert error.retry_after_seconds is None


def test_a_failure_for_some_objects_is_not_an_outage():
    webhook = create_error(500, body(500, 'Internal error occurred: failed calling webhook "x": refused'), ASKED)
    budget = create_error(504, body(504, 'couldn\'t update PodDisruptionBudget "b" due to conflicts'), ASKED)
    assert isinstance(webhook, ThrottledError)
    assert isinstance(budget, ThrottledError)
    assert (webhook.cause, budget.cause) == ("WebhookFailed", "DisruptionBudget")


def test_admission_that_is_not_ready_is_an_outage():
    said = body(403, 'pods "p" is forbidden: not yet ready to handle request', "Forbidden")
    assert isinstance(create_error(403, said, ASKED), UnavailableError)


def test_messages_are_one_line_of_bounded_length():
    error = create_error(422, body(422, "a\n  b\t" + "x" * 5000), ASKED)
    assert str(error).startswith("a b x")
    assert len(str(error)) < 400


@pytest.mark.parametrize("answer", [b"", b"{", b"[]", b"null", b'{"kind":"Pod"}', b'{"kind":1,"status":"Failure"}'])
def test_an_answer_without_a_status_is_not_a_failure(answer: bytes):
    assert find_failure_status(answer) is None


def test_a_success_is_no_failure():
    assert find_failure_status(b'{"kind":"Status","status":"Success","code":201}') is None


@given(st.integers(0, 999), st.binary(), st.none() | st.text())
def test_any_answer_is_some_error_with_words(code: int, answer: bytes, retry_after: str | None):
    error = create_error(code, answer, ASKED, retry_after)
    assert str(error)
    assert "\n" not in str(error)


def test_a_message_of_an_admission_webhook_is_printable():
    """Postgres cannot store NUL, and a terminal would obey an escape."""
    denied = create_error(403, body(403, "denied:\0 \x1b[31m\u202eno\n"), ASKED)
    assert isinstance(denied, RefusedError)
    assert str(denied) == "denied:� �[31m�no"


def test_the_kind_of_a_long_message_is_known_by_its_beginning():
    """The message of an admission webhook may have megabytes."""
    denied = create_error(
        403, body(403, 'admission webhook "x" denied the request: ' + "admission webhook " * 100_000), ASKED
    )
    assert isinstance(denied, RefusedError)
    assert denied.cause == "AdmissionDenied"
