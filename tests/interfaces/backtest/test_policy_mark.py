from cruise.decisions.policy_costs import find_dominated_policies
from cruise.interfaces.backtest.pareto_chart import KILLS, STARVATION, build_pareto_chart
from tests.backtest_results import make_policies, make_score


def picture(policies=None, pair=STARVATION, width=580.0, height=380.0):
    policies = make_policies() if policies is None else policies
    return build_pareto_chart(policies, find_dominated_policies(policies), pair, width, height)


def marks(drawn):
    return {mark.name: mark for mark in drawn.marks}


def test_every_policy_is_one_mark_within_the_picture():
    drawn = picture()
    assert list(marks(drawn)) == list(make_policies())
    for mark in drawn.marks:
        assert drawn.plot.x <= mark.x <= drawn.plot.x + drawn.plot.width
        assert drawn.plot.y <= mark.y <= drawn.plot.y + drawn.plot.height


def test_less_waste_is_to_the_left_and_less_harm_below():
    of = marks(picture())
    assert of["oracle"].x < of["cruise"].x < of["vpa"].x < of["as-requested"].x
    assert of["as-requested"].y > of["cruise"].y > of["cruisekube"].y


def test_marks_distinguish_cruise_dominated_policies_and_bounds():
    of = marks(picture())
    assert [of[name].kind for name in ("cruise", "cruise-joint-peak", "cruisekube", "as-requested", "oracle")] == [
        "own",
        "own beaten",
        "other beaten",
        "other",
        "bound",
    ]


def test_a_mark_says_its_figures():
    assert marks(picture(pair=KILLS))["vpa"].description == (
        "vpa: 55.0 memory slack, 3.10 out-of-memory kills for 1,000 container-days, 0.60 resizes a container and day"
    )


def test_the_more_a_policy_resizes_the_larger_its_mark():
    of = marks(picture())
    assert of["as-requested"].radius < of["vpa"].radius < of["cruise"].radius < of["cruisekube"].radius
    assert of["oracle"].radius < 15


def test_the_pareto_front_descends_in_steps_without_the_oracle():
    policies = {
        name: make_score(name, (slack, starved, 0.0))
        for name, slack, starved in (
            ("vpa", 0.5, 0.02),
            ("cruise", 0.3, 0.03),
            ("autopilot", 0.6, 0.04),
            ("oracle", 0.1, 0.0),
        )
    }
    drawn = picture(policies)
    of = marks(drawn)
    assert drawn.pareto_front == [
        (of["cruise"].x, of["cruise"].y),
        (of["vpa"].x, of["cruise"].y),
        (of["vpa"].x, of["vpa"].y),
    ]


def test_a_name_far_from_its_mark_has_a_line_to_it():
    same = {name: make_score(name) for name in make_policies()}
    drawn = picture(same)
    assert len({(mark.text_x, mark.text_y) for mark in drawn.marks}) == len(same)
    assert any(mark.line_to is not None for mark in drawn.marks)
    assert marks(picture())["autopilot"].line_to is None


def test_a_name_to_the_left_ends_at_its_mark():
    drawn = picture({"as-requested": make_score("as-requested", (0.99, 0.5, 0.0))})
    [mark] = drawn.marks
    assert (mark.anchor, mark.text_x < mark.x) == ("end", True)


def test_a_chart_without_harm_is_marked():
    assert picture({"cruise": make_score(cpu=(0.4, 0.0, 0.0))}).has_no_harm
    assert not picture().has_no_harm


def test_without_memory_there_is_no_picture_of_kills():
    assert picture(make_policies(memory=False), KILLS) is None
    assert picture({}) is None
