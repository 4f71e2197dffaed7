"""Constraints on where pods may run, as kube-scheduler reads them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

# As Go's strconv.ParseInt reads 64-bit numbers: no blanks, underscores or non-ASCII digits.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_INT64_RANGE = range(-(2**63), 2**63)
# The longest label value; Python refuses to parse numbers of some thousand digits.
_LONGEST_LABEL = 63


class SelectorOperator(StrEnum):
    """Operators of label and node selector requirements."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """A requirement on a label, or on a node field such as `metadata.name`."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def is_met_by(self, labels: Mapping[str, str]) -> bool:
        """Return whether `labels` meet it; Gt and Lt are not met by a value that is not an integer."""
        present = self.key in labels
        match self.operator:
            case SelectorOperator.IN:
                return present and labels[self.key] in self.values
            case SelectorOperator.NOT_IN:
                return not present or labels[self.key] not in self.values
            case SelectorOperator.EXISTS:
                return present
            case SelectorOperator.DOES_NOT_EXIST:
                return not present
            case SelectorOperator.GREATER | SelectorOperator.LESS:
                return present and self._compare(labels[self.key])

    def _compare(self, text: str) -> bool:
        have, bound = _parse_int64(text), _parse_int64(self.values[0]) if self.values else None
        if have is None or bound is None:
            return False
        return have > bound if self.operator is SelectorOperator.GREATER else have < bound


def _parse_int64(text: str) -> int | None:
    if _WHOLE_NUMBER.fullmatch(text) is None or len(text) > _LONGEST_LABEL:
        return None
    number = int(text)
    return number if number in _INT64_RANGE else None


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector: all requirements must be met; without any it selects everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it selects an object with `labels`."""
        return all(requirement.is_met_by(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """A term of a required node affinity: all expressions and fields must match; an empty term matches nothing."""

    expressions: tuple[LabelRequirement, ...] = ()
    fields: tuple[LabelRequirement, ...] = ()

    def matches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Return whether the node matches."""
        if not self.expressions and not self.fields:
            return False
        names = {"metadata.name": node_name}
        return all(r.is_met_by(labels) for r in self.expressions) and all(r.is_met_by(names) for r in self.fields)


