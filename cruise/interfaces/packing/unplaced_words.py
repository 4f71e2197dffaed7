"""Why a pod stays pending, as a sentence: what keeps it out, and what would let it in."""

from cruise.decisions.packing.building.obstacle import Obstacle, resource_obstacle
from cruise.domain.unplaced import Finding, Occupants, Pattern, Unplaced
from cruise.interfaces.packing.requirement_words import (
    affinity_words,
    all_nodes,
    amount_words,
    amounts_words,
    counted_nodes,
    joined,
    node_affinity_words,
    selector_words,
    taint_words,
)


def unplaced_words(one: Unplaced) -> str:
    """Say what keeps a pod pending: `both nodes are full; 1 more of them, or 300 m CPU less, would do`."""
    finding = one.finding
    words = _SHORT.get(finding.pattern, finding.stated)
    match finding.pattern:
        case Pattern.NOWHERE:
            words = _nowhere(one)
        case Pattern.FULL:
            words = _full(one)
        case Pattern.TOO_LARGE:
            words = _too_large(finding)
        case Pattern.CLOSED:
            clauses = [_clause(obstacle, finding) for obstacle in one.blocked_by]
            words = f"{counted_nodes(finding, 'otherwise open to it')} {joined(clauses)}"
        case Pattern.NOT_JUDGED:
            words = f"cruise cannot judge where it may run: {finding.unjudged}"
        case Pattern.AFFINITY_UNLABELLED:
            words = f"but no node has the label {joined(list(finding.topology_keys))}"
        case Pattern.CLAIM_UNKNOWN | Pattern.CLAIM_UNBOUND | Pattern.CLAIM_OF_ANOTHER | Pattern.CLAIM_OUT_OF_REACH:
            words = f"its claim {finding.claim} {words}"
    if finding.pattern in _OF_AFFINITY:
        words = f"wants to run beside {affinity_words(finding.affinity)}, {words}"
    if finding.preemptible:
        words = f"{words}; kube-scheduler may preempt pods of lower priority that no plan evicts"
    return words


_OF_AFFINITY = (
    Pattern.AFFINITY_UNLABELLED,
    Pattern.AFFINITY_CONTRADICTED,
    Pattern.AFFINITY_WITHOUT_PODS,
    Pattern.AFFINITY_NOWHERE,
    Pattern.ONLY_FIRST,
)
_SHORT = {
    Pattern.GATED: "its scheduling gates are not lifted yet",
    Pattern.CLAIM_UNKNOWN: "is not known",
    Pattern.CLAIM_UNBOUND: "is not bound",
    Pattern.CLAIM_OF_ANOTHER: "is not owned by this pod",
    Pattern.CLAIM_OUT_OF_REACH: "is used on a node that is not there",
    Pattern.NO_NODES: "the cluster has no nodes",
    Pattern.OPEN: "there is a place for it, which no plan found in the time has used",
    Pattern.AFFINITY_CONTRADICTED: "and its anti-affinity keeps it away from just these: no node can ever match",
    Pattern.AFFINITY_WITHOUT_PODS: "of which there are none",
    Pattern.AFFINITY_NOWHERE: "and no node can have any",
    Pattern.ONLY_FIRST: "and its anti-affinity keeps it away from just these: only the first of them can ever run",
}


def _nowhere(one: Unplaced) -> str:
    """What no node at all meets."""
    finding = one.finding
    match one.blocked_by[0]:
        case Obstacle.NODE_SELECTOR:
            return f"needs {selector_words(finding)}, which no node has"
        case Obstacle.NODE_AFFINITY:
            return f"needs {node_affinity_words(finding)}, which no node meets"
        case Obstacle.VOLUME:
            return "its volume can be used on no node that there is"
        case Obstacle.TOPOLOGY_SPREAD:
            return f"spreads over {joined(list(finding.topology_keys))}, which no node is labelled with"
        case obstacle:
            return f"{all_nodes(finding)} {_clause(obstacle, finding)}"


def _too_large(finding: Finding) -> str:
    less, subject = amounts_words(finding.lacking), _subject(finding, "offers less", "offer less")
    size = amounts_words(finding.size)
    return f"asks for {size}: {subject} even when empty; {less} less would do on {finding.nearest}"


