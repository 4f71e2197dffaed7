"""A finding about a pod that stays pending, as a sentence for people."""

from dataclasses import dataclass

import numpy as np

from cruise.decisions.packing.blocking.amounts import amount_words, joined
from cruise.decisions.packing.blocking.asking import (
    all_nodes,
    company_words,
    counted_nodes,
    node_affinity_words,
    selector_words,
)
from cruise.decisions.packing.blocking.clauses import clause
from cruise.decisions.packing.blocking.neighbours import NeighbourObstacles
from cruise.decisions.packing.blocking.room import Room
from cruise.decisions.packing.blocking.smallest import Blocked
from cruise.decisions.packing.building import Built
from cruise.decisions.packing.building.obstacle import Obstacle, resource_obstacle
from cruise.domain.arrays import BoolArray, Int64Array
from cruise.domain.cluster import Node, Pod

_OF_COMPANY = (Obstacle.AFFINITY, Obstacle.ANTI_AFFINITY)
_OF_LABELS = (Obstacle.NODE_SELECTOR, Obstacle.NODE_AFFINITY)


@dataclass(frozen=True, slots=True, eq=False)
class Finding:
    """What keeps a pod out: the smallest set, all masks behind it, and whether that holds in any plan at all."""

    built: Built
    pod: Pod
    pod_class: int
    blocked: Blocked
    masks: dict[str, BoolArray]
    room: Room
    never: bool
    proved: bool
    neighbours: NeighbourObstacles

    @property
    def by_room(self) -> bool:
        """Whether room alone is what is missing."""
        closing = [self.masks[obstacle] for obstacle in self.blocked.obstacles if obstacle in self.masks]
        return not any(mask[self.blocked.nodes].any() for mask in closing)

    def nodes(self, mask: BoolArray) -> list[Node]:
        """The nodes of a mask."""
        return [self.built.nodes[index] for index in np.flatnonzero(mask).tolist()]


def words_of(finding: Finding) -> str:
    """Say what keeps the pod out, and what would let it in."""
    if not finding.blocked.obstacles:
        return "there is a place for it, which no plan found in the time has used"
    if finding.never and (nowhere := _nowhere(finding)):
        return nowhere
    if finding.blocked.obstacles[0] in _OF_COMPANY and finding.neighbours.shuns_its_own(finding.pod_class):
        wish = f"wants to run beside {company_words(finding.pod.constraints.affinity)}"
        return f"{wish}, and its anti-affinity keeps it away from just these: only the first of them can ever run"
    if finding.by_room:
        return _full(finding)
    there = finding.nodes(finding.blocked.nodes)
    _, lacking = _nearest(finding, finding.room.lacking())
    short = {resource_obstacle(name): amount_words(name, amount) for name, amount in lacking.items()}
    clauses = [clause(obstacle, finding.pod, there, short) for obstacle in finding.blocked.obstacles]
    return f"{counted_nodes(there, 'otherwise open to it')} {joined(clauses)}"


def _nowhere(finding: Finding) -> str:
    """What no node at all meets; empty where it is not one thing alone."""
    pod, obstacles = finding.pod, finding.blocked.obstacles
    if len(obstacles) != 1 or not finding.masks.get(obstacles[0], np.zeros(1)).all():
        return ""
    everything = finding.nodes(np.ones(len(finding.built.nodes), dtype=np.bool_))
    if obstacles[0] == Obstacle.AFFINITY:
        return _never_beside(finding, everything)
    keys = [spread.topology_key for spread in pod.constraints.spread]
    over = joined(_missing(keys, everything) or keys)
    of_labels = {
        Obstacle.NODE_SELECTOR: f"needs {selector_words(pod)}, which no node has",
        Obstacle.NODE_AFFINITY: f"needs {node_affinity_words(pod)}, which no node meets",
        Obstacle.VOLUME: "its volume can be used on no node that there is",
        Obstacle.TOPOLOGY_SPREAD: f"spreads over {over}, which no node is labelled with",
    }
    of_nodes = f"{all_nodes(everything)} {clause(obstacles[0], pod, everything, {})}"
    return of_labels.get(Obstacle(obstacles[0]), of_nodes)


def _never_beside(finding: Finding, nodes: list[Node]) -> str:
    terms = finding.pod.constraints.affinity
    missing = _missing([term.topology_key for term in terms], nodes)
    wish = f"wants to run beside {company_words(terms)}"
    if missing:
        return f"{wish}, but no node has the label {joined(missing)}"
    if finding.neighbours.contradicts_itself(finding.pod_class):
        return f"{wish}, and its anti-affinity keeps it away from just these: no node can ever match"
    if finding.neighbours.wants_nobody_there(finding.pod_class):
        return f"{wish}, of which there are none"
    return f"{wish}, and no node can have any"


