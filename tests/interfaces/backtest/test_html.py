import re
from html.parser import HTMLParser

import pytest

from cruise.interfaces.backtest.html import render_backtest_html
from cruise.interfaces.backtest.report import BacktestReport, ReplayParameters
from tests.backtest_results import make_container, make_policies, make_result, make_score

TERMS = ReplayParameters(300, "first-sample", 0, 1e-3)
VOID = {"meta", "br"}


class Tags(HTMLParser):
    """Collects tags with their attributes, and fails on what is not closed in its order."""

    def __init__(self):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def page(*results, shown_node=None) -> str:
    return render_backtest_html(BacktestReport(results or (make_result(),), TERMS), shown_node).decode()


@pytest.fixture(scope="module")
def usual_page() -> str:
    """The page of one recording under every policy, which takes a third of a second."""
    return page()


def tags(text: str) -> Tags:
    parser = Tags()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


@pytest.mark.parametrize(
    "results",
    [
        (make_result(),),
        (make_result("a"), make_result("b", make_policies(memory=False, cost=True))),
        (make_result(policies={}),),
        (make_result(policies={"cruise": make_score()}),),
        (),
    ],
)
def test_every_tag_is_closed_in_its_order(results):
    text = render_backtest_html(BacktestReport(results, TERMS)).decode()
    assert tags(text).found


def test_nothing_comes_from_elsewhere_and_no_script_runs(usual_page):
    assert {tag for tag, _ in tags(usual_page).found} & {"script", "link", "img", "iframe", "object"} == set()
    for _, attributes in tags(usual_page).found:
        assert not {"src", "xlink:href", "style"} & set(attributes) or not re.search(
            r"//|url\(", attributes.get("src") or attributes.get("style") or ""
        )
        assert (attributes.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|https?://", usual_page)


def test_the_same_results_are_the_same_page(usual_page):
    assert page() == usual_page


def test_light_and_dark_wide_and_narrow(usual_page):
    assert "prefers-color-scheme: dark" in usual_page
    assert '<meta name="viewport" content="width=device-width' in usual_page
    sizes = [
        attributes["class"] for tag, attributes in tags(usual_page).found if "pareto" in (attributes.get("class") or "")
    ]
    assert sizes == ["pareto wide", "pareto narrow"] * 2


def test_the_table_has_every_policy_and_names_the_dominating_ones(usual_page):
    assert usual_page.count("<small>× by cruise</small>") == 4
    for name in make_policies():
        assert f'<td class="first">{name}' in usual_page


def test_only_the_installed_policy_is_unfolded(usual_page):
    opened = re.findall(r"<details class=\"panel\" open>\s*<summary>([a-z-]+)", usual_page)
    assert opened == ["cruise"]
    assert "<details" in page(make_result(policies={"vpa": make_score("vpa")}))


def test_each_policy_has_the_time_lines_of_its_node_and_its_worst_containers(usual_page):
    assert usual_page.count('<figure class="node">') == 2 * len(make_policies())
    assert usual_page.count(">Worst containers<") == len(make_policies())
    assert "node-1 from 2026-01-01 00:05 UTC on." in usual_page


def test_without_a_time_line_it_says_so():
    text = page(make_result(policies={"cruise": make_score()}), shown_node="node-099")
    assert "No time line" in text
    assert "No pod ran on node node-099." in text


def test_without_memory_there_is_one_pareto_picture_and_no_column_of_it():
    text = page(make_result(policies=make_policies(memory=False)))
    assert text.count('class="pareto wide"') == 1
    assert "Memory slack,<br>GiB" not in text


def test_costs_are_a_column_only_where_they_are_known(usual_page):
    assert "$4,650" in page(make_result(policies=make_policies(cost=True)))
    assert "a month" not in usual_page


def test_the_chart_says_that_no_workload_is_harmed():
    assert "none under any policy" in page(make_result(policies={"cruise": make_score(cpu=(0.3, 0.0, 0.0))}))


def test_names_cannot_break_the_page():
    odd = '<script>alert("x")</script>&'
    policies = {"cruise": make_score(worst_containers=(make_container(odd),))}
    text = page(make_result(odd, policies))
    assert "<script" not in text
    assert odd in "".join(tags(text).text)


def test_several_recordings_have_a_list_of_links():
    found = tags(page(make_result("a"), make_result("b"))).found
    assert [attributes["href"] for tag, attributes in found if tag == "a"] == ["#trace-1", "#trace-2"]
    assert {"trace-1", "trace-2"} <= {attributes.get("id") for _, attributes in found}
