import re
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.interfaces.backtest.html import (
    CHART_HEIGHT,
    MAX_COLUMNS,
    build_node_charts,
    downsample,
    format_start,
    render_backtest_html,
)
from cruise.interfaces.backtest.report import BacktestReport, ReplayParameters
from tests.backtest_results import NODE, make_container, make_policies, make_result, make_score, make_time_line

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


def test_nothing_is_loaded_from_other_hosts_and_no_script_runs(usual_page):
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


def points(path: str) -> list[tuple[int, int]]:
    return [(int(x), int(y)) for x, y in re.findall(r"(-?\d+) (-?\d+)", path)]


def line(picture, kind):
    [found] = [one for one in picture.lines if one.kind == kind]
    return found


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 50))
def test_no_peak_and_no_trough_is_lost(values, most):
    low, high = downsample(np.array(values, dtype=np.int64), most)
    assert len(low) == len(high) <= most
    assert (int(low.min()), int(high.max())) == (min(values), max(values))
    assert bool((low <= high).all())


@given(st.lists(st.integers(0, 100), min_size=1, max_size=300), st.integers(1, 50))
def test_every_value_lies_in_the_column_of_its_time(values, most):
    low, high = downsample(np.array(values, dtype=np.int64), most)
    if len(values) > most:
        bounds = [at * len(values) // most for at in range(most)] + [len(values)]
        parts = [values[start:end] for start, end in pairwise(bounds)]
        assert high.tolist() == [max(part) for part in parts]
        assert low.tolist() == [min(part) for part in parts]


@pytest.mark.parametrize("times", [288, 8640])
def test_a_spike_of_one_pass_is_drawn_at_its_height(times):
    cpu, _ = build_node_charts(make_time_line(times, spike_at=times // 3))
    x, y = min(points(line(cpu, "peak").path), key=lambda point: point[1])
    # 15.68 of an axis of 20 cores
    assert y == round(CHART_HEIGHT * (1 - 0.98 * 16 / 20))
    assert abs(x - MAX_COLUMNS / 3) <= 2


def test_a_month_is_no_wider_than_the_picture():
    for picture in build_node_charts(make_time_line(8640)):
        for one in picture.lines:
            xs = [x for x, _ in points(one.path)]
            assert (min(xs), max(xs)) == (0, MAX_COLUMNS)
            assert len(xs) <= 2 * MAX_COLUMNS


def test_lines_are_bands_only_where_columns_hold_several_passes():
    [short, *_], [long, *_] = build_node_charts(make_time_line(288)), build_node_charts(make_time_line(8640))
    assert not line(short, "base").path.endswith("Z")
    assert line(long, "base").path.endswith("Z")


def test_what_is_level_needs_no_points_between():
    cpu, memory = build_node_charts(make_time_line(288))
    assert points(line(cpu, "allocatable").path) == [(0, 200), (MAX_COLUMNS, 200)]
    assert points(line(memory, "allocatable").path) == [(0, 200), (MAX_COLUMNS, 200)]


def test_a_policy_without_base_has_none():
    cpu, memory = build_node_charts(make_time_line(base=False))
    assert [one.kind for one in cpu.lines] == ["peak", "requested", "allocatable"]
    assert [one.kind for one in memory.lines] == ["peak", "requested", "allocatable"]


def test_base_and_headroom_are_drawn_as_their_sum():
    timed = make_time_line(288)
    assert timed.base_cpu_millicores is not None and timed.headroom_cpu_millicores is not None
    top = int((timed.base_cpu_millicores + timed.headroom_cpu_millicores).max())
    cpu, _ = build_node_charts(timed)
    assert min(y for _, y in points(line(cpu, "headroom").path)) == round(CHART_HEIGHT * (1 - top / 20_000))


def test_axes_are_in_cores_gibibytes_and_days():
    cpu, memory = build_node_charts(make_time_line(8640))
    assert [place.text for place in cpu.y_labels] == ["0", "5", "10", "15", "20"]
    assert [place.text for place in memory.y_labels] == ["0", "20", "40", "60", "80"]
    assert [place.text for place in cpu.x_labels][:3] == ["0 d", "5 d", "10 d"]
    assert [place.text for place in build_node_charts(make_time_line(288))[0].x_labels][:3] == ["0 h", "5 h", "10 h"]
    assert cpu.description == "CPU of node-1, cores: at most 8.19 used and 10.2 requested of 16.0"
    assert format_start(make_time_line()) == "2026-01-01 00:05 UTC"


def test_memory_that_was_not_recorded_is_not_drawn():
    assert [picture.title for picture in build_node_charts(make_time_line(), memory=False)] == ["CPU"]


def test_one_pass_is_a_line_and_none_is_no_picture():
    [cpu, _] = build_node_charts(make_time_line(1))
    assert {x for x, _ in points(line(cpu, "requested").path)} == {0, MAX_COLUMNS}
    assert cpu.x_labels == ()
    assert build_node_charts(make_time_line(0)) == ()


def test_the_node_of_the_tests_is_the_terms_default():
    assert (NODE.cpu_millicores, NODE.memory_bytes) == (16_000, 64 << 30)
