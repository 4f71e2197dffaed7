"""From counters to usage, step by step: one core used for a whole step adds 60 s."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cruise.adapters.prometheus.counter_rows import CounterReadingOptions, EarlierCounters
from cruise.adapters.prometheus.counters import UsageAnswers, compute_usage
from cruise.adapters.prometheus.queries import SeriesLabelValues, SeriesMatrix
from cruise.domain.usage import ContainerKey

APP = ContainerKey("shop", "web-1", "app")
NAN = float("nan")
CORES = 4.0


def name(id_="/old", node="n1", key=APP):
    return SeriesLabelValues(key.namespace, key.pod, key.container, id_, node)


def matrix(*rows):
    """Rows are (series name, values)."""
    if not rows:
        return SeriesMatrix([], np.empty((0, 0)))
    return SeriesMatrix([of for of, _ in rows], np.array([values for _, values in rows], dtype=np.float64))


def usage(cpu, waiting=(), memory=(), tail=None, pressured=None, start=0, fills_holes=False):
    steps = max((len(values) for _, values in (*cpu, *waiting, *memory)), default=1)
    times = start + 60 * np.arange(1, steps + 1)
    parts = [matrix(*rows) if rows else SeriesMatrix([], np.empty((0, steps))) for rows in (cpu, waiting, memory)]
    answers, before = UsageAnswers(parts[0], parts[1], parts[2]), EarlierCounters.create(tail)
    return compute_usage(
        answers, times, before, CounterReadingOptions(60, CORES, fills_holes), set() if pressured is None else pressured
    )


def demand(*arguments, **more):
    block, _ = usage(*arguments, **more)
    assert block.keys == [APP]
    return block.cpu_demand_millicores[0].tolist()


def same(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=1e-6)


def test_usage_is_the_growth_of_a_counter_over_the_step():
    same(demand([(name(), [1000, 1006, 1036, 1036])]), [NAN, 100, 500, 0])


def test_the_tail_gives_the_first_step_its_usage():
    _, tail = usage([(name(), [1000, 1006])])
    assert (tail.at, tail.keys, tail.cpu_seconds.tolist()) == (120, [APP], [1006])
    same(demand([(name(), [1012, 1018])], tail=tail, start=120), [100, 100])


def test_a_step_after_a_hole_has_no_usage():
    same(demand([(name(), [1000, NAN, 1012, 1018])]), [NAN, NAN, NAN, 100])


def test_a_counter_that_fell_was_reset_and_has_counted_from_zero():
    same(demand([(name(), [1000, 30, 36])]), [NAN, 500, 100])


def test_a_reset_to_more_than_the_cores_can_count_is_no_usage():
    same(demand([(name(), [1000, 241, 247])]), [NAN, NAN, 100])


def test_a_restarted_container_is_known_by_its_new_id_from_its_start():
    same(demand([(name("/old"), [1000, 1006, NAN, NAN]), (name("/new"), [NAN, NAN, 3, 9])]), [NAN, 100, 50, 100])


def test_an_old_id_that_lingers_does_not_double_the_container():
    cpu = [(name("/old"), [1000, 1012, 1012, 1012]), (name("/new"), [NAN, 3, 9, 15])]
    same(demand(cpu), [NAN, 200, 100, 100])
    block, _ = usage(cpu, memory=[(name("/old"), [7, 7, 7, 7]), (name("/new"), [NAN, 5, 6, 8])])
    assert block.memory_bytes.tolist() == [[7, 7, 7, 8]]


def test_a_restart_between_two_reads_is_seen_by_the_tail():
    _, tail = usage([(name("/old"), [1000])])
    same(demand([(name("/new"), [30, 36])], tail=tail, start=60), [500, 100])


def test_a_new_container_has_no_usage_at_first():
    same(demand([(name(), [NAN, 30, 36])]), [NAN, NAN, 100])


def test_a_second_id_with_a_large_counter_has_no_usage_at_first():
    same(demand([(name("/a"), [100, 106, 112]), (name("/b"), [NAN, 5000, 5003])]), [NAN, 100, 100])


def test_an_id_that_reappears_was_not_restarted():
    cpu = [(name("/a"), [10, 16, 22, 28]), (name("/b"), [20, NAN, 32, 44])]
    same(demand(cpu), [NAN, 100, 100, 200])


def test_pressure_adds_its_share():
    same(demand([(name(), [100, 106, 112, 118])], [(name(), [1, 31, 31, 200])]), [NAN, 150, 100, 200])


def test_pressure_is_its_own_series():
    cpu = [(name("/old"), [1000, 1006, 1006]), (name("/new"), [NAN, 12, 24])]
    waiting = [(name("/old"), [5, 35, 35]), (name("/new"), [NAN, 15, 15])]
    same(demand(cpu, waiting), [NAN, 250, 200])


def psi_known(cpu, waiting, **more):
    block, _ = usage(cpu, waiting, **more)
    return dict(zip([key.pod for key in block.keys], block.psi_known.tolist(), strict=True))


def two(node_of_first, node_of_second):
    second = ContainerKey("shop", "web-2", "app")
    return name(node=node_of_first), name(node=node_of_second, key=second)


def test_absent_pressure_is_unknown_and_loses_no_container():
    assert psi_known([(name(), [1, 2])], []) == {"web-1": False}
    same(demand([(name(), [0, 6])]), [NAN, 100])


@pytest.mark.parametrize(
    ("nodes", "known"),
    [
        (("n1", "n1"), {"web-1": True, "web-2": True}),  # the other container shows that the node measures
        (("n1", "n2"), {"web-1": True, "web-2": False}),
        (("", ""), {"web-1": True, "web-2": False}),
    ],
)
def test_zeros_are_a_measurement_only_if_the_node_shows_pressure_elsewhere(nodes, known):
    first, second = two(*nodes)
    assert psi_known([(first, [1, 2]), (second, [1, 2])], [(first, [0, 1]), (second, [0, 0])]) == known


def test_a_node_that_showed_pressure_once_is_remembered():
    pressured: set[str] = set()
    psi_known([(name(), [1, 2])], [(name(), [0, 1])], pressured=pressured)
    assert psi_known([(name(), [1, 2])], [(name(), [0, 0])], pressured=pressured) == {"web-1": True}


def test_merges_duplicates_that_differ_only_in_the_node():
    cpu = [(name(node=""), [100, 106, NAN]), (name(node="n1"), [NAN, 106, 112])]
    block, tail = usage(cpu, memory=[(name(node=""), [1, 1, 1]), (name(node="n1"), [2, 2, 2])])
    same(block.cpu_demand_millicores[0], [NAN, 100, 100])
    assert block.memory_bytes.tolist() == [[2, 2, 2]]
    assert tail.cpu_seconds.tolist() == [112]
    assert list(block.nodes) == ["n1"]


def test_ignores_series_without_a_pod():
    block, tail = usage([(SeriesLabelValues("shop", "", "app", "/a", "n1"), [1, 2])])
    assert (list(block.keys), list(tail.keys)) == ([], [])


def test_a_container_with_only_memory_has_no_cpu():
    block, _ = usage([], memory=[(name(), [5, 6])])
    assert block.memory_bytes.tolist() == [[5, 6]]
    assert np.isnan(block.cpu_demand_millicores).all()


GROWTHS = st.lists(st.one_of(st.none(), st.floats(0, 200)), min_size=6, max_size=6)


@given(st.lists(GROWTHS, min_size=1, max_size=3), st.integers(1, 5))
def test_reading_in_two_parts_gives_the_same_as_one_read(growths, cut):
    rows = []
    for number, series in enumerate(growths):
        counter, values = 0.0, []
        for growth in series:
            counter += growth or 0.0
            values.append(NAN if growth is None else counter)
        rows.append((name(f"/{number}"), values))
    whole, whole_tail = usage(rows)
    first, tail = usage([(of, values[:cut]) for of, values in rows])
    second, second_tail = usage([(of, values[cut:]) for of, values in rows], tail=tail, start=60 * cut)
    joined = np.concatenate((first.cpu_demand_millicores, second.cpu_demand_millicores), axis=1)
    # A series that was away exactly between the parts is not known to have been there before.
    away = any(np.isnan(values[cut - 1]) and not np.isnan(values[:cut]).all() for _, values in rows)
    if not away:
        np.testing.assert_array_equal(joined, whole.cpu_demand_millicores)
    np.testing.assert_array_equal(second_tail.cpu_seconds, whole_tail.cpu_seconds)
