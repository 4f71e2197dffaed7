"""Selectors, affinity, taints and tolerations, against the cases of the Kubernetes manual."""

import pytest

from cruise.domain.scheduling import (
    UNCONSTRAINED_SCHEDULING,
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    SchedulingConstraints,
    SelectorOperator,
    Taint,
    TaintEffect,
    Toleration,
)

LABELS = {"disk": "ssd", "cores": "16", "odd": "many", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "met"),
    [
        ("disk", SelectorOperator.IN, ("hdd", "ssd"), True),
        ("disk", SelectorOperator.IN, ("hdd",), False),
        ("gone", SelectorOperator.IN, ("ssd",), False),
        ("disk", SelectorOperator.NOT_IN, ("hdd",), True),
        ("disk", SelectorOperator.NOT_IN, ("ssd",), False),
        (
            "gone",
            SelectorOperator.NOT_IN,
            ("ssd",),
            True,
        ),  # as in Kubernetes: a label that is not there is not among them
        ("disk", SelectorOperator.EXISTS, (), True),
        ("empty", SelectorOperator.EXISTS, (), True),
        ("gone", SelectorOperator.EXISTS, (), False),
        ("disk", SelectorOperator.DOES_NOT_EXIST, (), False),
        ("gone", SelectorOperator.DOES_NOT_EXIST, (), True),
        ("cores", SelectorOperator.GREATER, ("8",), True),
        ("cores", SelectorOperator.GREATER, ("16",), False),
        ("cores", SelectorOperator.LESS, ("17",), True),
        ("cores", SelectorOperator.LESS, ("16",), False),
        ("gone", SelectorOperator.GREATER, ("1",), False),
        ("odd", SelectorOperator.GREATER, ("1",), False),
        ("cores", SelectorOperator.GREATER, ("few",), False),
        ("cores", SelectorOperator.GREATER, (), False),
    ],
)
def test_requirements(key, operator, values, met):
    assert LabelRequirement(key, operator, values).is_met_by(LABELS) is met


@pytest.mark.parametrize(
    ("text", "is_number"),
    [("+9", True), ("-9", True), ("09", True), (" 9", False), ("1_000", False), ("٩", False), ("9" * 19, False)],
)
def test_numbers_are_parsed_like_in_go(text, is_number):
    above = LabelRequirement("cores", SelectorOperator.GREATER, ("-10",))
    assert above.is_met_by({"cores": text}) is is_number


def test_all_requirements_of_a_selector_hold_and_none_selects_everything():
    ssd, gone = (
        LabelRequirement("disk", SelectorOperator.IN, ("ssd",)),
        LabelRequirement("gone", SelectorOperator.EXISTS),
    )
    assert LabelSelector((ssd,)).matches(LABELS)
    assert not LabelSelector((ssd, gone)).matches(LABELS)
    assert LabelSelector().matches({})


def test_a_term_needs_expressions_and_fields_and_an_empty_one_matches_nothing():
    ssd = LabelRequirement("disk", SelectorOperator.IN, ("ssd",))
    here = LabelRequirement("metadata.name", SelectorOperator.IN, ("n1",))
    assert NodeSelectorTerm((ssd,), (here,)).matches("n1", LABELS)
    assert not NodeSelectorTerm((ssd,), (here,)).matches("n2", LABELS)
    assert not NodeSelectorTerm((ssd,), (here,)).matches("n1", {})
    assert NodeSelectorTerm((), (here,)).matches("n1", {})
    assert not NodeSelectorTerm().matches("n1", LABELS)


def test_node_selector_and_one_of_the_terms_must_hold():
    ssd = NodeSelectorTerm((LabelRequirement("disk", SelectorOperator.IN, ("ssd",)),))
    never = NodeSelectorTerm((LabelRequirement("gone", SelectorOperator.EXISTS),))
    assert UNCONSTRAINED_SCHEDULING.allows_node("n1", {})
    assert SchedulingConstraints((("disk", "ssd"),)).allows_node("n1", LABELS)
    assert not SchedulingConstraints((("disk", "ssd"), ("gone", ""))).allows_node("n1", LABELS)
    assert SchedulingConstraints(terms=(never, ssd)).allows_node("n1", LABELS)
    assert not SchedulingConstraints((("cores", "8"),), (ssd,)).allows_node("n1", LABELS)
    assert not SchedulingConstraints(terms=(never,)).allows_node("n1", LABELS)
    assert not SchedulingConstraints(terms=()).allows_node("n1", LABELS)


GPU = Taint("gpu", "a100", TaintEffect.NO_SCHEDULE)


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (Toleration("gpu", value="a100"), True),
        (Toleration("gpu", value="h100"), False),
        (Toleration("gpu", exists=True), True),
        (Toleration("gpu", value="a100", effect=TaintEffect.NO_SCHEDULE), True),
        (Toleration("gpu", value="a100", effect=TaintEffect.NO_EXECUTE), False),
        (Toleration("gpu", exists=True, effect=TaintEffect.NO_EXECUTE), False),
        (Toleration("cpu", exists=True), False),
        (Toleration(exists=True), True),
        (Toleration(exists=True, effect=TaintEffect.NO_EXECUTE), False),
        (Toleration(), False),  # an empty key needs the operator Exists
    ],
)
def test_tolerations(toleration, tolerated):
    assert toleration.tolerates(GPU) is tolerated


def test_every_taint_that_forbids_scheduling_needs_a_toleration():
    spot = Taint("spot", "yes", TaintEffect.NO_EXECUTE)
    rather_not = Taint("old", "", TaintEffect.PREFER_NO_SCHEDULE)
    gpu_pod = SchedulingConstraints(tolerations=(Toleration("gpu", exists=True),))
    assert UNCONSTRAINED_SCHEDULING.tolerates_all([])
    assert UNCONSTRAINED_SCHEDULING.tolerates_all([rather_not])
    assert not UNCONSTRAINED_SCHEDULING.tolerates_all([GPU])
    assert gpu_pod.tolerates_all([GPU, rather_not])
    assert not gpu_pod.tolerates_all([GPU, spot])
