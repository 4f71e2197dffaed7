"""The webhook's HTTP interface: every review is answered with 200 and allowed."""

import asyncio
import copy
import json
import random

import pytest

from cruise.domain.resources import QuantityError, parse_cpu_millicores, parse_memory_bytes
from cruise.interfaces.webhook import create_webhook_app, summarize_reviews
from cruise.kube_json.admission_review import ReviewLimits
from cruise.runtime.admission_reviewer import INTERNAL_ERROR, PATCH_DIFFERS, AdmissionReviewer
from tests.admission_reviews import (
    UID,
    apply_response_patch,
    decode_response,
    encode_review,
    get_patch,
    make_review,
    make_reviewer,
)
from tests.builders import make_container_json, make_pod_json


def ask(app, body=b"", method="POST", path="/mutate", chunks=None):
    """Send one request; return the status, the headers and the body of the answer."""
    sent = []
    pieces = list(chunks if chunks is not None else [body])
    messages = [
        {"type": "http.request", "body": piece, "more_body": index + 1 < len(pieces)}
        for index, piece in enumerate(pieces)
    ]

    async def receive():
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    running = app({"type": "http", "method": method, "path": path}, receive, send)
    # Nothing here waits for anything, so the application runs to its end in one step.
    with pytest.raises(StopIteration):
        running.send(None)
    start, end = sent
    return start["status"], dict(start["headers"]), end["body"]


def pod_json(**fields):
    return make_pod_json(name="", node=None, **fields)


def test_a_review_is_answered_with_a_patch():
    status, headers, body = ask(create_webhook_app(make_reviewer()), encode_review(make_review(pod_json())))
    assert status == 200
    assert headers == {b"content-type": b"application/json", b"content-length": str(len(body)).encode()}
    assert get_patch(decode_response(body))


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/mutate", 405), ("PUT", "/mutate", 405), ("POST", "/", 404), ("POST", "/mutate/", 404)],
)
def test_an_unknown_path_is_not_found(method, path, status):
    told, headers, _ = ask(create_webhook_app(make_reviewer()), b"{}", method, path)
    assert told == status
    assert (headers.get(b"allow") == b"POST") == (status == 405)


async def test_a_body_in_pieces_is_put_together():
    body = encode_review(make_review(pod_json()))
    _, answer = await answered(make_reviewer(), [body[:7], body[7:4000], b"", body[4000:]])
    assert get_patch(decode_response(answer))


async def test_a_body_that_is_too_large_is_not_read_to_its_end():
    beginning = b'{"request":{"uid":"u-1","object":"'
    headers, answer = await answered(make_reviewer(), [beginning, *[b"x" * (1 << 20)] * 100])
    response = decode_response(answer)
    assert response["uid"] == "u-1"
    assert response["warnings"] == ["cruise leaves the pod as it is: the review is larger than 1024 KiB"]
    # What was not read cannot be followed by another request.
    assert headers[b"connection"] == b"close"


async def answered(reviewer: AdmissionReviewer, pieces):
    sent, messages = [], list(pieces)

    async def receive():
        return {"type": "http.request", "body": messages.pop(0), "more_body": bool(messages)}

    async def send(message):
        sent.append(message)

    await create_webhook_app(reviewer)({"type": "http", "method": "POST", "path": "/mutate"}, receive, send)
    assert sent[0]["status"] == 200
    # At most one piece beyond the bound is taken.
    assert sum(map(len, pieces[: len(pieces) - len(messages) - 1])) <= ReviewLimits().review_bytes
    return dict(sent[0]["headers"]), sent[1]["body"]


def test_during_shutdown_clients_are_sent_to_other_servers():
    stopping = False
    app = create_webhook_app(make_reviewer(), lambda: stopping)
    body = encode_review(make_review(pod_json()))
    assert b"connection" not in ask(app, body)[1]
    stopping = True
    status, headers, answer = ask(app, body)
    assert (status, headers[b"connection"]) == (200, b"close")
    assert get_patch(decode_response(answer))


def test_the_counts_are_shown_with_cumulative_buckets():
    reviewer = make_reviewer()
    app = create_webhook_app(reviewer)
    ask(app, encode_review(make_review(pod_json())))
    ask(app, b"garbage")
    reviewer.counts.seconds[:] = [1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 9]
    figures = summarize_reviews(reviewer.counts)
    assert figures.answers == {("mutated", "peak"): 1, ("failed", "unreadable"): 1}
    assert [count for _, count in figures.duration_buckets] == [1, 3, 3, 7, 7, 7, 7, 7, 7, 7, 7]


# ---- garbage ----

SEED = 20261121
JUNK: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    1e308,
    10**30,
    "",
    "app",
    "100m",
    "-5",
    "1e3",
    "9" * 50,
    "Gi",
    "é\u0000\ud7ff",
    "cruise.io/mode",
    [],
    {},
    [None],
    [[]],
    {"": ""},
    {"cpu": "1", "memory": "1Gi"},
    {"cpu": None},
    {"requests": {"cpu": "1"}, "limits": {"cpu": "500m"}},
    [{"name": "app"}],
    {"name": "proxy", "restartPolicy": "Always"},
    "Always",
    "CREATE",
    "Pod",
    "2026-01-01T00:00:00Z",
)


