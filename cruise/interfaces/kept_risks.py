"""What nodes keep of a resource, why, and how well the stated risk was kept, in a sentence."""

from cruise.decisions.sizing.headroom.risk_level import REPORTED_DAYS, KeptRisk
from cruise.domain.resources import ResourceName
from cruise.interfaces.amounts import percent_text


def kept_risk_text(resource: ResourceName, kept: KeptRisk) -> str:
    """Return the sentence for one resource."""
    name = "CPU" if resource is ResourceName.CPU else "memory"
    seen = "too few intervals to say how it is kept"
    if kept.is_known:
        word = "not kept" if not kept.is_kept else "unspent" if kept.is_unspent else "kept"
        seen = f"{word}, {percent_text(kept.observed)} % of {kept.intervals:,} intervals in {REPORTED_DAYS} days"
    return (
        f"{name}: the use of the last hour and {kept.level:.2f} times the rise expected from there; "
        f"risk asked {percent_text(kept.asked)} %: {seen}"
    )
