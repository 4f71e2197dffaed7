"""What a pod requires of a node, amounts and nodes, as parts of a sentence."""

from cruise.decisions.packing.building.amounts import ATTACH
from cruise.domain.colocation import PodTerm
from cruise.domain.resources import MEBIBYTE
from cruise.domain.scheduling import LabelSelector, NodeSelectorTerm, Operator, Requirement, Taint
from cruise.domain.unplaced import Finding

_LONGEST_LIST = 3
_GIBIBYTE = 1024 * MEBIBYTE


def selector_words(finding: Finding) -> str:
    """The node selector: `disk=ssd and zone=a`."""
    return joined([f"{key}={value}" for key, value in finding.selector])


def node_affinity_words(finding: Finding) -> str:
    """The required node affinity: terms joined by or."""
    terms = [_term_words(term) for term in finding.node_terms]
    return joined([f"({term})" for term in terms], "or") if len(terms) > 1 else joined(terms) or "no node at all"


def label_words(selector: LabelSelector | None) -> str:
    """Which pods a selector means."""
    if selector is None:
        return "no pods at all"
    if not selector.requirements:
        return "any pods"
    return f"pods with {joined([_requirement_words(one) for one in selector.requirements])}"


def affinity_words(terms: tuple[PodTerm, ...]) -> str:
    """Beside which pods a pod is to run; without terms, those with which it shares a volume."""
    if not terms:
        return "the other pods of its volume"
    return joined([f"{label_words(term.selector)} in the same {term.topology_key}" for term in terms])


def taint_words(taints: tuple[Taint, ...]) -> str:
    """Some taints, each once."""
    names = list(dict.fromkeys(_taint_words(taint) for taint in taints))
    return f"the taint{'s' if len(names) > 1 else ''} {listed(names, 'and')}"


def listed(names: list[str], word: str = "or") -> str:
    """The first of some names."""
    more = len(names) - _LONGEST_LIST
    return joined(names, word) if more <= 0 else joined([*names[:_LONGEST_LIST], f"{more:,} more"], word)


def counted_nodes(finding: Finding, more: str = "") -> str:
    """How many nodes, by name where there is one: `the one node n3`, `the 3 nodes`."""
    what = f" {more}" if more else ""
    return f"the one node{what}, {finding.node}," if finding.nodes == 1 else f"the {finding.nodes:,} nodes{what}"


def all_nodes(finding: Finding) -> str:
    """All the nodes there are."""
    return {1: f"the only node, {finding.node},", 2: "both nodes"}.get(finding.nodes, f"all {finding.nodes:,} nodes")


def amounts_words(amounts: tuple[tuple[str, int], ...]) -> str:
    """Several amounts by resource."""
    return joined([amount_words(resource, amount) for resource, amount in amounts])


def amount_words(resource: str, amount: int) -> str:
    """An amount that is short, never understated: `700 m CPU`, `1.5 GiB memory`, `2 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount:,} m CPU"
    if resource == "memory":
        return f"{_bytes(amount)} memory"
    if resource == "pods":
        return "1 pod" if amount == 1 else f"{amount} pods"
    if resource.startswith(ATTACH):
        return f"{amount} volume{'' if amount == 1 else 's'} of {resource.removeprefix(ATTACH)}"
    return f"{amount} {resource}"


def joined(parts: list[str], word: str = "and") -> str:
    """Parts of a sentence as a list."""
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])} {word} {parts[-1]}"


def _bytes(amount: int) -> str:
    if amount >= _GIBIBYTE:
        tenths = -(-amount * 10 // _GIBIBYTE)
        return f"{tenths // 10}.{tenths % 10} GiB" if tenths % 10 else f"{tenths // 10} GiB"
    return f"{-(-amount // MEBIBYTE)} MiB"


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