def bases():
    """Reviews that are right, each with something else to stumble on."""
    sidecar = make_container_json("proxy", restartPolicy="Always", memory_limit="1Gi")
    plain = [
        pod_json(),
        pod_json(annotations={"a~b/c": "d", "cruise.io/cpu-min": "50m"}, init_containers=[sidecar]),
        pod_json(containers=[make_container_json(cpu=None, memory=None), make_container_json("log", memory="1e3")]),
        pod_json(containers=[{"name": "app", "resources": None}, make_container_json("proxy", cpu_limit=2)]),
        pod_json(spec={"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}], "overhead": {"cpu": "1m"}}),
    ]
    return [make_review(pod) for pod in plain]


def places(node, found):
    """Every container of values in a document, with the key of each value."""
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    for key in keys:
        found.append((node, key))
        if isinstance(node[key], dict | list):
            places(node[key], found)
    return found


def mutated(document: bytes, generator: random.Random):
    """The document with one to four values removed, replaced, added or moved, anywhere or in the pod's sizes."""
    document = json.loads(document)
    for _ in range(generator.randint(1, 4)):
        there = places(document, [])
        if generator.random() < 0.5:
            there = [
                place for place in there if place[1] in ("resources", "requests", "limits", "cpu", "memory")
            ] or there
        if not there:
            return document
        parent, key = generator.choice(there)
        match generator.randrange(5):
            case 0:
                del parent[key]
            case 1 | 2:
                parent[key] = copy.deepcopy(generator.choice(JUNK))
            case 3:
                other, other_key = generator.choice(there)
                parent[key] = copy.deepcopy(other[other_key])
            case _ if isinstance(parent, dict):
                parent[generator.choice(("cpu", "annotations", "initContainers", "resources", "~", "/", ""))] = (
                    copy.deepcopy(generator.choice(JUNK))
                )
            case _:
                parent.append(copy.deepcopy(generator.choice(JUNK)))
    return document


def damaged(body: bytes, generator: random.Random) -> bytes:
    """The bytes with a few of them changed, cut off, doubled or strewn in."""
    changed = bytearray(body)
    for _ in range(generator.randint(1, 5)):
        at = generator.randrange(len(changed) + 1)
        match generator.randrange(5):
            case 0:
                del changed[at:]
            case 1:
                del changed[at : at + generator.randint(1, 20)]
            case 2:
                changed[at:at] = changed[at : at + 40]
            case 3:
                changed[at : at + 1] = generator.randbytes(generator.randint(1, 3))
            case _:
                changed[at:at] = generator.choice((b'"', b"{", b"]", b"\\u0000", b"null", b"-", b"\xff", b"1e999"))
    return bytes(changed)


def random_json(generator: random.Random, depth: int = 0):
    """Any JSON, with keys that mean something."""
    if depth > 4 or generator.random() < 0.3:
        return generator.choice(JUNK)
    if generator.random() < 0.3:
        return [random_json(generator, depth + 1) for _ in range(generator.randrange(4))]
    keys = ("request", "uid", "kind", "apiVersion", "object", "spec", "metadata", "containers", "name", "operation")
    return {generator.choice(keys): random_json(generator, depth + 1) for _ in range(generator.randrange(6))}


def exceeds(resources) -> bool:
    """Return whether a request is over its limit, as kube-apiserver sees it."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, read in (("cpu", parse_cpu_millicores), ("memory", parse_memory_bytes)):
        request, limit = requests.get(name), limits.get(name)
        try:
            if request is not None and limit is not None and read(str(request)) > read(str(limit)):
                return True
        except QuantityError:
            return True
    return False


def test_garbage_is_always_answered_and_what_is_patched_can_be_applied(seeds):
    cases = len(seeds(100_000))
    generator = random.Random(SEED)
    reviewer = make_reviewer()
    app = create_webhook_app(reviewer)
    originals = [encode_review(review) for review in bases()]
    patches = 0
    for number in range(cases):
        match number % 10:
            case 0:
                body = generator.randbytes(generator.randrange(200))
            case 1:
                body = encode_review(random_json(generator))
            case 2 | 3 | 4:
                body = damaged(generator.choice(originals), generator)
            case _:
                body = encode_review(mutated(generator.choice(originals), generator))
        status, headers, answer = ask(app, body)
        assert status == 200, body
        assert headers[b"content-length"] == str(len(answer)).encode()
        response = decode_response(answer)
        operations = get_patch(response)
        if not operations:
            continue
        patches += 1
        review = json.loads(body.decode(errors="replace"))
        assert response["uid"] == review["request"].get("uid", ""), body
        result = apply_response_patch(review["request"]["object"], operations)
        for operation in operations:
            place = operation["path"].split("/")
            assert place[1] == "metadata" or not exceeds(result["spec"][place[2]][int(place[3])]["resources"]), body
    counts = reviewer.counts.answers
    assert sum(counts.values()) == cases
    assert counts[INTERNAL_ERROR] == 0
    assert counts[PATCH_DIFFERS] == 0
    assert patches > cases // 20
    assert counts["failed", "unreadable"] > cases // 5


def test_the_uid_of_what_only_resembles_a_review_is_found():
    body = encode_review(make_review({"kind": "Pod", "spec": 7}))
    assert decode_response(ask(create_webhook_app(make_reviewer()), body)[2])["uid"] == UID


async def test_between_two_large_reviews_all_others_have_their_turn():
    class Recording(AdmissionReviewer):
        async def answer(self, body):
            order.append(len(body))
            return await super().answer(body)

        def review(self, body, came_at=None):
            order.append(len(body))
            return super().review(body, came_at)

    order: list[int] = []
    app = create_webhook_app(Recording())

    async def send(message):
        pass

    async def asked(body):
        async def receive():
            return {"type": "http.request", "body": body}

        await app({"type": "http", "method": "POST", "path": "/mutate"}, receive, send)

    large, usual = b" " * 20_000, b"{}"
    async with asyncio.TaskGroup() as tasks:
        for body in (large, large, usual, large, usual):
            tasks.create_task(asked(body))
    assert [len(usual)] * 2 == order[1:3]
    assert sorted(order) == [len(usual)] * 2 + [len(large)] * 3
