"""Warnings and infos in a response: incomplete data, or a remark on the query."""

import pytest

from cruise.adapters.prometheus.client import check_completeness
from cruise.errors import UnavailableError


@pytest.mark.parametrize(
    "said",
    [
        'PromQL info: metric might not be a counter, name does not end in _total/_sum/_count/_bucket: "m" (1:6)',
        "PromQL warning: encountered a mix of histograms and floats for aggregation (1:5)",
        "PromQL info: ignored histograms in a range containing both floats and histograms, errors included",
        "query served from the results cache",
    ],
)
def test_an_annotation_of_the_query_does_not_make_the_answer_incomplete(said: str) -> None:
    check_completeness([said], is_partial=False, accept_partial=False)


@pytest.mark.parametrize(
    "said",
    [
        "No StoreAPIs matched for this query",
        'receive series from Addr: 10.0.0.1:10901 LabelSets: {cluster="a"}: rpc error: code = Aborted desc = fetch',
        "store Addr: 10.0.0.1:10901 is not healthy",
        "remote_read: remote server http://x/read returned http status 503",
        "results truncated due to limit",
        "context deadline exceeded",
        "some ingesters could not be reached",
    ],
)
def test_reports_missing_data_after_annotations(said: str) -> None:
    with pytest.raises(
        UnavailableError, match=r"reports an incomplete answer: .*prometheus_allow_partial_response accepts it"
    ):
        check_completeness(["PromQL info: x", said], is_partial=False, accept_partial=False)
    check_completeness([said], is_partial=False, accept_partial=True)


def test_reads_the_field_of_victoria_metrics_for_incomplete_answers() -> None:
    with pytest.raises(UnavailableError, match="incomplete answer: isPartial"):
        check_completeness(None, is_partial=True, accept_partial=False)
    check_completeness(None, is_partial=True, accept_partial=True)
