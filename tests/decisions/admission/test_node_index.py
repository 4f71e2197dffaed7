"""The index finds the same nodes as a linear search, at a cost independent of their number."""

from hypothesis import given
from hypothesis import strategies as st

from cruise.decisions.admission.node_index import NodeIndex
from cruise.domain.scheduling import (
    OVERLOADED_TAINT,
    UNSCHEDULABLE_TAINT,
    LabelRequirement,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    TaintEffect,
    Toleration,
)
from tests.builders import make_node, make_pod

GPU = Taint("gpu", "yes", TaintEffect.NO_EXECUTE)
RATHER_NOT = Taint("spot", "yes", TaintEffect.PREFER_NO_SCHEDULE)

keys = st.sampled_from(["zone", "gen", "disk"])
values = st.sampled_from(["a", "b", "1", "01", "2", "-3", "1_0", "", "9" * 5000])
labels = st.dictionaries(keys, values)


@st.composite
def nodes(draw):
    return [
        make_node(
            f"n{number}",
            cpu=draw(st.sampled_from([1000, 2000, 4000])),
            labels=draw(labels),
            taints=tuple(draw(st.sets(st.sampled_from([UNSCHEDULABLE_TAINT, OVERLOADED_TAINT, GPU, RATHER_NOT])))),
        )
        for number in range(draw(st.integers(0, 12)))
    ]


requirements = st.builds(
    LabelRequirement, keys | st.just("none"), st.sampled_from(SelectorOperator), st.lists(values, max_size=3).map(tuple)
)
fields = st.builds(
    LabelRequirement,
    st.sampled_from(["metadata.name", "metadata.name", "spec.other"]),
    st.sampled_from(SelectorOperator),
    st.lists(st.sampled_from(["n0", "n1", "n7", "x"]), max_size=2).map(tuple),
)
terms = st.builds(
    NodeSelectorTerm, st.lists(requirements, max_size=3).map(tuple), st.lists(fields, max_size=2).map(tuple)
)
placements = st.builds(
    SchedulingConstraints,
    st.lists(st.tuples(keys, values), max_size=2).map(tuple),
    st.none() | st.lists(terms, max_size=3).map(tuple),
    st.lists(st.sampled_from([Toleration("gpu", exists=True), Toleration("gpu", value="no")]), max_size=2).map(tuple),
)


def could_hold(node, placement):
    lasting = [taint for taint in node.taints if taint not in (UNSCHEDULABLE_TAINT, OVERLOADED_TAINT)]
    return placement.allows_node(node.name, node.labels) and placement.tolerates_all(lasting)


@given(nodes(), st.lists(placements, min_size=1, max_size=4))
def test_the_sizes_found_are_those_of_the_nodes_that_admit_the_pod(some, wanted):
    index = NodeIndex(some)
    for placement in wanted:
        found = list(index.find_capacities(make_pod("", node=None, placement=placement)))
        assert len(found) == len(set(found))
        assert set(found) == {node.allocatable for node in some if could_hold(node, placement)}


def test_the_cost_of_a_lookup_does_not_depend_on_the_number_of_nodes():
    some = [make_node(f"n{number}", labels={"zone": f"z{number % 3}"}) for number in range(200)]
    term = NodeSelectorTerm((LabelRequirement("zone", SelectorOperator.IN, ("nowhere",)),))
    index = NodeIndex(some)
    assert not list(
        index.find_capacities(make_pod("", node=None, placement=SchedulingConstraints(terms=(term,) * 20_000)))
    )
    assert index.evaluated == 20_000


def test_labels_that_no_node_has_are_not_cached():
    index = NodeIndex([make_node()])
    for number in range(100):
        term = NodeSelectorTerm((LabelRequirement(f"key-{number}", SelectorOperator.EXISTS),))
        assert not list(index.find_capacities(make_pod("", node=None, placement=SchedulingConstraints(terms=(term,)))))
    assert not index._labels
