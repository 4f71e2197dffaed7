"""What became of a pod that was to be put back, in words that scripts may go by."""

from cruise.domain.actions import Outcome, Reason, Verdict
from cruise.domain.details import Detail

_WAITS = (Reason.WAITING_FOR_ROOM, Reason.THROTTLED, Reason.CHANGED_SINCE, Reason.COOLING_DOWN)
DONE, LATER, NEVER = "put back", "waits", "not possible"


def state_of(outcome: Outcome) -> str:
    """Return what became of one pod: `put back`, `waits` (another revert may do it or the rest) or `not possible`."""
    if outcome.verdict is Verdict.DONE:
        return LATER if Detail.GROWTH_WAITS in outcome.detail.split("; ") else DONE
    again = outcome.verdict is Verdict.FAILED or outcome.reason in _WAITS
    return LATER if again else NEVER
