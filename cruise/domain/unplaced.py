"""Why a pod stays pending, as values."""

from dataclasses import dataclass
from enum import StrEnum

from cruise.domain.actions import OfPod
from cruise.domain.colocation import PodTerm
from cruise.domain.scheduling import NodeSelectorTerm, Taint


class Pattern(StrEnum):
    """What a finding says with its values."""

    STATED = "stated"  # in words, as releases before this one stored it
    GATED = "gated"  # as releases before this one stored it
    NOT_JUDGED = "not-judged"  # by a rule that cruise does not know
    CLAIM_UNKNOWN = "claim-unknown"
    CLAIM_UNBOUND = "claim-unbound"
    CLAIM_OF_ANOTHER = "claim-of-another"
    CLAIM_OUT_OF_REACH = "claim-out-of-reach"
    NO_NODES = "no-nodes"
    OPEN = "open"  # a node would take it, which no plan found in the time has used
    NOWHERE = "nowhere"  # its one obstacle holds on every node
    AFFINITY_UNLABELLED = "affinity-unlabelled"
    AFFINITY_CONTRADICTED = "affinity-contradicted"
    AFFINITY_WITHOUT_PODS = "affinity-without-pods"
    AFFINITY_NOWHERE = "affinity-nowhere"
    ONLY_FIRST = "only-first"  # its anti-affinity keeps it away from just the pods that its affinity names
    TOO_LARGE = "too-large"
    FULL = "full"
    CLOSED = "closed"  # the obstacles close the nodes that are otherwise open to it


class Occupants(StrEnum):
    """The pods that fill nodes, by what they have in common."""

    ANY = ""
    HIGHER = "higher"
    EQUAL_OR_HIGHER = "equal or higher"
    STAYING = "staying"


@dataclass(frozen=True, slots=True)
class Finding:
    """What keeps a pod pending, beside the obstacles: how many nodes that is about, and what they lack.

    `unjudged` is what no rule here can judge, and `preemptible` tells that kube-scheduler may preempt for it what stays
    in every plan.
    `node` names the only one of the `nodes`, `nearest` the one that lacks least; `of_all` tells that there are no
    others. `narrowed_by` are the label obstacles that leave others out, `narrowed_further` that more obstacles do.
    Amounts are by resource: `lacking` on the nearest node, `size` what the pod requests of the same. The rest is what
    the pod asks for, and the taints that it does not tolerate, as far as the obstacles are about it.
    """

    pattern: Pattern
    stated: str = ""
    claim: str = ""
    unjudged: str = ""
    preemptible: bool = False
    nodes: int = 0
    node: str = ""
    nearest: str = ""
    of_all: bool = False
    narrowed_by: tuple[str, ...] = ()
    narrowed_further: bool = False
    lacking: tuple[tuple[str, int], ...] = ()
    size: tuple[tuple[str, int], ...] = ()
    occupants: Occupants = Occupants.ANY
    selector: tuple[tuple[str, str], ...] = ()
    node_terms: tuple[NodeSelectorTerm, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    topology_keys: tuple[str, ...] = ()
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class Unplaced(OfPod):
    """A pod that stays pending: a smallest set of obstacles that together keep it out, and what was found of them.

    `impossible` tells that this is proved, whatever is moved or preempted for it.
    """

    namespace: str
    pod: str
    blocked_by: tuple[str, ...]
    finding: Finding
    impossible: bool
