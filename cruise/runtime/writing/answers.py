"""What the API server's answers to a write mean: an outcome, and what is remembered of a refusal."""

from dataclasses import dataclass

from cruise.domain.actions import Action, EvictPod, Reason, ResizePod
from cruise.errors import Refused, Throttled

# The API server's causes, as the adapters name them.
NODE_CAPACITY = "NodeCapacity"
QUOTA_EXCEEDED = "QuotaExceeded"
MULTIPLE_BUDGETS = "MultipleDisruptionBudgets"
DISRUPTION_BUDGET = "DisruptionBudget"
# The client may not do this at all, whatever the pod.
NO_RIGHT = frozenset({"Unauthorized", "Forbidden"})
# An admission webhook does not answer: that is about some objects, and no reason to slow down for all.
WEBHOOK_FAILED = "WebhookFailed"

_UNEVICTABLE = {MULTIPLE_BUDGETS: Reason.UNMOVABLE, DISRUPTION_BUDGET: Reason.DISRUPTION_BUDGET}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a write was not done.

    `remembered_as` is the reason under which the same resize is not tried again, None where it may be; `of_verb` says
    that no action of its kind will be let through.
    """

    reason: Reason
    remembered_as: Reason | None = None
    of_verb: bool = False


def refusal_of(action: Action, error: Refused) -> Refusal:
    """Return what a refusal for good means for an action."""
    if error.cause in NO_RIGHT:
        return Refusal(Reason.FORBIDDEN, of_verb=True)
    if isinstance(action, EvictPod):
        return Refusal(_UNEVICTABLE.get(error.cause, Reason.REFUSED))
    if not isinstance(action, ResizePod):
        return Refusal(Reason.REFUSED)
    if error.cause == QUOTA_EXCEEDED:
        return Refusal(Reason.QUOTA)
    if error.cause == NODE_CAPACITY:
        return Refusal(Reason.RESIZE_INFEASIBLE, Reason.RESIZE_INFEASIBLE)
    return Refusal(Reason.REFUSED, Reason.REFUSED)


def forbids_disruption(action: Action, error: Throttled) -> bool:
    """Tell a disruption budget's refusal from an overloaded server's: both are answered 429.

    Older servers give a budget's refusal without its cause, and an overloaded one says when to come again.
    """
    if not isinstance(action, EvictPod):
        return False
    return error.cause == DISRUPTION_BUDGET or (not error.cause and error.retry_after_seconds is None)
