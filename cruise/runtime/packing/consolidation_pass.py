"""The consolidation pass: with how few nodes the cluster would do, by which moves, and what keeps the others."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from cruise.decisions.packing.consolidating import with_new_nodes
from cruise.domain.cluster import NodeAutoscaler
from cruise.domain.packing import UNLIMITED, FleetChange, Proposal
from cruise.domain.policy import Mode, Policy
from cruise.errors import CruiseError
from cruise.runtime.packing.fewest_nodes import Found, Turn, change_of, find_fewest_nodes, found_of
from cruise.runtime.packing.packing_pass import Solver, gathered, make
from cruise.runtime.ports import Cluster, Store
from cruise.runtime.usage.state import UsageState

log = structlog.get_logger()

# A search ends here, so what is above is not looked for at all.
_LEAST_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class ConsolidationPass:
    """What one look came to: a plan with its `fleet`, or in words why there is none; `seconds` is all of solving.

    `autoscaler` removes the nodes that are empty, None where nothing does.
    """

    at: datetime
    plan: Proposal | None = None
    why: str = ""
    seconds: float = 0.0
    autoscaler: NodeAutoscaler | None = None

    @property
    def fleet(self) -> FleetChange | None:
        """What the plan makes of the nodes."""
        return None if self.plan is None else self.plan.fleet


class _NoPlan(Exception):
    """No search of a turn came to a plan."""


async def consolidation_pass(
    cluster: Cluster,
    store: Store,
    solver: Solver,
    policy: Policy,
    now: datetime,
    *,
    seconds: float,
    known_usage: UsageState,
    statistics_at: datetime | None,
    monotonic: Callable[[], float] = time.monotonic,
) -> ConsolidationPass:
    """Find the fewest nodes that hold all pods, at the sizes that a node pass would give them; nothing is written.

    `statistics_at` is when the statistics were last brought up to date: old ones are no ground for advice. Raises
    Unavailable where cluster, store or solver are out of reach.
    """
    if policy.mode in (Mode.OFF, Mode.INITIAL):
        return ConsolidationPass(now, why=f"mode {policy.mode.label}")
    if statistics_at is None or now - statistics_at > policy.max_age:
        since = "yet" if statistics_at is None else f"since {statistics_at:%Y-%m-%d %H:%M:%S} UTC"
        return ConsolidationPass(now, why=f"no statistics {since}")
    snapshot = await cluster.snapshot()
    fleet = await asyncio.to_thread(with_new_nodes, snapshot, None)
    scene = await gathered(fleet.snapshot, store, known_usage, policy, now)
    # Whatever may be evicted in one go: such a plan takes hours.
    scene = replace(scene, allowance=UNLIMITED, fleet=fleet)

    async def search(turn: Turn) -> Found:
        left = max(_LEAST_SECONDS, (seconds - turn.taken) * turn.share)
        there = replace(scene, snapshot=turn.snapshot, keep_domains=turn.bound is not None)
        made = await make(there, solver, left, monotonic)
        if isinstance(made, str):
            raise _NoPlan(made)
        bound = made.packing.bound if turn.bound is None else turn.bound
        packing = replace(made.packing, bound=bound)
        return found_of(made.built, packing, made.proposal, turn.taken + made.seconds)

    try:
        found = await find_fewest_nodes(search, fleet.snapshot)
        change = await change_of(search, found, fleet, seconds)
    except CruiseError:
        raise
    except _NoPlan as none:
        return ConsolidationPass(now, why=str(none))
    except Exception as mistake:
        # What is odd about one cluster's pods must not keep the other passes from their work.
        log.error("consolidation pass failed", error=repr(mistake), exc_info=True)
        return ConsolidationPass(now, why=f"failed: {mistake!r}")
    log.info(
        "consolidation pass",
        nodes=change.nodes_before,
        after=change.nodes_after,
        at_least=change.nodes_bound,
        moves=len(found.plan.moves),
        seconds=round(found.seconds, 3),
    )
    return ConsolidationPass(now, replace(found.plan, fleet=change), "", found.seconds, snapshot.node_autoscaler)
