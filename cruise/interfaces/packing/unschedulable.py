"""Describes why a pod stays pending: what keeps it out, and what would let it in."""

from cruise.decisions.packing.node_masks import PlacementObstacle, get_resource_obstacle
from cruise.decisions.packing.resources import ATTACH_PREFIX
from cruise.domain.reasons import BlockingPodKind, UnplacedPod, UnschedulableCode, UnschedulableReason
from cruise.domain.resources import MEBIBYTE
from cruise.domain.scheduling import (
    LabelRequirement,
    LabelSelector,
    NodeSelectorTerm,
    PodAffinityTerm,
    SelectorOperator,
    Taint,
)
from cruise.interfaces.text import join_words

_LONGEST_LIST = 3
_GIBIBYTE = 1024 * MEBIBYTE


def format_node_selector(reason: UnschedulableReason) -> str:
    """Write the node selector: `disk=ssd and zone=a`."""
    return join_words([f"{key}={value}" for key, value in reason.selector])


def format_node_affinity(reason: UnschedulableReason) -> str:
    """Write the required node affinity: terms joined by "or"."""
    terms = [_describe_term(term) for term in reason.node_terms]
    return join_words([f"({term})" for term in terms], "or") if len(terms) > 1 else join_words(terms) or "no node"


def describe_label_selector(selector: LabelSelector | None) -> str:
    """Describe which pods a selector matches."""
    if selector is None:
        return "no pods"
    if not selector.requirements:
        return "any pods"
    return f"pods with {join_words([_describe_requirement(one) for one in selector.requirements])}"


def describe_pod_affinity(terms: tuple[PodAffinityTerm, ...]) -> str:
    """Describe which pods a pod must run next to; without terms, those that share a volume with it."""
    if not terms:
        return "the other pods of its volume"
    return join_words([f"{describe_label_selector(term.selector)} in the same {term.topology_key}" for term in terms])


def format_taints(taints: tuple[Taint, ...]) -> str:
    """Write the distinct taints."""
    names = list(dict.fromkeys(_format_taint(taint) for taint in taints))
    return f"the taint{'s' if len(names) > 1 else ''} {format_first_names(names, 'and')}"


def format_first_names(names: list[str], word: str = "or") -> str:
    """Write the first names of a list, and how many more there are."""
    more = len(names) - _LONGEST_LIST
    return join_words(names, word) if more <= 0 else join_words([*names[:_LONGEST_LIST], f"{more:,} more"], word)


def describe_node_count(reason: UnschedulableReason, more: str = "") -> str:
    """Write how many nodes, with the name of a single one: `the one node, n3,`, `the 3 nodes`."""
    suffix = f" {more}" if more else ""
    return f"the one node{suffix}, {reason.node}," if reason.nodes == 1 else f"the {reason.nodes:,} nodes{suffix}"


def describe_all_nodes(reason: UnschedulableReason) -> str:
    """Write all nodes of the cluster."""
    return {1: f"the only node, {reason.node},", 2: "both nodes"}.get(reason.nodes, f"all {reason.nodes:,} nodes")


def describe_amounts(amounts: tuple[tuple[str, int], ...]) -> str:
    """Write amounts of several resources."""
    return join_words([describe_amount(resource, amount) for resource, amount in amounts])


def describe_amount(resource: str, amount: int) -> str:
    """Write a missing amount, rounded up: `700m CPU`, `1.5 GiB memory`, `2 nvidia.com/gpu`."""
    if resource == "cpu":
        return f"{amount:,}m CPU"
    if resource == "memory":
        return f"{_format_bytes(amount)} memory"
    if resource == "pods":
        return "1 pod" if amount == 1 else f"{amount} pods"
    if resource.startswith(ATTACH_PREFIX):
        return f"{amount} volume{'' if amount == 1 else 's'} of {resource.removeprefix(ATTACH_PREFIX)}"
    return f"{amount} {resource}"


