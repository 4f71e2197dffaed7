"""Why a pod stays pending, as a sentence: what keeps it out, and what would let it in."""

from cruise.decisions.packing.node_masks import PlacementObstacle, get_resource_obstacle
from cruise.decisions.packing.resources import ATTACH_PREFIX
from cruise.domain.reasons import BlockingPods, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import MEBIBYTE
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    SelectorOperator,
    Taint,
)

# What a pod requires of a node, amounts and nodes, as parts of a sentence.

_LONGEST_LIST = 3
_GIBIBYTE = 1024 * MEBIBYTE


def describe_node_selector(finding: UnschedulableReason) -> str:
    """The node selector: `disk=ssd and zone=a`."""
    return join_words([f"{key}={value}" for key, value in finding.selector])


def describe_node_affinity(finding: UnschedulableReason) -> str:
    """The required node affinity: terms joined by or."""
    terms = [_term_words(term) for term in finding.node_terms]
    return (
        join_words([f"({term})" for term in terms], "or") if len(terms) > 1 else join_words(terms) or "no node at all"
    )


def describe_label_selector(selector: LabelSelector | None) -> str:
    """Which pods a selector means."""
    if selector is None:
        return "no pods at all"
    if not selector.requirements:
        return "any pods"
    return f"pods with {join_words([_requirement_words(one) for one in selector.requirements])}"


def describe_pod_affinity(terms: tuple[PodAffinityTerm, ...]) -> str:
    """Beside which pods a pod is to run; without terms, those with which it shares a volume."""
    if not terms:
        return "the other pods of its volume"
    return join_words([f"{describe_label_selector(term.selector)} in the same {term.topology_key}" for term in terms])


def describe_taints(taints: tuple[Taint, ...]) -> str:
    """Some taints, each once."""
    names = list(dict.fromkeys(_taint_words(taint) for taint in taints))
    return f"the taint{'s' if len(names) > 1 else ''} {format_first_names(names, 'and')}"


def format_first_names(names: list[str], word: str = "or") -> str:
    """The first of some names."""
    more = len(names) - _LONGEST_LIST
    return join_words(names, word) if more <= 0 else join_words([*names[:_LONGEST_LIST], f"{more:,} more"], word)


def describe_node_count(finding: UnschedulableReason, more: str = "") -> str:
    """How many nodes, by name where there is one: `the one node n3`, `the 3 nodes`."""
    what = f" {more}" if more else ""
    return f"the one node{what}, {finding.node}," if finding.nodes == 1 else f"the {finding.nodes:,} nodes{what}"


def describe_all_nodes(finding: UnschedulableReason) -> str:
    """All the nodes there are."""
    return {1: f"the only node, {finding.node},", 2: "both nodes"}.get(finding.nodes, f"all {finding.nodes:,} nodes")


def describe_amounts(amounts: tuple[tuple[str, int], ...]) -> str:
    """Several amounts by resource."""
    return join_words([describe_amount(resource, amount) for resource, amount in amounts])


