"""The CPU of a pod's start, in an explanation: how it was decided, and when it is taken back."""

from datetime import datetime

from rich.table import Table

from cruise.decisions.admission.startup import StartupStep
from cruise.decisions.admission.startup_steps import StartupExplanation
from cruise.domain.startup_boosts import LONGEST_START, READY_TIME, StartupBoost
from cruise.domain.startup_cpu import write_startup_cpu
from cruise.interfaces.explain.size_steps import create_grid
from cruise.interfaces.reasons import describe_reason
from cruise.interfaces.text import JsonValue, format_cpu

_ENDS = (
    f"{READY_TIME.total_seconds():.0f} s after it is ready, at the latest "
    f"{LONGEST_START.total_seconds() / 60:.0f} min after its start"
)


def build_startup_table(startup: StartupExplanation, now: datetime) -> Table:
    """Return the boosts of this pod, and what a new pod would start with."""
    rows = create_grid(3)
    for boost in startup.boosts:
        rows.add_row(f"  {boost.container}", "now", _format_boost(boost))
    if startup.boosts:
        rows.add_row("", "taken back", _format_end(startup.ends_at, now))
    for step in startup.steps:
        stated = "earlier starts used" if step.stated.is_learned else f"{write_startup_cpu(step.stated)} asks"
        if step.boost is not None:
            rows.add_row(f"  {step.container}", "a new pod", f"{_format_boost(step.boost)}, as {stated}")
        elif step.reason is not None:
            reason = f"{step.reason.value}: {describe_reason(step.reason)}"
            rows.add_row(f"  {step.container}", "a new pod", f"its own size, not what {stated}: {reason}")
    return rows


def build_startup_document(startup: StartupExplanation | None) -> JsonValue:
    """Return the JSON form, None without a start to explain."""
    if startup is None:
        return None
    return {
        "endsAt": None if startup.ends_at is None else startup.ends_at.isoformat(),
        "boosts": [_boost(one) for one in startup.boosts],
        "newPod": [_step(one) for one in startup.steps],
    }


def _step(step: StartupStep) -> JsonValue:
    return {
        "container": step.container,
        "stated": write_startup_cpu(step.stated),
        "boost": None if step.boost is None else _boost(step.boost),
        "reason": None if step.reason is None else step.reason.value,
    }


def _boost(boost: StartupBoost) -> JsonValue:
    return {
        "container": boost.container,
        "boostedCpuMillicores": boost.boosted_request,
        "boostedCpuLimitMillicores": boost.boosted_limit,
        "cpuMillicores": boost.request,
        "cpuLimitMillicores": boost.limit,
    }


def _format_boost(boost: StartupBoost) -> str:
    text = f"{format_cpu(boost.boosted_request)} instead of {format_cpu(boost.request)}"
    if boost.limit is None or boost.boosted_limit in (None, boost.limit):
        return text
    return f"{text}, limit {format_cpu(boost.boosted_limit)} instead of {format_cpu(boost.limit)}"


def _format_end(ends_at: datetime | None, now: datetime) -> str:
    if ends_at is None:
        return _ENDS
    return f"at {ends_at:%H:%M:%S} UTC" if ends_at > now else "now due"
