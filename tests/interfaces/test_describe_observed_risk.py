from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from cruise.decisions.sizing.headroom_level import ObservedRisk
from cruise.domain.resources import ResourceName, Resources
from cruise.interfaces.demo_screen import ClusterTotals, DemoFrame, render_demo_summary
from cruise.interfaces.reasons import describe_observed_risk

CPU, MEMORY = ResourceName.CPU, ResourceName.MEMORY
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        (
            ObservedRisk(0.07, 0.4, 1000, 50),
            "stated risk 7.00 %, observed 5.00 % of 1,000 intervals in 7 days (within)",
        ),
        (ObservedRisk(0.07, 0.4, 1000, 80), "observed 8.00 % of 1,000 intervals in 7 days (above)"),
        (ObservedRisk(0.07, 0.4, 1000, 10), "observed 1.00 % of 1,000 intervals in 7 days (unspent)"),
        (ObservedRisk(0.01, 1.0, 100, 0), "stated risk 1.00 %, too few intervals for an observed risk"),
    ],
)
def test_what_a_node_keeps_why_and_how_the_promise_was_kept_is_a_sentence(kept: ObservedRisk, expected: str) -> None:
    found = describe_observed_risk(CPU, kept)
    assert found.startswith(f"CPU: nodes keep the last hour's usage and {kept.level:.2f} times the expected rise")
    assert expected in found


def test_the_permitted_shortage_at_a_negative_level_is_described_in_a_sentence() -> None:
    found = describe_observed_risk(CPU, ObservedRisk(0.07, -0.2, 1000, 50))
    assert found.startswith(
        "CPU: nodes keep the last hour's usage, and may request 10.0 % less before they grow; stated"
    )


@pytest.mark.parametrize("width", [80, 160])
def test_the_demo_ends_with_what_nodes_keep(width: int) -> None:
    some = Resources(1000, 1 << 30)
    tally = ClusterTotals(some, some, some, 0)
    risks = {CPU: ObservedRisk(0.07, 0.4, 1000, 50), MEMORY: ObservedRisk(0.01, 1.0, 1000, 9)}
    frame = DemoFrame(
        START, timedelta(), None, timedelta(hours=1), 300, 300, "Postgres", (), tally, tally, tally, 0, (), risks
    )
    console = Console(file=StringIO(), width=width)
    with console.capture() as capture:
        console.print(render_demo_summary(frame))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    told = lines[lines.index("Headroom and observed risk of the nodes") + 1 :]
    assert all(line.startswith("  ") and len(line) <= width for line in told)
    assert len(told) == (4 if width == 80 else 2)
    assert "observed 5.00 % of 1,000 intervals" in " ".join(told)
