"""What a pod asks of a node, and how nodes fall short of it, as parts of a sentence."""

from cruise.decisions.packing.blocking.amounts import joined
from cruise.domain.cluster import Node, Pod
from cruise.domain.colocation import PodTerm
from cruise.domain.scheduling import LabelSelector, NodeSelectorTerm, Operator, Requirement, Taint, TaintEffect

_LONGEST_LIST = 3


def selector_words(pod: Pod) -> str:
    """The node selector: `disk=ssd and zone=a`."""
    return joined([f"{key}={value}" for key, value in pod.placement.node_selector])


def node_affinity_words(pod: Pod) -> str:
    """The required node affinity: terms joined by or."""
    terms = [_term_words(term) for term in pod.placement.terms or ()]
    return joined([f"({term})" for term in terms], "or") if len(terms) > 1 else joined(terms) or "no node at all"


def label_words(selector: LabelSelector | None) -> str:
    """Which pods a selector means."""
    if selector is None:
        return "no pods at all"
    if not selector.requirements:
        return "any pods"
    return f"pods with {joined([_requirement_words(one) for one in selector.requirements])}"


def company_words(terms: tuple[PodTerm, ...]) -> str:
    """Beside which pods a pod wants to run."""
    return joined([f"{label_words(term.selector)} in the same {term.topology_key}" for term in terms])


def taint_words(pod: Pod, nodes: list[Node]) -> str:
    """The taints of some nodes that a pod does not tolerate, each once."""
    hard = [taint for node in nodes for taint in node.taints if taint.effect is not TaintEffect.PREFER_NO_SCHEDULE]
    repel = [taint for taint in hard if not any(t.tolerates(taint) for t in pod.placement.tolerations)]
    names = list(dict.fromkeys(_taint_words(taint) for taint in repel))
    return f"the taint{'s' if len(names) > 1 else ''} {listed(names, 'and')}"


def listed(names: list[str], word: str = "or") -> str:
    """The first of some names."""
    more = len(names) - _LONGEST_LIST
    return joined(names, word) if more <= 0 else joined([*names[:_LONGEST_LIST], f"{more} more"], word)


def counted_nodes(nodes: list[Node], more: str = "") -> str:
    """How many nodes, by name where there is one: `the one node n3`, `the 3 nodes`."""
    what = f" {more}" if more else ""
    return f"the one node{what}, {nodes[0].name}," if len(nodes) == 1 else f"the {len(nodes):,} nodes{what}"


def all_nodes(nodes: list[Node]) -> str:
    """All the nodes there are."""
    return {1: f"the only node, {nodes[0].name},", 2: "both nodes"}.get(len(nodes), f"all {len(nodes):,} nodes")


def _term_words(term: NodeSelectorTerm) -> str:
    parts = [_requirement_words(one) for one in term.expressions]
    parts += [_requirement_words(one).replace("metadata.name", "the node's name") for one in term.fields]
    return joined(parts) or "nothing, which matches no node"


def _requirement_words(one: Requirement) -> str:
    match one.operator:
        case Operator.IN:
            return f"{one.key}={one.values[0]}" if len(one.values) == 1 else f"{one.key} {listed(list(one.values))}"
        case Operator.NOT_IN:
            return f"{one.key} not {listed(list(one.values))}"
        case Operator.EXISTS:
            return f"a label {one.key}"
        case Operator.DOES_NOT_EXIST:
            return f"no label {one.key}"
        case Operator.GREATER:
            return f"{one.key} above {listed(list(one.values))}"
        case Operator.LESS:
            return f"{one.key} below {listed(list(one.values))}"


def _taint_words(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
