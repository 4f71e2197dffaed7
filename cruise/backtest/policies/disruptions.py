"""The eviction budgets of a replay, kept by the rule that keeps them on a live cluster."""

from collections import deque

from cruise.backtest.policies.replayed_pods import ReplayedPods
from cruise.backtest.replay.policy import ClusterView
from cruise.domain.actions import EvictPod, Outcome, Reason, Verdict
from cruise.domain.policy import Policy
from cruise.runtime.writing.evictions import BUDGET_WINDOW, EvictionBudgets
from cruise.simulation.cluster.timeline import utc


class Disruptions:
    """What the evictions of the last hour leave of the budgets."""

    def __init__(self, pods: ReplayedPods, policy: Policy) -> None:
        self._pods = pods
        self._policy = policy
        self._spent: deque[Outcome] = deque()

    def spend(self, action: EvictPod, view: ClusterView) -> Reason | None:
        """Spend an eviction, which is done then; return the reason where a budget has none left."""
        now = utc(view.at)
        while self._spent and self._spent[0].at < now - BUDGET_WINDOW:
            self._spent.popleft()
        # Only pods of the same node or workload matter to it, and there may be thousands of others.
        around = self._pods.snapshot(view, self._pods.around(action.namespace, action.workload, action.node, view))
        reason = EvictionBudgets(around, self._policy, now).over_budget(action, list(self._spent))
        if reason is None:
            self._spent.append(Outcome(now, action, Verdict.DONE, action.reason))
        return reason
