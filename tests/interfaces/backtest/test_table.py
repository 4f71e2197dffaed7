from dataclasses import replace

import pytest

from cruise.domain.backtest import AutoscalingScore
from cruise.interfaces.backtest.report import BacktestReport, HourlyResourcePrices, ReplayParameters
from cruise.interfaces.backtest.table import (
    AUTOSCALING_HEADINGS,
    format_autoscaling,
    format_policy_figures,
    render_backtest_table,
)
from tests.backtest_results import make_policies, make_result, make_score
from tests.shown import render_to_text

TERMS = ReplayParameters(300, "first-sample", 0, 1e-3)
LONG = "a-cluster-with-a-name-that-nobody-would-give-it-in-earnest-" * 4


def table(*results, width=160, terms=TERMS, shown_node=None):
    report = BacktestReport(results or (make_result(),), terms)
    return render_to_text(lambda console: render_backtest_table(report, console, shown_node), width)


def row(text: str, name: str) -> list[str]:
    """The row of a policy in the first table."""
    return rows(text, name)[0]


def rows(text: str, name: str) -> list[list[str]]:
    """The rows of a policy, first what it does, then what it costs."""
    return [line.split() for line in text.splitlines() if line.split()[:1] == [name]]


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_row_has_every_figure_in_its_order():
    assert row(table(), "autopilot") == [
        *("autopilot", "×"),
        *("49.0", "38.0", "0.21", "0.40", "1.20"),
        *("41.0", "2.40", "20.0", "408", "2.00"),
        *("13.6", "17", "13.4"),
    ]


def test_policies_are_shown_in_the_given_order():
    lines = [line.split() for line in table().splitlines()]
    names = [words[0] for words in lines if len(words) >= 12 and words[-2].isdecimal()]
    assert names == list(make_policies())


def test_the_dominated_are_marked_and_the_mark_is_explained():
    text = table()
    marked = [line.split()[0] for line in text.splitlines() if line.split()[1:2] == ["×"]]
    assert marked == ["vpa", "cruisekube", "autopilot", "cruise-joint-peak"]
    assert "× dominated: another policy (except the bounds clairvoyant," in text
    alone = table(make_result(policies={"cruise": make_score()}))
    assert "×" not in alone
    assert "oracle" not in alone


@pytest.mark.parametrize("width", [80, 110, 151, 152, 160])
@pytest.mark.parametrize("memory", [True, False])
def test_no_line_is_wider_than_the_terminal_and_no_name_is_broken(width, memory):
    policies = make_policies(memory=memory, cost=True)
    text = table(make_result(policies=policies), make_result(LONG, policies), width=width)
    assert max(map(len, text.splitlines())) <= width
    for name in policies:
        assert len([line for line in text.splitlines() if line.split()[:1] == [name]]) >= 2


def test_a_narrow_terminal_shows_the_same_columns_in_more_tables():
    results = make_result(policies=make_policies(cost=True))
    terms = ReplayParameters(300, "first-sample", 0, 1e-3, None, HourlyResourcePrices(0.03, 0.004))

    def list_cells(name: str, width: int) -> list[str]:
        tables = table(results, terms=terms, width=width).partition("By cost")[0]
        return [cell for one in rows(tables, name) for cell in one if cell not in (name, "×")]

    for name in set(make_policies()) - {"as-requested"}:
        assert list_cells(name, 80) == list_cells(name, 160)
        assert len(list_cells(name, 80)) == 23
    narrow = table(results, width=80)
    assert all(word in narrow for word in ("STARVED %", "RESIZES", "REVERSED", "EVICTIONS", "NODES BY", "REDUCTION %"))


def test_costs_are_an_estimate_and_said_to_be_one():
    terms = ReplayParameters(300, "first-sample", 0, 1e-3, None, HourlyResourcePrices(0.03, 0.004))
    text = table(make_result(policies=make_policies(cost=True)), terms=terms)
    assert row(text, "cruise")[-1] == "$4,650"
    assert "Cost a month is an estimate" in text


def test_what_was_not_recorded_is_a_dash():
    text = table(make_result(policies=make_policies(memory=False)))
    assert row(text, "cruise")[1:] == [
        "36.0",
        "–",
        "0.040",
        "0.12",
        "–",
        "–",
        "4.20",
        "22.0",
        "10.0",
        "2.00",
        "9.10",
        "12",
        "8.90",
    ]
    assert "Note: memory was not recorded" in text


@pytest.mark.parametrize("width", [80, 160])
def test_a_second_table_has_the_cost_the_share_of_each_cause_and_the_way_to_the_bound(width):
    policies = make_policies()
    policies["clairvoyant"] = make_score("clairvoyant", cpu=(0.12, 0.0, 0.0), memory=(0.05, 0.0, 0.0))
    text = table(make_result(policies=policies), width=width)
    cells = [cell for one in rows(text, "vpa") for cell in one if cell != "vpa"]
    assert cells[-9:] == ["$297", "60.8", "32.1", "1.94", "1.04", "4.00", "0.040", "0", "0"]
    assert rows(text, "cruise")[-1][-2:] == ["40.0", "36.0"]
    assert rows(text, "clairvoyant")[-1][-2:] == ["100", "100"]
    assert "Slack reduction" in text
    assert rows(table(), "cruise")[1][-2:] == ["–", "–"]


def test_the_order_by_cost_is_shown_with_the_prices_that_change_it():
    text = flat(table())
    assert "By cost: cruise, cruise-risk," in text
    assert "With price_oom_kill × 3:" in text
    assert "No other price × 3 or ÷ 3 changes the order." in text
    assert "0.0145 for a core-hour" in text


def test_one_recording_after_the_other_and_the_notes_once():
    text = table(make_result("first"), make_result("second"))
    assert text.index("first: 100 containers") < text.index("second: 100 containers")
    assert text.count("Replayed with a pass every 5 min") == 1


def test_a_node_that_never_was_is_noted():
    results = make_result(policies={"cruise": make_score()})
    assert "Note: no pod ran on node node-099." in table(results, shown_node="node-099")


HPAS = AutoscalingScore(6000.0, 9000.0, 7800.0, 12, 3, 1500.0, 600.0, 150.0, 600.0)


@pytest.mark.parametrize("width", [80, 160])
def test_a_third_table_has_what_hpas_did(width):
    text = table(make_result(policies={"cruise": make_score(autoscaling=HPAS)}), width=width)
    cells = [cell for line in text.splitlines() if line.startswith("cruise ") for cell in line.split()[1:]]
    assert cells[-8:] == ["75.0", "150", "130", "12", "3", "1,500", "25.0", "600"]
    assert "divides by the requests that the policy sets" in flat(text)
    assert "divides by the requests" not in flat(table(width=width))


def test_the_target_of_hpas_is_reported():
    assert "HPAs at 70% of CPU" in flat(table(terms=replace(TERMS, hpa="70%")))


def test_figures_are_as_many_as_headings():
    assert len(format_autoscaling(make_score(autoscaling=HPAS))) == len(AUTOSCALING_HEADINGS)
    assert len(format_policy_figures(make_score())) == len(format_policy_figures(make_score(memory=None))) == 13