def describe_amount(resource: str, amount: int) -> str:
    """An amount that is short, never understated: `700 m CPU`, `1.5 GiB memory`, `2 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount:,} m CPU"
    if resource == "memory":
        return f"{_bytes(amount)} memory"
    if resource == "pods":
        return "1 pod" if amount == 1 else f"{amount} pods"
    if resource.startswith(ATTACH_PREFIX):
        return f"{amount} volume{'' if amount == 1 else 's'} of {resource.removeprefix(ATTACH_PREFIX)}"
    return f"{amount} {resource}"


def join_words(parts: list[str], word: str = "and") -> str:
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
    return join_words(parts) or "nothing, which matches no node"


def _requirement_words(one: LabelRequirement) -> str:
    match one.operator:
        case SelectorOperator.IN:
            return (
                f"{one.key}={one.values[0]}"
                if len(one.values) == 1
                else f"{one.key} {format_first_names(list(one.values))}"
            )
        case SelectorOperator.NOT_IN:
            return f"{one.key} not {format_first_names(list(one.values))}"
        case SelectorOperator.EXISTS:
            return f"a label {one.key}"
        case SelectorOperator.DOES_NOT_EXIST:
            return f"no label {one.key}"
        case SelectorOperator.GREATER:
            return f"{one.key} above {format_first_names(list(one.values))}"
        case SelectorOperator.LESS:
            return f"{one.key} below {format_first_names(list(one.values))}"


def _taint_words(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def describe_unplaced_pod(one: UnplacedPod) -> str:
    """Say what keeps a pod pending: `both nodes are full; 1 more of them, or 300 m CPU less, would do`."""
    finding = one.reason
    words = _SHORT.get(finding.code, "")
    match finding.code:
        case UnschedulableCode.NO_MATCHING_NODE:
            words = _nowhere(one)
        case UnschedulableCode.NODES_FULL:
            words = _full(one)
        case UnschedulableCode.TOO_LARGE:
            words = _too_large(finding)
        case UnschedulableCode.NODES_UNSCHEDULABLE:
            clauses = [_clause(obstacle, finding) for obstacle in one.blocked_by]
            words = f"{describe_node_count(finding, 'otherwise open to it')} {join_words(clauses)}"
        case UnschedulableCode.NOT_EVALUATED:
            words = f"cruise cannot judge where it may run: {finding.unsupported}"
        case UnschedulableCode.AFFINITY_UNLABELLED:
            words = f"but no node has the label {join_words(list(finding.topology_keys))}"
        case (
            UnschedulableCode.CLAIM_UNKNOWN
            | UnschedulableCode.CLAIM_UNBOUND
            | UnschedulableCode.CLAIM_OF_ANOTHER
            | UnschedulableCode.CLAIM_OUT_OF_REACH
        ):
            words = f"its claim {finding.claim} {words}"
    if finding.code in _OF_AFFINITY:
        words = f"wants to run beside {describe_pod_affinity(finding.affinity)}, {words}"
    if finding.preemptible:
        words = f"{words}; kube-scheduler may preempt pods of lower priority that no plan evicts"
    return words


_OF_AFFINITY = (
    UnschedulableCode.AFFINITY_UNLABELLED,
    UnschedulableCode.AFFINITY_CONTRADICTED,
    UnschedulableCode.AFFINITY_WITHOUT_PODS,
    UnschedulableCode.AFFINITY_NOWHERE,
    UnschedulableCode.ONLY_FIRST_POD_OF_GROUP,
)
_SHORT = {
    UnschedulableCode.CLAIM_UNKNOWN: "is not known",
    UnschedulableCode.CLAIM_UNBOUND: "is not bound",
    UnschedulableCode.CLAIM_OF_ANOTHER: "is not owned by this pod",
    UnschedulableCode.CLAIM_OUT_OF_REACH: "is used on a node that is not there",
    UnschedulableCode.NO_NODES: "the cluster has no nodes",
    UnschedulableCode.SCHEDULABLE: "there is a place for it, which no plan found in the time has used",
    UnschedulableCode.AFFINITY_CONTRADICTED: "and its anti-affinity keeps it away from just these: no node can ever match",
    UnschedulableCode.AFFINITY_WITHOUT_PODS: "of which there are none",
    UnschedulableCode.AFFINITY_NOWHERE: "and no node can have any",
    UnschedulableCode.ONLY_FIRST_POD_OF_GROUP: "and its anti-affinity keeps it away from just these: only the first of them can ever run",
}


def _nowhere(one: UnplacedPod) -> str:
    """What no node at all meets."""
    finding = one.reason
    match one.blocked_by[0]:
        case PlacementObstacle.NODE_SELECTOR:
            return f"needs {describe_node_selector(finding)}, which no node has"
        case PlacementObstacle.NODE_AFFINITY:
            return f"needs {describe_node_affinity(finding)}, which no node meets"
        case PlacementObstacle.VOLUME:
            return "its volume can be used on no node that there is"
        case PlacementObstacle.TOPOLOGY_SPREAD:
            return f"spreads over {join_words(list(finding.topology_keys))}, which no node is labelled with"
        case obstacle:
            return f"{describe_all_nodes(finding)} {_clause(obstacle, finding)}"


def _too_large(finding: UnschedulableReason) -> str:
    less, subject = describe_amounts(finding.missing_resources), _subject(finding, "offers less", "offer less")
    size = describe_amounts(finding.size)
    return f"asks for {size}: {subject} even when empty; {less} less would do on {finding.nearest}"


def _full(one: UnplacedPod) -> str:
    """The nodes that would do are full: of which pods, and what would help."""
    finding = one.reason
    lacking = dict(finding.missing_resources)
    others = lacking.pop("pods", 0)
    less = describe_amounts(tuple(lacking.items()))
    fewer = f"{others} {'pod' if others == 1 else 'pods'} fewer there" if others else ""
    remedies = [f"1 more {'of them' if finding.nodes > 1 else 'like it'}"]
    if less or fewer:
        remedies.append(join_words([part for part in (f"{less} less" if less else "", fewer) if part]))
    occupants = _occupants(one)
    return f"{_subject(finding, f'is {occupants}', f'are {occupants}')}; {', or '.join(remedies)}, would do"


def _subject(finding: UnschedulableReason, singular: str, plural: str) -> str:
    """Name the nodes that would take the pod by what it needs, and say something of them."""
    verb = singular if finding.nodes == 1 else plural
    if finding.covers_all_nodes:
        return f"{describe_all_nodes(finding)} {verb}"
    by_affinity = PlacementObstacle.NODE_AFFINITY in finding.narrowed_by
    needs = [describe_node_selector(finding)] if PlacementObstacle.NODE_SELECTOR in finding.narrowed_by else []
    needs += [describe_node_affinity(finding)] if by_affinity else []
    if needs:
        verbs = ("meets", "meet") if by_affinity else ("has", "have")
        have = f"that {verbs[finding.nodes > 1]} it{' and may take it' if finding.narrowed_further else ''}"
        return f"needs {join_words(needs)}; {describe_node_count(finding, have)} {verb}"
    return f"{describe_node_count(finding, 'that may take it')} {verb}"


def _occupants(one: UnplacedPod) -> str:
    protections = [_PROTECTED[obstacle] for obstacle in one.blocked_by if obstacle in _PROTECTED]
    if protections:
        return f"full of lower priority, {join_words(protections)}"
    match one.reason.blocking_pods:
        case BlockingPods.STAYING:
            return "too full of pods that stay in any plan"
        case BlockingPods.ANY:
            return "full"
        case priority:
            return f"full of {priority} priority"


_PROTECTED: dict[str, str] = {
    PlacementObstacle.PREEMPTION_POLICY: "which its preemptionPolicy forbids it to preempt",
    PlacementObstacle.DISRUPTION_BUDGET: "which a PodDisruptionBudget protects",
    PlacementObstacle.EVICTION_LIMIT: "of which no more may be evicted now",
    PlacementObstacle.NOT_EVICTABLE: "which has to stay",
}


def _clause(obstacle: str, finding: UnschedulableReason) -> str:
    """What is wrong with the nodes: `lack disk=ssd`, `is cordoned`."""
    be, have, lack, do = ("is", "has", "lacks", "does") if finding.nodes == 1 else ("are", "have", "lack", "do")
    over = join_words(list(finding.topology_keys))
    clauses: dict[str, str] = {
        PlacementObstacle.NODE_SELECTOR: f"{lack} {describe_node_selector(finding)}",
        PlacementObstacle.NODE_AFFINITY: f"{do} not meet its node affinity ({describe_node_affinity(finding)})",
        PlacementObstacle.TAINTS: f"{have} {describe_taints(finding.taints)}, which it does not tolerate",
        PlacementObstacle.CORDONED: f"{be} cordoned",
        PlacementObstacle.NOT_READY: f"{be} not ready",
        PlacementObstacle.VOLUME: "cannot give it its volume",
        PlacementObstacle.AFFINITY: f"{lack} the company it wants: {describe_pod_affinity(finding.affinity)}",
        PlacementObstacle.TOPOLOGY_SPREAD: f"would make {f'it too uneven over {over}' if over else 'others too uneven'}",
        PlacementObstacle.ANTI_AFFINITY: f"{have} pods that anti-affinity keeps it away from",
        PlacementObstacle.HOST_PORTS: f"{have} its host port taken",
        PlacementObstacle.PREEMPTION_POLICY: f"{have} room only where others are preempted, which its policy forbids",
    }
    lacking = {get_resource_obstacle(name): describe_amount(name, amount) for name, amount in finding.missing_resources}
    short = f"{lacking[obstacle]} short" if obstacle in lacking else "full of pods that stay"
    return clauses.get(obstacle, f"{be} {short}")