def _format_bytes(amount: int) -> str:
    if amount >= _GIBIBYTE:
        tenths = -(-amount * 10 // _GIBIBYTE)
        return f"{tenths // 10}.{tenths % 10} GiB" if tenths % 10 else f"{tenths // 10} GiB"
    return f"{-(-amount // MEBIBYTE)} MiB"


def _describe_term(term: NodeSelectorTerm) -> str:
    parts = [_describe_requirement(one) for one in term.expressions]
    parts += [_describe_requirement(one).replace("metadata.name", "the node's name") for one in term.fields]
    return join_words(parts) or "nothing, which matches no node"


def _describe_requirement(requirement: LabelRequirement) -> str:
    match requirement.operator:
        case SelectorOperator.IN:
            return (
                f"{requirement.key}={requirement.values[0]}"
                if len(requirement.values) == 1
                else f"{requirement.key} {format_first_names(list(requirement.values))}"
            )
        case SelectorOperator.NOT_IN:
            return f"{requirement.key} not {format_first_names(list(requirement.values))}"
        case SelectorOperator.EXISTS:
            return f"a label {requirement.key}"
        case SelectorOperator.DOES_NOT_EXIST:
            return f"no label {requirement.key}"
        case SelectorOperator.GREATER:
            return f"{requirement.key} above {format_first_names(list(requirement.values))}"
        case SelectorOperator.LESS:
            return f"{requirement.key} below {format_first_names(list(requirement.values))}"


def _format_taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def describe_unplaced_pod(unplaced: UnplacedPod) -> str:
    """Describe what keeps a pod pending: `both nodes are full; 1 more of them, or 300m CPU less, would be enough`."""
    reason = unplaced.reason
    description = _SHORT.get(reason.code, "")
    match reason.code:
        case UnschedulableCode.NO_MATCHING_NODE:
            description = _describe_no_matching_node(unplaced)
        case UnschedulableCode.NODES_FULL:
            description = _describe_full_nodes(unplaced)
        case UnschedulableCode.TOO_LARGE:
            description = _describe_too_large(reason)
        case UnschedulableCode.NODES_UNSCHEDULABLE:
            clauses = [_describe_obstacle(obstacle, reason) for obstacle in unplaced.blocked_by]
            description = f"{describe_node_count(reason, 'with no other obstacle')} {join_words(clauses)}"
        case UnschedulableCode.NOT_EVALUATED:
            description = f"cruise cannot evaluate where it may run: {reason.unsupported}"
        case UnschedulableCode.AFFINITY_UNLABELLED:
            description = f"but no node has the label {join_words(list(reason.topology_keys))}"
        case (
            UnschedulableCode.CLAIM_UNKNOWN
            | UnschedulableCode.CLAIM_UNBOUND
            | UnschedulableCode.CLAIM_OF_ANOTHER
            | UnschedulableCode.CLAIM_OUT_OF_REACH
        ):
            description = f"its claim {reason.claim} {description}"
    if reason.code in _AFFINITY_CODES:
        description = f"must run next to {describe_pod_affinity(reason.affinity)}, {description}"
    if reason.preemptible:
        description = f"{description}; kube-scheduler may preempt pods of lower priority that no plan evicts"
    return description


_AFFINITY_CODES = (
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
    UnschedulableCode.CLAIM_OUT_OF_REACH: "is used on an unknown node",
    UnschedulableCode.NO_NODES: "the cluster has no nodes",
    UnschedulableCode.SCHEDULABLE: "it could be placed, but no plan found in time places it",
    UnschedulableCode.AFFINITY_CONTRADICTED: "and its anti-affinity excludes the same pods: no node can ever match",
    UnschedulableCode.AFFINITY_WITHOUT_PODS: "of which there are none",
    UnschedulableCode.AFFINITY_NOWHERE: "and no node can have any",
    UnschedulableCode.ONLY_FIRST_POD_OF_GROUP: (
        "and its anti-affinity excludes the same pods: only the first of them can ever run"
    ),
}


def _describe_no_matching_node(unplaced: UnplacedPod) -> str:
    """Describe an obstacle that closes all nodes."""
    reason = unplaced.reason
    match unplaced.blocked_by[0]:
        case PlacementObstacle.NODE_SELECTOR:
            return f"needs {format_node_selector(reason)}, which no node has"
        case PlacementObstacle.NODE_AFFINITY:
            return f"needs {format_node_affinity(reason)}, which no node meets"
        case PlacementObstacle.VOLUME:
            return "its volume cannot be used on any node"
        case PlacementObstacle.TOPOLOGY_SPREAD:
            return f"spreads over {join_words(list(reason.topology_keys))}, a label that no node has"
        case obstacle:
            return f"{describe_all_nodes(reason)} {_describe_obstacle(obstacle, reason)}"


def _describe_too_large(reason: UnschedulableReason) -> str:
    less, subject = (
        describe_amounts(reason.missing_resources),
        _describe_matching_nodes(reason, "offers less", "offer less"),
    )
    size = describe_amounts(reason.size)
    return f"requests {size}: {subject} even when empty; {less} less would be enough on {reason.nearest}"


def _describe_full_nodes(unplaced: UnplacedPod) -> str:
    """Describe which pods fill the matching nodes, and what would help."""
    reason = unplaced.reason
    missing = dict(reason.missing_resources)
    pods = missing.pop("pods", 0)
    less = describe_amounts(tuple(missing.items()))
    fewer = f"{pods} {'pod' if pods == 1 else 'pods'} fewer there" if pods else ""
    remedies = [f"1 more {'of them' if reason.nodes > 1 else 'like it'}"]
    if less or fewer:
        remedies.append(join_words([part for part in (f"{less} less" if less else "", fewer) if part]))
    blocking_pods = _describe_blocking_pods(unplaced)
    nodes = _describe_matching_nodes(reason, f"is {blocking_pods}", f"are {blocking_pods}")
    return f"{nodes}; {', or '.join(remedies)}, would be enough"


def _describe_matching_nodes(reason: UnschedulableReason, singular: str, plural: str) -> str:
    """Name the nodes that match the pod by its requirements, with a predicate."""
    verb = singular if reason.nodes == 1 else plural
    if reason.covers_all_nodes:
        return f"{describe_all_nodes(reason)} {verb}"
    by_affinity = PlacementObstacle.NODE_AFFINITY in reason.narrowed_by
    requirements = [format_node_selector(reason)] if PlacementObstacle.NODE_SELECTOR in reason.narrowed_by else []
    requirements += [format_node_affinity(reason)] if by_affinity else []
    if requirements:
        verbs = ("meets", "meet") if by_affinity else ("has", "have")
        predicate = f"that {verbs[reason.nodes > 1]} it{' and may take it' if reason.narrowed_further else ''}"
        return f"needs {join_words(requirements)}; {describe_node_count(reason, predicate)} {verb}"
    return f"{describe_node_count(reason, 'that may take it')} {verb}"


def _describe_blocking_pods(unplaced: UnplacedPod) -> str:
    protections = [_PROTECTED[obstacle] for obstacle in unplaced.blocked_by if obstacle in _PROTECTED]
    if protections:
        return f"full of lower priority, {join_words(protections)}"
    match unplaced.reason.blocking_pods:
        case BlockingPodKind.STAYING:
            return "too full of pods that stay in any plan"
        case BlockingPodKind.ANY:
            return "full"
        case priority:
            return f"full of {priority} priority"


_PROTECTED: dict[str, str] = {
    PlacementObstacle.PREEMPTION_POLICY: "which its preemptionPolicy forbids it to preempt",
    PlacementObstacle.DISRUPTION_BUDGET: "which a PodDisruptionBudget protects",
    PlacementObstacle.EVICTION_LIMIT: "of which no more may be evicted now",
    PlacementObstacle.NOT_EVICTABLE: "which must stay",
}


def _describe_obstacle(obstacle: str, reason: UnschedulableReason) -> str:
    """Describe what is wrong with the nodes: `lack disk=ssd`, `is cordoned`."""
    be, have, lack, do = ("is", "has", "lacks", "does") if reason.nodes == 1 else ("are", "have", "lack", "do")
    topologies = join_words(list(reason.topology_keys))
    clauses: dict[str, str] = {
        PlacementObstacle.NODE_SELECTOR: f"{lack} {format_node_selector(reason)}",
        PlacementObstacle.NODE_AFFINITY: f"{do} not meet its node affinity ({format_node_affinity(reason)})",
        PlacementObstacle.TAINTS: f"{have} {format_taints(reason.taints)}, which it does not tolerate",
        PlacementObstacle.CORDONED: f"{be} cordoned",
        PlacementObstacle.NOT_READY: f"{be} not ready",
        PlacementObstacle.VOLUME: "cannot give it its volume",
        PlacementObstacle.AFFINITY: f"{lack} the pods of its affinity: {describe_pod_affinity(reason.affinity)}",
        PlacementObstacle.TOPOLOGY_SPREAD: (
            f"would make it too uneven over {topologies}" if topologies else "would make others too uneven"
        ),
        PlacementObstacle.ANTI_AFFINITY: f"{have} pods that its anti-affinity excludes",
        PlacementObstacle.HOST_PORTS: f"{have} its host port taken",
        PlacementObstacle.PREEMPTION_POLICY: f"{have} capacity only after a preemption, which its policy forbids",
    }
    missing = {get_resource_obstacle(name): describe_amount(name, amount) for name, amount in reason.missing_resources}
    short = f"{missing[obstacle]} short" if obstacle in missing else "full of pods that stay"
    return clauses.get(obstacle, f"{be} {short}")
