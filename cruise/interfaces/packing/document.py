"""A packing plan as the JSON document that scripts read; its keys are a contract."""

from collections.abc import Iterator, Mapping

import msgspec

from cruise.domain.packing import FleetChange, Measure, Proposal
from cruise.interfaces.packing.later_words import later_json
from cruise.interfaces.packing.sizes import Pods, sizes_after

_DECIMALS = 3


class _Json(msgspec.Struct, gc=False, rename="camel"):
    """Root of the shapes below: names in Python's style, keys in JSON's."""


class _Placed(_Json):
    namespace: str
    pod: str
    node: str


class _Move(_Json):
    namespace: str
    pod: str
    source: str = msgspec.field(name="from")
    target: str = msgspec.field(name="to")


class _Preempted(_Json):
    namespace: str
    pod: str
    source: str = msgspec.field(name="from")


class _Resize(_Json):
    namespace: str
    pod: str
    node: str
    cpu_millicores: int
    memory_bytes: int


class _Unplaced(_Json):
    namespace: str
    pod: str
    blocked_by: list[str]


class _Tier(_Json):
    priority: int
    placed: int
    bound: int


class _Packing(_Json):
    status: str
    sizes: str
    seconds: float
    placed: list[_Placed]
    moves: list[_Move]
    preempted: list[_Preempted]
    resizes: list[_Resize]
    unplaced: list[_Unplaced]
    by_priority: list[_Tier]
    evictions: int
    evictions_bound: int


class _Within(_Packing):
    later: Mapping[str, object] | None


class _Added(_Json, omit_defaults=True):
    type: str
    count: int
    node_pool: str | None = None


class _Kept(_Json):
    by: str
    nodes: int


class _Without(_Json):
    constraint: str
    nodes: int


class _Silent(_Json):
    node_pool: str
    why: str


class _Consolidation(_Packing):
    nodes_before: int
    nodes_after: int
    nodes_bound: int
    emptied: list[str]
    add: list[_Added]
    price_before: float | None
    price_after: float | None
    price_bound: float | None
    kept: list[_Kept]
    without: list[_Without]
    silent_node_pools: list[_Silent]


def pack_json(proposal: Proposal, pods: Pods, seconds: float, *, within_budgets: bool = False) -> Iterator[bytes]:
    """Yield the document; `pods` are the snapshot's by (namespace, name), `seconds` what solving took.

    `within_budgets` adds what eviction budgets leave to later plans. A resize has what will count for the whole pod. A
    tier's `bound` is what no plan surpasses, `evictionsBound` how many pods every plan evicts that places as many.
    """
    document = _Packing(
        status=proposal.status.value,
        sizes=proposal.sizes.value,
        seconds=round(seconds, _DECIMALS),
        placed=[_Placed(one.namespace, one.pod, one.target) for one in proposal.placed],
        moves=[_Move(one.namespace, one.pod, one.source or "", one.target) for one in proposal.moves],
        preempted=[_Preempted(one.namespace, one.pod, one.source) for one in proposal.preempted],
        resizes=[
            _Resize(namespace, pod, node, size.cpu_millicores, size.memory_bytes)
            for (namespace, pod), (node, size) in sorted(sizes_after(proposal, pods).items())
        ],
        unplaced=[_Unplaced(one.namespace, one.pod, list(one.blocked_by)) for one in proposal.unplaced],
        by_priority=[_Tier(tier.priority, tier.placed, tier.most) for tier in proposal.by_priority],
        evictions=len(proposal.evicted),
        evictions_bound=proposal.least_evicted,
    )
    if proposal.fleet is not None:
        document = _with_fleet(document, proposal.fleet)
    elif within_budgets:
        later = None if proposal.later is None else later_json(proposal.later)
        document = _Within(**msgspec.structs.asdict(document), later=later)
    yield msgspec.json.encode(document)
    yield b"\n"


def _with_fleet(document: _Packing, fleet: FleetChange) -> _Consolidation:
    priced = fleet.measure is Measure.PRICE
    return _Consolidation(
        **msgspec.structs.asdict(document),
        nodes_before=fleet.nodes_before,
        nodes_after=fleet.nodes_after,
        nodes_bound=fleet.nodes_bound,
        emptied=list(fleet.emptied),
        add=[_Added(one.type, one.count, one.pool or None) for one in fleet.added],
        price_before=fleet.price_before if priced else None,
        price_after=fleet.price_after if priced else None,
        price_bound=fleet.price_bound if priced else None,
        kept=[_Kept(detail, nodes) for detail, nodes in fleet.kept],
        without=[_Without(name, nodes) for name, nodes in fleet.without],
        silent_node_pools=[_Silent(name, why) for name, why in fleet.silent],
    )
