"""The writes of cruise after its first day: to the API server per pass, and to the audit per day, at 5,000 nodes.

Writes are those of a replay's second day, scaled to the number of nodes. The audit is that of a hundred nodes for a
day, with these writes and with one pod in a hundred skipped at every pass, alternately by one of two budgets.
"""

import asyncio
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import text

from benchmarks.recordings import DAY, make_recording
from benchmarks.table import BenchmarkRow, peak_memory_mib
from cruise.adapters.store.connection import Database
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.postgres import PostgresStore, open_store
from cruise.backtest.policies.policies import POLICIES
from cruise.backtest.recordings.recording import UsageRecording
from cruise.backtest.replay.policy import ReplayOptions
from cruise.backtest.replay.replay import replay_policy
from cruise.domain.actions import Action, ActionResult, ContainerTarget, Outcome, ReasonCode, ResizePod
from cruise.domain.cluster import ContainerRole, WorkloadRef
from cruise.domain.resources import MEBIBYTE, NO_RESOURCES, StatedResources
from cruise.runtime.writing.audit import AuditQueue

NAME = "writes"
NODES = 5_000
CONTAINERS = 1_500
AUDITED_NODES = 100
PODS_PER_NODE = 30
PASSES_A_DAY = 288
_SKIPPED_SHARE = 0.01
_STEP_SECONDS = 60
_MEBIBYTE = float(MEBIBYTE)
_SIZE = "SELECT count(*), count(*) FILTER (WHERE result = 'skipped'), pg_total_relation_size('audit') FROM audit"


def run() -> list[BenchmarkRow]:
    """Measure writes per pass, and rows and bytes per day."""
    resizes, evictions = _a_pass_and_node()
    rows = [
        BenchmarkRow(NAME, f"resizes a pass at {NODES:,} nodes, second day", resizes * NODES, ""),
        BenchmarkRow(NAME, "own evictions a pass", evictions * NODES, "", memory_mib=peak_memory_mib()),
    ]
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        count, skipped, size = asyncio.run(_audited(Path(directory), round(resizes * AUDITED_NODES)))
    scale = NODES / AUDITED_NODES
    rows.append(BenchmarkRow(NAME, "audit rows a day", count * scale, ""))
    rows.append(BenchmarkRow(NAME, "of them, rows of skipped pods", skipped * scale, ""))
    rows.append(BenchmarkRow(NAME, "audit and its indexes, a day", size / _MEBIBYTE * scale, "MiB"))
    return rows


def _a_pass_and_node() -> tuple[float, float]:
    """Return the resizes and own evictions of the second day, per pass and node."""
    recording = make_recording(CONTAINERS, 2, _STEP_SECONDS)
    two, one = _totals(recording), _totals(_first_day(recording))
    resizes, evictions, node_passes = (of_two - of_one for of_two, of_one in zip(two, one, strict=True))
    return resizes / node_passes, evictions / node_passes


def _totals(recording: UsageRecording) -> tuple[float, float, float]:
    """Return the numbers of resizes, own evictions and node passes."""
    options = ReplayOptions(with_both_consolidations=False)
    score = replay_policy(recording, POLICIES["cruise"](recording, options), options)
    days = score.container_days
    return (
        score.resizes_per_container_day * days,
        score.own_evictions_per_1000_pod_days / 1000 * days,
        score.nodes_mean * recording.days * PASSES_A_DAY,
    )


def _first_day(recording: UsageRecording) -> UsageRecording:
    rows = slice(0, DAY // recording.step_seconds)
    return UsageRecording(
        recording.name,
        recording.containers,
        recording.start,
        recording.step_seconds,
        recording.cpu_millicores[rows],
        recording.memory_bytes[rows],
    )


async def _audited(data_dir: Path, resizes_a_pass: int) -> tuple[int, int, int]:
    """Return the rows of a day's audit, those for skipped pods, and its bytes."""
    pods = AUDITED_NODES * PODS_PER_NODE
    start = datetime(2026, 1, 5, tzinfo=UTC)
    async with open_store(None, data_dir, print) as store:
        await _day(store, start, pods, resizes_a_pass)
        database = Database(EmbeddedPostgres(data_dir).dsn)
        async with database.transaction() as connection:
            [row] = await connection.execute(text(_SIZE))
        await database.close()
    return int(row[0]), int(row[1]), int(row[2])


async def _day(store: PostgresStore, start: datetime, pods: int, resizes_a_pass: int) -> None:
    audit, next_pod = AuditQueue(), 0
    skipped = range(round(pods * _SKIPPED_SHARE))
    for number in range(PASSES_A_DAY):
        now = start + timedelta(minutes=5 * number)
        budget = ReasonCode.NODE_EVICTION_BUDGET_SPENT if number % 2 else ReasonCode.HOURLY_EVICTION_BUDGET_SPENT
        for pod in skipped:
            audit.add(Outcome(now, _resize(pod), ActionResult.SKIPPED, budget))
        for _ in range(resizes_a_pass):
            next_pod = (next_pod + 1) % (pods - len(skipped))
            audit.add(Outcome(now, _resize(len(skipped) + next_pod), ActionResult.DONE, ReasonCode.RIGHTSIZED))
        await audit.record(store)


def _resize(pod: int) -> Action:
    requests, limits = StatedResources(130 + pod % 7, 512 * MEBIBYTE), StatedResources(None, 1024 * MEBIBYTE)
    name = f"service-{pod % 40:05d}-7d9f8b6c5-{pod:06x}"
    return ResizePod(
        f"team-{pod % 20:03d}",
        name,
        f"uid-{pod:08d}-0000-4000-8000-000000000000",
        f"node-{pod // PODS_PER_NODE:04d}",
        WorkloadRef("Deployment", f"service-{pod % 40:05d}"),
        (ContainerTarget("app", ContainerRole.MAIN, requests, limits),),
        NO_RESOURCES,
        ReasonCode.RIGHTSIZED,
    )
