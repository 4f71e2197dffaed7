from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.policy_costs import COST_AXES, dominates, find_dominated_policies
from tests.backtest_results import make_policies, make_score

SHARES = st.sampled_from([0.0, 0.1, 0.2, 0.3])
NAMES = ("vpa", "autopilot", "cruise", "cruise-risk", "oracle")


@st.composite
def scores(draw):
    has_memory = draw(st.booleans())
    rows = {}
    for name in draw(st.permutations(NAMES))[: draw(st.integers(0, len(NAMES)))]:
        cpu, starved, of_memory = draw(SHARES), draw(SHARES), draw(SHARES)
        rows[name] = make_score(
            name,
            (cpu, starved, 0.0),
            (of_memory, 0.0, 0.0) if has_memory else None,
            oom=draw(SHARES),
            evictions=draw(SHARES),
            moves=0.0,
            nodes_mean=draw(SHARES),
        )
    return rows


def costs(score) -> list[float]:
    return [value for value in (axis(score) for axis in COST_AXES.values()) if value is not None]


@given(scores())
def test_exactly_the_beaten_policies_are_dominated(rows):
    found = find_dominated_policies(rows)
    for name, score in rows.items():
        beaten = any(
            dominates(costs(rival), costs(score)) for other, rival in rows.items() if other not in (name, "oracle")
        )
        assert (name in found) == beaten


@given(scores())
def test_the_named_winner_is_not_dominated_itself(rows):
    found = find_dominated_policies(rows)
    for name, winner in found.items():
        assert dominates(costs(rows[winner]), costs(rows[name]))
        assert winner != "oracle"
        assert winner not in found


@given(scores())
def test_one_policy_that_can_be_chosen_remains(rows):
    assert set(rows) <= {"oracle"} or set(rows) - {"oracle"} - set(find_dominated_policies(rows))


@given(scores(), st.randoms(use_true_random=False))
def test_the_order_of_policies_does_not_matter_for_dominance(rows, draw):
    names = list(rows)
    draw.shuffle(names)
    assert set(find_dominated_policies({name: rows[name] for name in names})) == set(find_dominated_policies(rows))


@given(scores())
def test_removing_dominated_policies_changes_no_dominance(rows):
    found = find_dominated_policies(rows)
    assert find_dominated_policies({name: score for name, score in rows.items() if name not in found}) == {}


@given(st.lists(SHARES, min_size=1, max_size=6))
def test_no_row_beats_itself(row):
    assert not dominates(row, row)


def test_equal_policies_both_remain():
    assert find_dominated_policies({"cruise": make_score(), "cruise-risk": make_score()}) == {}


def test_the_oracle_dominates_no_policy_but_may_be_dominated():
    worse = make_score(nodes_mean=100.0)
    assert find_dominated_policies({"oracle": make_score(), "cruise": worse}) == {}
    assert find_dominated_policies({"oracle": worse, "cruise": make_score()}) == {"oracle": "cruise"}


def test_without_memory_its_kills_and_its_slack_do_not_count():
    rows = {"vpa": make_score(memory=None, oom=9.0), "cruise": make_score(memory=None, oom=0.0)}
    assert find_dominated_policies(rows) == {}


def test_the_end_of_a_chain_is_named():
    rows = {name: make_score(nodes_mean=mean) for name, mean in (("vpa", 9.0), ("autopilot", 8.0), ("cruise", 7.0))}
    assert find_dominated_policies(rows) == {"vpa": "cruise", "autopilot": "cruise"}


def test_the_usual_figures():
    assert find_dominated_policies(make_policies()) == {
        "vpa": "cruise",
        "cruisekube": "cruise",
        "autopilot": "cruise",
        "cruise-joint-peak": "cruise",
    }


def test_moves_of_consolidation_do_not_count():
    rows = {
        "vpa": make_score("vpa", evictions=20.0, moves=0.0, nodes_mean=9.0),
        "cruise": make_score("cruise", evictions=700.0, moves=690.0, nodes_mean=8.0),
    }
    assert find_dominated_policies(rows) == {"vpa": "cruise"}


def test_less_slack_by_resizes_at_every_pass_does_not_dominate():
    idle, restless = make_score(resizes=1.8), make_score(cpu=(0.2, 0.0, 0.0), resizes=90.0)
    assert find_dominated_policies({"cruise": idle, "cruise-seeds": restless}) == {}


def test_few_resizes_are_as_good_as_fewer():
    better, fewer = make_score(cpu=(0.2, 0.0, 0.0), resizes=4.9), make_score(resizes=0.3)
    assert find_dominated_policies({"cruise": better, "vpa": fewer}) == {"vpa": "cruise"}
