"""Valid and invalid answers to range queries."""

import json
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.queries import MatrixDecoder, NodeLoadDecoder, NodeLoadValue
from cruise.adapters.prometheus.settings import SeriesLabelNames
from cruise.errors import BadInputError, CruiseError, UnavailableError

FIRST, LAST, STEP = 600, 780, 60
METRIC = {"namespace": "shop", "pod": "web-1", "container": "app", "id": "/a", "node": "n1"}


def document(*rows, result_type="matrix", **more):
    result = [{"metric": metric, "values": values} for metric, values in rows]
    return json.dumps({"status": "success", "data": {"resultType": result_type, "result": result}, **more}).encode()


LABELS = SeriesLabelNames()


def decode(body, labels=LABELS, accept_partial=False):
    return MatrixDecoder(labels, accept_partial).decode(body, FIRST, LAST, STEP)


def names(matrix):
    return [msgspec.structs.astuple(name) for name in matrix.series]


def get_error(body, kind: type[CruiseError], **more):
    with pytest.raises(kind) as caught:
        decode(body, **more)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_are_on_the_grid_with_gaps_where_a_series_skips_a_step():
    matrix = decode(document((METRIC, [[600, "1.5"], [720, "2"], [780, "1e3"]]), ({}, [[660, "7"]])))
    assert names(matrix) == [("shop", "web-1", "app", "/a", "n1", ""), ("", "", "", "", "", "")]
    np.testing.assert_array_equal(matrix.values, [[1.5, np.nan, 2, 1000], [np.nan, 7, np.nan, np.nan]])


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(0, 1e15)), min_size=4, max_size=4), max_size=300))
def test_any_number_of_rows_survives_a_round_trip(rows):
    encoded = [
        ({"pod": str(number)}, [[FIRST + STEP * at, repr(value)] for at, value in enumerate(row) if value is not None])
        for number, row in enumerate(rows)
    ]
    matrix = decode(document(*encoded))
    assert [name.pod for name in matrix.series] == [str(number) for number in range(len(rows))]
    expected = np.array([[np.nan if value is None else value for value in row] for row in rows]).reshape(-1, 4)
    np.testing.assert_array_equal(matrix.values, expected)


def test_a_value_that_is_not_a_number_is_no_sample():
    matrix = decode(document((METRIC, [[600, "NaN"], [660, "+Inf"], [720, "-Inf"], [780, "4"]])))
    np.testing.assert_array_equal(matrix.values, [[np.nan, np.nan, np.nan, 4]])


def test_a_negative_value_is_no_sample():
    # Counters, bytes and times are not; a counter that fell to less than nothing would have grown by that.
    matrix = decode(document((METRIC, [[600, "1"], [660, "-1"], [720, "-0.0"], [780, "-1e-300"]])))
    np.testing.assert_array_equal(matrix.values, [[1, np.nan, 0, np.nan]])


def test_labels_may_have_other_names():
    metric = {"exported_namespace": "shop", "pod_name": "web-1", "container": "app", "instance": "n1"}
    labels = SeriesLabelNames(namespace="exported_namespace", pod="pod_name", id="", node="instance")
    matrix = decode(document((metric, [[600, "1"]])), labels)
    assert names(matrix) == [("shop", "web-1", "app", "", "n1", "")]


def test_an_empty_answer_is_an_empty_matrix():
    assert decode(document()).values.shape == (0, 4)
    # Google's managed Prometheus, and old Cortex, which then names no type either.
    assert decode(b'{"status":"success","data":{"resultType":"matrix","result":null}}').values.shape == (0, 4)
    assert decode(b'{"status":"success","data":{"resultType":"","result":[]}}').values.shape == (0, 4)
    assert decode(b'{"status":"success","data":{"resultType":"matrix"}}').values.shape == (0, 4)


