"""What became of the forecasts of nodes on recorded usage: what every headroom model is judged by, and learns from.

Series drawn at random make a node, and are drawn anew every day, as pods move. At every interval each node is forecast
from the statistics of that time, by the controller's own functions, and meets the largest summed demand of the next.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cruise.backtest.policies.statistics import ReplayedStatistics
from cruise.backtest.recordings.recording import Recording
from cruise.backtest.recordings.traces import load_trace
from cruise.decisions.sizing.headroom.joint_peak import JointPeak
from cruise.decisions.sizing.headroom.model import Headroom
from cruise.decisions.sizing.headroom.past_demand import PastDemand
from cruise.decisions.sizing.headroom.risk import Forecast, Risk, forecast_of
from cruise.decisions.sizing.recommendation import Demand
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.policy import Policy
from cruise.domain.resources import ResourceName
from cruise.domain.usage import StatisticColumns

PASS_SECONDS = 300
DAY_SECONDS = 86400
# Small nodes and large ones, as clusters have them.
PODS = (5, 10, 20, 40)


@dataclass(frozen=True, slots=True)
class Outcomes:
    """One resource of one trace: matrices (passes, nodes), `extras` of model risk (passes, nodes, 3).

    `at` is the time of each pass, `start` that of the trace. `largest` and `mean` are the summed demand of the interval
    after the pass, `single` is the largest single headroom, `joint` what model joint-peak has.
    """

    trace: str
    resource: ResourceName
    start: int
    at: Int64Array
    base: Int64Array
    single: Int64Array
    joint: Int64Array
    extras: Float64Array
    largest: Float64Array
    mean: Float64Array

    def forecast(self, number: int) -> Forecast:
        """Return what was expected at a pass."""
        return forecast_of(self.base[number], self.extras[number])

    def scores(self, number: int) -> Float64Array:
        """Return how far the demand after a pass went beyond what was expected."""
        return self.forecast(number).scores(self.largest[number])

    def of_nodes(self, chosen: slice) -> "Outcomes":
        """Return the outcomes of some nodes."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        return replace(self, **{name: one[:, chosen] for name, one in found.items() if np.ndim(one) > 1})


@dataclass(slots=True)
class Tally:
    """Intervals of nodes, how many were short, and the sums of what was used and what was there."""

    intervals: int = 0
    short: int = 0
    used: float = 0.0
    had: float = 0.0

    @property
    def share(self) -> float:
        """The share of intervals in which demand passed what a node had."""
        return self.short / max(self.intervals, 1)

    @property
    def slack(self) -> float:
        """The share of what was there that was not used."""
        return 1 - self.used / self.had if self.had else 0.0

    def add(self, headroom: Int64Array, outcomes: Outcomes, number: int) -> None:
        """Count the interval after a pass, for every node."""
        had = outcomes.base[number] + headroom
        self.intervals += len(had)
        self.short += int((outcomes.largest[number] > had * (1 + 1e-9)).sum())
        self.used += float(outcomes.mean[number].sum())
        self.had += float(had.sum())


def outcomes_of(
    trace: Path, nodes: int, days: int, half: int | None = None, pods: Sequence[int] = PODS
) -> list[Outcomes]:
    """Replay a trace's statistics under `nodes` nodes drawn from it: one `Outcomes` for each resource that it has.

    Nodes have so many `pods`, in turn. `half` takes every other series by sorted name: 0 for tuning, 1 for what nothing
    was tuned on.
    """
    recording = load_trace(trace)
    recording = recording if half is None else half_of(recording, half)
    times: list[int] = []
    found: dict[ResourceName, list[tuple[Int64Array | Float64Array, ...]]] = {}
    for at, of_resources in _passes(recording, nodes, days, pods):
        times.append(at)
        for resource, columns in of_resources.items():
            found.setdefault(resource, []).append(columns)
    return [
        Outcomes(
            recording.name,
            resource,
            recording.start,
            np.array(times),
            *(np.array(column) for column in zip(*columns, strict=True)),
        )
        for resource, columns in found.items()
    ]


