"""The eviction budgets of a replay, kept by the guard that keeps them on a live cluster."""

from collections import deque
from datetime import timedelta

from cruise.backtest.policies.replayed_pods import ReplayedPods
from cruise.backtest.replay.sizing import Fleet
from cruise.domain.actions import EvictPod, Outcome, Reason, Verdict
from cruise.domain.policy import Policy
from cruise.runtime.writing.gate import Gate
from cruise.runtime.writing.guards import Guards
from cruise.simulation.cluster.timeline import utc

_WINDOW = timedelta(hours=1)


class Disruptions:
    """What the evictions of the last hour leave of the budgets."""

    def __init__(self, pods: ReplayedPods, policy: Policy) -> None:
        self._pods = pods
        self._policy = policy
        self._gate = Gate()
        self._spent: deque[Outcome] = deque()

    def spend(self, action: EvictPod, fleet: Fleet) -> Reason | None:
        """Spend an eviction, which is done then; return the reason where a budget has none left."""
        now = utc(fleet.at)
        while self._spent and self._spent[0].at < now - _WINDOW:
            self._spent.popleft()
        # Only pods of the same node or workload matter to it, and there may be thousands of others.
        around = self._pods.snapshot(fleet, self._pods.around(action.namespace, action.workload, action.node, fleet))
        guards = Guards([action], around, self._policy, self._gate, now)
        reason = guards.over_budget(action, list(self._spent))
        if reason is None:
            self._spent.append(Outcome(now, action, Verdict.DONE, action.reason))
        return reason
