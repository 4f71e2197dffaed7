"""Decode selectors, node affinity, taints and tolerations."""

import re
from dataclasses import dataclass, field
from sys import intern

from cruise.domain.resources import quote_text
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
from cruise.errors import BadInputError
from cruise.kube_json.objects.containers import SharedValues
from cruise.kube_json.wire import object_json, pod_json

_LABEL_OPERATORS = frozenset(
    {SelectorOperator.IN, SelectorOperator.NOT_IN, SelectorOperator.EXISTS, SelectorOperator.DOES_NOT_EXIST}
)
_NODE_OPERATORS = frozenset(SelectorOperator)
_SET_OPERATORS = frozenset({SelectorOperator.IN, SelectorOperator.NOT_IN})
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
# Parts are separated by commas outside parentheses.
_PARTS = re.compile(r"(?:[^,(]|\([^)]*\))+")
_LONGEST_SELECTOR = 4096
_TERM = re.compile(
    r"(?P<not>!)?\s*(?P<key>[\w./-]+)\s*"
    r"(?:(?P<equal>==?|!=)\s*(?P<value>[\w.-]*)|(?P<set>in|notin)\s*\((?P<listed>[^)]*)\))?"
)


def read_selector(selector: pod_json.LabelSelectorJson, place: str = "spec.selector") -> LabelSelector:
    """Read a label selector; an empty one selects everything."""
    labels = sorted((selector.match_labels or {}).items())
    return LabelSelector(
        tuple(LabelRequirement(intern(key), SelectorOperator.IN, (value,)) for key, value in labels)
        + tuple(_read_requirement(r, _LABEL_OPERATORS, place) for r in selector.match_expressions or ())
    )


def parse_selector(text: str) -> LabelSelector:
    """Parse a selector of a scale's status, such as `app=web,tier in (a,b),!old`; BadInputError."""
    terms = [_TERM.fullmatch(part.strip()) for part in _split_selector(text)]
    if text and (not terms or None in terms):
        raise BadInputError(f"{quote_text(text)} is not a label selector")
    requirements = []
    for found in filter(None, terms):
        key = intern(found["key"])
        if found["listed"] is not None:
            operator = SelectorOperator.IN if found["set"] == "in" else SelectorOperator.NOT_IN
            values = tuple(value.strip() for value in found["listed"].split(","))
        elif found["equal"] is not None:
            operator = SelectorOperator.NOT_IN if found["equal"] == "!=" else SelectorOperator.IN
            values = (found["value"],)
        else:
            operator, values = SelectorOperator.DOES_NOT_EXIST if found["not"] else SelectorOperator.EXISTS, ()
        requirements.append(LabelRequirement(key, operator, values))
    return LabelSelector(tuple(requirements))


def _split_selector(text: str) -> list[str]:
    """Return the parts of a selector, none if it is too long or a part is incomplete: fewer parts select more."""
    if len(text) > _LONGEST_SELECTOR:
        return []
    parts: list[str] = _PARTS.findall(text)
    return parts if _PARTS.sub("", text) == "," * (len(parts) - 1) else []


def read_node_terms(selector: pod_json.NodeSelector, place: str) -> tuple[NodeSelectorTerm, ...]:
    """Read the terms of a node selector; BadInputError names the place."""
    return tuple(_read_node_term(term, place) for term in selector.node_selector_terms)


def _read_node_term(term: pod_json.NodeSelectorTermJson, place: str) -> NodeSelectorTerm:
    """Read one term; as in kube-scheduler, a value that no label can have makes it match no node."""
    expressions = read_node_requirements(term.match_expressions, place)
    if any(_LABEL_VALUE.fullmatch(value) is None for one in expressions for value in one.values):
        return NodeSelectorTerm()
    return NodeSelectorTerm(expressions, read_node_requirements(term.match_fields, place))


def read_node_requirements(
    requirements: tuple[pod_json.SelectorRequirementJson, ...] | None, place: str
) -> tuple[LabelRequirement, ...]:
    """Read requirements on nodes' labels; BadInputError names the place."""
    return tuple(_read_requirement(one, _NODE_OPERATORS, place) for one in requirements or ())


def _read_requirement(
    requirement: pod_json.SelectorRequirementJson, allowed: frozenset[SelectorOperator], place: str
) -> LabelRequirement:
    if requirement.operator not in allowed:
        names = ", ".join(sorted(allowed))
        raise BadInputError(f'{place}: "{requirement.operator}" is not an operator; write one of {names}')
    operator = SelectorOperator(requirement.operator)
    if operator in _SET_OPERATORS and not requirement.values:
        raise BadInputError(f"{place}: {operator} on {requirement.key} has no values; list at least one")
    return LabelRequirement(intern(requirement.key), operator, requirement.values or ())


# Constraints of pods on nodes.


@dataclass(frozen=True, slots=True)
class SchedulingConstraintDecoder:
    """Decodes constraints; equal ones are one object."""

    _known: SharedValues[tuple[object, ...], SchedulingConstraints] = field(default_factory=SharedValues)

    def read(self, spec: pod_json.PodSpec) -> SchedulingConstraints:
        """Return the constraints of a pod; BadInputError names the place within the pod."""
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        required = node_affinity.required_during_scheduling_ignored_during_execution if node_affinity else None
        selector = tuple(spec.node_selector.items()) if spec.node_selector else ()
        if not selector and required is None and not spec.tolerations:
            return UNCONSTRAINED_SCHEDULING
        key = (selector, required, spec.tolerations)
        placement = self._known.get(key)
        if placement is None:
            terms = None if required is None else read_node_terms(required, "spec.affinity.nodeAffinity")
            tolerations = [_read_toleration(toleration) for toleration in spec.tolerations or ()]
            read = SchedulingConstraints(
                node_selector=tuple(sorted(selector)),
                terms=terms,
                tolerations=tuple(toleration for toleration in tolerations if toleration is not None),
            )
            placement = self._known.store(key, read)
        return placement


def _read_toleration(toleration: pod_json.TolerationJson) -> Toleration | None:
    """Read a toleration; None for an unsupported operator, so that it tolerates nothing."""
    if toleration.operator not in (None, "", "Equal", "Exists"):
        return None
    return Toleration(
        key=toleration.key or "",
        exists=toleration.operator == "Exists",
        value=toleration.value or "",
        effect=_read_effect(toleration.effect, "spec.tolerations") if toleration.effect else None,
    )


def _read_effect(effect: str, place: str) -> TaintEffect:
    try:
        return TaintEffect(effect)
    except ValueError as error:
        raise BadInputError(f'{place}: "{effect}" is not an effect; write one of {", ".join(TaintEffect)}') from error


def get_pinned_node(placement: SchedulingConstraints) -> str | None:
    """Return the only node that required affinity allows, as for pods of DaemonSets before binding, or None."""
    if placement.terms is None or len(placement.terms) != 1:
        return None
    for field_requirement in placement.terms[0].fields:
        if field_requirement.operator is SelectorOperator.IN and len(field_requirement.values) == 1:
            return field_requirement.values[0]
    return None


def read_taints(taints: tuple[object_json.NodeTaint, ...] | None, place: str = "spec.taints") -> tuple[Taint, ...]:
    """Read a node's taints; BadInputError names the place."""
    return tuple(Taint(taint.key, taint.value or "", _read_effect(taint.effect, place)) for taint in taints or ())
