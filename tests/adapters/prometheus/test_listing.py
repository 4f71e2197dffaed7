"""What the index tells: which containers there were, and how queries are cut so that none costs too much."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.listing import Listing, series_decoder
from cruise.adapters.prometheus.partitions import PARTITIONS, partition_of
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.errors import BadInput, Unavailable

LABELS = {"pod": "exported_pod", "kind": "owner_kind"}


def listing(pods: dict[str, int]) -> Listing:
    counts: dict[str, Counter[str]] = {name: Counter() for name in PARTITIONS}
    for pod, count in pods.items():
        counts[partition_of(pod)][pod] = count
    return Listing(series_of_pod=counts)


NAMES = st.builds(
    lambda start, end: start + end,
    st.text("ab-0", max_size=3),
    # Endings that are long and the same are what selectors cannot see behind.
    st.one_of(st.text("bcx012", min_size=1, max_size=3), st.just("-of-a-tenant-with-a-very-long-name-in-a-chart-0")),
)


@given(st.dictionaries(NAMES, st.integers(1, 50), min_size=1), st.integers(1, 2000), st.integers(1, 1440))
def test_no_query_costs_more_than_is_allowed_and_every_pod_is_asked_for_once(
    pods: dict[str, int], most: int, wanted: int
) -> None:
    settings = PrometheusSettings("http://prometheus", max_samples_per_query=most)
    found = listing(pods)
    if found.most_together() > most:
        with pytest.raises(BadInput, match="prometheus_max_samples_per_query is"):
            found.points(wanted, settings)
        return
    points = found.points(wanted, settings)
    assert 1 <= points <= wanted
    pieces = found.pieces(points, settings)
    selected = [[pod for pod in pods if re.fullmatch(piece, pod)] for piece in pieces]
    assert sorted(pod for piece in selected for pod in piece) == sorted(pods)
    assert all(sum(pods[pod] for pod in piece) * points <= most for piece in selected)


def test_partitions_without_pods_are_not_asked_for() -> None:
    settings = PrometheusSettings("http://prometheus")
    assert listing({"web-b": 1}).pieces(1440, settings) == [".*[bcd0]"]
    assert Listing().pieces(1440, settings) == []
    assert Listing().points(1440, settings) == 1440


def test_decodes_the_labels_that_are_wanted() -> None:
    decode = series_decoder(LABELS, accept_partial=False)
    found = decode(b'{"status":"success","data":[{"exported_pod":"web-1","pod":"x","owner_kind":"Job"},{"other":"y"}]}')
    assert [(one.pod, one.kind) for one in found] == [("web-1", "Job"), ("", "")]


def test_no_list_is_an_empty_one() -> None:
    assert list(series_decoder(LABELS, accept_partial=False)(b'{"status":"success","data":null}')) == []


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"status":"success","data":{"resultType":"matrix"}}', b'{"status":"success","data":[']
)
def test_what_is_no_list_is_said_so(body: bytes) -> None:
    with pytest.raises(BadInput, match="something else than a list of series"):
        series_decoder(LABELS, accept_partial=False)(body)


def test_an_incomplete_list_is_taken_only_where_that_is_allowed() -> None:
    body = b'{"status":"success","data":[{"exported_pod":"web-1"}],"warnings":["a store\\nis away"]}'
    with pytest.raises(Unavailable, match="calls its own answer incomplete: a store is away"):
        series_decoder(LABELS, accept_partial=False)(body)
    assert len(series_decoder(LABELS, accept_partial=True)(body)) == 1
