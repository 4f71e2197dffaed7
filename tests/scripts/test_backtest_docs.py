import json
from dataclasses import replace

import pytest

from cruise.interfaces.backtest.report import BacktestReport, ReplayParameters, build_backtest_document
from cruise.interfaces.text import render_json
from scripts.backtest_docs import results_markdown
from tests.backtest_results import make_policies, make_result, make_score

COSTS = "| trace | policy | cost |"


def page(*results, half=None):
    report = BacktestReport(results, ReplayParameters(300, "first-sample", 0, 1e-3, half))
    return results_markdown(json.loads(render_json(build_backtest_document(report))))


def rows(text, heading="| trace | policy | CPU slack %"):
    """The rows of the table with a heading."""
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()
    return [line.strip("| ").split(" | ") for line in lines[2:]]


def test_a_row_for_each_policy_of_each_trace():
    found = rows(page(make_result("a"), make_result("b")))
    assert [row[0] for row in found] == ["a"] * 10 + ["b"] * 10
    assert found[3] == [
        *("a", "autopilot ×"),
        *("49.0", "38.0", "0.21", "0.40", "1.20"),
        *("41.0", "2.40", "20.0", "408", "2.00"),
        *("13.6", "17"),
        *("–", "–"),
    ]
    assert found[4][1] == "**cruise**"


def test_the_default_policy_is_marked_like_any_other_if_it_is_dominated():
    worse = make_policies()["cruise"]
    found = rows(page(make_result(policies={"cruise": replace(worse, nodes_mean=99.0), "cruise-risk": worse})))
    assert [row[1] for row in found] == ["**cruise** ×", "cruise-risk"]


def test_every_row_has_the_columns_of_the_heading():
    for heading in ("| trace | policy | CPU slack %", COSTS):
        lines = page(make_result()).partition(heading)[2].split("\n\n")[0].splitlines()
        assert len({line.count("|") for line in lines[1:]}) == 1
        assert lines[0].count("|") + heading.count("|") == lines[1].count("|")


def test_the_way_to_the_bound_is_in_the_table_and_cost_in_a_separate_table():
    policies = make_policies()
    policies["clairvoyant"] = make_score("clairvoyant", cpu=(0.12, 0.0, 0.0), memory=(0.05, 0.0, 0.0))
    text = page(make_result("a", policies))
    assert rows(text)[4][-2:] == ["40.0", "36.0"]
    assert rows(text, COSTS)[1] == ["a", "vpa", "$297", "60.8", "32.1", "1.94", "1.04", "4.00", "0.040"]
    assert "- **a**, the cheapest first: cruise, cruise-risk," in text
    assert "  - `price_oom_kill` × 3:" in text


def test_one_trace_is_a_page_too_with_its_parameters():
    assert (
        "- **bitbrains-a**: 100 containers, half `report` of the series, 30 days, a sample every 5 min; "
        "nodes of 16 cores and 64Gi, a pass every 5 min, risk 0.001, seed 0."
    ) in page(make_result(), half="report")


def test_requests_that_were_cut_are_reported():
    assert "100 containers, 2 of them with requests cut to a node, 30 days" in page(make_result(capped_containers=2))


def test_missing_values_are_dashes():
    [row, *_] = rows(page(make_result(policies=make_policies(memory=False))))
    assert [row[3], row[6], row[7]] == ["–", "–", "–"]


def test_the_same_results_are_the_same_page_whatever_they_are_called():
    assert page(make_result()) == page(make_result())
    assert "a\\|b&lt;c" in page(make_result("a|b<c"))


def test_an_unrelated_document_is_refused():
    with pytest.raises(KeyError):
        results_markdown({"nodes": []})
