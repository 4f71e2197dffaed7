"""What a model asks of pods together: who keeps apart, who spreads evenly, how many may be evicted."""

from cruise.decisions.packing.constrained.cells import Cells
from cruise.decisions.packing.instance import IntArray
from cruise.decisions.packing.problem import EvictionLimit, Exclusion, Spread


def nodes_by_domain(domains: IntArray) -> dict[int, tuple[int, ...]]:
    """The nodes of each domain of a topology; those without one are left out."""
    nodes: dict[int, list[int]] = {}
    for node, domain in enumerate(domains.tolist()):
        if domain >= 0:
            nodes.setdefault(domain, []).append(node)
    return {domain: tuple(members) for domain, members in nodes.items()}


def keep_between_pods(cells: Cells) -> None:
    """Add the exclusions, spreads and eviction limits that open nodes can break."""
    rules = cells.layout.problem.rules
    topologies = [nodes_by_domain(domains) for domains in rules.topologies]
    open_domains = [
        [domain for domain, nodes in domains.items() if cells.open_nodes[list(nodes)].any()] for domains in topologies
    ]
    for exclusion in rules.exclusions:
        if _concerns(cells, exclusion.holder, exclusion.targets):
            for domain in open_domains[exclusion.topology]:
                _keep_apart(cells, exclusion, topologies[exclusion.topology][domain])
    for spread in rules.spreads:
        if _concerns(cells, spread.holder, spread.targets):
            _keep_even(cells, spread, topologies[spread.topology])
    for limit in rules.eviction_limits:
        _keep_to_limit(cells, limit)


def _concerns(cells: Cells, holder: int, targets: IntArray) -> bool:
    return holder in cells.nodes_of or any(target in cells.nodes_of for target in targets.tolist())


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
    if not any(member in cells.nodes_of for member in members):
        return
    ran = int(cells.layout.running[members].sum())
    stays = cells.stays(members)
    if stays.known < ran - limit.allowed:
        cells.require(stays.expression() >= ran - limit.allowed)
