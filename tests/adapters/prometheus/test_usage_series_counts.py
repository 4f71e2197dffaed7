"""The series index: which containers existed, and how queries are split to limit their cost."""

import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.seen_pods import PARTITIONS, get_partition
from cruise.adapters.prometheus.series_selectors import UsageSeriesCounts, create_series_decoder
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.errors import BadInputError, UnavailableError

LABELS = {"pod": "exported_pod", "kind": "owner_kind"}


def count_series(pods: dict[str, int]) -> UsageSeriesCounts:
    counts: dict[str, Counter[str]] = {name: Counter() for name in PARTITIONS}
    for pod, count in pods.items():
        counts[get_partition(pod)][pod] = count
    return UsageSeriesCounts(series_of_pod=counts)


NAMES = st.builds(
    lambda start, end: start + end,
    st.text("ab-0", max_size=3),
    # Endings that are long and the same are what selectors cannot see behind.
    st.one_of(st.text("bcx012", min_size=1, max_size=3), st.just("-of-a-tenant-with-a-very-long-name-in-a-chart-0")),
)


@given(st.dictionaries(NAMES, st.integers(1, 50), min_size=1), st.integers(1, 2000), st.integers(1, 1440))
def test_no_query_exceeds_the_limits_and_every_pod_is_queried_once(
    pods: dict[str, int], most: int, wanted: int
) -> None:
    settings = PrometheusSettings("http://prometheus", max_samples_per_query=most)
    found = count_series(pods)
    if found.get_max_concurrent() > most:
        with pytest.raises(BadInputError, match="prometheus_max_samples_per_query is"):
            found.count_samples(wanted, settings)
        return
    points = found.count_samples(wanted, settings)
    assert 1 <= points <= wanted
    pieces = found.split_into_pieces(points, settings)
    selected = [[pod for pod in pods if re.fullmatch(piece, pod)] for piece in pieces]
    assert sorted(pod for piece in selected for pod in piece) == sorted(pods)
    assert all(sum(pods[pod] for pod in piece) * points <= most for piece in selected)


def test_sends_no_query_for_partitions_without_pods() -> None:
    settings = PrometheusSettings("http://prometheus")
    assert count_series({"web-b": 1}).split_into_pieces(1440, settings) == [".*[bcd0]"]
    assert UsageSeriesCounts().split_into_pieces(1440, settings) == []
    assert UsageSeriesCounts().count_samples(1440, settings) == 1440


def test_decodes_the_labels_that_are_wanted() -> None:
    decode = create_series_decoder(LABELS, accept_partial=False)
    found = decode(b'{"status":"success","data":[{"exported_pod":"web-1","pod":"x","owner_kind":"Job"},{"other":"y"}]}')
    assert [(one.pod, one.kind) for one in found] == [("web-1", "Job"), ("", "")]


def test_no_list_is_an_empty_one() -> None:
    assert list(create_series_decoder(LABELS, accept_partial=False)(b'{"status":"success","data":null}')) == []


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"status":"success","data":{"resultType":"matrix"}}', b'{"status":"success","data":[']
)
def test_rejects_an_answer_that_is_not_a_list(body: bytes) -> None:
    with pytest.raises(BadInputError, match="did not answer with a list of series"):
        create_series_decoder(LABELS, accept_partial=False)(body)


def test_an_incomplete_list_is_taken_only_where_that_is_allowed() -> None:
    body = b'{"status":"success","data":[{"exported_pod":"web-1"}],"warnings":["a store\\nis away"]}'
    with pytest.raises(UnavailableError, match="reports an incomplete answer: a store is away"):
        create_series_decoder(LABELS, accept_partial=False)(body)
    assert len(create_series_decoder(LABELS, accept_partial=True)(body)) == 1
