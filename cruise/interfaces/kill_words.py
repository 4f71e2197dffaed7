"""Containers that were killed for lack of memory, in words."""

from collections.abc import Mapping
from datetime import datetime

from cruise.decisions.scan.remedies import Remedy
from cruise.decisions.scan.risks import Risk
from cruise.interfaces.amounts import age_text, count_text, memory_text

_REMEDIES: Mapping[Remedy, str] = {
    Remedy.RAISE_TEMPLATE_LIMIT: (
        "its limit is at its ceiling: raise the memory limit in the pod template, or look for a leak"
    ),
    Remedy.SIZE_TEMPLATE: "the next pod has the same limit unless the webhook or its template raises it: cruise export",
    Remedy.SIZE_OWNER: (
        "the next pod has the same limit unless the webhook raises it: raise it in the object that creates the pods"
    ),
    Remedy.SIZE_MANIFEST: "no controller creates it again: raise the memory limit in the manifest of the pod",
    Remedy.SIZE_INIT_CONTAINER: ("cruise does not size init containers: raise its memory limit in the pod template"),
}


def kill_words(risk: Risk, now: datetime) -> str:
    """Say in one line how a container was killed for lack of memory, and what a person has to do about it."""
    where = f"at {memory_text(risk.observed)}" if risk.observed else "without a limit of its own"
    when = age_text(now, risk.killed_at) if risk.killed_at is not None else "in the last 7 days"
    restarts = f", {count_text(risk.restarts, 'restart')}" if risk.restarts else ""
    remedy = f"; {_REMEDIES[risk.remedy]}" if risk.remedy is not None else ""
    return f"killed {where} {when}{restarts}{remedy}"
