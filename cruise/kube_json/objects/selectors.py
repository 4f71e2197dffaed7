"""Selectors over labels, read from objects; what one may not say is refused by its place."""

import re
from sys import intern

from cruise.domain.scheduling import LabelSelector, NodeSelectorTerm, Operator, Requirement
from cruise.errors import BadInput
from cruise.kube_json.wire import pod_json

_LABEL_OPERATORS = frozenset({Operator.IN, Operator.NOT_IN, Operator.EXISTS, Operator.DOES_NOT_EXIST})
_OF_NODES = frozenset(Operator)
_LISTING = frozenset({Operator.IN, Operator.NOT_IN})
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
# Commas separate the parts, save inside of parentheses.
_PARTS = re.compile(r"(?:[^,(]|\([^)]*\))+")
_TERM = re.compile(
    r"(?P<not>!)?\s*(?P<key>[\w./-]+)\s*"
    r"(?:(?P<equal>==?|!=)\s*(?P<value>[\w.-]*)|(?P<set>in|notin)\s*\((?P<listed>[^)]*)\))?"
)


def read_selector(selector: pod_json.Selector, place: str = "spec.selector") -> LabelSelector:
    """Read a label selector: labels and expressions together; an empty one selects everything."""
    labels = sorted((selector.match_labels or {}).items())
    return LabelSelector(
        tuple(Requirement(intern(key), Operator.IN, (value,)) for key, value in labels)
        + tuple(_requirement(r, _LABEL_OPERATORS, place) for r in selector.match_expressions or ())
    )


def parse_selector(text: str) -> LabelSelector:
    """Parse a selector as a scale's status states it, such as `app=web,tier in (a,b),!old`. Raises BadInput."""
    requirements = []
    for part in _PARTS.findall(text):
        found = _TERM.fullmatch(part.strip())
        if found is None:
            raise BadInput(f'"{text}" is no label selector')
        key = intern(found["key"])
        if found["listed"] is not None:
            operator = Operator.IN if found["set"] == "in" else Operator.NOT_IN
            values = tuple(value.strip() for value in found["listed"].split(","))
        elif found["equal"] is not None:
            operator = Operator.NOT_IN if found["equal"] == "!=" else Operator.IN
            values = (found["value"],)
        else:
            operator, values = Operator.DOES_NOT_EXIST if found["not"] else Operator.EXISTS, ()
        requirements.append(Requirement(key, operator, values))
    return LabelSelector(tuple(requirements))


def read_node_terms(selector: pod_json.NodeSelector, place: str) -> tuple[NodeSelectorTerm, ...]:
    """Read the terms of a node selector. Raises BadInput that names the place."""
    return tuple(_node_term(term, place) for term in selector.node_selector_terms)


def _node_term(term: pod_json.NodeSelectorTerm, place: str) -> NodeSelectorTerm:
    """Read one term; kube-scheduler lets no node meet a term with a value that no label can have."""
    expressions = read_node_requirements(term.match_expressions, place)
    if any(_LABEL_VALUE.fullmatch(value) is None for one in expressions for value in one.values):
        return NodeSelectorTerm()
    return NodeSelectorTerm(expressions, read_node_requirements(term.match_fields, place))


def read_node_requirements(
    requirements: tuple[pod_json.SelectorRequirement, ...] | None, place: str
) -> tuple[Requirement, ...]:
    """Read requirements on nodes' labels. Raises BadInput that names the place."""
    return tuple(_requirement(one, _OF_NODES, place) for one in requirements or ())


def _requirement(requirement: pod_json.SelectorRequirement, allowed: frozenset[Operator], place: str) -> Requirement:
    if requirement.operator not in allowed:
        names = ", ".join(sorted(allowed))
        raise BadInput(f'{place}: "{requirement.operator}" is no operator; write one of {names}')
    operator = Operator(requirement.operator)
    if operator in _LISTING and not requirement.values:
        raise BadInput(f"{place}: {operator} on {requirement.key} has no values; list at least one")
    return Requirement(intern(requirement.key), operator, requirement.values or ())