def _missing(keys: list[str], nodes: list[Node]) -> list[str]:
    return list(dict.fromkeys(key for key in keys if not any(key in node.labels for node in nodes)))


def _full(finding: Finding) -> str:
    """The nodes that would do are full: of whom, and what would help."""
    closed = np.zeros(len(finding.built.nodes), dtype=np.bool_)
    for mask in finding.masks.values():
        closed |= mask
    able = finding.nodes(~closed)
    if finding.room.lacking_when_empty()[~closed].any(axis=1).all():
        return _too_large(finding, able)
    _, lacking = _nearest(finding, finding.room.lacking())
    others = lacking.pop("pods", 0)
    less = joined([amount_words(name, amount) for name, amount in lacking.items()])
    fewer = f"{others} {'pod' if others == 1 else 'pods'} fewer there" if others else ""
    remedies = [f"1 more {'of them' if len(able) > 1 else 'like it'}"]
    if less or fewer:
        remedies.append(joined([part for part in (f"{less} less" if less else "", fewer) if part]))
    of_whom = _occupants(finding, ~closed)
    return f"{_subject(finding, able, f'is {of_whom}', f'are {of_whom}')}; {', or '.join(remedies)}, would do"


def _too_large(finding: Finding, able: list[Node]) -> str:
    """Not even an empty node has room."""
    best, lacking = _nearest(finding, finding.room.lacking_when_empty())
    problem = finding.built.problem
    size = problem.demands[finding.pod_class] + problem.headroom[finding.pod_class]
    asked = joined([amount_words(name, int(size[problem.resources.index(name)])) for name in lacking])
    less = joined([amount_words(name, amount) for name, amount in lacking.items()])
    subject = _subject(finding, able, "offers less", "offer less")
    return f"asks for {asked}: {subject} even when empty; {less} less would do on {finding.built.nodes[best].name}"


def _subject(finding: Finding, able: list[Node], one: str, many: str) -> str:
    """Name the nodes that would take the pod by what it needs, and say something of them."""
    everything = len(able) == len(finding.built.nodes)
    verb = one if len(able) == 1 else many
    if everything:
        return f"{all_nodes(able)} {verb}"
    needs = [
        words(finding.pod)
        for obstacle, words in ((_OF_LABELS[0], selector_words), (_OF_LABELS[1], node_affinity_words))
        if finding.masks[obstacle].any()
    ]
    if needs:
        verbs = ("meets", "meet") if finding.masks[_OF_LABELS[1]].any() else ("has", "have")
        have = f"that {verbs[len(able) > 1]} it"
        others = any(mask.any() for obstacle, mask in finding.masks.items() if obstacle not in _OF_LABELS)
        if others:
            have += " and may take it"
        return f"needs {joined(needs)}; {counted_nodes(able, have)} {verb}"
    return f"{counted_nodes(able, 'that may take it')} {verb}"


def _occupants(finding: Finding, able: BoolArray) -> str:
    """Of whom nodes are full."""
    reasons = [_CLAIMS[Obstacle(obstacle)] for obstacle in finding.blocked.obstacles if obstacle in _CLAIMS]
    if reasons:
        return f"full of lower priority, {joined(reasons)}"
    if finding.never:
        return "too full of pods that stay in any plan"
    of_whom = finding.room.full_of(able)
    return f"full of {of_whom} priority" if of_whom else "full"


_CLAIMS = {
    Obstacle.PREEMPTION_POLICY: "which its preemptionPolicy forbids it to preempt",
    Obstacle.DISRUPTION_BUDGET: "which a PodDisruptionBudget protects",
    Obstacle.EVICTION_LIMIT: "of which no more may be evicted now",
    Obstacle.UNMOVABLE: "which has to stay",
}


def _nearest(finding: Finding, lacking: Int64Array) -> tuple[int, dict[str, int]]:
    """Of the nodes that the set is about, the one that lacks the smallest share of the pod's size; what it lacks."""
    problem = finding.built.problem
    size = np.maximum(problem.demands[finding.pod_class] + problem.headroom[finding.pod_class], 1)
    share = np.where(finding.blocked.nodes, (lacking / size).max(axis=1), np.inf)
    best = int(share.argmin())
    return best, {problem.resources[r]: int(lacking[best, r]) for r in np.flatnonzero(lacking[best]).tolist()}