class TaintEffect(StrEnum):
    """The effect of a taint on pods that do not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of a node."""

    key: str
    value: str
    effect: TaintEffect


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a pod; an empty key with `exists` tolerates every taint, `effect` None every effect."""

    key: str = ""
    exists: bool = False
    value: str = ""
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        """Return whether it tolerates `taint`."""
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.exists or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class SchedulingConstraints:
    """Node selector, required node affinity (any of `terms`; None: no affinity) and tolerations of a pod."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    @property
    def label_keys(self) -> frozenset[str]:
        """The labels of nodes that node selector and required affinity name."""
        keys = [key for key, _ in self.node_selector]
        return frozenset([*keys, *(one.key for term in self.terms or () for one in term.expressions)])

    def requires_label(self, key: str, value: str) -> bool:
        """Return whether node selector or required affinity accept only nodes with this value of a label."""
        if (key, value) in self.node_selector:
            return True
        if not self.terms:
            return False
        only = LabelRequirement(key, SelectorOperator.IN, (value,))
        return all(only in term.expressions for term in self.terms)

    def allows_node(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Return whether node selector and required affinity match the node."""
        if any(labels.get(key) != value for key, value in self.node_selector):
            return False
        return self.terms is None or any(term.matches(node_name, labels) for term in self.terms)

    def tolerates_all(self, taints: Sequence[Taint]) -> bool:
        """Return whether the pod tolerates all taints that prevent scheduling."""
        return all(
            taint.effect is TaintEffect.PREFER_NO_SCHEDULE or any(t.tolerates(taint) for t in self.tolerations)
            for taint in taints
        )


UNCONSTRAINED_SCHEDULING = SchedulingConstraints()

# The taint of a cordoned node.
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", TaintEffect.NO_SCHEDULE)
OVERLOADED_TAINT = Taint("cruise.io/overloaded", "true", TaintEffect.NO_SCHEDULE)
# The taints that cruise adds and removes.
OWN_TAINTS = frozenset({OVERLOADED_TAINT})
# Kubernetes adds and removes these: not ready, under pressure, cordoned.
_CONDITION_TAINT_PREFIX = "node.kubernetes.io/"


def get_permanent_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints that a new node of the same kind would also have."""
    return tuple(
        taint for taint in taints if taint not in OWN_TAINTS and not taint.key.startswith(_CONDITION_TAINT_PREFIX)
    )


# Pod affinity, topology spread, host ports and volumes.


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A required term of pod affinity or anti-affinity.

    `namespaces` are those listed, or the pod's own; `namespace_selector` adds others by their labels. A `selector` of
    None matches no pod; it includes matchLabelKeys and mismatchLabelKeys.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Return whether it selects a pod with these labels in a namespace."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)


@dataclass(frozen=True, slots=True)
class TopologySpreadConstraint:
    """A topology spread constraint with DoNotSchedule, over pods of the pod's namespace.

    `selector` includes matchLabelKeys; None selects no pod. The policies say whether nodes that the pod's node
    affinity, or its tolerations, exclude count as domains.
    """

    topology_key: str
    selector: LabelSelector | None
    max_skew: int
    min_domains: int = 1
    honours_node_affinity: bool = True
    honours_node_taints: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether it counts a pod of the namespace with these labels."""
        return self.selector is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A host port of a container; an empty address means all."""

    protocol: str
    port: int
    address: str = ""

    def collides_with(self, other: "HostPort") -> bool:
        """Return whether one node cannot serve both."""
        same = self.protocol == other.protocol and self.port == other.port
        return same and (not self.address or not other.address or self.address == other.address)


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """Constraints of a pod other than resources, node selectors and tolerations; `claims` are in its namespace.

    `own_claims` are those of `claims` that are created and deleted with the pod; a pod that `is_replacement` gets new
    ones. `unsupported_constraints` are kube-scheduler's constraints that cruise cannot evaluate, such as `device gpu`.
    """

    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()
    unsupported_constraints: tuple[str, ...] = ()
    is_replacement: bool = False


UNCONSTRAINED = PodConstraints()


@dataclass(frozen=True, slots=True)
class PersistentVolumeClaim:
    """A PersistentVolumeClaim with its volume and storage class.

    `terms` are the topology of the volume, or of its class before there is one; None: every node. A claim that is
    neither `bound` nor `waits_for_first_consumer` keeps its pod pending. `driver` is the CSI driver whose attach limit
    applies, or None; `volume` identifies volumes that several claims share. `single_pod` allows one pod, `single_node`
    pods of one node. `controller` is the uid of the pod that owns it, or empty. `replacement_claim` is a new claim of
    its class without a volume, None if unknown.
    """

    namespace: str
    name: str
    bound: bool = True
    waits_for_first_consumer: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None
    driver: str | None = None
    volume: str = ""
    single_pod: bool = False
    single_node: bool = False
    controller: str = ""
    replacement_claim: "PersistentVolumeClaim | None" = None


AttachedVolume = tuple[str, str]
"""CSI driver and volume, which attach limits count."""


@dataclass(frozen=True, slots=True)
class StorageAndNamespaces:
    """Objects that pods' constraints refer to: claims by (namespace, name), attach limits by node, labels by namespace.

    `unsupported` has claims whose topology is unknown, and what is missing. `attached` are the volumes of
    VolumeAttachments by node, used or not.
    """

    claims: Mapping[tuple[str, str], PersistentVolumeClaim] = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unsupported: Mapping[tuple[str, str], str] = field(default_factory=dict)
    attached: Mapping[str, frozenset[AttachedVolume]] = field(default_factory=dict)

    def term_matches_pod(self, term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        """Return whether a term selects a pod with these labels in a namespace."""
        return term.matches(namespace, labels, self.namespace_labels.get(namespace, {}))


NO_STORAGE_OR_NAMESPACES = StorageAndNamespaces()