def test_series_of_native_histograms_have_no_samples():
    rows: list[dict[str, Any]] = [
        {"metric": METRIC, "histograms": [[600, {"count": "1", "sum": "2", "buckets": []}]]},
        {"metric": METRIC, "values": [[600, "1"]]},
    ]
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": rows}}).encode()
    np.testing.assert_array_equal(decode(body).values, [[1, np.nan, np.nan, np.nan]])
    rows = [{"metric": {"node": "n1"}, "histogram": [600, {}]}, {"metric": {"node": "n2"}, "value": [600, "1"]}]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
    assert NodeLoadDecoder("node").decode(body) == [NodeLoadValue("n2", "", 1)]


@pytest.mark.parametrize(
    "values",
    [
        [[601, "1"]],  # off the grid
        [[1e308, "1"]],  # no whole number of any size
        [[540, "1"]],  # before it
        [[840, "1"]],  # after it
        [[660, "1"], [600, "2"]],  # backwards
        [[600, "1"], [600, "2"]],  # twice
    ],
)
def test_rejects_times_other_than_the_requested_ones(values):
    assert "times other than the requested ones" in get_error(document((METRIC, values)), BadInputError)


@pytest.mark.parametrize("values", [[[600]], [[600, "1", 2]], [[600, "many"]], [[600, None]], 600, [600, "1"]])
def test_rejects_samples_of_another_form(values):
    assert "matrix of another form" in get_error(document((METRIC, values)), BadInputError)


def test_another_type_of_result_is_named():
    assert "with a vector instead of a matrix" in get_error(document(result_type="vector"), BadInputError)


def test_an_error_under_a_status_of_success_is_reported():
    assert "answered with an error: no such tenant" in get_error(
        b'{"status":"error","error":"no such tenant"}', BadInputError
    )


@pytest.mark.parametrize("invalid", [b"\xd2", b"[" * 100_000])
def test_rejects_invalid_utf_8_and_deep_nesting(invalid: bytes):
    assert get_error(
        document(({"pod": "ODD"}, [])).replace(b'"ODD"', b'"' + invalid + b'"' if invalid[0] > 127 else invalid),
        BadInputError,
    )


def test_a_web_page_is_recognised():
    assert "web page: set prometheus_url" in get_error(b"\n<!DOCTYPE html><html></html>", BadInputError)


@pytest.mark.parametrize("body", [b'"success"', b"[]", b'{"data":1}', b"gibberish", b'{"status":"success"}'])
def test_rejects_json_of_another_form(body):
    assert "has another form than its API" in get_error(body, BadInputError)


def test_an_incomplete_or_empty_answer_is_unavailable():
    whole = document((METRIC, [[600, "1"]]))
    for length in range(1, len(whole) - 1):
        assert get_error(whole[:length], UnavailableError) == "the answer of Prometheus was incomplete"
    assert "with nothing" in get_error(b"", UnavailableError)


def test_an_answer_reported_as_incomplete_is_unavailable_unless_accepted():
    warned = document((METRIC, [[600, "1"]]), warnings=["receive series from store-1:\n timeout"])
    assert "incomplete answer: receive series from store-1: timeout" in get_error(warned, UnavailableError)
    assert "isPartial" in get_error(document(isPartial=True), UnavailableError)
    assert decode(warned, accept_partial=True).values[0, 0] == 1
    assert decode(document((METRIC, [[600, "1"]]), warnings=None, infos=["metric might not be a counter"])).series


def test_node_loads_are_read_under_both_names():
    rows = [{"metric": {"node": "n1", "instance": "10.0.0.1:9100"}, "value": [600, "1.25"]}]
    body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}}).encode()
    assert NodeLoadDecoder("node").decode(body) == [NodeLoadValue("n1", "10.0.0.1:9100", 1.25)]
    assert NodeLoadDecoder("instance").decode(body) == [NodeLoadValue("", "10.0.0.1:9100", 1.25)]
    assert NodeLoadDecoder("").decode(body) == [NodeLoadValue("", "10.0.0.1:9100", 1.25)]
