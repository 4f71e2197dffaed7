"""The index finds the same budgets as trying each one."""

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.pod_policy.evictability import DisruptionBudgetIndex
from cruise.domain.cluster import PodDisruptionBudget
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from tests.builders import make_pod

keys, values = st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b", "c"])
requirements = st.builds(
    LabelRequirement, keys, st.sampled_from(list(SelectorOperator)[:4]), st.lists(values, max_size=2).map(tuple)
)
selectors = st.builds(LabelSelector, st.lists(requirements, max_size=3).map(tuple))
budgets = st.builds(PodDisruptionBudget, st.sampled_from(["shop", "bank"]), st.just("one"), selectors, st.just(1))


@given(st.lists(budgets, max_size=8), st.dictionaries(keys, values), st.sampled_from(["shop", "bank", "none"]))
def test_all_budgets_of_a_pod_are_found_in_order(of_cluster, labels, namespace):
    one = make_pod("web", namespace=namespace, labels=labels)
    found = [each for each in of_cluster if each.namespace == namespace and each.selector.matches(labels)]
    assert list(DisruptionBudgetIndex(of_cluster).find_for_pod(one)) == found


class Counting(LabelSelector):
    """A selector that counts how often it is evaluated."""

    asked = 0

    def matches(self, labels):
        Counting.asked += 1
        return super().matches(labels)


def test_a_lookup_evaluates_only_the_budgets_of_the_pod():
    shared = LabelRequirement("tier", SelectorOperator.IN, ("web",))
    of_cluster = [
        PodDisruptionBudget(
            "shop", f"b{n}", Counting((shared, LabelRequirement("app", SelectorOperator.IN, (f"app{n}",)))), 1
        )
        for n in range(500)
    ]
    covering = DisruptionBudgetIndex(of_cluster)
    for n, copy in product(range(500), range(3)):
        one = make_pod(f"app{n}-{copy}", namespace="shop", labels={"app": f"app{n}", "tier": "web"})
        assert [each.name for each in covering.find_for_pod(one)] == [f"b{n}"]
    # One more per pod: the first budget is indexed by the label that all share.
    assert Counting.asked <= 2 * 500
