"""A packing plan as the JSON document that scripts read; its keys are a contract."""

from collections.abc import Iterator

import msgspec

from cruise.domain.packing import FleetChange, Measure, Ordered, Proposal
from cruise.domain.unplaced import Unplaced
from cruise.interfaces.packing.later_words import later_plans
from cruise.interfaces.packing.progress_document import moved_pods, placed_pods, preempted_pods
from cruise.interfaces.packing.sizes import Pods, sizes_after
from cruise.interfaces.shapes import shape

_DECIMALS = 3
_Json = dict[str, object]


def pack_json(proposal: Proposal, pods: Pods, seconds: float, *, within_budgets: bool = False) -> Iterator[bytes]:
    """Yield the document; `pods` are the snapshot's by (namespace, name), `seconds` what solving took.

    `within_budgets` adds what eviction budgets leave to later plans. A resize has what will count for the whole pod. A
    tier's `bound` is what no plan surpasses, `evictionsBound` how many pods every plan evicts that places as many.
    """
    document: _Json = {
        "status": proposal.status,
        "sizes": proposal.sizes,
        "seconds": round(seconds, _DECIMALS),
        "placed": placed_pods(proposal.placed),
        "moves": moved_pods(proposal.moves),
        "preempted": preempted_pods(proposal.preempted),
        "resizes": [
            {
                "namespace": namespace,
                "pod": pod,
                "node": node,
                "cpuMillicores": size.cpu_millicores,
                "memoryBytes": size.memory_bytes,
            }
            for (namespace, pod), (node, size) in sorted(sizes_after(proposal, pods).items())
        ],
        "unplaced": [_unplaced(one) for one in proposal.unplaced],
        "byPriority": [
            {"priority": tier.priority, "placed": tier.placed, "bound": tier.most} for tier in proposal.by_priority
        ],
        "evictions": len(proposal.evicted),
        "evictionsBound": proposal.least_evicted,
    }
    if proposal.fleet is not None:
        document |= _fleet(proposal.fleet)
    elif within_budgets:
        document["later"] = None if proposal.later is None else later_plans(proposal.later)
    yield msgspec.json.encode(shape(document))
    yield b"\n"


def _unplaced(one: Unplaced) -> _Json:
    document: _Json = {"namespace": one.namespace, "pod": one.pod, "blockedBy": one.blocked_by}
    return document | {"impossible": True} if one.impossible else document


def _fleet(fleet: FleetChange) -> _Json:
    priced = fleet.measure is Measure.PRICE
    return {
        "nodesBefore": fleet.nodes_before,
        "nodesAfter": fleet.nodes_after,
        "nodesBound": fleet.nodes_bound,
        "emptied": fleet.emptied,
        "add": [_added(one) for one in fleet.added],
        "priceBefore": fleet.price_before if priced else None,
        "priceAfter": fleet.price_after if priced else None,
        "priceBound": fleet.price_bound if priced else None,
        "kept": [{"by": detail, "nodes": nodes} for detail, nodes in fleet.kept],
        "without": [{"constraint": constraint, "nodes": nodes} for constraint, nodes in fleet.without],
        "silentNodePools": [{"nodePool": name, "why": detail} for name, detail in fleet.silent],
    }


def _added(one: Ordered) -> _Json:
    document: _Json = {"type": one.type, "count": one.count}
    return document | {"nodePool": one.pool} if one.pool else document
