"""What a model requires of pods together: exclusions, spreads, and how many may be evicted."""

import numpy as np

from cruise.packer.arrays import IntArray
from cruise.packer.constrained.cells import Cells
from cruise.packer.constrained.ruling import concerning
from cruise.packer.problem import EvictionLimit, Exclusion, Spread


def keep_between_pods(cells: Cells) -> None:
    """Add the exclusions, spreads and eviction limits that copies can break."""
    ruling = cells.layout.ruling
    rules, classes = ruling.rules, cells.nodes_of
    for index in concerning(ruling.exclusions, classes):
        exclusion = rules.exclusions[index]
        for nodes in ruling.domains[exclusion.topology].values():
            _keep_apart(cells, exclusion, nodes)
    for index in concerning(ruling.spreads, classes):
        _keep_even(cells, rules.spreads[index], ruling.domains[rules.spreads[index].topology])
    for index in concerning(ruling.eviction_limits, classes):
        _keep_to_limit(cells, rules.eviction_limits[index])
    if rules.most_evicted is not None:
        _keep_on_nodes(cells, rules.most_evicted)


def _keep_apart(cells: Cells, exclusion: Exclusion, nodes: tuple[int, ...]) -> None:
    holder, targets = exclusion.holder, tuple(sorted(exclusion.targets.tolist()))
    others = tuple(target for target in targets if target != holder)
    alone = int(holder in targets)
    met = cells.held(targets, nodes)
    if met.most > alone:
        cells.require(met.expression() <= alone, cells.arrives((holder,), nodes))
    holders = cells.held((holder,), nodes)
    if others and holders.most > 0:
        cells.require(holders.expression() <= 0, cells.arrives(others, nodes))


def _keep_even(cells: Cells, spread: Spread, domains: dict[int, tuple[int, ...]]) -> None:
    targets = tuple(sorted(spread.targets.tolist()))
    eligible = {
        domain: there for domain, nodes in domains.items() if (there := tuple(n for n in nodes if spread.eligible[n]))
    }
    met = {domain: cells.held(targets, nodes) for domain, nodes in eligible.items()}
    least = cells.model.new_int_var(0, min((count.most for count in met.values()), default=0), "")
    if len(eligible) < spread.min_domains:
        cells.require(least == 0)
    else:
        for count in met.values():
            cells.require(least <= count.expression())
    alone = int(spread.holder in targets)
    for domain, there in eligible.items():
        if met[domain].most + alone > spread.max_skew:
            even = met[domain].expression() <= least + spread.max_skew
            cells.require(even, cells.arrives((spread.holder,), there))
            # Where a node does not count, a pod that arrives there counts for itself alone.
            beside = tuple(n for n in domains[domain] if not spread.eligible[n])
            more = met[domain].expression() + alone <= least + spread.max_skew
            cells.require(more, cells.arrives((spread.holder,), beside))


def _keep_to_limit(cells: Cells, limit: EvictionLimit) -> None:
    members = limit.members.tolist()
    ran = int(cells.layout.running[members].sum())
    stays = cells.stays(members)
    if stays.known < ran - limit.allowed:
        cells.require(stays.expression() >= ran - limit.allowed)


def _keep_on_nodes(cells: Cells, most_evicted: IntArray) -> None:
    running = cells.layout.running
    for node in range(running.shape[1]):
        there = np.flatnonzero(running[:, node])
        least = int(running[there, node].sum() - most_evicted[node])
        stays = cells.stays(there.tolist(), (node,))
        if stays.known < least:
            cells.require(stays.expression() >= least)
