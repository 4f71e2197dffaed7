import pytest

from cruise.decisions.sizing.node_plans import decide_node_plans
from cruise.domain.policy import Mode, Policy
from cruise.interfaces.plan_table import render_node_plan, render_plan_table
from tests.builders import (
    NOW,
    TRACKING,
    make_container,
    make_node,
    make_pod,
    make_snapshot,
    make_statistic_for,
    make_table,
)
from tests.shown import render_to_text

FULL = Policy(mode=Mode.FULL, rules=TRACKING)


def decided(pods, *rows, nodes=None):
    snapshot = make_snapshot(pods, nodes=nodes)
    plans = decide_node_plans(snapshot, make_table(*rows), FULL, NOW)
    return plans, {(pod.namespace, pod.name): pod for pod in snapshot.pods}


def table(pods, *rows, nodes=None, width=80, in_full=False) -> str:
    plans, by_name = decided(pods, *rows, nodes=nodes)
    return render_to_text(lambda console: render_plan_table(plans, by_name, console, in_full), width)


def test_a_node_shows_what_is_requested_before_and_after():
    pod = make_pod(containers=[make_container(cpu=2000, memory_mib=4096)])
    text = table([pod], make_statistic_for(pod))
    assert "2.00 → 0.20" in text
    assert "4.00 → 0.10" in text


@pytest.mark.parametrize("width", [80, 160])
def test_lines_keep_within_the_terminal(width):
    pods = [make_pod(f"web-7d9f8b6c5d-{index:05d}", namespace="a-long-team-name", node="n1") for index in range(4)]
    text = table(pods, *(make_statistic_for(pod, cpu_base=900) for pod in pods), nodes=[make_node()], width=width)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize("width", [80, 160])
def test_nothing_is_cut_beside_long_names_of_nodes(width):
    names = [f"ip-10-12-0-{number}.eu-central-1.compute.internal" for number in range(3)]
    pods = [make_pod(f"web-{name}", node=name, containers=[make_container(cpu=64_000)]) for name in names]
    nodes = [make_node(name, cpu=2_000_000, memory_mib=8_000_000) for name in names]
    text = table(pods, *map(make_statistic_for, pods), nodes=nodes, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for heading in ("NODE", "FITS", "CPU CORES", "MEMORY GIB", "EVICT", "RESIZE", "SKIPPED"):
        assert heading in text
    assert [line.split()[2] for line in text.splitlines() if line.startswith("3 nodes")] == ["all"]


def test_the_sum_says_how_many_nodes_fit_of_how_many():
    pods = [make_pod("a", node="n1"), make_pod("agent", node="n2", workload="DaemonSet/agent")]
    rows = [make_statistic_for(pods[0]), make_statistic_for(pods[1], cpu_base=900)]
    text = table(pods, *rows, nodes=[make_node("n1"), make_node("n2", cpu=500)])
    assert "1 of 2" in text


def test_a_wide_terminal_adds_needs_and_reasons():
    pods = [make_pod("a"), make_pod("b", workload=None)]
    rows = [make_statistic_for(pods[0])]
    assert "no-controller 1" in table(pods, *rows, width=160)
    assert "TARGET" in table(pods, *rows, width=160)
    assert "TARGET" not in table(pods, *rows, width=80)


def test_evictions_and_pods_that_do_not_fit_are_reported():
    pods = [make_pod("calm"), make_pod("spiky")]
    rows = [make_statistic_for(pods[0]), make_statistic_for(pods[1], cpu_base=600, cpu_peak=900)]
    text = table(pods, *rows, nodes=[make_node(cpu=500)])
    assert "shop/spiky" in text
    lonely = make_pod("agent", workload="DaemonSet/agent")
    assert " no " in table([lonely], make_statistic_for(lonely, cpu_base=900), nodes=[make_node(cpu=500)])


@pytest.mark.parametrize("node", [make_node(ready=False), make_node(cpu=0), make_node(cpu=100, ready=False)])
@pytest.mark.parametrize("width", [80, 160])
def test_nothing_fits_a_node_whose_kubelet_would_not_act(node, width):
    pod = make_pod()
    text = table([pod], make_statistic_for(pod), nodes=[node], width=width)
    assert " not ready " in text and " yes " not in text
    assert max(map(len, text.splitlines())) <= width


def test_of_many_nodes_the_most_telling_are_shown_and_the_rest_counted():
    pods = [
        make_pod(f"web-{index}", node=f"n{index:03d}", containers=[make_container(cpu=1000 + index)])
        for index in range(100)
    ]
    text = table(pods, *(make_statistic_for(pod) for pod in pods))
    assert "70 more nodes" in text
    assert "n099" in text
    assert "n000" not in text
    assert "n000" in table(pods, *(make_statistic_for(pod) for pod in pods), in_full=True)


def test_the_largest_change_is_first():
    pods = [
        make_pod("small", workload="Deployment/small", containers=[make_container(cpu=300)]),
        make_pod("big", workload="Deployment/big", containers=[make_container(cpu=1500)]),
    ]
    text = table(pods, *(make_statistic_for(pod) for pod in pods))
    assert 0 < text.index("Deployment/big") < text.index("Deployment/small")


def test_a_killed_pod_is_at_risk_where_nothing_becomes_of_it():
    pod = make_pod("web-1", containers=[make_container(cpu=204, memory_mib=100, memory_limit_mib=200)])
    row = make_statistic_for(pod, cpu_base=50, cpu_peak=200, memory_base_mib=64, memory_peak_mib=100)
    plans, by_name = decided([pod], row)
    assert "web-1  no-change-needed" in render_to_text(lambda console: render_node_plan(plans[0], by_name))
    killed = render_to_text(lambda console: render_node_plan(plans[0], by_name, {("shop", "web-1")}))
    assert "web-1  at risk: OOM killed" in killed


def test_a_node_in_full_has_every_container_and_every_fate():
    pods = [
        make_pod("shrinks", containers=[make_container(cpu=900, memory_mib=1024, memory_limit_mib=2048)]),
        make_pod("no-change-needed", containers=[make_container(cpu=120, memory_mib=78, memory_limit_mib=199)]),
        make_pod("held", workload=None),
        make_pod("goes"),
    ]
    rows = [
        make_statistic_for(pods[0], cpu_base=50, cpu_peak=100),
        make_statistic_for(pods[1], cpu_base=50, cpu_peak=120, memory_peak_mib=78, memory_7d_max_mib=100),
        make_statistic_for(pods[3], cpu_base=2900, cpu_peak=3000),
    ]
    plans, by_name = decided(pods, *rows, nodes=[make_node(cpu=1000)])
    text = render_to_text(lambda console: render_node_plan(plans[0], by_name))
    for fate in ("rightsized, shrinks", "skipped: no-controller", "evicted"):
        assert fate in text
    assert "900m → " in text
    assert "2,048Mi → " in text
    assert max(map(len, text.splitlines())) <= 80