def _full(one: Unplaced) -> str:
    """The nodes that would do are full: of which pods, and what would help."""
    finding = one.finding
    lacking = dict(finding.lacking)
    others = lacking.pop("pods", 0)
    less = amounts_words(tuple(lacking.items()))
    fewer = f"{others} {'pod' if others == 1 else 'pods'} fewer there" if others else ""
    remedies = [f"1 more {'of them' if finding.nodes > 1 else 'like it'}"]
    if less or fewer:
        remedies.append(joined([part for part in (f"{less} less" if less else "", fewer) if part]))
    occupants = _occupants(one)
    return f"{_subject(finding, f'is {occupants}', f'are {occupants}')}; {', or '.join(remedies)}, would do"


def _subject(finding: Finding, singular: str, plural: str) -> str:
    """Name the nodes that would take the pod by what it needs, and say something of them."""
    verb = singular if finding.nodes == 1 else plural
    if finding.of_all:
        return f"{all_nodes(finding)} {verb}"
    by_affinity = Obstacle.NODE_AFFINITY in finding.narrowed_by
    needs = [selector_words(finding)] if Obstacle.NODE_SELECTOR in finding.narrowed_by else []
    needs += [node_affinity_words(finding)] if by_affinity else []
    if needs:
        verbs = ("meets", "meet") if by_affinity else ("has", "have")
        have = f"that {verbs[finding.nodes > 1]} it{' and may take it' if finding.narrowed_further else ''}"
        return f"needs {joined(needs)}; {counted_nodes(finding, have)} {verb}"
    return f"{counted_nodes(finding, 'that may take it')} {verb}"


def _occupants(one: Unplaced) -> str:
    protections = [_PROTECTED[obstacle] for obstacle in one.blocked_by if obstacle in _PROTECTED]
    if protections:
        return f"full of lower priority, {joined(protections)}"
    match one.finding.occupants:
        case Occupants.STAYING:
            return "too full of pods that stay in any plan"
        case Occupants.ANY:
            return "full"
        case priority:
            return f"full of {priority} priority"


_PROTECTED: dict[str, str] = {
    Obstacle.PREEMPTION_POLICY: "which its preemptionPolicy forbids it to preempt",
    Obstacle.DISRUPTION_BUDGET: "which a PodDisruptionBudget protects",
    Obstacle.EVICTION_LIMIT: "of which no more may be evicted now",
    Obstacle.UNMOVABLE: "which has to stay",
}


def _clause(obstacle: str, finding: Finding) -> str:
    """What is wrong with the nodes: `lack disk=ssd`, `is cordoned`."""
    be, have, lack, do = ("is", "has", "lacks", "does") if finding.nodes == 1 else ("are", "have", "lack", "do")
    over = joined(list(finding.topology_keys))
    clauses: dict[str, str] = {
        Obstacle.NODE_SELECTOR: f"{lack} {selector_words(finding)}",
        Obstacle.NODE_AFFINITY: f"{do} not meet its node affinity ({node_affinity_words(finding)})",
        Obstacle.TAINTS: f"{have} {taint_words(finding.taints)}, which it does not tolerate",
        Obstacle.CORDONED: f"{be} cordoned",
        Obstacle.NOT_READY: f"{be} not ready",
        Obstacle.VOLUME: "cannot give it its volume",
        Obstacle.AFFINITY: f"{lack} the company it wants: {affinity_words(finding.affinity)}",
        Obstacle.TOPOLOGY_SPREAD: f"would make {f'it too uneven over {over}' if over else 'others too uneven'}",
        Obstacle.ANTI_AFFINITY: f"{have} pods that anti-affinity keeps it away from",
        Obstacle.HOST_PORTS: f"{have} its host port taken",
        Obstacle.PREEMPTION_POLICY: f"{have} room only where others are preempted, which its policy forbids",
    }
    lacking = {resource_obstacle(name): amount_words(name, amount) for name, amount in finding.lacking}
    short = f"{lacking[obstacle]} short" if obstacle in lacking else "full of pods that stay"
    return clauses.get(obstacle, f"{be} {short}")
