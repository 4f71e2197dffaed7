"""Selectors, affinity, taints and tolerations, against the cases of the Kubernetes manual."""

import pytest

from cruise.domain.scheduling import (
    ANYWHERE,
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    Placement,
    Requirement,
    Taint,
    TaintEffect,
    Toleration,
)

LABELS = {"disk": "ssd", "cores": "16", "odd": "many", "empty": ""}


@pytest.mark.parametrize(
    ("key", "operator", "values", "met"),
    [
        ("disk", Operator.IN, ("hdd", "ssd"), True),
        ("disk", Operator.IN, ("hdd",), False),
        ("gone", Operator.IN, ("ssd",), False),
        ("disk", Operator.NOT_IN, ("hdd",), True),
        ("disk", Operator.NOT_IN, ("ssd",), False),
        ("gone", Operator.NOT_IN, ("ssd",), True),  # as in Kubernetes: a label that is not there is not among them
        ("disk", Operator.EXISTS, (), True),
        ("empty", Operator.EXISTS, (), True),
        ("gone", Operator.EXISTS, (), False),
        ("disk", Operator.DOES_NOT_EXIST, (), False),
        ("gone", Operator.DOES_NOT_EXIST, (), True),
        ("cores", Operator.GREATER, ("8",), True),
        ("cores", Operator.GREATER, ("16",), False),
        ("cores", Operator.LESS, ("17",), True),
        ("cores", Operator.LESS, ("16",), False),
        ("gone", Operator.GREATER, ("1",), False),
        ("odd", Operator.GREATER, ("1",), False),
        ("cores", Operator.GREATER, ("few",), False),
        ("cores", Operator.GREATER, (), False),
    ],
)
def test_requirements(key, operator, values, met):
    assert Requirement(key, operator, values).met_by(LABELS) is met


@pytest.mark.parametrize(
    ("text", "is_number"),
    [("+9", True), ("-9", True), ("09", True), (" 9", False), ("1_000", False), ("٩", False), ("9" * 19, False)],
)
def test_numbers_are_what_go_takes_for_them(text, is_number):
    above = Requirement("cores", Operator.GREATER, ("-10",))
    assert above.met_by({"cores": text}) is is_number


def test_all_requirements_of_a_selector_hold_and_none_selects_everything():
    ssd, gone = Requirement("disk", Operator.IN, ("ssd",)), Requirement("gone", Operator.EXISTS)
    assert LabelSelector((ssd,)).selects(LABELS)
    assert not LabelSelector((ssd, gone)).selects(LABELS)
    assert LabelSelector().selects({})


def test_a_term_needs_expressions_and_fields_and_an_empty_one_matches_nothing():
    ssd = Requirement("disk", Operator.IN, ("ssd",))
    here = Requirement("metadata.name", Operator.IN, ("n1",))
    assert NodeSelectorTerm((ssd,), (here,)).matches("n1", LABELS)
    assert not NodeSelectorTerm((ssd,), (here,)).matches("n2", LABELS)
    assert not NodeSelectorTerm((ssd,), (here,)).matches("n1", {})
    assert NodeSelectorTerm((), (here,)).matches("n1", {})
    assert not NodeSelectorTerm().matches("n1", LABELS)


def test_node_selector_and_one_of_the_terms_must_hold():
    ssd = NodeSelectorTerm((Requirement("disk", Operator.IN, ("ssd",)),))
    never = NodeSelectorTerm((Requirement("gone", Operator.EXISTS),))
    assert ANYWHERE.admits("n1", {})
    assert Placement((("disk", "ssd"),)).admits("n1", LABELS)
    assert not Placement((("disk", "ssd"), ("gone", ""))).admits("n1", LABELS)
    assert Placement(terms=(never, ssd)).admits("n1", LABELS)
    assert not Placement((("cores", "8"),), (ssd,)).admits("n1", LABELS)
    assert not Placement(terms=(never,)).admits("n1", LABELS)
    assert not Placement(terms=()).admits("n1", LABELS)


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
    gpu_pod = Placement(tolerations=(Toleration("gpu", exists=True),))
    assert ANYWHERE.tolerates_all([])
    assert ANYWHERE.tolerates_all([rather_not])
    assert not ANYWHERE.tolerates_all([GPU])
    assert gpu_pod.tolerates_all([GPU, rather_not])
    assert not gpu_pod.tolerates_all([GPU, spot])
