"""Turns the output of `cruise backtest --format json` into the page of results."""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cruise.domain.prices import DOLLAR, format_money
from cruise.interfaces.backtest.table import (
    SLACK_REDUCTION_NOTE,
    describe_dominated_mark,
    format_factor,
    format_seconds,
)
from cruise.interfaces.text import format_cores, format_count, format_memory, format_percent, format_rate

_COLUMNS: Sequence[tuple[str, Callable[[Mapping[str, Any]], str]]] = (
    ("CPU slack %", lambda policy: _percent(policy["cpu"]["relativeSlack"])),
    ("memory slack %", lambda policy: _percent(policy["memory"]["relativeSlack"])),
    ("CPU starved %", lambda policy: _percent(policy["cpu"]["starvedShare"])),
    ("CPU short %", lambda policy: _percent(policy["cpu"]["shortShare"])),
    ("memory short %", lambda policy: _percent(policy["memory"]["shortShare"])),
    ("OOM kills / 1,000 c·d", lambda policy: _rate(policy["memory"]["oomPer1000ContainerDays"])),
    ("resizes / c·d", lambda policy: _rate(policy["resizesPerContainerDay"])),
    ("reversed %", lambda policy: _percent(policy["resizeReversalShare"])),
    ("own evictions / 1,000 p·d", lambda policy: _rate(policy["ownEvictionsPer1000PodDays"])),
    ("moves / 1,000 p·d", lambda policy: _rate(policy["consolidationMovesPer1000PodDays"])),
    ("nodes mean", lambda policy: _rate(policy["nodesMean"])),
    ("peak", lambda policy: f"{policy['nodesPeak']:,}"),
    ("way to the bound, CPU %", lambda policy: _percent(policy["slackReduction"]["cpu"])),
    ("memory %", lambda policy: _percent(policy["slackReduction"]["memory"])),
)
_CAUSES = ("cpuSlack", "memorySlack", "starvation", "oomKills", "evictions", "resizes")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "\\|"}


def results_markdown(document: Mapping[str, Any]) -> str:
    """Return the page: the recordings, and one table with a row per trace and policy.

    `document` is what `cruise backtest --format json` prints, for one trace or several. Raises KeyError for another.
    """
    traces: Sequence[Mapping[str, Any]] = document["traces"] if "traces" in document else [document]
    return "\n".join(_lines(traces)) + "\n"


def _lines(traces: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield "# Backtest: all policies on all traces"
    yield ""
    yield "Made by `make backtest-docs`, which runs `cruise backtest`; [backtest.md](backtest.md) says what is"
    yield "simulated, what the columns mean and where the policies are from. c·d: container-days, p·d: pod-days."
    yield ""
    for trace in traces:
        yield f"- {_about(trace)}"
    yield ""
    yield f"| trace | policy | {' | '.join(heading for heading, _ in _COLUMNS)} |"
    yield f"|---|---|{'---:|' * len(_COLUMNS)}"
    for trace in traces:
        for name, policy in trace["policies"].items():
            label = (f"**{name}**" if name == "cruise" else name) + (" ×" if policy["dominatedBy"] else "")
            yield f"| {_plain(trace['trace'])} | {label} | {' | '.join(write(policy) for _, write in _COLUMNS)} |"
    yield ""
    yield f"×, dominated: {describe_dominated_mark()}."
    yield ""
    yield f"{SLACK_REDUCTION_NOTE}."
    yield ""
    yield "## Cost"
    yield ""
    yield "What 1,000 container-days cost at the prices of [backtest.md](backtest.md#the-cost-of-a-policy),"
    yield "and each cause's share of it in percent."
    yield ""
    yield "| trace | policy | cost | CPU slack | memory slack | starvation | kills | own evictions | resizes |"
    yield f"|---|---|{'---:|' * (1 + len(_CAUSES))}"
    for trace in traces:
        for name, policy in trace["policies"].items():
            label = f"**{name}**" if name == "cruise" else name
            yield f"| {_plain(trace['trace'])} | {label} | {' | '.join(_costs(policy))} |"
    yield ""
    yield "What each price × 3 and ÷ 3 changes in the order of the policies:"
    yield ""
    for trace in traces:
        yield f"- **{_plain(trace['trace'])}**, the cheapest first: {', '.join(trace['objective']['order'])}."
        for change in trace["objective"]["orderChanges"]:
            swaps = "; ".join(f"{swap['cheaper']} before {swap['dearer']}" for swap in change["swaps"])
            yield f"  - `{change['price']}` {format_factor(change['factor'])}: {swaps}."


def _costs(policy: Mapping[str, Any]) -> Iterator[str]:
    total, parts = policy["costPer1000ContainerDays"], policy["costByCause"]
    yield format_money(total, DOLLAR)
    for cause in _CAUSES:
        yield _percent(parts[cause] / total if total > 0 else None)


def _about(trace: Mapping[str, Any]) -> str:
    terms, node = trace["terms"], trace["node"]
    length = f"{trace['days']:.3g} days" if trace["days"] >= 2 else f"{24 * trace['days']:.3g} hours"
    capped = trace["cappedContainers"]
    cut = f", {capped} of them with requests cut to a node" if capped else ""
    half = f", half `{terms['half']}` of the series" if terms["half"] else ""
    cores = format_cores(node["cpuMillicores"]).removesuffix(".0")
    memory = format_memory(node["memoryBytes"]).replace(".0Gi", "Gi")
    return (
        f"**{_plain(trace['trace'])}**: {format_count(trace['containers'], 'container')}{cut}{half}, {length}, "
        f"a sample every {format_seconds(trace['stepSeconds'])}; nodes of {cores} cores and {memory}, "
        f"a pass every {format_seconds(terms['passSeconds'])}, risk {terms['risk']:g}, seed {terms['seed']}."
    )


def _plain(text: str) -> str:
    return "".join(_ENTITIES.get(letter, letter) for letter in text)


def _percent(share: float | None) -> str:
    return format_percent(math.nan if share is None else share)


def _rate(rate: float | None) -> str:
    return format_rate(math.nan if rate is None else rate)


if __name__ == "__main__":
    sys.stdout.write(results_markdown(json.load(sys.stdin)))
