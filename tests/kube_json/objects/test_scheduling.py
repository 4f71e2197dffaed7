"""Selectors as objects and a scale's status state them."""

import pytest

from cruise.domain.scheduling import LabelRequirement, LabelSelector, SelectorOperator
from cruise.errors import BadInputError
from cruise.kube_json.objects.scheduling import parse_selector, read_node_terms
from cruise.kube_json.wire.pod_json import NodeSelector, NodeSelectorTermJson, SelectorRequirementJson


@pytest.mark.parametrize(
    ("text", "selected", "others"),
    [
        ("app=web", {"app": "web"}, {"app": "db"}),
        ("app==web,tier=front", {"app": "web", "tier": "front"}, {"app": "web"}),
        ("app!=web", {}, {"app": "web"}),
        ("tier in (a, b),app=web", {"tier": "b", "app": "web"}, {"tier": "c", "app": "web"}),
        ("tier notin (a,b)", {"tier": "c"}, {"tier": "a"}),
        ("example.com/one", {"example.com/one": ""}, {}),
        ("!example.com/one", {}, {"example.com/one": ""}),
        ("app=", {"app": ""}, {"app": "web"}),
    ],
)
def test_a_selector_selects_what_kubernetes_selects_by_it(text, selected, others):
    found = parse_selector(text)
    assert found.matches(selected)
    assert not found.matches(others)


def test_its_parts_are_requirements():
    assert parse_selector("strimzi.io/cluster=web") == LabelSelector(
        (LabelRequirement("strimzi.io/cluster", SelectorOperator.IN, ("web",)),)
    )


@pytest.mark.parametrize(
    "text",
    [
        *("app = = x", "a>1", "(a)", "app=web x"),
        *("(", "((", "(app=web", "app=web,", ",app=web", "a,,b", "tier in (a", "a in (" * 100_000),
    ],
)
def test_an_invalid_one_is_rejected(text):
    with pytest.raises(BadInputError, match="not a label selector"):
        parse_selector(text)


@pytest.mark.parametrize("value", ["{{.bad-value.}}", "-a", "a" * 64])
def test_no_node_meets_a_term_with_a_value_that_no_label_can_have(value):
    bad = NodeSelectorTermJson((SelectorRequirementJson("disk", "NotIn", (value,)),))
    good = NodeSelectorTermJson((SelectorRequirementJson("disk", "NotIn", ("a" * 63,)),))
    found = read_node_terms(NodeSelector((bad, good)), "spec")
    assert [term.matches("n1", {"disk": "ssd"}) for term in found] == [False, True]
