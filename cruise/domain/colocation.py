"""What a pod asks of its neighbours and of its node's ports and volumes, as kube-scheduler reads it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cruise.domain.scheduling import LabelSelector, NodeSelectorTerm


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required term of pod affinity or anti-affinity: which pods are meant, within which topology.

    `namespaces` are those listed, the pod's own where the term says nothing; `namespace_selector` adds those whose
    labels it selects, None none. `selector` None selects no pod. Label keys to match or mismatch are in it already.
    """

    topology_key: str
    selector: LabelSelector | None
    namespaces: frozenset[str]
    namespace_selector: LabelSelector | None = None

    def means(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """Tell whether a pod of a namespace, with these labels, is meant."""
        if self.selector is None or not self.selector.selects(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.selects(namespace_labels)


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
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

    def counts(self, labels: Mapping[str, str]) -> bool:
        """Tell whether a pod of the namespace, with these labels, is counted."""
        return self.selector is not None and self.selector.selects(labels)


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

    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    claims: tuple[str, ...] = ()
    own_claims: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()
    replaced: bool = False


UNCONSTRAINED = PodConstraints()


@dataclass(frozen=True, slots=True)
class Claim:
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
    waits: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None
    driver: str | None = None
    volume: str = ""
    single_pod: bool = False
    single_node: bool = False
    controller: str = ""
    anew: "Claim | None" = None


AttachedVolume = tuple[str, str]
"""CSI driver and volume, as attach limits count them."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What pods' constraints refer to: claims by (namespace, name), attach limits by node, labels by namespace.

    `unjudged` has the claims of which not enough is known to say where they can be used, with what is missing.
    `attached` are the volumes of VolumeAttachments by node, whether or not a pod there still uses them.
    """

    claims: Mapping[tuple[str, str], Claim] = field(default_factory=dict)
    attach_limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unjudged: Mapping[tuple[str, str], str] = field(default_factory=dict)
    attached: Mapping[str, frozenset[AttachedVolume]] = field(default_factory=dict)

    def mean(self, term: PodTerm, namespace: str, labels: Mapping[str, str]) -> bool:
        """Tell whether a term means a pod of a namespace, with these labels."""
        return term.means(namespace, labels, self.namespace_labels.get(namespace, {}))


NO_SURROUNDINGS = Surroundings()
