"""Compares the replica of VPA with VPA itself on the same recordings.

    python -m benchmarks.bench_arena DIR…

prints the table of docs/backtest.md for trace directories. BENCH_TRACE names one for `make bench`; by default a
generated recording of two days is replayed. Needs Go, and some minutes for the first build.
"""

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.recordings import make_recording
from benchmarks.table import BenchmarkRow
from benchmarks.vpa_arena import RealVpa, ShadowedPolicy, running_vpa
from cruise.backtest.recordings.recording import UsageRecording, load_trace
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.backtest import PolicyScore
from cruise.interfaces.text import format_percent, format_rate

NAME = "arena"
OPTIONS = ReplayOptions()
TRACE_VARIABLE = "BENCH_TRACE"


@dataclass(frozen=True, slots=True)
class ArenaResult:
    """One recording: the shares of equal decisions and targets, and the scores of the replica and of VPA."""

    trace: str
    equal_decisions: float
    compared: int
    equal_cpu: float
    equal_memory: float | None
    replica: PolicyScore
    real: PolicyScore


def run() -> list[BenchmarkRow]:
    """Measure the shares of equal decisions and targets, and the scores of VPA and the replica."""
    named = os.environ.get(TRACE_VARIABLE)
    recording = load(Path(named)) if named else make_recording(40, 2, step_seconds=300)
    found = compare(recording)
    shares = {"passes with equal decisions": found.equal_decisions, "equal CPU targets": found.equal_cpu}
    if found.equal_memory is not None:
        shares["equal memory targets"] = found.equal_memory
    rows = [
        BenchmarkRow(NAME, f"{found.trace}: {what}", 100 * share, "%", "all", share) for what, share in shares.items()
    ]
    for measure, real, replica in _figures(found):
        ratio = real / replica if replica else None
        rows.append(BenchmarkRow(NAME, f"{found.trace}: VPA's {measure}", real, "", "the replica", ratio))
    return rows


def load(directory: Path, days: float | None = None) -> UsageRecording:
    """Read a trace directory, or its first days."""
    recording = load_trace(directory, OPTIONS.pass_seconds)
    if days is None:
        return recording
    rows = int(days * 86400) // recording.step_seconds
    return replace(
        recording, cpu_millicores=recording.cpu_millicores[:rows], memory_bytes=recording.memory_bytes[:rows]
    )


def compare(recording: UsageRecording) -> ArenaResult:
    """Replay the replica with VPA observing, then VPA itself."""
    with running_vpa() as program:
        shadowed = ShadowedPolicy(recording, OPTIONS, program)
        replica = replay_policy(recording, shadowed, OPTIONS)
    real = replay_real(recording)
    compared = shadowed.compared
    return ArenaResult(
        trace=recording.name,
        equal_decisions=shadowed.equal_decisions / shadowed.passes,
        compared=compared,
        equal_cpu=shadowed.equal_cpu / compared,
        equal_memory=shadowed.equal_memory / compared if recording.has_memory else None,
        replica=replica,
        real=real,
    )


def replay_real(recording: UsageRecording, *, min_replicas: int = 1, zero_bytes: bool = False) -> PolicyScore:
    """Replay VPA itself."""
    with running_vpa() as program:
        policy = RealVpa(recording, OPTIONS, program, min_replicas=min_replicas, zero_bytes=zero_bytes)
        return replay_policy(recording, policy, OPTIONS)


def _figures(found: ArenaResult) -> Iterator[tuple[str, float, float]]:
    """Yield each compared figure: its name, VPA's value, the replica's."""
    real, replica = found.real, found.replica
    yield "CPU slack", real.cpu.relative_slack, replica.cpu.relative_slack
    if real.memory is not None and replica.memory is not None:
        yield "memory slack", real.memory.relative_slack, replica.memory.relative_slack
        yield "kills", real.oom_per_1000_container_days, replica.oom_per_1000_container_days
    yield "resizes", real.resizes_per_container_day, replica.resizes_per_container_day
    yield "own evictions", real.own_evictions_per_1000_pod_days, replica.own_evictions_per_1000_pod_days
    yield "nodes", real.nodes_mean, replica.nodes_mean


def markdown(found: ArenaResult) -> str:
    """Return the row of a trace; each pair is VPA, then the replica."""
    pairs = {measure: (real, replica) for measure, real, replica in _figures(found)}
    cells = [found.trace, format_percent(found.equal_decisions), f"{found.compared:,}", format_percent(found.equal_cpu)]
    cells.append("–" if found.equal_memory is None else format_percent(found.equal_memory))
    for measure in ("CPU slack", "memory slack", "kills", "resizes", "own evictions", "nodes"):
        write = format_percent if measure.endswith("slack") else format_rate
        cells.append(", ".join(map(write, pairs[measure])) if measure in pairs else "–")
    return f"| {' | '.join(cells)} |"


def variant(trace: str, score: PolicyScore, what: str) -> str:
    """Return a line about VPA with another setting."""
    memory = "" if score.memory is None else f", memory slack {format_percent(score.memory.relative_slack)} %"
    return (
        f"{trace}, {what}: CPU slack {format_percent(score.cpu.relative_slack)} %{memory}, "
        f"{format_rate(score.oom_per_1000_container_days)} kills, "
        f"{format_rate(score.resizes_per_container_day)} resizes"
    )


def main(arguments: list[str] | None = None) -> None:
    """Print the table, and the effect of other settings."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_arena")
    parser.add_argument("traces", metavar="DIR", nargs="+", type=Path)
    parser.add_argument("--days", type=float, help="only the first days of each")
    parser.add_argument("--variants", action="store_true", help="also minReplicas 2, and uses of 0 bytes as recorded")
    chosen = parser.parse_args(arguments)
    for directory in chosen.traces:
        recording = load(directory, chosen.days)
        print(markdown(compare(recording)), flush=True)
        if chosen.variants:
            print(variant(recording.name, replay_real(recording, min_replicas=2), "minReplicas 2"), flush=True)
            if recording.has_memory:
                zero = replay_real(recording, zero_bytes=True)
                print(variant(recording.name, zero, "uses of 0 bytes as recorded"), flush=True)


if __name__ == "__main__":
    main()
