"""The judge's whole opinion of a proposal."""

from collections.abc import Mapping

from cruise.decisions.packing.judging.accounts import find_wrong_accounts
from cruise.decisions.packing.judging.leaving import Leaving, find_broken_budgets, find_overdrawn
from cruise.decisions.packing.judging.replay import Replay
from cruise.decisions.packing.judging.sizing import Demand
from cruise.decisions.scheduling.board import PodKey, key_of
from cruise.domain.cluster import Snapshot
from cruise.domain.overrides import StoredOverrides
from cruise.domain.packing import UNLIMITED, Allowance, Proposal
from cruise.domain.policy import Mode, Policy

FULL_POLICY = Policy(mode=Mode.FULL)
NO_STORED_OVERRIDES: StoredOverrides = {}


def find_objections(
    snapshot: Snapshot,
    proposal: Proposal,
    *,
    demands: Mapping[PodKey, Demand] | None = None,
    policy: Policy = FULL_POLICY,
    stored: StoredOverrides = NO_STORED_OVERRIDES,
    allowance: Allowance = UNLIMITED,
) -> tuple[str, ...]:
    """Say what is wrong with a plan, a line each; none for a plan that may be carried out as it stands.

    The plan is replayed on the snapshot's own pods and nodes, stage by stage, against every filter of kube-scheduler
    and every rule on what cruise may evict. `demands` are those by (namespace, pod) of pods that are sized, from
    which each node's shared headroom is checked; a pod without one needs what it counts. `allowance` is what the
    eviction budgets leave to the whole plan.
    """
    strangers = _find_strangers(snapshot, proposal)
    if strangers:
        return strangers
    leaving = Leaving(snapshot, policy, stored)
    replay = Replay(snapshot, proposal, leaving)
    replay.run()
    # What empties nodes goes on for hours: a budget allows again what it did once a replacement is ready.
    at_once = [replay.gone] if proposal.fleet is None else replay.gone_by_stage
    broken = [line for gone in at_once for line in find_broken_budgets(leaving, gone)]
    objections = [*replay.objections, *broken]
    objections += find_overdrawn(allowance, replay.gone)
    if demands is not None:
        objections += replay.lacks_of_headroom(demands)
    return (*objections, *find_wrong_accounts(snapshot, proposal))


def _find_strangers(snapshot: Snapshot, proposal: Proposal) -> tuple[str, ...]:
    known = {key_of(pod) for pod in snapshot.pods}
    lists = (proposal.placed, proposal.moves, proposal.preempted, proposal.resizes, proposal.unplaced)
    named = {one.key for listed in lists for one in listed}
    return tuple(f"pod {namespace}/{name} does not exist" for namespace, name in sorted(named - known))
