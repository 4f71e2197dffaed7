"""A day of missed, late and irregular scrapes: no pod is resized, and no false usage is accepted."""

from datetime import timedelta

import numpy as np

from cruise.app.serve.controller import Controller
from cruise.domain.arrays import BoolArray, Float64Array, Int64Array
from cruise.domain.policy import Mode, Policy
from cruise.domain.resources import MEBIBYTE
from cruise.domain.usage import StatisticsTable
from cruise.runtime.usage.usage_reader import UsageReadingSettings
from cruise.simulation.cluster.state import SimulationSettings
from cruise.simulation.store import InMemoryStore
from cruise.simulation.usage_source import ScrapeFaults, SimulatedUsageSource
from tests.simulation.scenes import START, AdjustableDemand, cluster, container, node, run, template, workload

BY_MINUTE = SimulationSettings(step_seconds=60)
USE = {"small": (40.0, 60.0), "web": (300.0, 400.0), "db": (1200.0, 2000.0)}
HOURS = 24
SETTLED_HOURS = 2
# No pod rests after a resize: that would hide for hours what holes move, and the first sizes need two writes.
POLICY = Policy(mode=Mode.FULL, shrink_cooldown=timedelta(0))
LATE = 120


def missed(name: str, times: Int64Array) -> BoolArray:
    """A twentieth of the scrapes of n1, and every two hours 1 to 9 in a row; the server is away for 3 and 50 min."""
    minutes = (times - int(START.timestamp())) // 60
    away = ((minutes >= 700) & (minutes < 703)) | ((minutes >= 1000) & (minutes < 1050))
    if name != "n1":
        return np.asarray(away, dtype=np.bool_)
    at_random = np.array([np.random.default_rng(int(at)).random() < 0.05 for at in minutes % 100_000])
    return np.asarray(away | at_random | (minutes % 120 < 1 + minutes // 120 % 9), dtype=np.bool_)


def ages(name: str, times: Int64Array) -> Float64Array:
    """Scrapes of n2 come anywhere within the minute before."""
    spread = 50.0 if name == "n2" else 0.0
    return np.array([spread * np.random.default_rng(int(at // 60)).random() for at in times])


def off(table: StatisticsTable, at: int) -> dict[str, float]:
    """By workload, how far the statistics of pods that are acted on are from the truth, as a share."""
    found: dict[str, float] = {}
    for row, key in enumerate(table.keys):
        if not key.pod or at - int(table.updated_at[row]) > 900 or table.rejected_percent[row] > 10:
            continue
        cpu, mebibytes = USE[key.workload.partition("/")[2]]
        figures = (
            (table.cpu_base_millicores, cpu),
            (table.cpu_peak_millicores, cpu),
            (table.memory_base_bytes, mebibytes * MEBIBYTE),
            (table.memory_peak_bytes, mebibytes * MEBIBYTE),
        )
        wrong = max(abs(int(column[row]) - truth) / truth for column, truth in figures)
        found[key.workload] = max(found.get(key.workload, 0.0), wrong)
    return found


async def test_a_day_of_holes_moves_no_request_and_leaves_every_statistic_true_or_unused() -> None:
    kinds = [
        workload(name, template(container(1000, 1024)), AdjustableDemand(cpu, mebibytes), replicas=3)
        for name, (cpu, mebibytes) in USE.items()
    ]
    world = cluster(kinds, [node("n1", 6000, 12_288), node("n2", 6000, 12_288)], BY_MINUTE)
    usage = SimulatedUsageSource(world, ScrapeFaults(missed, LATE, ages))
    reading = UsageReadingSettings(scrape_delay_seconds=LATE + 30)
    controller = Controller(world, usage, InMemoryStore(), POLICY, lambda: world.now, reading)
    settled: dict[str, tuple[int | None, int | None]] = {}
    moved, known, wrong = [], 0, 0.0
    for number in range(HOURS * 12):
        run(world, 300)
        await controller.refresh_statistics()
        await controller.rightsize()
        assert controller.activity.statistics is not None
        found = off(controller.activity.statistics, int(world.now.timestamp()))
        known, wrong = known + len(found), max(wrong, *found.values(), 0.0)
        sizes = {
            pod.name: (pod.containers[0].requests.cpu_millicores, pod.containers[0].requests.memory_bytes)
            for pod in (await world.snapshot()).pods
        }
        if number < SETTLED_HOURS * 12:
            settled = sizes
        elif sizes != settled:
            moved.append(world.now - START)
    assert moved == []
    assert wrong <= 0.1
    # What was away for 50 minutes is unknown for that long, and nothing else is.
    assert known > 0.9 * HOURS * 12 * len(USE)
    assert timedelta(hours=HOURS) == world.now - START
