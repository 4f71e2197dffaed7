"""The memory of `cruise serve` and `cruise webhook` at 5,000 nodes and 150,000 pods."""

import asyncio
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.api_stub import kubeconfig, running_api_stub
from benchmarks.bench_statistics_refresh import domain_snapshot, fill_last_hour
from benchmarks.snapshot_generator import generate_cluster, write_snapshot
from benchmarks.table import BenchmarkRow
from benchmarks.usage_stub import running_stub
from cruise.adapters.prometheus.settings import PrometheusSettings
from cruise.adapters.prometheus.source import PrometheusUsageSource
from cruise.adapters.store.embedded_postgres import EmbeddedPostgres
from cruise.adapters.store.postgres import open_store
from cruise.runtime.usage.usage_state import UsageState
from tests.prometheus_server import free_port

NAME = "processes"
NODES = 5_000
_TIMEOUT_SECONDS = 600.0


def run() -> list[BenchmarkRow]:
    """Measure resident and peak memory once the caches are filled, and the seconds until then."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        place = Path(directory)
        place.chmod(0o755)
        cluster = generate_cluster(NODES)
        snapshot = place / "cluster.json"
        write_snapshot(cluster, snapshot, pretty=False)
        with running_api_stub(snapshot) as api, running_stub(NODES) as prometheus:
            asyncio.run(_remember_an_hour(place, prometheus))
            (place / "kubeconfig").write_text(kubeconfig(api))
            return list(_measure(place, prometheus, cluster.pod_count))


async def _remember_an_hour(data_dir: Path, prometheus: str) -> None:
    """Fill the database like a process that ran until now."""
    at = int(time.clock_gettime(time.CLOCK_REALTIME)) // 60 * 60 - 60
    source = PrometheusUsageSource(PrometheusSettings(prometheus))
    async with open_store(None, data_dir, print) as store:
        await fill_last_hour(domain_snapshot(generate_cluster(NODES)), source, store, UsageState(), at)
    source.close()


def _measure(place: Path, prometheus: str, pods: int) -> Iterator[BenchmarkRow]:
    settings = {
        "KUBECONFIG": str(place / "kubeconfig"),
        "DATA_DIR": str(place),
        "PROMETHEUS_URL": prometheus,
        "MODE": "observe",
        "PASS_INTERVAL": "1m",
        "LOG_FORMAT": "json",
    }
    with _running("serve", settings, place) as (serve, address, log):
        seconds = _wait(lambda: '"event": "node pass"' in log.read_text(), serve, log)
        yield from _rows("serve, after its first pass", serve, pods, seconds)
        _wait(lambda: log.read_text().count('"event": "usage pass"') >= 2, serve, log)
        yield from _rows("serve, after a second refresh", serve, pods, None)
        environment = {**settings, "DATABASE_URL": EmbeddedPostgres(place).dsn, "TLS_DIR": str(place / "tls")}
        with _running("webhook", environment, place) as (webhook, address, webhook_log):
            seconds = _wait(lambda: _answers(f"https://{address}/readyz"), webhook, webhook_log)
            time.sleep(5)
            yield from _rows("webhook", webhook, pods, seconds)


def _rows(what: str, process: "subprocess.Popen[bytes]", pods: int, seconds: float | None) -> Iterator[BenchmarkRow]:
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
    resident, most = (int(status[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM"))
    yield BenchmarkRow(NAME, f"{what}, {pods:,} pods: resident", resident, "MiB", memory_mib=most)
    if seconds is not None:
        yield BenchmarkRow(NAME, f"{what}: from its start", seconds, "s")


@contextmanager
def _running(
    command: str, settings: Mapping[str, str], place: Path
) -> Iterator[tuple["subprocess.Popen[bytes]", str, Path]]:
    address, log = f"127.0.0.1:{free_port()}", place / f"{command}.log"
    where = "HTTP_ADDRESS" if command == "serve" else "WEBHOOK_ADDRESS"
    environment = {f"CRUISE_{name}": text for name, text in {**settings, where: address}.items()}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "cruise", command],
            env={"PATH": "/usr/bin:/bin", "HOME": str(place), **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process, address, log
    finally:
        process.terminate()
        process.wait(60)


def _wait(done: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> float:
    """Wait, and return the seconds."""
    started = time.monotonic()
    while not done():
        if process.poll() is not None or time.monotonic() - started > _TIMEOUT_SECONDS:
            raise RuntimeError(log.read_text()[-3000:])
        time.sleep(0.1)
    return time.monotonic() - started


def _answers(url: str) -> bool:
    unchecked = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(url, timeout=2, context=unchecked) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
