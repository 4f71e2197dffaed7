"""Selectors over labels, read from objects; what one may not say is refused by its place."""

from sys import intern

from cruise.domain.scheduling import LabelSelector, NodeSelectorTerm, Operator, Requirement
from cruise.errors import BadInput
from cruise.kube_json.wire import pod_json

_LABEL_OPERATORS = frozenset({Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST})
_OF_NODES = frozenset(Operator)
_LISTING = frozenset({Operator.IN, Operator.NOT_IN})


def read_selector(selector: pod_json.Selector, place: str = "spec.selector") -> LabelSelector:
    """Read a label selector: labels and expressions together; an empty one selects everything."""
    labels = sorted((selector.match_labels or {}).items())
    return LabelSelector(
        tuple(Requirement(intern(key), Operator.IN, (value,)) for key, value in labels)
        + tuple(_requirement(r, _LABEL_OPERATORS, place) for r in selector.match_expressions or ())
    )


def read_node_terms(selector: pod_json.NodeSelector, place: str) -> tuple[NodeSelectorTerm, ...]:
    """Read the terms of a node selector. Raises BadInput that names the place."""
    return tuple(
        NodeSelectorTerm(
            expressions=tuple(_requirement(r, _OF_NODES, place) for r in term.match_expressions or ()),
            fields=tuple(_requirement(r, _OF_NODES, place) for r in term.match_fields or ()),
        )
        for term in selector.node_selector_terms
    )


def _requirement(requirement: pod_json.SelectorRequirement, allowed: frozenset[Operator], place: str) -> Requirement:
    if requirement.operator not in allowed:
        names = ", ".join(sorted(allowed))
        raise BadInput(f'{place}: "{requirement.operator}" is no operator; write one of {names}')
    operator = Operator(requirement.operator)
    if operator in _LISTING and not requirement.values:
        raise BadInput(f"{place}: {operator} on {requirement.key} has no values; list at least one")
    return Requirement(intern(requirement.key), operator, requirement.values or ())
