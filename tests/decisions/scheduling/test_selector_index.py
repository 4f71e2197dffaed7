"""The two indexes find everything that matches."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.scheduling.placements import LabelIndex, SelectorIndex, get_required_labels
from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator

keys, values = st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b", "c"])
labels = st.dictionaries(keys, values)
operators = st.sampled_from(
    [SelectorOperator.IN, SelectorOperator.NOT_IN, SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST]
)
requirements = st.builds(LabelRequirement, keys, operators, st.lists(values, max_size=2).map(tuple))
selectors = st.builds(LabelSelector, st.lists(requirements, max_size=3).map(tuple))


@given(st.lists(selectors), labels)
def test_selectors_are_found_by_the_labels_that_they_select(all_selectors, wanted):
    index: SelectorIndex[int] = SelectorIndex()
    for number, selector in enumerate(all_selectors):
        index.add(selector, number)
    found = list(index.find_candidates(wanted))
    assert len(found) == len(set(found))
    assert {n for n, selector in enumerate(all_selectors) if selector.matches(wanted)} <= set(found)


@given(st.lists(labels), selectors)
def test_labels_are_found_by_the_selectors_that_select_them(all_labels, selector):
    index: LabelIndex[frozenset[tuple[str, str]]] = LabelIndex()
    for one in all_labels:
        index.add(frozenset(one.items()), frozenset(one.items()))
    found = list(index.find_candidates(selector))
    assert len(found) == len(set(found))
    assert {frozenset(one.items()) for one in all_labels if selector.matches(one)} <= set(found)


def test_what_names_a_value_leaves_out_the_rest():
    one = LabelSelector((LabelRequirement("app", SelectorOperator.IN, ("a",)),))
    index: SelectorIndex[str] = SelectorIndex()
    index.add(one, "one")
    index.add(LabelSelector(), "all")
    assert list(index.find_candidates({"app": "b"})) == ["all"]
    assert get_required_labels(one) == [[("app", "a")]]
    assert get_required_labels(LabelSelector()) == []
