"""What a backtest's figures are called, for people: headings, units, and what is said beside them."""

from collections.abc import Iterator, Sequence

from cruise.decisions.pareto import AXES, NEVER_RIVALS
from cruise.domain.backtest import BacktestResult, PolicyScore
from cruise.domain.rules import DEFAULT_RULES
from cruise.interfaces.amounts import cores_text, count_text, memory_text, percent_text, rate_text
from cruise.interfaces.backtest.report import ReplayTerms

DEFINITIONS = (
    "Slack: the share of what was requested that was not used. Starved: the share of container-minutes in which a "
    "container used more CPU than it requested while its node's use was over its allocatable. Short: the share of "
    "nodes' intervals in which use passed the requests. Kills are for 1,000 container-days (C·D), resizes for one, "
    "evictions for 1,000 pod-days (P·D); reversed are the resizes that undo the one before. Evictions are those that "
    "the policy wanted; moves are the evictions of consolidation, which empties a node where its pods have room "
    "elsewhere as they would be created; nodes by requests: the mean where it judges by the requests that they "
    "have."
)
PROGRESS_NOTE = (
    "Way to the bound: how much of the way from VPA's slack to the clairvoyant's a policy has come. 100 % is what pods "
    "that share a node can reach when the future is known and they are resized every 4 hours"
)
_INSTALLED, _BEFORE = "cruise", "as-requested"


def dominated_note() -> str:
    """Say what the mark of a dominated policy means."""
    axes = list(AXES)
    return (
        f"another policy (the bounds {names_text(sorted(NEVER_RIVALS))} apart) is as good or better on "
        f"{', '.join(axes[:-1])} and {axes[-1]}, and better on one of them"
    )


def recording_line(result: BacktestResult) -> str:
    """Say what was replayed, and on what."""
    cpu, memory = result.node.cpu_millicores, result.node.memory_bytes
    length = f"{result.days:.3g} days" if result.days >= 2 else f"{result.days * 24:.3g} hours"
    cores = cores_text(cpu).removesuffix(".0")
    size = memory_text(memory).replace(".0Gi", "Gi")
    return (
        f"{count_text(result.containers, 'container')}, {length}, a sample every {seconds_text(result.step_seconds)}; "
        f"nodes of {cores} cores and {size}"
    )


def terms_line(terms: ReplayTerms) -> str:
    """Say under which terms."""
    arrivals = "their first sample" if terms.arrivals == "first-sample" else "the start"
    half = {None: "", "tune": "; only the half of the series to tune on"}.get(
        terms.half, "; only the half of the series to report on"
    )
    rules = "" if terms.rules == DEFAULT_RULES.name else f"; rules {terms.rules}"
    return (
        f"a pass every {seconds_text(terms.pass_seconds)}; pods arrive with {arrivals}; "
        f"seed {terms.seed}, risk {terms.risk:g}{rules}{half}"
    )


def seconds_text(seconds: int) -> str:
    """Write a short time: `45 s`, `5 min`."""
    return f"{seconds // 60} min" if seconds >= 60 and not seconds % 60 else f"{seconds} s"


def verdict(result: BacktestResult) -> str | None:
    """Say in a sentence what the installed policy does beside what was requested, None without both."""
    now, after = result.policies.get(_BEFORE), result.policies.get(_INSTALLED)
    if now is None or after is None:
        return None
    slack = [f"CPU slack {percent_text(now.cpu.relative_slack)} % → {percent_text(after.cpu.relative_slack)} %"]
    if now.memory is not None and after.memory is not None:
        before, then = now.memory.relative_slack, after.memory.relative_slack
        slack.append(f"memory slack {percent_text(before)} % → {percent_text(then)} %")
    nodes = f"{rate_text(now.nodes_mean)} → {rate_text(after.nodes_mean)} nodes on average"
    return f"{_BEFORE} → {_INSTALLED}: {nodes}, {', '.join(slack)}."


def warnings(result: BacktestResult, watched: str | None = None) -> Iterator[str]:
    """Yield what a reader has to know before the figures are believed."""
    if any(score.memory is None for score in result.policies.values()):
        yield "memory was not recorded: nothing is said about it, and a node is full when its CPU is"
    if result.capped_containers:
        one = result.capped_containers == 1
        yield (
            f"{count_text(result.capped_containers, 'container')} requested more than a node has, and "
            f"{'is' if one else 'are'} replayed as if {'it' if one else 'they'} had requested a whole one"
        )
    late = [name for name, score in result.policies.items() if score.pending_pod_minutes > 0]
    if late:
        minutes = max(result.policies[name].pending_pod_minutes for name in late)
        yield f"pods waited for a node under {names_text(late)}, at most {minutes:,.0f} pod-minutes in all"
    if watched is not None and not any(map(is_shown, result.policies.values())):
        yield f"nothing ever ran on a node {watched}"


def is_shown(score: PolicyScore) -> bool:
    """Tell whether a pod ever ran on the node whose time line is wanted."""
    line = score.time_line
    return line is not None and bool(line.requested_cpu_millicores.any() or line.peak_cpu_millicores.any())


def names_text(names: Sequence[str]) -> str:
    """Write names as a list in words."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])
