"""The score of a replay, from what was counted in it."""

from dataclasses import dataclass

import numpy as np

from cruise.backtest.recordings.recording import Recording
from cruise.backtest.replay.accounting import ResourceAccount
from cruise.backtest.replay.churn import Churn
from cruise.backtest.replay.options import ReplayOptions
from cruise.domain.arrays import Float64Array, Int64Array
from cruise.domain.backtest import ContainerScore, NodeTimeLine, PolicyScore
from cruise.domain.backtest_cells import Cells

WORST = 10
_GIBIBYTE = 1 << 30
_DAY_MINUTES = 1440


@dataclass(slots=True)
class Totals:
    """Minutes of the replay, and of running and pending containers and of nodes, each counted.

    `running_minutes` has one entry a container.
    """

    running_minutes: Float64Array
    minutes: float = 0.0
    container_minutes: float = 0.0
    node_minutes: float = 0.0
    pending_minutes: float = 0.0

    def add(self, minutes: float, running: Int64Array, nodes: int, pending: int) -> None:
        """Take in one interval, in which some containers ran."""
        self.minutes += minutes
        self.running_minutes[running] += minutes
        self.container_minutes += minutes * len(running)
        self.node_minutes += minutes * nodes
        self.pending_minutes += minutes * pending


def score_of(
    policy: str,
    recording: Recording,
    options: ReplayOptions,
    accounts: tuple[ResourceAccount, ResourceAccount | None],
    churn: Churn,
    totals: Totals,
    nodes_peak: int,
    time_line: NodeTimeLine,
    cells: Cells,
) -> PolicyScore:
    """Sum a replay up; `accounts` are those of CPU and memory."""
    cpu, memory = accounts
    days = totals.container_minutes / _DAY_MINUTES
    resizes = int(churn.resizes.sum())
    return PolicyScore(
        policy=policy,
        cpu=cpu.score(),
        memory=None if memory is None else memory.score(),
        oom_per_1000_container_days=_ratio(1000 * int(churn.kills.sum()), days),
        resizes_per_container_day=_ratio(resizes, days),
        resize_reversal_share=_ratio(churn.reversals, resizes),
        evictions_per_1000_pod_days=_ratio(1000 * int(churn.evictions.sum()), days),
        moves_per_1000_pod_days=_ratio(1000 * int(churn.moves.sum()), days),
        nodes_mean=_ratio(totals.node_minutes, totals.minutes),
        nodes_peak=nodes_peak,
        pending_pod_minutes=totals.pending_minutes,
        container_days=days,
        cost=_cost(options, totals.node_minutes / 60),
        worst=_worst(recording, options, cpu, memory, churn),
        time_line=time_line,
        cells=cells,
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _cost(options: ReplayOptions, node_hours: float) -> float | None:
    """Return what the nodes cost, None without any price: nodes are what is paid for, not requests."""
    if options.price_core_hour is None and options.price_gibibyte_hour is None:
        return None
    cpu = options.node.cpu_millicores / 1000 * (options.price_core_hour or 0.0)
    memory = options.node.memory_bytes / _GIBIBYTE * (options.price_gibibyte_hour or 0.0)
    return node_hours * (cpu + memory)


def _worst(
    recording: Recording, options: ReplayOptions, cpu: ResourceAccount, memory: ResourceAccount | None, churn: Churn
) -> tuple[ContainerScore, ...]:
    """Return the worst containers: most kills, then most starved, then most slack as shares of a node."""
    cpu_slack = cpu.mean_slack()
    memory_slack: Float64Array = np.zeros_like(cpu_slack) if memory is None else memory.mean_slack()
    starved = (cpu.starved if memory is None else cpu.starved + memory.starved) * recording.step_seconds / 60
    slack = cpu_slack / max(1, options.node.cpu_millicores) + memory_slack / max(1, options.node.memory_bytes)
    order = np.lexsort((-slack, -starved, -churn.kills))[:WORST]
    return tuple(
        ContainerScore(
            namespace=recording.containers[index].namespace,
            workload=str(recording.containers[index].workload),
            pod=recording.containers[index].pod,
            cpu_slack_millicores=float(cpu_slack[index]),
            memory_slack_bytes=float(memory_slack[index]),
            starved_minutes=float(starved[index]),
            oom_kills=int(churn.kills[index]),
            evictions=int(churn.evictions[index]),
            resizes=int(churn.resizes[index]),
        )
        for index in order.tolist()
    )
