"""Pages of lists and lines of watches from an API server's bytes."""

import json

import pytest

from cruise.errors import BadInputError
from cruise.kube_json.reading.stream import (
    BookmarkEvent,
    ChangedEvent,
    DeletedEvent,
    StreamDecoder,
    UnreadableObject,
    WatchError,
)
from cruise.kube_json.wire.object_json import DeploymentObject, NodeObject
from cruise.kube_json.wire.pod_json import PodObject
from tests.builders import Json, make_container_json, make_node_json, make_pod_json

PODS = StreamDecoder(PodObject)


def versioned(document: Json, version: int = 7) -> Json:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": str(version)}}


def page(*items: object, **metadata: object) -> bytes:
    listed = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9", **metadata}, "items": items}
    return json.dumps(listed).encode()


def line(kind: str, document: object) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode()


def without_kind(document: Json) -> Json:
    return {key: value for key, value in document.items() if key not in ("kind", "apiVersion")}


def test_items_of_a_typed_list_need_not_say_their_kind():
    told = PODS.decode_page(page(without_kind(make_pod_json("a")), make_pod_json("b")))
    assert [item.metadata.name for item in told.items] == ["a", "b"]
    assert (told.unreadable, told.version, told.continue_token) == ([], "9", "")


def test_a_page_says_where_the_next_one_begins():
    resume = {"continue": "token", "remainingItemCount": 12}
    assert PODS.decode_page(page(make_pod_json(), **resume)).continue_token == "token"
    assert PODS.decode_page(b'{"metadata":{"resourceVersion":"1","continue":""},"items":null}').items == []


def test_an_unreadable_item_is_returned_separately_and_hides_no_other():
    odd = make_pod_json("odd", node="n3")
    odd["spec"]["containers"] = "none"
    told = PODS.decode_page(page(make_pod_json("a"), odd, make_pod_json("b")))
    assert [item.metadata.name for item in told.items] == ["a", "b"]
    assert told.unreadable == [
        UnreadableObject(
            "shop",
            "odd",
            "uid-shop-odd",
            "n3",
            "Pod shop/odd: spec.containers: is a text instead of a list; write a list",
        )
    ]
    assert told.version == "9"


@pytest.mark.parametrize(
    ("kind", "event"), [("ADDED", ChangedEvent), ("MODIFIED", ChangedEvent), ("DELETED", DeletedEvent)]
)
def test_changes_and_deletions(kind, event):
    told = PODS.decode_event(line(kind, versioned(make_pod_json("a"))))
    assert isinstance(told, event)
    assert (told.item.metadata.name, told.version) == ("a", "7")


def test_a_bookmark_has_no_more_than_a_version():
    bare = {"kind": "Pod", "apiVersion": "v1", "metadata": {"resourceVersion": "12", "creationTimestamp": None}}
    with_spec = bare | {"spec": {"containers": None}, "status": {}}
    assert (
        PODS.decode_event(line("BOOKMARK", bare))
        == PODS.decode_event(line("BOOKMARK", with_spec))
        == BookmarkEvent("12")
    )
    deployments = StreamDecoder(DeploymentObject)
    assert deployments.decode_event(line("BOOKMARK", bare | {"kind": "Deployment"})) == BookmarkEvent("12")


@pytest.mark.parametrize(
    ("status", "expired"),
    [
        ({"code": 410, "reason": "Expired", "message": "too old resource version: 1 (2)"}, True),
        ({"code": 410, "reason": "Gone", "message": "gone"}, True),
        ({"code": 500, "reason": "InternalError", "message": "etcd is away"}, False),
        ({"code": 504}, False),
    ],
)
def test_an_error_ends_the_watch(status, expired):
    told = PODS.decode_event(line("ERROR", {"kind": "Status", "apiVersion": "v1", "status": "Failure", **status}))
    assert isinstance(told, WatchError)
    assert told.expired == expired
    assert told.message


@pytest.mark.parametrize("kind", ["ADDED", "DELETED"])
def test_an_unreadable_object_of_a_watch_is_returned_separately(kind):
    odd = versioned(make_pod_json("odd", status={"phase": 5}))
    told = PODS.decode_event(line(kind, odd))
    assert isinstance(told, ChangedEvent | DeletedEvent)
    assert isinstance(told.item, UnreadableObject)
    assert (told.item.name, told.item.node, told.version) == ("odd", "n1", "7")


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"type":"ADDED"}',
        b'{"type":"WAVED","object":{"metadata":{"resourceVersion":"1"}}}',
        b'{"type":"ADDED","object":5}',
        b'{"type":"ADDED","object":{"metadata":{"name":5}}}',
        b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"1","name":["a"]}}}',
    ],
)
def test_what_is_no_event_is_rejected_in_one_line(text):
    with pytest.raises(BadInputError) as refused:
        PODS.decode_event(text)
    assert "\n" not in str(refused.value)
    assert "kind Pod" in str(refused.value)


@pytest.mark.parametrize("text", [b"", b"<html>", b"{}", b'{"metadata":{},"items":{}}', b'{"metadata":{},"items":[5]}'])
def test_what_is_no_list_is_rejected_in_one_line(text):
    with pytest.raises(BadInputError) as refused:
        PODS.decode_page(text)
    assert "\n" not in str(refused.value)


def test_fields_of_newer_servers_are_ignored():
    newer = make_pod_json("a", containers=[make_container_json(newField={"x": [1]})], spec={"novel": 1})
    assert PODS.decode_page(page(newer)).unreadable == []
    nodes = StreamDecoder(NodeObject)
    assert nodes.decode_page(page(make_node_json("n1") | {"more": None})).items[0].metadata.name == "n1"
