"""What a scan says of samples that cannot be true."""

from dataclasses import replace

from cruise.decisions.scan.implausible import Implausible, find_implausible
from cruise.domain.usage import Refusal
from cruise.interfaces.explain.steps import statistic_line
from cruise.interfaces.scan.table import implausible_line
from tests.builders import NOW, make_statistic, make_table

DISAGREE = 1 << list(Refusal).index(Refusal.SERIES_DISAGREE)
OVER_NODE = 1 << list(Refusal).index(Refusal.OVER_NODE)
ROWS = [
    make_statistic("web-1"),
    replace(make_statistic("web-2", refused_percent=40), refused_reasons=DISAGREE),
    replace(make_statistic("web-3", refused_percent=100), refused_reasons=DISAGREE | OVER_NODE),
    # A workload's row only sums up.
    replace(make_statistic("", refused_percent=50), refused_reasons=DISAGREE),
]


def test_containers_are_counted_by_reason_with_the_worst_of_each():
    found = find_implausible(make_table(*ROWS))
    assert found == (
        Implausible(Refusal.SERIES_DISAGREE, 2, "shop", "web-3", "app", 100),
        Implausible(Refusal.OVER_NODE, 1, "shop", "web-3", "app", 100),
    )
    assert implausible_line(found) == (
        "Samples that cannot be true are refused. 2 containers: several series of it disagree, such as shop/web-3 app "
        "(100 % of a window); 1 container: more than its node has, such as shop/web-3 app (100 % of a window)."
    )
    assert find_implausible(make_table(ROWS[0])) == ()


def test_an_explanation_says_how_much_was_refused_and_why():
    assert "refused" not in statistic_line(ROWS[0], NOW)
    assert statistic_line(ROWS[1], NOW).endswith(", 40 % of a window refused: several series of it disagree")
