"""Where a pod may run: selectors, node affinity, taints and tolerations, as kube-scheduler reads them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

# What Go's strconv.ParseInt takes for a number of 64 bits: no blanks, no underscores, no digits of other scripts.
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBERS = range(-(2**63), 2**63)
# As long as a label's value may be; Python refuses to read numbers of some thousand digits.
_LONGEST = 63


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
    """One requirement on a label, or on a node field such as `metadata.name`."""

    key: str
    operator: SelectorOperator
    values: tuple[str, ...] = ()

    def is_met_by(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` satisfy it; a Gt or Lt on a value that is no whole number is not met."""
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
                return present and self._compares(labels[self.key])

    def _compares(self, text: str) -> bool:
        have, bound = _whole_number(text), _whole_number(self.values[0]) if self.values else None
        if have is None or bound is None:
            return False
        return have > bound if self.operator is SelectorOperator.GREATER else have < bound


def _whole_number(text: str) -> int | None:
    if _WHOLE_NUMBER.fullmatch(text) is None or len(text) > _LONGEST:
        return None
    number = int(text)
    return number if number in _NUMBERS else None


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """A label selector: all requirements hold; none selects everything."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether an object with `labels` is selected."""
        return all(requirement.is_met_by(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class NodeSelectorTerm:
    """One term of a required node affinity: all expressions and all fields hold; an empty term matches nothing."""

    expressions: tuple[LabelRequirement, ...] = ()
    fields: tuple[LabelRequirement, ...] = ()

    def matches(self, node_name: str, labels: Mapping[str, str]) -> bool:
        """Tell whether the node meets the term."""
        if not self.expressions and not self.fields:
            return False
        names = {"metadata.name": node_name}
        return all(r.is_met_by(labels) for r in self.expressions) and all(r.is_met_by(names) for r in self.fields)


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
class SchedulingConstraints:
    """Where a pod may go: `node_selector` and one of `terms` (none: no affinity), tolerating what repels."""

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()

    def allows_node(self, node_name: str, labels: Mapping[str, str]) -> bool:
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


UNCONSTRAINED_SCHEDULING = SchedulingConstraints()

# What a cordoned node has.
UNSCHEDULABLE_TAINT = Taint("node.kubernetes.io/unschedulable", "", TaintEffect.NO_SCHEDULE)
OVERLOADED_TAINT = Taint("cruise.io/overloaded", "true", TaintEffect.NO_SCHEDULE)
# The taints that cruise puts on nodes and takes off again.
OWN_TAINTS = frozenset({OVERLOADED_TAINT})
# Taints that Kubernetes itself puts on and takes off: not ready, under pressure, cordoned.
_CONDITION_TAINT_PREFIX = "node.kubernetes.io/"


def get_permanent_taints(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """Return the taints that a node has for good, and another like it would have as well."""
    return tuple(
        taint for taint in taints if taint not in OWN_TAINTS and not taint.key.startswith(_CONDITION_TAINT_PREFIX)
    )


# What a pod asks of its neighbours and of its node's ports and volumes, as kube-scheduler reads it.


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A required term of pod affinity or anti-affinity: which pods are meant, within which topology.

    `namespaces` are those listed, the pod's own where the term says nothing; `namespace_selector` adds those whose
    labels it selects, None none. `selector` None selects no pod. Label keys to match or mismatch are in it already.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Tell whether a pod of a namespace, with these labels, is meant."""
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespace_labels)


@dataclass(frozen=True, slots=True)
class TopologySpreadConstraint:
    """A topology spread constraint with DoNotSchedule, over pods of the pod's own namespace.

    Label keys to match are in `selector` already; None selects no pod. The two policies tell whether nodes that the
    pod's node affinity, or its tolerations, keep it from still count as domains.
    """

    topology_key: str
    selector: LabelSelector | None
    max_skew: int
    min_domains: int = 1
    honours_node_affinity: bool = True
    honours_node_taints: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod of the namespace, with these labels, is counted."""
        return self.selector is not None and self.selector.matches(labels)


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """A port of the node that a container takes; an empty address stands for all of them."""

    protocol: str
    port: int
    address: str = ""

    def collides_with(self, other: "HostPort") -> bool:
        """Tell whether one node cannot give both."""
        same = self.protocol == other.protocol and self.port == other.port
        return same and (not self.address or not other.address or self.address == other.address)


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """Everything a pod asks beside resources, node selectors and tolerations; `claims` are of its own namespace.

    Of these the `own_claims` are made with the pod and go with it: of a pod that is `replaced`, anew. `unjudged` is
    what kube-scheduler minds and cruise cannot judge, such as `device gpu`.
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
    """A PersistentVolumeClaim with what is known of its volume and its storage class.

    `terms` are where the volume (or, before there is one, its class) may be used, None everywhere. A claim that is
    neither `bound` nor `waits` for its first pod keeps that pod pending. `driver` is the CSI driver whose attach limit
    it counts against, None for none; `volume` tells equal volumes of different claims apart. With `single_pod` no
    second pod may use it, with `single_node` none on another node. `controller` is the uid of the pod that it was made
    with, empty for none. `anew` is another claim of its class before it has a volume, None where that is not known.
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
"""CSI driver and volume, as attach limits count them."""


@dataclass(frozen=True, slots=True)
class StorageAndNamespaces:
    """What pods' constraints refer to: claims by (namespace, name), attach limits by node, labels by namespace.

    `unjudged` has the claims of which not enough is known to say where they can be used, with what is missing.
    `attached` are the volumes of VolumeAttachments by node, whether or not a pod there still uses them.
    """

    claims: Mapping[tuple[str, str], PersistentVolumeClaim] = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unsupported: Mapping[tuple[str, str], str] = field(default_factory=dict)
    attached: Mapping[str, frozenset[AttachedVolume]] = field(default_factory=dict)

    def term_matches_pod(self, term: PodAffinityTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a term means a pod of a namespace, with these labels."""
        return term.matches(namespace, labels, self.namespace_labels.get(namespace, {}))


NO_STORAGE_OR_NAMESPACES = StorageAndNamespaces()
