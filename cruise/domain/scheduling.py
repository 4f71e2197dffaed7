"""Where a pod may run: selectors, node affinity, taints and tolerations, as kube-scheduler reads them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

# What Go's strconv.ParseInt takes for a number of 64 bits: no blanks, no underscores, no digits of other scripts.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBERS = range(-(2**63), 2**63)
# As long as a label's value may be; Python refuses to read numbers of some thousand digits.
_LONGEST = 63


class Operator(StrEnum):
    """Operators of label and node selector requirements."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on a label, or on a node field such as `metadata.name`."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def met_by(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` satisfy it; a Gt or Lt on a value that is no whole number is not met."""
        present = self.key in labels
        match self.operator:
            case Operator.IN:
                return present and labels[self.key] in self.values
            case Operator.NOT_IN:
                return not present or labels[self.key] not in self.values
            case Operator.EXISTS:
                return present
            case Operator.DOES_NOT_EXIST:
                return not present
            case Operator.GREATER | Operator.LESS:
                return present and self._compares(labels[self.key])

    def _compares(self, text: str) -> bool:
        have, bound = _whole_number(text), _whole_number(self.values[0]) if self.values else None
        if have is None or bound is None:
            return False
        return have > bound if self.operator is Operator.GREATER else have < bound


def _whole_number(text: str) -> int | None:
    if _WHOLE_NUMBER.fullmatch(text) is None or len(text) > _LONGEST:
        return None
    number = int(text)
    return number if number in _NUMBERS else None


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector: all requirements hold; none selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with `labels` is selected."""
        return all(requirement.met_by(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One term of a required node affinity: all expressions and all fields hold; an empty term matches nothing."""

    expressions: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def matches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the node meets the term."""
        if not self.expressions and not self.fields:
            return False
        names = {"metadata.name": node_name}
        return all(r.met_by(labels) for r in self.expressions) and all(r.met_by(names) for r in self.fields)


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint."""

    key: str
    value: str
    effect: TaintEffect


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; an empty key with `exists` tolerates everything, `effect` None every effect."""

    key: str = ""
    exists: bool = False
    value: str = ""
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Tell whether it covers `taint`."""
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.exists or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod may go: `node_selector` and one of `terms` (none: no affinity), tolerating what repels."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    def admits(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether node selector and required affinity let the pod run on the node."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        return self.terms is None or any(term.matches(node_name, labels) for term in self.terms)

    def tolerates_all(self, taints: Sequence[Taint]) -> bool:
        """Tell whether no taint that forbids scheduling is left untolerated."""
        return all(
            taint.effect is TaintEffect.PREFER_NO_SCHEDULE or any(t.tolerates(taint) for t in self.tolerations)
            for taint in taints
        )


ANYWHERE = Placement()

# What a cordoned node has.
CORDONED = Taint("node.kubernetes.io/unschedulable", "", TaintEffect.NO_SCHEDULE)
OVERLOADED = Taint("cruise.io/overloaded", "true", TaintEffect.NO_SCHEDULE)
# The taints that cruise puts on nodes and takes off again.
OWN_TAINTS = frozenset({OVERLOADED})
# Taints that Kubernetes itself puts on and takes off: not ready, under pressure, cordoned.
_CONDITION_TAINT_PREFIX = "node.kubernetes.io/"


def lasting_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints that a node has for good, and another like it would have as well."""
    return tuple(
        taint for taint in taints if taint not in OWN_TAINTS and not taint.key.startswith(_CONDITION_TAINT_PREFIX)
    )
