"""What HPAs did under each policy of a backtest, for the terminal and the page."""

from collections.abc import Sequence

from cruise.domain.backtest import AutoscalingScore, BacktestResult, PolicyScore
from cruise.interfaces.text import format_percent

# The headings of a wide and of a narrow table, in two lines.
AUTOSCALING_HEADINGS = (
    ("CPU RECLAIMED\nAT MINIMUM %", "RECL\nCPU%"),
    ("POD-HOURS\n", "POD-\nHOURS"),
    ("POD-HOURS\nUNCHANGED", "UN-\nCHANGED"),
    ("SCALE\nEVENTS", "SCALE\nEVENTS"),
    ("SCALE EVENTS\nUNCHANGED", "UN-\nCHANGED"),
    ("OTHER REPLICAS,\nMINUTES", "OTHER\nMINUTES"),
    ("\n% OF TIME", "%"),
    ("WITHOUT A NEW\nMAXIMUM", "NO NEW\nMAXIMUM"),
)
AUTOSCALING_NOTE = (
    "HPAs: each workload has one on CPU utilization, which divides by the requests that the policy sets. CPU reclaimed "
    "at minimum: of the requests while the HPA would be at its minimum with the requests as they were. Unchanged: with "
    "the requests as they were. Other replicas: minutes of workloads with another number of replicas than unchanged; "
    "without a new maximum: those that did not begin within an hour of use above all of the 7 days before"
)


def has_autoscaling(result: BacktestResult) -> bool:
    """Return whether the workloads of a replay had HPAs."""
    return any(score.autoscaling is not None for score in result.policies.values())


def format_autoscaling(score: PolicyScore) -> Sequence[str]:
    """Return what HPAs did as text, in the order of the headings."""
    one = score.autoscaling or AutoscalingScore()
    share = one.differing_minutes / one.workload_minutes if one.workload_minutes else 0.0
    return (
        format_percent(one.reclaimed_share_at_minimum),
        f"{one.replica_minutes / 60:,.0f}",
        f"{one.unchanged_replica_minutes / 60:,.0f}",
        f"{one.scale_events:,}",
        f"{one.unchanged_scale_events:,}",
        f"{one.differing_minutes:,.0f}",
        format_percent(share),
        f"{one.unexplained_minutes:,.0f}",
    )
