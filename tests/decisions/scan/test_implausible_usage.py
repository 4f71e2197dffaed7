"""Findings on implausible samples."""

from dataclasses import replace

from cruise.decisions.scan.findings import ImplausibleUsage, find_implausible_usage
from cruise.domain.usage import SampleRejectionReason
from cruise.interfaces.explain.size_steps import describe_statistic
from cruise.interfaces.scan.table import describe_containers_with_implausible_usage
from tests.builders import NOW, make_statistic, make_table

DISAGREE = 1 << list(SampleRejectionReason).index(SampleRejectionReason.SERIES_DISAGREE)
OVER_NODE = 1 << list(SampleRejectionReason).index(SampleRejectionReason.ABOVE_NODE_CAPACITY)
ROWS = [
    make_statistic("web-1"),
    replace(make_statistic("web-2", rejected_percent=40), rejected_reasons=DISAGREE),
    replace(make_statistic("web-3", rejected_percent=100), rejected_reasons=DISAGREE | OVER_NODE),
    # A workload's row only summarizes its pods.
    replace(make_statistic("", rejected_percent=50), rejected_reasons=DISAGREE),
]


def test_containers_are_counted_by_reason_with_the_worst_of_each():
    found = find_implausible_usage(make_table(*ROWS))
    assert found == (
        ImplausibleUsage(SampleRejectionReason.SERIES_DISAGREE, 2, "shop", "web-3", "app", 100),
        ImplausibleUsage(SampleRejectionReason.ABOVE_NODE_CAPACITY, 1, "shop", "web-3", "app", 100),
    )
    assert describe_containers_with_implausible_usage(found) == (
        "Samples that cannot be true are rejected. 2 containers: several series of the container disagree, such "
        "as shop/web-3 app "
        "(100 % of a window); 1 container: above the capacity of the node, such as shop/web-3 app (100 % of a window)."
    )
    assert find_implausible_usage(make_table(ROWS[0])) == ()


def test_an_explanation_reports_how_much_was_rejected_and_why():
    assert "refused" not in describe_statistic(ROWS[0], NOW)
    assert describe_statistic(ROWS[1], NOW).endswith(
        ", 40 % of a window's samples rejected: several series of the container disagree"
    )