def half_of(recording: Recording, half: int) -> Recording:
    """Return every other series by sorted name."""
    names = [(one.namespace, str(one.workload), one.pod) for one in recording.containers]
    chosen = sorted(range(len(names)), key=names.__getitem__)[half::2]
    return replace(
        recording,
        containers=[recording.containers[one] for one in chosen],
        cpu_millicores=np.ascontiguousarray(recording.cpu_millicores[:, chosen]),
        memory_bytes=np.ascontiguousarray(recording.memory_bytes[:, chosen]),
    )


def _passes(
    recording: Recording, nodes: int, days: int, pods: Sequence[int]
) -> Iterator[tuple[int, dict[ResourceName, tuple[Int64Array | Float64Array, ...]]]]:
    policy, count = Policy(), len(recording.containers)
    statistics = ReplayedStatistics(recording, policy)
    per_pass = PASS_SECONDS // recording.step_seconds
    generator = np.random.default_rng(0)
    members, day = np.empty((0, 0)), -1
    resources = list(ResourceName) if recording.has_memory else [ResourceName.CPU]
    for number in range(min(len(recording.cpu_millicores) // per_pass - 1, days * DAY_SECONDS // PASS_SECONDS)):
        past = slice(number * per_pass, (number + 1) * per_pass)
        coming = slice(past.stop, past.stop + per_pass)
        at = recording.start + recording.step_seconds * (past.stop - 1)
        statistics.observe(at, recording.cpu_millicores[past], recording.memory_bytes[past])
        if at // DAY_SECONDS != day:
            members, day = _draw(generator, count, nodes, pods), at // DAY_SECONDS
        if at - recording.start < policy.new_workload_age.total_seconds():
            continue
        known, columns = statistics.of_containers(np.ones(count, dtype=np.bool_))
        usage, rows = statistics.recent()
        cpu, memory = statistics.peaks_of_hours()
        hours: dict[ResourceName, NDArray[np.floating]] = {ResourceName.CPU: cpu, ResourceName.MEMORY: memory}
        then = PastDemand.of(usage, rows[known], statistics.numbers[known], hours)
        found = {}
        for resource in resources:
            samples = recording.cpu_millicores if resource is ResourceName.CPU else recording.memory_bytes
            used = np.nan_to_num(samples[coming][:, known].astype(np.float64)) @ members[known]
            found[resource] = _of_pass(resource, _demand(columns, resource), then, members[known], used)
        yield at, found


def _of_pass(
    resource: ResourceName, demand: Demand, past: PastDemand, members: Float64Array, used: Float64Array
) -> tuple[Int64Array | Float64Array, ...]:
    def sums(model: Headroom) -> Float64Array:
        found: Float64Array = members.T @ model.extras(resource, np.arange(len(demand.base)), demand)
        return found

    base = (demand.base @ members).astype(np.int64)
    single = (members * demand.headroom[:, np.newaxis]).max(axis=0).astype(np.int64)
    joint_peak = JointPeak(past)
    joint = joint_peak.of_nodes(resource, base, single, sums(joint_peak))
    return base, single, joint, sums(Risk(past, {})), used.max(axis=0), used.mean(axis=0)


def _demand(columns: StatisticColumns, resource: ResourceName) -> Demand:
    if resource is ResourceName.CPU:
        base, peak = columns.cpu_base_millicores, columns.cpu_peak_millicores
    else:
        base, peak = columns.memory_base_bytes, columns.memory_peak_bytes
    nothing, everywhere = np.zeros_like(base), np.ones(len(base), dtype=np.bool_)
    headroom = np.maximum(peak - base, 0)
    return Demand(base, peak, base, headroom, peak, nothing, nothing, nothing, everywhere, nothing)


def _draw(generator: np.random.Generator, count: int, nodes: int, pods: Sequence[int]) -> Float64Array:
    """Return which containers each node has: (containers, nodes)."""
    members = np.zeros((count, nodes))
    for node in range(nodes):
        size = min(pods[node % len(pods)], max(2, count // 2))
        members[generator.choice(count, size, replace=False), node] = 1
    return members
