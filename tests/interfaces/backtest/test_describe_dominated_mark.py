import pytest

from cruise.domain.resources import Resources
from cruise.interfaces.backtest.report import ReplayParameters
from cruise.interfaces.backtest.table import (
    describe_dominated_mark,
    describe_parameters,
    describe_recording,
    format_seconds,
    list_warnings,
    summarize_backtest,
)
from cruise.interfaces.text import join_words
from tests.backtest_results import make_policies, make_result, make_score, make_time_line


def test_a_recording_is_described_by_its_size_and_its_nodes():
    assert describe_recording(make_result()) == (
        "100 containers, 30 days, a sample every 5 min; nodes of 16 cores and 64Gi"
    )
    small = make_result(containers=1, days=0.6, step_seconds=60, node=Resources(2500, 5 << 29))
    assert describe_recording(small) == "1 container, 14.4 hours, a sample every 1 min; nodes of 2.50 cores and 2.5Gi"


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        (
            ReplayParameters(300, "first-sample", 0, 1e-3, rules="seeds"),
            "pods are created with their first sample; seed 0, risk 0.001; rules seeds",
        ),
        (
            ReplayParameters(300, "first-sample", 0, 1e-3),
            "pods are created with their first sample; seed 0, risk 0.001",
        ),
        (
            ReplayParameters(300, "start", 3, 0.01, "tune"),
            "at the start; seed 3, risk 0.01; only the half of the series for tuning",
        ),
        (
            ReplayParameters(90, "start", 3, 0.01, "report"),
            "every 90 s; pods are created at the start; seed 3, risk 0.01; only the half of the series for reports",
        ),
    ],
)
def test_replay_parameters_are_described(terms, expected):
    assert describe_parameters(terms).endswith(expected)


def test_the_summary_compares_cruise_with_the_provisioned_requests():
    assert summarize_backtest(make_result()) == (
        "as-requested → cruise: 25.0 → 9.10 nodes on average, CPU slack 81.0 % → 36.0 %, memory slack 72.0 % → 37.0 %."
    )
    assert "memory" not in (summarize_backtest(make_result(policies=make_policies(memory=False))) or "memory")
    assert summarize_backtest(make_result(policies={"cruise": make_score()})) is None


def test_warnings_name_what_makes_figures_weak():
    policies = make_policies(memory=False) | {"vpa": make_score("vpa", memory=None, pending_pod_minutes=1204.0)}
    assert list(list_warnings(make_result(policies=policies))) == [
        "memory was not recorded: it has no figures, and only CPU limits the pods of a node",
        "pods were pending under vpa, for at most 1,204 pod-minutes in total",
    ]
    assert list(list_warnings(make_result())) == []


def test_requests_that_were_cut_to_a_node_are_reported():
    assert [list(list_warnings(make_result(capped_containers=number))) for number in (0, 1, 2)] == [
        [],
        ["1 container requested more than a node has, and is replayed as if it had requested a whole node"],
        ["2 containers requested more than a node has, and are replayed as if they had requested a whole node"],
    ]


def test_a_watched_node_that_does_not_exist_is_reported():
    idle = make_time_line()
    for line in (idle.requested_cpu_millicores, idle.peak_cpu_millicores):
        line[:] = 0
    never = make_result(policies={"cruise": make_score(time_line=idle), "vpa": make_score("vpa")})
    assert list(list_warnings(never, "node-099")) == ["no pod ran on node node-099"]
    assert list(list_warnings(make_result(), "node-001")) == []
    assert list(list_warnings(never)) == []


def test_the_note_on_dominance_names_every_axis():
    assert describe_dominated_mark() == (
        "another policy (except the bounds clairvoyant, clairvoyant-1h, clairvoyant-24h and oracle) is at least as "
        "good on CPU slack, memory slack, CPU starvation, "
        "out-of-memory kills, own evictions, mean nodes and resizes beyond 5 a container and day, and better on one "
        "of them"
    )


def test_names_and_times_in_words():
    assert [join_words(names) for names in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == [
        "",
        "a",
        "a and b",
        "a, b and c",
    ]
    assert [format_seconds(seconds) for seconds in (15, 60, 90, 300)] == ["15 s", "1 min", "90 s", "5 min"]
